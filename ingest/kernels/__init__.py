"""Kernel names -> category, precision, short name."""
