"""Trace text of Chrome's format: bytes -> columns; shared by all readers of such traces."""
