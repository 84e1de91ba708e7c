"""Work of operators and kernels against the peaks of the device, and the modules and lines that it comes from."""
