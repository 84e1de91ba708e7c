"""Choosing, running, and ranking rules."""
