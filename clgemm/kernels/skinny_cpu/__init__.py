"""Products by an operand of few rows, for CPUs."""
