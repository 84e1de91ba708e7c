"""The rules, one per file: run data -> outcome."""
