"""By how much are the times of GPU monitors' logs that say no zone shifted to the clock of the run?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .clock_offset import (
    DOUBTFUL_CORRELATION,
    DOUBTFUL_SAMPLES,
    FURTHEST_ZONE_NS,
    SECOND,
    ZONES,
    Activity,
    Offset,
    Series,
    Unclear,
    busy_offset,
    commensurate,
    series_of,
    told,
    zone_of,
    zone_offset,
)
from .gpu_activity import MOST_GPUS, MOST_SAMPLES, gpu_activity
from .gpu_log import Log, Placed
from .gpu_log_name import HOW_TO_NAME
from .source_rows import Clock, Sources
from .store_tables import Severity
from .trace_limits import YEAR_2001_NS


def settle_logs(run: Sources) -> None:
    """One clock for the logs of GPUs and the rest of the run; then their rows become samples."""
    shifts: dict[int, int] = {}
    for log in run.logs.logs:
        if log.zoned or log.first_ns is None or log.last_ns is None:
            continue
        placed = [one for one in run.logs.placed if one.log is log]
        found, doubt = _fit(run, placed)
        if doubt is not None and log.source in run.logs.guessed:
            (node,) = run.store.frame("SELECT hostname FROM node WHERE id = ?", [placed[0].node]).row(0)
            text = (
                f"The log may be of another machine than {node}: {doubt.reason} over {doubt.samples:,} samples, and it names no"
                f" machine. {HOW_TO_NAME}"
            )
            _note_log(run, "warning", "machine_doubtful", text, log)
        others = _run_span(run, log.source)
        here = (log.first_ns, log.last_ns)
        if isinstance(found, Offset):
            best, zone = found, zone_of(found)
            if zone is None:
                text = (
                    f"The log's times have no zone. Its utilisation fits the GPUs' activity best when shifted by {told(best.shift_ns)}"
                    f" ({best.evidence}), but no time zone ({ZONES}) is within a minute of that: its clock may have been"
                    " wrong, or it may be of another run or machine. Its times were taken for UTC and not shifted. Log with TZ=UTC."
                )
                _note_log(run, "warning", "clock_doubtful", text, log)
                continue
            found = zone
            if not found.shift_ns:
                text = f"The log's times have no zone; taken for UTC they fit the GPUs' activity ({found.evidence})."
                _note_log(run, "info", "clock_agrees", text, log)
                continue
        elif others is not None and not (here[0] <= others[1] and others[0] <= here[1]):
            why = found.reason
            found = zone_offset(here, others)
            if isinstance(found, Unclear):
                text = (
                    "The log's times have no zone; taken for UTC they are not of the time of the run, and which zone they are of"
                    f" cannot be told: {found.reason}; {why}. They were not shifted. Log with TZ=UTC."
                )
                _note_log(run, "warning", "clock_unknown", text, log)
                continue
            found = replace(found, evidence=f"{found.evidence}; the utilisation does not tell: {why}")
        else:
            reason = f": {found.reason}" if others is not None else ""
            text = f"The log's times have no zone; they are taken for UTC, and were not checked against other sources{reason}."
            _note_log(run, "info", "times_without_zone", text, log)
            continue
        shifts[log.source] = found.shift_ns
        within = f", +/- {told(found.uncertainty_ns)[1:]}" if found.uncertainty_ns else ""
        run.clocks[log.source] = Clock(found.shift_ns, f"{found.evidence}{within}")
        text = f"Times of {log.file} were shifted by {told(found.shift_ns)} ({found.evidence}{within}): the log's times have no zone."
        _note_log(run, "info" if found.uncertainty_ns else "warning", "clock_shifted", text, log)
    run.results.update(run.logs.store_samples(shifts, zoned=False))


def _note_log(run: Sources, severity: Severity, code: str, text: str, log: Log) -> None:
    run.store.note(severity, code, text, source=log.source, file=log.file)


def _fit(run: Sources, placed: Sequence[Placed]) -> tuple[Offset | Unclear, Unclear | None]:
    """The utilisation of a log against what the other sources know of the same GPUs; second, what speaks against the same machine."""
    series: list[Series] = []
    activity: list[Activity] = []
    for one in placed:
        for gpu in one.gpus[:MOST_GPUS]:
            known = gpu_activity(run.store, one.node, gpu.unit)
            if known is None:
                continue
            # A temporary table is of the connection alone.
            rows = run.store.connection.sql(
                "SELECT time_ns, value FROM log_sample WHERE log = ? AND gpu = ? AND metric = 'gpu_utilization' AND isfinite(value)"
                f" ORDER BY time_ns LIMIT {MOST_SAMPLES}",
                params=[one.log.source, gpu.number],
            ).pl()
            if rows.height:
                series.append(series_of(rows["time_ns"].to_numpy(), rows["value"].to_numpy()))
                activity.append(known)
    if not series:
        return Unclear("no other source knows the activity of these GPUs"), None
    furthest = FURTHEST_ZONE_NS + 60 * SECOND
    found = busy_offset(series, activity, furthest_ns=furthest)
    if isinstance(found, Offset):
        return found, None
    doubt = found if found.samples >= DOUBTFUL_SAMPLES and found.correlation < DOUBTFUL_CORRELATION else None
    # Clocks of one machine differ by their time zone alone.
    zone = busy_offset(series, activity, furthest_ns=furthest, zones=True)
    if isinstance(zone, Offset) and found.period_ns is not None and commensurate(found):
        period = told(found.period_ns)[1:]
        zone = Unclear(f"{found.reason}; the load repeats every {period}, so that all quarter hours fit alike, and others between them")
    return zone, doubt


def _run_span(run: Sources, source: int) -> tuple[int, int] | None:
    """From when to when the other sources with times of the epoch recorded."""
    logs = {log.source for log in run.logs.logs if not log.zoned}
    spans = [
        (result.first_ns, result.last_ns)
        for other, result in run.results.items()
        if other != source and other not in logs and not result.relative and result.first_ns is not None and result.last_ns is not None
    ]
    spans = [span for span in spans if span[0] >= YEAR_2001_NS]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
