"""Versions: of the package, as in pyproject.toml, and of the content of its reports."""

from typing import Final

__version__ = "0.1.0"
REPORT: Final = 1
"""Raise this when a release changes the content of a report on the same files, or its layout: `postrun nightly --redo` makes the reports of
earlier numbers again."""
