"""Adding up the parts of a product whose k is cut."""
