"""Telling whether a result is finite."""
