"""Traces of PyTorch's profiler -> rows."""
