"""Joins machines of a run that are one: by a process id, or as the user states with ``--same``. A note names machines that may be one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...errors import UsageError
from ..store.gpu_names import model, plain
from ..store.registry import UNKNOWN_HOST
from .merge import merge
from .same_work import anonymity
from .sources import SourceFile, Sources

_LISTED = 3  # files in a note


def join_machines(run: Sources) -> None:
    """Join the only machine without and the only one with a name by a process id.

    Different ranks or GPUs prevent it.
    """
    nodes = dict(run.store.connection.execute("SELECT id, hostname FROM node").fetchall())
    nameless = [node for node, name in nodes.items() if name.startswith(UNKNOWN_HOST)]
    named = [node for node in nodes if node not in nameless]
    if len(nameless) != 1 or len(named) != 1:
        return
    (mine,), (theirs,) = nameless, named
    same = run.store.frame(
        "SELECT count(DISTINCT pid), coalesce(bool_or(a.rank <> b.rank), false) FROM process AS a JOIN process AS b USING (pid)"
        " WHERE a.node = ? AND b.node = ?",
        [mine, theirs],
    )
    pids, other_rank = same.row(0)
    if not pids or other_rank or different_gpu(run, mine, theirs) is not None:
        return
    merge(run, mine, theirs)
    why = "the process id is" if pids == 1 else f"{pids} process ids are"
    run.store.note("info", "machine_joined", f"Files that name no machine are of {nodes[theirs]}: {why} the same.")


def different_gpu(run: Sources, mine: int, theirs: int) -> str | None:
    """Name a GPU number that two machines use for different GPUs, or return None."""
    query = (
        'SELECT a."index", a.uuid, b.uuid AS their_uuid, a.name, b.name AS their_name'
        ' FROM device AS a JOIN device AS b ON a."index" = b."index"'
        " WHERE a.node = ? AND b.node = ? ORDER BY 1"
    )
    for index, *uuids, name, other_name in run.store.frame(query, [mine, theirs]).rows():
        known = {plain(uuid) for uuid in uuids} - {None}
        if len(known) > 1 or (not known and name and other_name and model(name) != model(other_name)):
            return f"GPU {index} is {uuids[0] or name} on the one and {uuids[1] or other_name} on the other"
    return None


def join_stated(run: Sources) -> dict[int, int]:
    """Join the machines of sources that ``--same`` names; return them by source.

    Logs of GPU monitors have no machine yet. Raises UsageError for a file with rows of several machines or of none.
    """
    logs = {log.source: log for log in run.logs.logs}
    stated: dict[int, int] = {}
    for group in run.statements.same:
        if empty := [log.file for source, log in logs.items() if source in group and not log.rows]:
            raise UsageError(f"--same {empty[0]}: the log has no value that is read; leave it out")
        members = [source for source in run.sources if source.id in group and source.id not in logs]
        nodes = [_only_node(run, source) for source in members]
        names = dict(run.store.frame("SELECT id, hostname FROM node").rows())
        keep = min(nodes, key=lambda node: anonymity(names[node]), default=None)
        if keep is None:
            continue
        for node in dict.fromkeys(nodes):
            if node != keep:
                if (why := different_gpu(run, node, keep)) is not None:
                    raise UsageError(f"--same {','.join(source.file for source in members)}: {why}; they are of two machines")
                merge(run, node, keep)
        if len(set(nodes)) > 1:
            text = f"{_listed([source.file for source in members])} are of one machine, shown as {names[keep]}, as stated with --same."
            run.store.note("info", "machine_joined", text)
        stated |= dict.fromkeys(group, keep)
    return stated


def _only_node(run: Sources, source: SourceFile) -> int:
    nodes = run.nodes_of(source)
    if len(nodes) == 1:
        return nodes.pop()
    names = [name for node, name in run.store.frame("SELECT id, hostname FROM node ORDER BY id").rows() if node in nodes]
    if names:
        raise UsageError(
            f"--same {source.file}: the file has events of {len(names)} machines ({_listed(names)}); name files of one machine"
        )
    raise UsageError(f"--same {source.file}: the file has no event of a machine; name another file")


def note_possible(run: Sources) -> None:
    """Note machines that may be one: one has only traces, the other only samples."""
    if run.store.peek_id("node") < 2:
        return
    tables = ("device_event", "host_event", "annotation", "sample")
    *events, samples = (f"id IN (SELECT DISTINCT node FROM {table})" for table in tables)  # EXISTS would keep all events in memory
    rows = run.store.frame(f"SELECT id, hostname, {' OR '.join(events)}, {samples} FROM node ORDER BY id").rows()
    of_logs = {placed.node for placed in run.logs.placed}  # whose samples are not stored yet
    traced = {node: name for node, name, events, sampled in rows if events and not sampled and node not in of_logs}
    sampled = {
        node: name
        for node, name, events, sampled in rows
        if not events and (sampled or (node in of_logs and not name.startswith(UNKNOWN_HOST)))  # the others have a note
    }
    nameless = [node for node, name in (traced | sampled).items() if name.startswith(UNKNOWN_HOST)]
    pairs = [
        (node, other)
        for node in traced
        for other in sampled
        if (node in nameless or other in nameless or len(traced) == len(sampled) == 1) and different_gpu(run, node, other) is None
    ]
    if not pairs:
        return
    sides = [sorted({pair[side] for pair in pairs}) for side in (0, 1)]
    files = [a_file_of(run, side) for side in sides]
    if None in files:
        return
    names = traced | sampled
    listed = [_listed([names[node] for node in side]) for side in sides]
    text = (
        f"{listed[0]} has traces and no samples, {listed[1]} has samples and no traces; no file states whether they are one machine."
        f" If they are, say so: --same {files[0]},{files[1]}."
    )
    run.store.note("warning" if nameless else "info", "may_be_one_machine", text, count=len(pairs), file=files[1])


def a_file_of(run: Sources, nodes: Collection[int]) -> str | None:
    """Return the first file whose events are all of one of these machines."""
    return next(
        (source.file for source in run.sources if source.result.events and run.nodes_of(source) in [{node} for node in nodes]), None
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
