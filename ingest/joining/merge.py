"""Merges machines and processes that turn out to be the same: sources move from one to the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ..chrome_trace.cycle_ids import CYCLE_IDS
from ..store.schema import STORED
from .sources import Sources

_MOST: Final = 1 << 61  # higher ids are not of a profiler


def merge(run: Sources, mine: int, theirs: int, *, by_pid: bool = True) -> None:
    """Move all rows of a machine to another one, which also gets its name as an alias.

    Processes with the same pid become one, unless ``by_pid`` is False.
    """
    execute = run.store.connection.execute
    ((hostname,),) = execute("SELECT hostname FROM node WHERE id = ?", [mine]).fetchall()
    same = execute(
        "SELECT a.id, min(b.id) FROM process AS a JOIN process AS b USING (pid) WHERE a.node = ? AND b.node = ? GROUP BY a.id ORDER BY 1",
        [mine, theirs],
    ).fetchall()
    run.store.sources_changed()
    for table in _tables("node"):
        if table != "device":
            execute(f"UPDATE {table} SET node = ? WHERE node = ?", [theirs, mine])
    for gone, stays in same if by_pid else ():
        merge_processes(run, gone, stays)
    execute(
        'UPDATE device SET node = ? WHERE node = ? AND "index" NOT IN (SELECT "index" FROM device WHERE node = ?)',
        [theirs, mine, theirs],
    )
    facts = [column for column in STORED["device"] if column not in ("node", "index")]
    execute(
        f"UPDATE device SET {', '.join(f'{column} = coalesce(device.{column}, o.{column})' for column in facts)}"
        ' FROM (SELECT * FROM device WHERE node = ?) AS o WHERE device.node = ? AND device."index" = o."index"',
        [mine, theirs],
    )
    execute("DELETE FROM device WHERE node = ?", [mine])
    execute(
        "UPDATE node SET cores = coalesce(node.cores, o.cores), memory_bytes = coalesce(node.memory_bytes, o.memory_bytes),"
        " gpus = greatest(node.gpus, o.gpus), quota = coalesce(node.quota, o.quota)"
        " FROM (SELECT * FROM node WHERE id = ?) AS o WHERE node.id = ?",
        [mine, theirs],
    )
    execute("DELETE FROM node WHERE id = ?", [mine])
    for placed in run.logs.placed:
        placed.node = theirs if placed.node == mine else placed.node
    run.logs.registry.joined(hostname, theirs)


def merge_processes(run: Sources, gone: int, stays: int) -> None:
    """Move all rows of a process to another, whose rank and command have priority."""
    execute = run.store.connection.execute
    _apart(run, gone, stays)
    run.store.sources_changed()
    ((node,),) = execute("SELECT node FROM process WHERE id = ?", [stays]).fetchall()
    for table in _tables("process"):
        execute(f"UPDATE {table} SET process = ? WHERE process = ?", [stays, gone])
        if "node" in STORED[table]:
            execute(f"UPDATE {table} SET node = ? WHERE process = ? AND node <> ?", [node, stays, node])
    execute(
        "UPDATE process SET rank = coalesce(process.rank, o.rank), local_rank = coalesce(process.local_rank, o.local_rank),"
        " world_size = coalesce(process.world_size, o.world_size), command = coalesce(process.command, o.command)"
        " FROM (SELECT * FROM process WHERE id = ?) AS o WHERE process.id = ?",
        [gone, stays],
    )
    execute("DELETE FROM process WHERE id = ?", [gone])
    for source, result in run.results.items():
        changes: dict[str, Any] = {}
        if getattr(result, "process", None) == gone:
            changes["process"] = stays
        if gone in getattr(result, "ranked", ()):
            changes["ranked"] = tuple(stays if process == gone else process for process in result.ranked)  # type: ignore[attr-defined]
        if changes:
            run.results[source] = replace(result, **changes)


def _apart(run: Sources, gone: int, stays: int) -> None:
    """Keep the correlations and external ids of two sources of a process apart."""
    execute = run.store.connection.execute
    ids = " UNION ALL ".join(
        f"SELECT {column} AS id FROM {table} WHERE process = $stays AND {column} < {_MOST}"
        for table in ("device_event", "host_event")
        for column in ("correlation", "external_id")
    )
    ((most,),) = execute(f"SELECT max(id) FROM ({ids})", {"stays": stays}).fetchall()
    if most is not None and most > 0:
        execute("UPDATE source_map SET id_offset = id_offset + ? WHERE process = ?", [(most // CYCLE_IDS + 1) * CYCLE_IDS, gone])


def _tables(column: str) -> list[str]:
    return [table for table, columns in STORED.items() if column in columns]
