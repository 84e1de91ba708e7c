"""Training steps: ranges, times, parts, and ranks compared."""
