"""``python -m clgemm verify``: runs clgemm's contract on a device and writes a record of it."""
