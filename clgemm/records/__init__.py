"""What tuning found: the format, what ships with clgemm, the user's own, and the look-up."""
