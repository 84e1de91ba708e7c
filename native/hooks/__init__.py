"""Hooks that begin a recording at the first use of a framework."""
