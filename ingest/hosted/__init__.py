"""Files of the hosted profiler -> samples and timelines."""
