"""OpenCL runtimes and devices: finding them, checking that they work, choosing one."""
