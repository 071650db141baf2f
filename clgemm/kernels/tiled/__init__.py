"""Tiles in local memory, for GPUs."""
