"""From a plan to OpenCL: programs, scratch memory, launches, transfers, the call cache."""
