"""Blocks in vector registers, for CPUs."""
