"""A whole run for other tools: Perfetto, Chrome's trace format, Parquet, CSV."""
