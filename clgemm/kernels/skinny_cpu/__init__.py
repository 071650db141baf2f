"""Products with few rows or columns, for CPUs."""
