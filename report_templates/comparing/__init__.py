"""The sections of a comparison of two runs, one per file."""
