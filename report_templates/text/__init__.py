"""Words, numbers, and signs of reports."""
