"""Leaves out the rows of a run that exceed its limits, with a note that counts them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ..store.limits import (
    DEVICES,
    DEVICES_PER_PROCESS,
    FURTHER_NODES,
    LEFT_OUT,
    METRICS,
    NAME_TEXT_BYTES,
    NAMES,
    NODES,
    NODES_PER_FILE,
    PROCESSES,
    PROCESSES_PER_FILE,
    SIGNATURE_BYTES,
    SIGNATURES,
    STREAMS_PER_DEVICE,
    TEXT_BYTES,
    THREADS_PER_PROCESS,
    UNITS_PER_NODE,
)
from ..store.schema import BEYOND_LIMIT, EVENTS
from ..store.store import Store

_BOUNDS: Final[tuple[tuple[str, str, tuple[str, ...], str, int], ...]] = (
    ("devices of a process", "device_event", ("process",), "device", DEVICES_PER_PROCESS),
    ("devices of a process", "allocation", ("process",), "device", DEVICES_PER_PROCESS),
    ("devices of a process", "annotation", ("process",), "device", DEVICES_PER_PROCESS),
    ("streams of a device", "device_event", ("process", "device"), "stream", STREAMS_PER_DEVICE),
    ("streams of a device", "annotation", ("process", "device"), "stream", STREAMS_PER_DEVICE),
    ("threads of a process", "host_event", ("process",), "tid", THREADS_PER_PROCESS),
    ("threads of a process", "annotation", ("process",), "tid", THREADS_PER_PROCESS),
    ("cores or GPUs of a node", "sample", ("node",), "unit", UNITS_PER_NODE),
    ("metrics", "sample", (), "metric", METRICS),
)
_ROWS_OF_NODES: Final = (
    ("device_event", True, True),
    ("host_event", True, True),
    ("annotation", True, True),
    ("collective", True, False),
    ("allocation", True, True),
    ("profile_window", True, False),
    ("recorded_window", True, False),
    ("python_profile", True, True),
    ("python_window", True, False),
    ("compilation", True, True),
    ("sample", False, True),
    ("device", False, False),
    ("process", False, False),
)


def limit_rows(store: Store) -> None:
    """Leave out the rows beyond the limits of a run, and note each limit reached."""
    _remove_further_nodes(store)
    removed = Counter[tuple[str, int]]()
    for what, table, owner, column, bound in _BOUNDS:
        removed[what, bound] += _remove_beyond(store, table, owner, column, bound)
    removed["devices", DEVICES] += _remove_further_devices(store)
    for (what, bound), count in removed.items():
        if count:
            text = f"The run has more than {bound:,} {what}, the limit; the events of the others were left out."
            store.note("warning", "limit_reached", text, count=count)
    if LEFT_OUT in store.limited:
        name = store.name_ids([LEFT_OUT])[0]
        events = sum(
            store.connection.execute(f"SELECT count(*) FROM {table} WHERE name = ?", [name]).fetchall()[0][0]
            for table in ("device_event", "host_event", "annotation")
        )
        text = (
            f"The run has more than {NAMES:,} names or {NAME_TEXT_BYTES >> 20} MiB of them, the limit; events with further names are shown"
            f" as {LEFT_OUT}."
        )
        store.note("warning", "limit_reached", text, count=events)
    if store.signatures.left_out:
        text = (
            f"The run has more than {SIGNATURES:,} signatures of operators or {SIGNATURE_BYTES >> 20} MiB of them, the limit; calls with"
            " others have no shapes and no stacks."
        )
        store.note("warning", "limit_reached", text, count=store.signatures.left_out)
    if cut := store.limited.get("text_cut"):
        text = f"Texts longer than {TEXT_BYTES >> 10} KiB were cut; each shows its length and a checksum."
        store.note("warning", "text_cut", text, count=cut)


def _remove_beyond(store: Store, table: str, owner: tuple[str, ...], column: str, bound: int) -> int:
    """Leave out rows beyond the ``bound`` lowest values per owner; return how many."""
    if store.next_event(table) <= bound:  # there are no more values than rows
        return 0
    by, of = ", ".join(owner), f"GROUP BY {', '.join(owner)}" if owner else ""
    execute = store.connection.execute
    most = execute(f"SELECT max(n) FROM (SELECT count(DISTINCT {column}) AS n FROM {table} {of})").fetchall()[0][0]
    if (most or 0) <= bound:
        return 0
    keys = ", ".join((*owner, column))
    partition = f"PARTITION BY {by}" if owner else ""
    beyond = (
        f"SELECT {keys} FROM (SELECT DISTINCT {keys} FROM {table} WHERE {column} IS NOT NULL)"
        f" QUALIFY row_number() OVER ({partition} ORDER BY {column}) > {bound}"
    )
    return store.leave_out(table, BEYOND_LIMIT, f"SELECT id FROM {table} WHERE ({keys}) IN (SELECT ({keys}) FROM ({beyond}))")


def _remove_further_devices(store: Store) -> int:
    """Remove the devices beyond ``DEVICES``; return the number of their events."""
    execute = store.connection.execute
    if execute("SELECT count(*) FROM device").fetchall()[0][0] <= DEVICES:
        return 0
    [(node, index)] = execute(f'SELECT node, "index" FROM device ORDER BY node, "index" LIMIT 1 OFFSET {DEVICES}').fetchall()
    execute('DELETE FROM device WHERE (node, "index") >= (?, ?)', [node, index])
    return sum(
        store.leave_out(table, BEYOND_LIMIT, f"SELECT id FROM {table} WHERE device IS NOT NULL AND (node, device) >= (?, ?)", [node, index])
        for table in ("device_event", "allocation", "annotation")
    )


def _remove_further_nodes(store: Store) -> None:
    """Remove and note the rows that the registry assigned to ``FURTHER_NODES``."""
    execute = store.connection.execute
    for (node,) in execute("SELECT id FROM node WHERE hostname = ?", [FURTHER_NODES]).fetchall():
        processes = "SELECT id FROM process WHERE node = ?"
        removed = 0
        for table, of_process, counts in _ROWS_OF_NODES:
            condition = f"process IN ({processes})" if of_process else "node = ?"
            if table in EVENTS:
                rows = store.leave_out(table, BEYOND_LIMIT, f"SELECT id FROM {table} WHERE {condition}", [node])
            else:
                rows = int(execute(f"DELETE FROM {table} WHERE {condition}", [node]).fetchall()[0][0])
            removed += rows if counts else 0
        execute("DELETE FROM node WHERE id = ?", [node])
        execute("UPDATE source_map SET node = NULL, process = NULL WHERE node = ?", [node])
        text = (
            f"The run has more than {NODES:,} nodes or {PROCESSES:,} processes, or one file more than {NODES_PER_FILE:,} nodes or"
            f" {PROCESSES_PER_FILE:,} processes, the limits; the events of the others were left out."
        )
        store.note("warning", "limit_reached", text, count=removed + store.limited.get("unplaced", 0))
