"""A report on a ticket: what is sent, where to, and how it looks there."""
