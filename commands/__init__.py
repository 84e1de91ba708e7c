"""The commands of the command line, one per file: options -> calls of the package -> printed result, exit code."""
