"""Clocks of the sources of one run: offsets are applied, and notes name the sources whose clock no file states.

A source is shifted as the user states (``--clock-offset``). A source without an epoch is also shifted to another source that has the same
kernels: equal names, durations, GPUs and correlations, all at one distance to the nanosecond.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from ...errors import UsageError
from ..chrome_trace.cycle_ids import CYCLE_IDS
from ..store.time_limits import EARLIEST_NS, LATEST_NS, YEAR_2001_NS
from .same_work import LEAST_EVENTS, identical_events
from .sources import Clock, SourceFile, Sources, processes, tracer_pairs

STATED: Final = "stated with --clock-offset"


def shift_stated(run: Sources) -> None:
    """Add the stated offsets to the times of sources.

    Raises UsageError if a source has no times or they would be out of range.
    """
    logs = {log.source: log for log in run.logs.logs}
    for source in run.sources:
        if (by := run.statements.offsets_ns.get(source.id)) is None:
            continue
        result = source.result
        if result.first_ns is None or result.last_ns is None:
            raise UsageError(f"--clock-offset {source.file}: the file has no times; leave it out")
        if result.first_ns + by < EARLIEST_NS or result.last_ns + by > LATEST_NS:
            raise UsageError(f"--clock-offset {source.file}: its times would be out of range; check the number and its unit")
        if (log := logs.get(source.id)) is not None:
            run.logs.shift(log, by)
        _shift(run, source, Clock(by, STATED))
        text = f"Times of {source.file} were shifted by {Decimal(by).scaleb(-9).normalize():+f} s, as stated with --clock-offset."
        run.store.note("info", "clock_shifted", text, source=source.id, file=source.file)


def shift_identical(run: Sources) -> None:
    """Shift sources without an epoch to a source with the same kernels of the process.

    An example is a complete copy of a damaged trace.
    """
    traced = [source for source in run.sources if source.format in run.tracers or source.id in run.statements.sources]
    for source in [source for source in traced if source.result.relative]:
        for target in traced:
            if target.result.relative or not processes(run, target, "device_event") & processes(run, source, "device_event"):
                continue
            count, offsets, by = run.store.frame(_SAME_KERNELS, [source.id, target.id]).row(0)
            if count >= LEAST_EVENTS and offsets == 1:
                evidence = f"{count:,} identical kernels of {target.file}"
                _shift(run, source, Clock(by, evidence))
                text = f"Times of {source.file} have no epoch; they were shifted to those of {target.file} ({count:,} identical kernels)."
                run.store.note("info", "clock_shifted", text, source=source.id, file=source.file)
                break


# Kernels that are unique in each of two sources: how many are in both, how many different distances they have, and any distance.
_SAME_KERNELS: Final = (
    "WITH "
    + ", ".join(
        f"""{side} AS (
        SELECT process, device, name, duration_ns, correlation % {CYCLE_IDS} AS id, min(start_ns) AS start_ns FROM device_event
        WHERE source = ? AND kind = 'kernel' AND process IS NOT NULL GROUP BY ALL HAVING count(*) = 1
    )"""
        for side in ("mine", "theirs")
    )
    + """
SELECT count(*), count(DISTINCT theirs.start_ns - mine.start_ns), any_value(theirs.start_ns - mine.start_ns)
FROM mine JOIN theirs USING (process, device, name, duration_ns, id)
"""
)


def _shift(run: Sources, source: SourceFile, clock: Clock) -> None:
    by, result = clock.offset_ns, source.result
    run.store.connection.execute("UPDATE source_map SET shift_ns = shift_ns + ? WHERE source = ?", [by, source.id])
    run.store.connection.execute("UPDATE python_window SET start_ns = start_ns + ? WHERE source = ?", [by, source.id])
    run.store.connection.execute("UPDATE compilation SET start_ns = start_ns + ? WHERE source = ?", [by, source.id])
    run.store.connection.execute(
        "UPDATE profile_window SET first_ns = first_ns + $by, last_ns = last_ns + $by, on_ns = on_ns + $by, off_ns = off_ns + $by"
        " WHERE source = $source",
        {"by": by, "source": source.id},
    )
    if result.first_ns is not None and result.last_ns is not None:
        source.result = replace(result, first_ns=result.first_ns + by, last_ns=result.last_ns + by, relative=False)
    run.results[source.id] = source.result
    run.clocks[source.id] = clock


def note_clocks(run: Sources) -> None:
    """Note the sources whose times cannot be related to those of the others."""
    _note_relative(run)
    _note_zones(run)
    _note_tracers(run)


def _note_relative(run: Sources) -> None:
    if all(source.result.relative or source.result.first_ns is None for source in run.sources):
        return
    for source in run.sources:
        if source.result.relative and source.result.events:
            text = (
                f"The times of {source.file} have no epoch and cannot be related to those of the other files. If you know when its time 0"
                f" was, state it in seconds since 1970: --clock-offset {source.file}=SECONDSs."
            )
            run.store.note("warning", "clock_unknown", text, source=source.id, file=source.file)


def _note_zones(run: Sources) -> None:
    """Note logs without a time zone. Their times count as UTC."""
    for log in run.logs.logs:
        if log.zoned or log.source in run.clocks or log.first_ns is None or log.last_ns is None:
            continue
        span, evidence = _span_of_others(run, log.source), ""
        if span is not None and (log.last_ns < span[0] or span[1] < log.first_ns):
            times, others = (f"{_utc(first)} to {_utc(last)}" for first, last in ((log.first_ns, log.last_ns), span))
            evidence = f": {times}. That is not the time of the other files ({others})"
        text = (
            f"The log's times have no zone and count as UTC{evidence}. If they are local times, state what to add, such as"
            f" --clock-offset {log.file}=-2h, or log with TZ=UTC."
        )
        code = "clock_unknown" if evidence else "times_without_zone"
        run.store.note("warning" if evidence else "info", code, text, source=log.source, file=log.file)


def _span_of_others(run: Sources, source: int) -> tuple[int, int] | None:
    """Return first and last time of the sources with an epoch and a zone, or None."""
    excluded = {source} | {log.source for log in run.logs.logs if not log.zoned and log.source not in run.clocks}
    spans = [
        (result.first_ns, result.last_ns)
        for number, result in run.results.items()
        if number not in excluded and not result.relative and result.first_ns is not None and result.last_ns is not None
        if result.first_ns >= YEAR_2001_NS
    ]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def _note_tracers(run: Sources) -> None:
    """Note two tracers of a process without a common event: one clock may be off."""
    for left, right in tracer_pairs(run):
        if left.result.relative or right.result.relative or {left.id, right.id} & run.clocks.keys():
            continue
        common = processes(run, left, "device_event") & processes(run, right, "device_event")
        if common and not any(identical_events(run, left, right, process, process) for process in sorted(common)):
            text = (
                f"{left.file} and {right.file} recorded GPU activity of the same process and have no events in common. If they recorded the"
                f" same time, their clocks differ; state the difference, such as --clock-offset {left.file}=1.5s."
            )
            run.store.note("info", "clock_doubtful", text, source=left.id, file=left.file)


def _utc(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
