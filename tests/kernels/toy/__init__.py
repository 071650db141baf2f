"""A family for a test: products of seven rows, an element of C for each work-item."""
