"""Facts that only the whole run shows: steps, ranks, classes of kernels, plausibility."""
