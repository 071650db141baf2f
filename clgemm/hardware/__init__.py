"""OpenCL runtimes and devices: find them, check that they work, choose one."""
