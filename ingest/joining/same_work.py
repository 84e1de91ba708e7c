"""Joins processes of two tracers that have the same GPU work, whatever their process ids and host names are.

A container has different process ids and another host name than the machine; a tracer outside it records the latter. But device events have
the same starts and durations to the nanosecond, which two processes never have by chance. A note reports each join.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import Final

from ..chrome_trace.cycle_ids import CYCLE_IDS
from ..store.gpu_names import model, plain
from ..store.registry import UNKNOWN_HOST
from .merge import merge, merge_processes
from .sources import SourceFile, Sources, operators, tracer_pairs

LEAST_EVENTS: Final = 8  # identical to the nanosecond; fewer may be a coincidence
Spans = dict[tuple[int, int], tuple[int, int]]
_CONTAINER: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")


def join_same_work(run: Sources) -> None:
    """Join processes, and their machines, that have the same device events.

    Processes stay separate if both tracers know one of them, if ranks or GPUs differ, or if more than two processes have the work.
    """
    pairs = tracer_pairs(run)
    spans = {source.id: _spans(run, source) for source in {source.id: source for pair in pairs for source in pair}.values()}
    known: dict[str, set[int]] = {}
    for source in run.sources:
        known.setdefault(source.format, set()).update(process for process, _ in spans.get(source.id, ()))
    identical: dict[tuple[int, int], tuple[int, SourceFile, SourceFile]] = {}
    for left, right in pairs:
        if left.result.relative or right.result.relative:
            continue
        for mine, theirs in sorted(_candidates(spans[left.id], spans[right.id])):
            if mine not in known[right.format] and theirs not in known[left.format]:
                same = identical_events(run, left, right, mine, theirs)
                if same and identical.get((mine, theirs), (0,))[0] < same:
                    identical[mine, theirs] = (same, left, right)
    partners = Counter(process for pair in identical for process in pair)
    for (mine, theirs), (same, left, right) in sorted(identical.items(), key=lambda item: item[0]):
        if partners[mine] == partners[theirs] == 1 and not contradicted(run, mine, theirs):
            if operators(run, left, mine) < operators(run, right, theirs):
                mine, theirs, left, right = theirs, mine, right, left
            _join(run, mine, theirs, f"{same:,} device events of {left.file} and {right.file}", left, right)


def identical_events(
    run: Sources, left: SourceFile, right: SourceFile, mine: int, theirs: int, devices: tuple[int, int] | None = None
) -> int:
    """Count the device events of two sources with the same GPU, start and duration.

    ``devices``: GPU numbers that stand for each other; None: every GPU for itself. 0 if fewer than ``LEAST_EVENTS`` are identical, or less
    than half of those in the time of both, or half of them have neither the same name nor the same correlation.
    """
    selected = [f"device = {device}" for device in devices] if devices else ["device IS NOT NULL"] * 2
    unit = "0" if devices else "device"
    rows = " UNION ALL ".join(
        f"SELECT {side} AS side, {unit} AS unit, start_ns, duration_ns, any_value(name) AS name, any_value(correlation % {CYCLE_IDS}) AS id"
        f" FROM device_event WHERE source = {source.id} AND process = {process} AND kind <> 'sync' AND {selected[side]}"
        " GROUP BY ALL"
        for side, process, source in ((0, mine, left), (1, theirs, right))
    )
    same, alike, least = run.store.frame(
        f"""
        WITH work AS MATERIALIZED ({rows}),
        span AS (SELECT unit, side, min(start_ns) AS first, max(start_ns) AS last FROM work GROUP BY ALL),
        common AS (SELECT unit, max(first) AS first, min(last) AS last FROM span GROUP BY unit HAVING count(*) = 2),
        inside AS MATERIALIZED (SELECT work.* FROM work JOIN common USING (unit) WHERE start_ns BETWEEN common.first AND common.last),
        pair AS (
            SELECT a.name AS left_name, b.name AS right_name, count(*) AS same, count(*) FILTER (a.id = b.id) AS linked
            FROM inside AS a JOIN inside AS b USING (unit, start_ns, duration_ns) WHERE a.side = 0 AND b.side = 1 GROUP BY ALL
        ), counted AS (
            SELECT sum(same) AS same, sum(CASE WHEN contains(m.text, n.text) OR contains(n.text, m.text) THEN same ELSE linked END) AS alike
            FROM pair LEFT JOIN name AS m ON m.id = left_name LEFT JOIN name AS n ON n.id = right_name
        )
        SELECT coalesce(same, 0), coalesce(alike, 0),
            least((SELECT count(*) FROM inside WHERE side = 0), (SELECT count(*) FROM inside WHERE side = 1))
        FROM counted
        """
    ).row(0)
    return int(same) if same >= LEAST_EVENTS and 2 * same >= least and 2 * alike >= same else 0


def _spans(run: Sources, source: SourceFile) -> Spans:
    """Return the first and last start of a source's device events by process and GPU."""
    rows = run.store.frame(
        f"SELECT process, device, min(start_ns), max(start_ns) FROM device_event WHERE source = {source.id}"
        " AND process IS NOT NULL AND device IS NOT NULL AND kind <> 'sync' GROUP BY ALL ORDER BY ALL"
    ).rows()
    return {(process, device): (start, end) for process, device, start, end in rows}


def _candidates(left: Spans, right: Spans) -> set[tuple[int, int]]:
    """Return pairs of processes that worked on the same GPU number at the same time."""
    return {
        (mine, theirs)
        for ((mine, device), (start, end)), ((theirs, unit), (begin, stop)) in product(left.items(), right.items())
        if device == unit and start <= stop and begin <= end
    }


def contradicted(run: Sources, mine: int, theirs: int) -> bool:
    """Return whether two processes have different ranks or GPUs."""
    rows = run.store.frame("SELECT node, rank FROM process WHERE id IN (?, ?)", [mine, theirs]).rows()
    if len({rank for _, rank in rows if rank is not None}) > 1:
        return True
    nodes = {node for node, _ in rows}
    devices = run.store.frame(
        'SELECT "index", list(name), list(uuid) FROM device WHERE node IN (?, ?) AND "index" IN (SELECT device FROM device_event'
        " WHERE process IN (?, ?)) GROUP BY ALL",
        [min(nodes), max(nodes), mine, theirs],
    ).rows()
    return any(
        len({model(name) for name in names if name}) > 1 or len({plain(uuid) for uuid in uuids} - {None}) > 1 for _, names, uuids in devices
    )


def _join(run: Sources, gone: int, stays: int, evidence: str, left: SourceFile, right: SourceFile) -> None:
    why = f"{evidence} have the same GPU, start and duration to the nanosecond"
    query = "SELECT id, node, pid FROM process WHERE id IN (?, ?)"
    facts = {process: (node, pid) for process, node, pid in run.store.frame(query, [gone, stays]).rows()}
    (node, pid), (home, known) = facts[gone], facts[stays]
    _number_threads(run, gone, stays, left, right)
    merge_processes(run, gone, stays)
    if pid != known:
        numbers = [f"process {number}" if number is not None else "the process" for number in (pid, known)]
        text = (
            f"{numbers[0].capitalize()} of {left.file} is {numbers[1]} of {right.file}: {why}. Process ids differ as in containers, which"
            f" count their own; {'it is shown under the latter' if known is not None else 'they are one'}."
        )
        run.store.note("info", "process_joined", text, source=left.id, file=left.file)
    if node == home:
        return
    names = dict(run.store.frame("SELECT id, hostname FROM node WHERE id IN (?, ?)", [node, home]).rows())
    keep, drop = (node, home) if anonymity(names[home]) > anonymity(names[node]) else (home, node)
    merge(run, drop, keep, by_pid=False)
    if names[drop].startswith(UNKNOWN_HOST):
        text = f"{left.file if drop == node else right.file} names no machine; it is of {names[keep]}: {why}."
    else:
        text = f"{names[drop]} and {names[keep]} are one machine, shown as {names[keep]}: {why}. A container has a host name of its own."
    run.store.note("info", "machine_joined", text, source=left.id, file=left.file)


def _number_threads(run: Sources, gone: int, stays: int, left: SourceFile, right: SourceFile) -> None:
    """Replace the thread ids of a process by those of the other file.

    They are matched by most of the launches that both files have at the same time.
    """
    launches = " JOIN ".join(
        f"(SELECT tid, start_ns, duration_ns FROM host_event WHERE source = {source.id} AND process = {process}"
        f" AND kind = 'launch' AND tid IS NOT NULL) AS {name}"
        for name, process, source in (("a", gone, left), ("b", stays, right))
    )
    query = f"SELECT a.tid, b.tid FROM {launches} USING (start_ns, duration_ns) GROUP BY ALL ORDER BY count(*) DESC, 1, 2"
    ids: dict[int, int] = {}
    for mine, theirs in run.store.connection.execute(query).fetchall():
        if mine not in ids and theirs not in ids.values():
            ids[mine] = theirs
    if ids := {mine: theirs for mine, theirs in ids.items() if mine != theirs}:
        values = ", ".join(f"({mine}, {theirs})" for mine, theirs in ids.items())
        of_gone = "SELECT source_id FROM source_map WHERE process = ?"
        run.store.connection.execute(
            f"UPDATE thread_alias SET alias = a.theirs FROM (VALUES {values}) AS a(mine, theirs)"
            f" WHERE alias = a.mine AND source_id IN ({of_gone})",
            [gone],
        )
        run.store.connection.execute(
            f"INSERT INTO thread_alias SELECT source_id, mine, theirs FROM ({of_gone}), (VALUES {values}) AS a(mine, theirs)"
            " WHERE (source_id, mine) NOT IN (SELECT (source_id, tid) FROM thread_alias)",
            [gone],
        )


def anonymity(name: str) -> int:
    """Return 0 for the host name of a machine, 1 for that of a container, 2 for none."""
    return 2 if name.startswith(UNKNOWN_HOST) else 1 if _CONTAINER.fullmatch(name) else 0
