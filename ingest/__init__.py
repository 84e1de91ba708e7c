"""Any supported trace files -> run store (DuckDB)."""

from .load import ingest, summary

__all__ = ["ingest", "summary"]
