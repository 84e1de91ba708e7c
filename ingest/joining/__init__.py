"""Sources of the same machine, process, or clock -> one run."""
