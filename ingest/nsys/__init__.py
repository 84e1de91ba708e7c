"""Exports of Nsight Systems -> rows."""
