"""Which clock do sources get whose times have no epoch: by events or the GPUs' utilisation that other sources have, too?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from .clock_offset import Offset, Unclear, busy_offset, event_offset, series_of, step_offset, told
from .gpu_activity import MOST_GPUS, MOST_SAMPLES, device_activity
from .source_rows import Clock, SourceRows, Sources, processes

_MOST_KERNELS: Final = 2_000_000
_KERNEL_SPREAD_NS: Final = 10**6


def settle_relative(run: Sources) -> None:
    """Sources without an epoch get the clock of the others, where events of both or the GPUs' utilisation tell it."""
    relative = [source for source in run.sources if source.result.relative and source.rows]
    others = [source for source in run.sources if not source.result.relative and source.result.first_ns is not None]
    if not relative or not (others or run.logs.logs):
        return
    for source in relative:
        found = _relate(run, source, others)
        if isinstance(found, Unclear):
            text = f"The times of {source.file} have no epoch and could not be related to those of the other files: {found.reason}."
            run.store.note("warning", "clock_unknown", text, source=source.id, file=source.file)
            continue
        shift(run, source, found.shift_ns)
        within = f"{found.evidence}, +/- {told(found.uncertainty_ns)[1:]}"
        run.clocks[source.id] = Clock(found.shift_ns, within)
        text = f"Times of {source.file} have no epoch; they were shifted to those of the other files ({within})."
        run.store.note("info", "clock_shifted", text, source=source.id, file=source.file)


def _relate(run: Sources, source: SourceRows, others: Sequence[SourceRows]) -> Offset | Unclear:
    reasons = []
    for other in others:
        if other.rows and other.format in run.tracers and (common := _same_process(run, source, other)):
            found = _by_kernels(run, source, other, common)
            if isinstance(found, Offset):
                return found
            reasons.append(found.reason)
    found = _by_steps(run, source)
    if isinstance(found, Offset):
        return found
    reasons.append(found.reason)
    found = _by_samples(run, source)
    return found if isinstance(found, Offset) else Unclear("; ".join(dict.fromkeys([*reasons, found.reason])))


def _same_process(run: Sources, one: SourceRows, other: SourceRows) -> set[int]:
    """Processes of which both have device events."""
    return processes(run, one, "device_event") & processes(run, other, "device_event")


def _by_kernels(run: Sources, one: SourceRows, other: SourceRows, common: set[int]) -> Offset | Unclear:
    """Three kernels in a row of the same names and durations (to the microsecond) that both have exactly once."""
    keys: list[dict[Any, int]] = []
    for source in (one, other):
        first, last = source.rows["device_event"]
        rows = run.store.frame(
            f"""
            WITH kernel AS (
                SELECT device, start_ns, (n.text, duration_ns // 1000) AS what FROM device_event JOIN name AS n ON n.id = name
                WHERE device_event.rowid >= {first} AND device_event.rowid < {last} AND kind = 'kernel'
                    AND process IN ({", ".join(map(str, sorted(common)))}) LIMIT {_MOST_KERNELS}
            ), chain AS (
                SELECT start_ns, hash(device, what, lead(what) OVER here, lead(what, 2) OVER here) AS key FROM kernel
                WINDOW here AS (PARTITION BY device ORDER BY start_ns)
            )
            SELECT key, min(start_ns) AS start_ns FROM chain GROUP BY key HAVING count(*) = 1
            """
        )
        keys.append(dict(rows.rows()))
    return event_offset(keys[0], keys[1], closest_ns=_KERNEL_SPREAD_NS, what="kernels")


def _by_steps(run: Sources, source: SourceRows) -> Offset | Unclear:
    first, last = source.rows.get("annotation", (0, 0))
    reasons = ["no other source has steps of the same process"]
    for process in sorted(processes(run, source, "annotation")):
        mine, theirs = (
            {
                value: (start, duration)
                for value, start, duration in run.store.frame(
                    f"""
                    SELECT a.value, min(a.start_ns), any_value(a.duration_ns) FROM annotation AS a JOIN name AS n ON n.id = a.name
                    WHERE a.process = ? AND a.value IS NOT NULL AND a.complete AND coalesce(a.side, 'host') = 'host'
                        AND (regexp_matches(n.text, '^(step[_ -]?\\d*|ProfilerStep#\\d+)$')
                            OR starts_with(coalesce(a.phase, ''), 'Step:ModeKeys.TRAIN'))
                        AND {"" if own else "NOT "}(a.rowid >= {first} AND a.rowid < {last})
                    GROUP BY a.value HAVING count(*) = 1
                    """,
                    [process],
                ).rows()
            }
            for own in (True, False)
        )
        if not mine or not theirs:
            continue
        found = step_offset(mine, theirs)
        if isinstance(found, Offset):
            return found
        reasons = [found.reason]
    return Unclear(reasons[0])


def _by_samples(run: Sources, source: SourceRows) -> Offset | Unclear:
    """The GPUs' utilisation that others sampled against the activity that this source has."""
    rows = source.rows.get("device_event", (0, 0))
    if rows[0] >= rows[1]:
        return Unclear("it has no device activity")
    series, activity = [], []
    for node, device in run.store.frame(
        "SELECT DISTINCT node, device FROM device_event WHERE rowid >= ? AND rowid < ? AND device IS NOT NULL ORDER BY ALL", list(rows)
    ).rows()[:MOST_GPUS]:
        sampled = run.store.frame(
            "SELECT time_ns, value FROM sample WHERE node = ? AND unit = ? AND metric = 'gpu_utilization' AND isfinite(value)"
            f" ORDER BY time_ns LIMIT {MOST_SAMPLES}",
            [node, device],
        )
        known = device_activity(run.store, node, device, rows)
        if sampled.height and known is not None:
            series.append(series_of(sampled["time_ns"].to_numpy(), sampled["value"].to_numpy()))
            activity.append(known)
    if not series:
        return Unclear("no other source sampled its GPUs with times of the epoch")
    found = busy_offset(series, activity)
    return replace(found, shift_ns=-found.shift_ns) if isinstance(found, Offset) else found


def shift(run: Sources, source: SourceRows, by: int) -> None:
    """Add nanoseconds to all times that a source brought."""
    for table, (first, last) in source.rows.items():
        if first < last:
            time = "time_ns" if table == "sample" else "start_ns"
            run.store.connection.execute(f"UPDATE {table} SET {time} = {time} + ? WHERE rowid >= ? AND rowid < ?", [by, first, last])
    run.store.connection.execute(
        "UPDATE profile_window SET first_ns = first_ns + $by, last_ns = last_ns + $by, on_ns = on_ns + $by, off_ns = off_ns + $by"
        " WHERE source = $source",
        {"by": by, "source": source.id},
    )
    result = run.results[source.id]
    if result.first_ns is not None and result.last_ns is not None:
        moved = replace(result, first_ns=result.first_ns + by, last_ns=result.last_ns + by, relative=False)
        run.results[source.id] = source.result = moved
