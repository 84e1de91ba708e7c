"""`postrun record`: runs a command and records it."""
