"""Tuning records: their format, the shipped ones, the user's own, and their look-up."""
