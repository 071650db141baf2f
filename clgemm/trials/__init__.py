"""What child processes do: they try kernels on a device, build them and time products."""
