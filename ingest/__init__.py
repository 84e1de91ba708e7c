"""Any supported trace files -> run store (DuckDB)."""
