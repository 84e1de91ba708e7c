"""Which machines of a run are one machine: one without a name and one with, or one under two names?

Told by GPUs, process ids and times. What is joined is told in a note; what is not clear stays two machines.
"""

from __future__ import annotations

from .gpu_log_machine import decided
from .gpu_names import model
from .merged_machines import merge
from .registry import UNKNOWN_HOST
from .source_rows import Sources
from .trace_limits import YEAR_2001_NS


def join_machines(run: Sources) -> None:
    """The only machine without a name is the only one with a name, where their GPUs and processes agree."""
    nodes = dict(run.store.connection.execute("SELECT id, hostname FROM node").fetchall())
    nameless = [node for node, name in nodes.items() if name.startswith(UNKNOWN_HOST)]
    named = [node for node in nodes if node not in nameless]
    if len(nameless) != 1 or len(named) != 1:
        return
    mine, theirs = nameless[0], named[0]
    if decided(run.logs, mine) and not decided(run.logs, theirs):
        return
    why = _same_machine(run, mine, theirs)
    if why is None:
        return
    merge(run, mine, theirs)
    text = f"Files that name no machine are taken to be of {nodes[theirs]}, the only machine of the run: {why}."
    run.store.note("info", "machine_joined", text)


def note_two_names(run: Sources) -> None:
    """A machine that only tracers know and one that only samplers know may be one under two names; nothing is joined then."""
    rows = run.store.frame(
        """
        SELECT id, hostname, (SELECT count(DISTINCT device) FROM device_event WHERE node = n.id AND device IS NOT NULL),
            (SELECT count(DISTINCT unit) FROM sample WHERE node = n.id AND starts_with(metric, 'gpu_') AND unit IS NOT NULL)
        FROM node AS n ORDER BY id
        """
    ).rows()
    if len(rows) != 2 or any(name.startswith(UNKNOWN_HOST) for _, name, *_ in rows):
        return
    traced = [row for row in rows if row[2] and not row[3]]
    sampled = [row for row in rows if row[3] and not row[2]]
    if len(traced) != 1 or len(sampled) != 1:
        return
    (mine, name, gpus, _), (theirs, other, _, units) = traced[0], sampled[0]
    spans = [_span(run, node) for node in (mine, theirs)]
    if gpus != units or spans[0] is None or spans[1] is None or not (spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]):
        return
    of_log = any(placed.node == theirs for placed in run.logs.placed)
    step = f" If so, name the log after it (nvidia-smi.{name}.csv)." if of_log else " They are shown as two."
    counted = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    text = (
        f"{name} has traces and no samples of its GPUs, {other} has samples and no traces, of {counted} each and at the same time: they"
        f" may be one machine under two names.{step}"
    )
    run.store.note("info", "two_names", text)


def _same_machine(run: Sources, mine: int, theirs: int) -> str | None:
    """Why two machines can be one; None where something speaks against it, or nothing for it."""
    frame = run.store.frame
    names: dict[int, dict[int, str]] = {
        node: dict(frame('SELECT "index", name FROM device WHERE node = ? AND name IS NOT NULL', [node]).rows()) for node in (mine, theirs)
    }
    if any(model(names[theirs].get(index, name)) != model(name) for index, name in names[mine].items()):
        return None
    used = {
        node: set(
            frame(
                "SELECT DISTINCT device FROM device_event WHERE node = ? AND device IS NOT NULL UNION"
                " SELECT DISTINCT unit FROM sample WHERE node = ? AND starts_with(metric, 'gpu_') AND unit IS NOT NULL UNION"
                ' SELECT "index" FROM device WHERE node = ?',
                [node, node, node],
            ).to_series().to_list()
        )
        for node in (mine, theirs)
    }  # fmt: skip
    if used[mine] and used[theirs] and not (used[mine] <= used[theirs] or used[theirs] <= used[mine]):
        return None
    processes = {node: frame("SELECT pid, rank FROM process WHERE node = ? AND pid IS NOT NULL", [node]).rows() for node in (mine, theirs)}
    pids = {pid for pid, _ in processes[mine]} & {pid for pid, _ in processes[theirs]}
    ranks = {node: {rank for _, rank in processes[node] if rank is not None} for node in (mine, theirs)}
    if not pids and processes[mine] and processes[theirs] and ranks[mine] & ranks[theirs]:
        return None
    for pid in pids:
        said = {rank for one, rank in (*processes[mine], *processes[theirs]) if one == pid and rank is not None}
        if len(said) > 1:
            return None
    spans = [_span(run, node) for node in (mine, theirs)]
    apart = None not in spans and not (spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1])  # type: ignore[index]
    if apart and not pids:
        return None
    if pids:
        return f"{'the process id is' if len(pids) == 1 else f'{len(pids)} process ids are'} the same"
    if names[mine] and names[theirs]:
        return (
            "their GPUs have the same names, and they recorded at the same time" if None not in spans else "their GPUs have the same names"
        )
    if used[mine] and used[theirs]:
        return "their GPUs have the same numbers" + (", and they recorded at the same time" if None not in spans else "")
    return "they recorded at the same time" if None not in spans else None


def _span(run: Sources, node: int) -> tuple[int, int] | None:
    """From when to when anything of a machine was recorded, where its times are of the epoch."""
    first, last = run.store.frame(
        """
        SELECT min(first), max(last) FROM (
            SELECT min(start_ns) AS first, max(start_ns + duration_ns) AS last FROM annotation WHERE node = $node
            UNION ALL SELECT min(start_ns), max(start_ns + duration_ns) FROM device_event WHERE node = $node
            UNION ALL SELECT min(start_ns), max(start_ns + duration_ns) FROM host_event WHERE node = $node
            UNION ALL SELECT min(time_ns), max(time_ns) FROM sample WHERE node = $node)
        """.replace("$node", str(int(node)))
    ).row(0)
    if first is None:
        placed = [one.log for one in run.logs.placed if one.node == node and one.log.zoned and one.log.first_ns is not None]
        first = min((log.first_ns for log in placed if log.first_ns is not None), default=None)
        last = max((log.last_ns for log in placed if log.last_ns is not None), default=None)
    return None if first is None or last is None or first < YEAR_2001_NS else (first, last)
