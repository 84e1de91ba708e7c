"""Two runs -> Comparison: what changed, and whether the runs are alike."""
