"""Host arrays to a device with memory of its own, and back."""
