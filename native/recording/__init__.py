"""The low half of the capture API: the C library, and what surrounds it in Python."""
