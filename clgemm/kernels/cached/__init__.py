"""Products of panels that are read through the caches: no local memory."""
