"""Device work that two tracers recorded counts once: rows of one of the two are removed, with a note."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

from ..store.tables import SCHEMA
from .same_work import identical_events
from .source_rows import TABLES, SourceRows, Sources, operators


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
    for position, source in enumerate(tracers):
        for partner in tracers[position + 1 :]:
            for process in sorted({process for one, process in spans if one == source.id} & {p for one, p in spans if one == partner.id}):
                mine, theirs = spans[source.id, process], spans[partner.id, process]
                first, last = max(mine[0], theirs[0]), min(mine[1], theirs[1])
                shorter = min(mine[1] - mine[0], theirs[1] - theirs[0])
                # Files of one profiler that follow each other may touch.
                if last - first > (0.5 * shorter if source.format == partner.format else 0):
                    _leave_out(run, source, partner, process, (first, last))


def _other_process(run: Sources, tracers: Sequence[SourceRows]) -> None:
    """Count device activity once that two tracers have under different processes of one machine.

    A trace that was made of an export can hold several processes and names one; the source with more processes stays. The same work on GPUs
    of different numbers gets a warning alone.
    """
    worked = {source.id: _worked(run, source) for source in tracers}
    for left, right in combinations(tracers, 2):
        several = [len({process for _, _, process in worked[source.id]}) for source in (left, right)]
        stays, goes = (left, right) if several[0] >= several[1] else (right, left)
        renumbered: list[tuple[int, int]] = []
        for (work, (first, last)), (other_work, (begin, end)) in product(worked[goes.id].items(), worked[stays.id].items()):
            (node, device, process), (other_node, unit, theirs) = work, other_work
            if begin >= last or first >= end or (left.format == right.format and (node, device) != (other_node, unit)):
                continue
            if device == unit and (node != other_node or process == theirs):
                continue
            if not identical_events(run, goes, stays, process, theirs, (device, unit)):
                continue
            if device == unit:
                _leave_same(run, goes, stays, device, process, theirs)
            else:
                renumbered.append((device, unit) if goes is left else (unit, device))
        if renumbered:
            pairs = ", ".join(f"GPU {mine} of {left.file} and GPU {theirs} of {right.file}" for mine, theirs in sorted(renumbered))
            text = (
                f"The same work at the same times stands under different GPU numbers: {pairs}. If that is one GPU its work counts"
                " twice here; report one of the files alone."
            )
            run.store.note("warning", "other_gpu_numbers", text, count=len(renumbered))


def _worked(run: Sources, source: SourceRows) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Node, device and process of the kernels of a source -> first start and last end."""
    query = (
        "SELECT node, device, process, min(start_ns), max(start_ns + duration_ns) FROM device_event"
        " WHERE rowid >= ? AND rowid < ? AND kind = 'kernel' AND process IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    rows = run.store.frame(query, list(source.rows.get("device_event", (0, 0)))).rows()
    return {(node, device, process): (first, last) for node, device, process, first, last in rows}


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


def _leave_out(run: Sources, source: SourceRows, right: SourceRows, process: int, span: tuple[int, int]) -> None:
    counts = {one.id: operators(run, one, process) for one in (source, right)}
    stays, goes = (source, right) if counts[source.id] >= counts[right.id] else (right, source)
    first, last = goes.rows["device_event"]
    inside = "process = ? AND start_ns BETWEEN ? AND ?"
    alone = _alone(run, goes, stays, process, span)
    units = ", ".join(map(str, alone)) or "NULL"
    kept = f"SELECT correlation FROM device_event WHERE rowid >= {int(first)} AND rowid < {int(last)} AND process = {int(process)}"
    kept += f" AND device IN ({units}) AND correlation IS NOT NULL"
    # Both have the launches of the first kernels, which lie before these.
    launches = [_first_launch(run, one, process) for one in (source, right)]
    early = min(span[0], max(launch for launch in launches if launch is not None)) if None not in launches else span[0]
    twice = run.store.connection.execute(
        f"DELETE FROM device_event WHERE rowid >= ? AND rowid < ? AND {inside} AND (device IN ({units})) IS NOT TRUE",
        [first, last, process, *span],
    ).fetchall()[0][0]
    same = stays.format == goes.format
    all_of_both = span  # of two files of one profiler all that both have
    if same and None not in (stays.result.first_ns, stays.result.last_ns):
        all_of_both = (stays.result.first_ns or 0, stays.result.last_ns or 0)
    for table in TABLES[1:]:
        begin, end = goes.rows.get(table, (0, 0))
        kinds = "" if same or table != "host_event" else " AND kind IN ('launch', 'sync', 'call')"
        if alone and table == "host_event":
            kinds += f" AND (kind = 'launch' AND correlation IN ({kept})) IS NOT TRUE"
        if begin < end and (same or table == "host_event"):
            run.store.connection.execute(
                f"DELETE FROM {table} WHERE rowid >= ? AND rowid < ? AND {inside}{kinds}",
                [begin, end, process, *(all_of_both if same else (early, span[1]))],
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
    start: int | None = run.store.frame(query, [*source.rows.get("host_event", (0, 0)), process]).item()
    return start
