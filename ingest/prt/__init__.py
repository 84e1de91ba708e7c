"""Recordings of the capture library -> rows."""
