"""The run as a whole: its identity, its phases, and the first page."""
