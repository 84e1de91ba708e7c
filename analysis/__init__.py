"""Run store -> Report, by Polars queries. Opens no file, knows no HTML."""
