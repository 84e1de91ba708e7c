"""Run store -> Report, by Polars queries. Opens no file, knows no HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import Options

if TYPE_CHECKING:
    from ..ingest.store.store import Store
    from .report.model import Report

__all__ = ["Options", "analyze"]


def analyze(store: Store, options: Options = Options()) -> Report:  # noqa: B008  (Options is frozen)
    """Analyze the run in ``store``, which is only read.

    Equal stores and options give equal reports. Figures that the run does not have are an empty tuple, None, or a sentence in ``absent``.
    """
    from .assemble import assemble

    return assemble(store, options)
