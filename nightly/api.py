"""A night from Python: the use case of `postrun nightly` without its command line."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from ..errors import UsageError
from . import engines, partials
from . import run_night as course
from .history import Finding, Settings
from .index import Book
from .model import ReportOptions, Row
from .night import Wanted
from .pool import processors
from .work import report_run

_SPLIT_ABOVE: Final = 4_000_000_000  # bytes; as --split-above


@dataclass(frozen=True, slots=True)
class NightResult:
    """The result of a night. ``reported``, ``failed``: rows of the runs of this night, and of nights that were killed before they returned.

    ``rows``: of every run in the index, by id. ``regressions``: those that alarm. ``index``: address of index.html.
    ``stopped``: why the night ended early, or None.
    """

    reported: tuple[Row, ...]
    failed: tuple[Row, ...]
    rows: Mapping[str, Row]
    regressions: tuple[Finding, ...]
    index: str
    stopped: str | None


def run_night(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    options: ReportOptions = ReportOptions(),  # noqa: B008  (frozen)
    settings: Settings = Settings(),  # noqa: B008  (frozen)
    executor: Executor | None = None,
    workers: int | None = None,
    timeout_s: float = 3600.0,
    settle_s: float = 600.0,
    limit: int | None = None,
    force: bool = False,
    retry_failed: bool = False,
    redo: bool = False,
    base_url: str | None = None,
) -> NightResult:
    """Report every new or changed run below ``source``, and write the index.

    docs/nightly.md describes a night. ``source``, ``out``: folders or URLs. ``options``: of each report. ``settings``: of families and
    regressions. ``executor``: any executor of ``concurrent.futures``, whose workers can import postrun and reach both places; it stays
    open, and time limits are its own. None: processes of this machine, ``workers`` of them (None: one per processor), with ``timeout_s``
    for each run. ``settle_s``: a run without an end marker has ended when nothing was written to it for this long. ``base_url``: template
    of addresses in the index.

    Raises postrun.errors.PostrunError: InputError if a place cannot be used, UsageError for a mistake in the arguments.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers: {workers} is too few; give at least 1, or None for one per processor")
    source_place, out_place = course.places_of(os.fspath(source), os.fspath(out))
    wanted = Wanted(
        source_place, out_place, options, time.time_ns(), round(settle_s * 1e9), limit=limit, in_flight=2 * (workers or processors()),
        force=force, retry_failed=retry_failed, redo=redo,
    )  # fmt: skip
    book = Book(settings, every_run=True, redact=options.redact, look=options.look, base_url=base_url)

    def opened() -> AbstractContextManager[Executor]:
        if executor is not None:
            return nullcontext(executor)
        memory = course.share_of_memory(workers)
        pool = engines.executor("processes", workers=workers, timeout_s=timeout_s, memory_bytes=memory)
        return partials.splitting(pool, _SPLIT_ABOVE)

    with course.full_night(wanted, course.Parts(book.known, book.write, opened, report_run, book.refused)) as result:
        rows = (*result.night.rows, *result.taken_over)
    return NightResult(
        reported=tuple(row for row in rows if row.state == "reported"),
        failed=tuple(row for row in rows if row.state == "failed"),
        rows=result.rows,
        regressions=result.index.new,
        index=f"{out_place.rstrip('/')}/index.html",
        stopped=result.night.stopped,
    )
