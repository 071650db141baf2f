"""Host arrays to devices with memory of their own, and back."""
