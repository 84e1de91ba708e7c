"""The data of a run as rules look at it."""
