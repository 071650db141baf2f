"""The choice between host and device: measured times, decided in one place."""
