"""Report -> HTML, PDF, JSON. Computes nothing that is not formatting."""
