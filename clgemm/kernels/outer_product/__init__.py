"""Products with a short k, for devices that spread work-items over lanes."""
