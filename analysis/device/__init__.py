"""GPU activity: kernels, launches, copies, collectives, idle time."""
