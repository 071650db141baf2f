"""From a plan to OpenCL: programs, memory, launches."""
