"""From a product's shapes and a device to a plan: which family, which config, which launches."""
