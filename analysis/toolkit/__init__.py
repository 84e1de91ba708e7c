"""Intervals, quantiles, names, and words for all parts of the analysis."""
