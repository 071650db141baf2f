"""The kernel families: a folder for each, with its configs, its plans and its OpenCL C."""
