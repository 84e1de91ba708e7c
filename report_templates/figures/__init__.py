"""Figures: data -> SVG as text."""
