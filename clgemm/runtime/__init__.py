"""From a plan to OpenCL: array types, programs, scratch memory, launches, events."""
