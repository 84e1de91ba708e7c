"""Run store -> Report, by Polars queries. Opens no file, knows no HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import Options

if TYPE_CHECKING:
    from ..ingest.store.store import Store
    from .report.model import Report

__all__ = ["Options", "analyze"]


def analyze(store: Store, options: Options = Options()) -> Report:  # noqa: B008  (Options is frozen)
    """Everything the report shows of the run in ``store``. Equal stores and options give equal reports.

    What the run does not have is an empty tuple, None, or a sentence in ``absent``; no figure is made up. The store is only read.
    """
    from .assemble import assemble

    return assemble(store, options)
