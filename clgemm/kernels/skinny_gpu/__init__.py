"""Products with few rows or columns, for devices that spread work-items over lanes."""
