"""Products by an operand of few rows, for devices that spread work-items over lanes."""
