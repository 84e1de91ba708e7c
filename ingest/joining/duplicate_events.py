"""Device work that two tracers recorded counts once: rows of one of the two are left out, with a note."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from ..store.schema import RECORDED_TWICE, SCHEMA
from .same_work import identical_events
from .sources import TABLES, SourceFile, Sources, operators


def leave_out_twice(run: Sources) -> None:
    """Count device activity of one process once if two tracers recorded it.

    The tracer with more operators is kept.
    """
    tracers = [source for source in run.sources if source.format in run.tracers]
    if len(tracers) < 2:
        return
    _other_process(run, tracers)
    query = "SELECT source, process, min(start_ns), max(start_ns + duration_ns) FROM device_event WHERE process IS NOT NULL GROUP BY ALL"
    spans = {(source, process): (start, end) for source, process, start, end in run.store.frame(query).rows()}
    position = {source.id: number for number, source in enumerate(tracers)}
    users: dict[int, list[int]] = {}
    for source, process in spans:
        if source in position:
            users.setdefault(process, []).append(position[source])
    shared = [(*pair, process) for process, numbers in users.items() for pair in combinations(sorted(numbers), 2)]
    for first_tracer, second_tracer, process in sorted(shared):
        left, right = tracers[first_tracer], tracers[second_tracer]
        mine, theirs = spans[left.id, process], spans[right.id, process]
        first, last = max(mine[0], theirs[0]), min(mine[1], theirs[1])
        shorter = min(mine[1] - mine[0], theirs[1] - theirs[0])
        # Consecutive files of one profiler may touch.
        if last - first > (0.5 * shorter if left.format == right.format else 0):
            _leave_out(run, left, right, process, (first, last))


def _other_process(run: Sources, tracers: Sequence[SourceFile]) -> None:
    """Count device activity once if two tracers have it under different processes.

    A trace that was converted from an export can contain several processes but names only one; the source with more processes stays. The
    same work on GPUs with different numbers only gets a warning.
    """
    worked = _worked(run, tracers)
    devices = {source: {(node, device) for node, device, _ in work} for source, work in worked.items()}
    for left, right in combinations(tracers, 2):
        if left.format == right.format and devices[left.id].isdisjoint(devices[right.id]):
            continue  # most pairs of the ranks of a job
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


def _worked(run: Sources, tracers: Sequence[SourceFile]) -> dict[int, dict[tuple[int, int, int], tuple[int, int]]]:
    """Return the span of each source's kernels by node, device and process."""
    query = (
        "SELECT source, node, device, process, min(start_ns), max(start_ns + duration_ns) FROM device_event"
        " WHERE kind = 'kernel' AND process IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    worked: dict[int, dict[tuple[int, int, int], tuple[int, int]]] = {source.id: {} for source in tracers}
    for source, node, device, process, first, last in run.store.frame(query).rows():
        if source in worked:
            worked[source][node, device, process] = (first, last)
    return worked


def _leave_same(run: Sources, goes: SourceFile, stays: SourceFile, device: int, process: int, theirs: int) -> None:
    """Leave out the rows that the other source has with the same kind and times."""
    twice = 0
    for table in TABLES:
        if not {"process", "start_ns", "duration_ns"} <= set(SCHEMA[table]):
            continue
        kind = " AND b.kind = a.kind" if "kind" in SCHEMA[table] else ""
        on = f" AND b.device = a.device AND a.device = {int(device)}" if table == "device_event" else ""
        same = (
            f"SELECT id FROM {table} AS a WHERE source = {goes.id} AND process = ? AND EXISTS ("
            f"SELECT 1 FROM (FROM {table} WHERE source = {stays.id} AND process = ?) AS b"
            f" WHERE b.start_ns = a.start_ns AND b.duration_ns = a.duration_ns{kind}{on})"
        )
        gone = run.store.leave_out(table, RECORDED_TWICE, same, [process, theirs])
        twice += gone if table == "device_event" else 0
    text = (
        f"The same device activity of GPU {device} stands in {stays.file}, under another process; that counts (it tells the processes"
        " apart)."
    )
    run.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file)


def _leave_out(run: Sources, left: SourceFile, right: SourceFile, process: int, span: tuple[int, int]) -> None:
    counts = {source.id: operators(run, source, process) for source in (left, right)}
    stays, goes = (left, right) if counts[left.id] >= counts[right.id] else (right, left)
    inside = "process = ? AND start_ns BETWEEN ? AND ?"
    alone = _alone(run, goes, stays, process, span)
    units = ", ".join(map(str, alone)) or "NULL"
    of_goes = f"source = {goes.id}"
    kept = f"SELECT correlation FROM device_event WHERE {of_goes} AND process = {int(process)}"
    kept += f" AND device IN ({units}) AND correlation IS NOT NULL"
    work = f"SELECT id FROM device_event WHERE {of_goes} AND {inside} AND (device IN ({units})) IS NOT TRUE"
    twice = run.store.leave_out("device_event", RECORDED_TWICE, work, [process, *span])
    same = stays.format == goes.format
    if not same:
        # Both have the launches of the first kernels, which start before the kernels.
        launches = [_first_launch(run, source, process) for source in (left, right)]
        host_span = (min(span[0], max(launches)) if None not in launches else span[0], span[1])
    elif None in (stays.result.first_ns, stays.result.last_ns):
        host_span = span
    else:  # for two files of one profiler, everything that both have
        host_span = (stays.result.first_ns or 0, stays.result.last_ns or 0)
    for table in TABLES[1:] if same else ("host_event",):
        kinds = "" if same else " AND kind IN ('launch', 'sync', 'call')"
        if alone and table == "host_event":
            kinds += f" AND (kind = 'launch' AND correlation IN ({kept})) IS NOT TRUE"
        of_host = f"SELECT id FROM {table} WHERE {of_goes} AND {inside}{kinds}"
        run.store.leave_out(table, RECORDED_TWICE, of_host, [process, *host_span])
    if not twice:
        return
    why = "it knows the operators" if counts[stays.id] > counts[goes.id] else "it comes first"
    text = f"Device activity of the same process and time stands in {stays.file}, too; that counts ({why})."
    if alone:
        text += f" It has nothing of GPU {', '.join(map(str, alone))}: of {'that' if len(alone) == 1 else 'those'} this file's counts."
    run.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file, first_ns=span[0], last_ns=span[1])


def _alone(run: Sources, goes: SourceFile, stays: SourceFile, process: int, span: tuple[int, int]) -> list[int]:
    """Return the devices of a process that only ``goes`` has.

    There are none if the two have no device in common: then they number devices differently.
    """
    query = "SELECT DISTINCT device FROM device_event WHERE {} AND process = ? AND device IS NOT NULL AND start_ns BETWEEN ? AND ?"
    mine, theirs = (
        {int(unit) for (unit,) in run.store.frame(query.format(f"source = {source.id}"), [process, *span]).rows()}
        for source in (goes, stays)
    )
    return sorted(mine - theirs) if mine & theirs else []


def _first_launch(run: Sources, source: SourceFile, process: int) -> Any:
    query = f"SELECT min(start_ns) FROM host_event WHERE source = {source.id} AND process = ? AND kind = 'launch'"
    return run.store.frame(query, [process]).item()
