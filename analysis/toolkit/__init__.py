"""Intervals, quantiles, names, and words that all analyses use."""
