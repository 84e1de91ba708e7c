"""Which rows count where two tracers recorded the same work of the devices?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .source_rows import TABLES, SourceRows, Sources, operators
from .store_tables import SCHEMA

LEAST_SAME: Final = 8
"""Kernels of two sources that are compared; of fewer it is not told whether they are the same."""


def leave_out_twice(run: Sources) -> None:
    """Device activity of one process and time that two tracers have counts once: that of the one that knows operators."""
    tracers = [source for source in run.sources if source.format in run.tracers and source.rows]
    if len(tracers) < 2:
        return
    _other_process(run, tracers)
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for source in tracers:
        first, last = source.rows.get("device_event", (0, 0))
        if first < last:
            for process, start, end in run.store.frame(
                "SELECT process, min(start_ns), max(start_ns + duration_ns) FROM device_event WHERE rowid >= ? AND rowid < ?"
                " AND process IS NOT NULL GROUP BY process",
                [first, last],
            ).rows():
                spans[source.id, process] = (start, end)
    for place, source in enumerate(tracers):
        for other in tracers[place + 1 :]:
            for process in sorted({process for one, process in spans if one == source.id} & {p for one, p in spans if one == other.id}):
                mine, theirs = spans[source.id, process], spans[other.id, process]
                first, last = max(mine[0], theirs[0]), min(mine[1], theirs[1])
                shorter = min(mine[1] - mine[0], theirs[1] - theirs[0])
                # Files of one profiler that follow each other may touch.
                if last - first > (0.5 * shorter if source.format == other.format else 0):
                    _leave_out(run, source, other, process, (first, last))
    _note_other_gpus(run, tracers)


def _other_process(run: Sources, tracers: Sequence[SourceRows]) -> None:
    """Device activity that two tracers have under different processes counts once: a trace that was made of an export can hold several
    processes and names one. The same starts and durations to the nanosecond on one device are no coincidence, so names, which other
    tools shorten, are not asked for. What stays is of the source that tells more processes apart."""
    work = _work(run, tracers)
    for place, source in enumerate(tracers):
        for other in tracers[place + 1 :]:
            several = {one.id: len({process for _, _, process, *_ in work[one.id]}) for one in (source, other)}
            stays, goes = (source, other) if several[source.id] >= several[other.id] else (other, source)
            for node, device, process, first, last, count in work[goes.id]:
                for where, unit, theirs, begin, end, many in work[stays.id]:
                    apart = (where, unit) != (node, device) or theirs == process or begin >= last or first >= end
                    if (
                        not apart
                        and min(count, many) >= LEAST_SAME
                        and _same_work(run, goes, stays, (node, device, process), (where, unit, theirs))
                    ):
                        _leave_same(run, goes, stays, device, process, theirs)


def _work(run: Sources, tracers: Sequence[SourceRows]) -> dict[int, list[tuple[int, int, int, int, int, int]]]:
    """By source: node, device, process, first start, last end and number of the kernels of each process on each device."""
    query = (
        "SELECT node, device, process, min(start_ns), max(start_ns + duration_ns), count(*) FROM device_event"
        " WHERE rowid >= ? AND rowid < ? AND kind = 'kernel' AND process IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    return {one.id: run.store.frame(query, list(one.rows.get("device_event", (0, 0)))).rows() for one in tracers}


def _same_work(run: Sources, goes: SourceRows, stays: SourceRows, mine: Sequence[int], theirs: Sequence[int]) -> bool:
    """Whether nearly all of the first kernels that one source has in the time of the other's are the other's, too. ``mine``, ``theirs``:
    node, device and process."""
    rows, others = goes.rows["device_event"], stays.rows["device_event"]
    many, same = run.store.frame(
        """
        WITH theirs AS (
            SELECT start_ns, duration_ns FROM device_event
            WHERE rowid >= ? AND rowid < ? AND node = ? AND device = ? AND process = ? AND kind = 'kernel'
        ), mine AS (
            SELECT start_ns, duration_ns FROM device_event
            WHERE rowid >= ? AND rowid < ? AND node = ? AND device = ? AND process = ? AND kind = 'kernel'
                AND start_ns BETWEEN (SELECT min(start_ns) FROM theirs) AND (SELECT max(start_ns) FROM theirs)
            ORDER BY start_ns LIMIT 1000
        )
        SELECT count(*), count(*) FILTER ((start_ns, duration_ns) IN (SELECT (start_ns, duration_ns) FROM theirs)) FROM mine
        """,
        [*others, *theirs, *rows, *mine],
    ).row(0)
    return bool(many >= LEAST_SAME and same >= 0.9 * many)


def _note_other_gpus(run: Sources, tracers: Sequence[SourceRows]) -> None:
    """A warning where tracers of two formats have the same kernels at the same times on GPUs of different numbers, as where every
    container calls its own GPU 0: whether that is one GPU cannot be told, so both count."""
    work = _work(run, tracers)
    for place, source in enumerate(tracers):
        for other in tracers[place + 1 :]:
            if other.format == source.format:
                continue
            found = [
                (mine, theirs)
                for *mine, first, last, count in work[source.id]
                for *theirs, begin, end, many in work[other.id]
                if mine[1] != theirs[1] and begin < last and first < end and min(count, many) >= LEAST_SAME
                if _same_work(run, source, other, mine, theirs)
            ]
            if found:
                pairs = ", ".join(f"GPU {mine} of {source.file} and GPU {theirs} of {other.file}" for (_, mine, _), (_, theirs, _) in found)
                text = (
                    f"The same work at the same times stands under different GPU numbers: {pairs}. If that is one GPU its work counts"
                    " twice here; report one of the files alone."
                )
                run.store.note("warning", "other_gpu_numbers", text, count=len(found))


def _leave_same(run: Sources, goes: SourceRows, stays: SourceRows, device: int, process: int, theirs: int) -> None:
    """Leave out every row of a source that the other has with the same kind and times under another process."""
    twice = 0
    for table in TABLES:
        (first, last), (begin, end) = (one.rows.get(table, (0, 0)) for one in (goes, stays))
        if first >= last or begin >= end or not {"process", "start_ns", "duration_ns"} <= set(SCHEMA[table]):
            continue
        kind = " AND b.kind = a.kind" if "kind" in SCHEMA[table] else ""
        on = " AND b.device = a.device AND a.device = " + str(int(device)) if table == "device_event" else ""
        gone = run.store.connection.execute(
            f"DELETE FROM {table} AS a WHERE a.rowid >= ? AND a.rowid < ? AND a.process = ? AND EXISTS (SELECT 1 FROM {table} AS b"
            f" WHERE b.rowid >= ? AND b.rowid < ? AND b.process = ? AND b.start_ns = a.start_ns"
            f" AND b.duration_ns = a.duration_ns{kind}{on})",
            [first, last, process, begin, end, theirs],
        ).fetchall()[0][0]
        twice += gone if table == "device_event" else 0
    text = (
        f"The same device activity of GPU {device} stands in {stays.file}, under another process; that counts (it tells the processes"
        " apart)."
    )
    run.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file)


def _leave_out(run: Sources, source: SourceRows, other: SourceRows, process: int, span: tuple[int, int]) -> None:
    counts = {one.id: operators(run, one, process) for one in (source, other)}
    stays, goes = (source, other) if counts[source.id] >= counts[other.id] else (other, source)
    first, last = goes.rows["device_event"]
    inside = "process = ? AND start_ns BETWEEN ? AND ?"
    alone = _alone(run, goes, stays, process, span)
    units = ", ".join(map(str, alone)) or "NULL"
    kept = f"SELECT correlation FROM device_event WHERE rowid >= {int(first)} AND rowid < {int(last)} AND process = {int(process)}"
    kept += f" AND device IN ({units}) AND correlation IS NOT NULL"
    # Both have the launches of the first kernels, which lie before these.
    launches = [_first_launch(run, one, process) for one in (source, other)]
    early = min(span[0], max(launch for launch in launches if launch is not None)) if None not in launches else span[0]
    twice = run.store.connection.execute(
        f"DELETE FROM device_event WHERE rowid >= ? AND rowid < ? AND {inside} AND (device IN ({units})) IS NOT TRUE",
        [first, last, process, *span],
    ).fetchall()[0][0]
    same = stays.format == goes.format
    whole = span  # of two files of one profiler all that both have
    if same and None not in (stays.result.first_ns, stays.result.last_ns):
        whole = (stays.result.first_ns or 0, stays.result.last_ns or 0)
    for table in TABLES[1:]:
        begin, end = goes.rows.get(table, (0, 0))
        kinds = "" if same or table != "host_event" else " AND kind IN ('launch', 'sync', 'call')"
        if alone and table == "host_event":
            kinds += f" AND (kind = 'launch' AND correlation IN ({kept})) IS NOT TRUE"
        if begin < end and (same or table == "host_event"):
            run.store.connection.execute(
                f"DELETE FROM {table} WHERE rowid >= ? AND rowid < ? AND {inside}{kinds}",
                [begin, end, process, *(whole if same else (early, span[1]))],
            )
    if not twice:
        return
    why = "it knows the operators" if counts[stays.id] > counts[goes.id] else "it comes first"
    text = f"Device activity of the same process and time stands in {stays.file}, too; that counts ({why})."
    if alone:
        text += f" It has nothing of GPU {', '.join(map(str, alone))}: of {'that' if len(alone) == 1 else 'those'} this file's counts."
    run.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file, first_ns=span[0], last_ns=span[1])


def _alone(run: Sources, goes: SourceRows, stays: SourceRows, process: int, span: tuple[int, int]) -> list[int]:
    """The devices of a process that only ``goes`` tells of; none where the two have no device in common and so number them in ways of
    their own."""
    query = (
        "SELECT DISTINCT device FROM device_event WHERE rowid >= ? AND rowid < ? AND process = ? AND device IS NOT NULL"
        " AND start_ns BETWEEN ? AND ?"
    )
    mine, theirs = (
        {int(unit) for (unit,) in run.store.frame(query, [*one.rows["device_event"], process, *span]).rows()} for one in (goes, stays)
    )
    return sorted(mine - theirs) if mine & theirs else []


def _first_launch(run: Sources, source: SourceRows, process: int) -> int | None:
    query = "SELECT min(start_ns) FROM host_event WHERE rowid >= ? AND rowid < ? AND process = ? AND kind = 'launch'"
    found: int | None = run.store.frame(query, [*source.rows.get("host_event", (0, 0)), process]).item()
    return found
