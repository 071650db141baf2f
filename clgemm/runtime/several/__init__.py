"""Products of host arrays that several devices share."""
