"""Packing: operands copied into panels."""
