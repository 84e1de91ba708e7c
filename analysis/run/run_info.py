"""Identity of a run, its nodes, devices and processes, and the notes of the readers: run store -> rows of the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from ...ingest.store.store import Store
from ..report.run import Device, Node, Note, Process, Run, Source
from ..toolkit.contents import NODES, PROCESSES, RUN, SOURCES
from ..toolkit.places import Places, in_order
from ..toolkit.wording import count
from .capture_notes import capture_notes

# Times before 2001-09-09 count from an anchor or from the boot of the node, not from the Unix epoch. They cannot be compared with ones
# that count from the epoch.
FIRST_EPOCH_NS: Final = 10**18

_SEVERITIES: Final = ("error", "warning", "info")
# Limits that the documentation of the hosted profiler advises for a profile of GPU activity; larger profiles only get a note.
_ADVISED_STEPS: Final = 300
_ADVISED_MACHINES: Final = 7
# One row per file and message of errors and warnings, else one per code.
_NOTES: Final = """
    SELECT arg_min(file, (coalesce(file, ''), message)), severity, code, arg_min(message, (coalesce(file, ''), message)),
        sum("count")::BIGINT, min(first_ns), max(last_ns), greatest(count(DISTINCT file), 1)
    FROM ingest_note GROUP BY severity, code, CASE WHEN severity <> 'info' THEN (file, message) END
"""


def run(store: Store, *, name: str | None = None) -> Run:
    """Return the run's identity, times, hyperparameters and sources.

    Start and end are the run's own, else the first and last time of its sources, preferably of those with epoch times. ``name`` replaces
    the run's name. ``relative_times``: no source has times after :data:`FIRST_EPOCH_NS`.
    """
    rows = store.frame(RUN).head(1).rows(named=True)
    known: dict[str, Any] = rows[0] if rows else {}
    sources = _sources(store)
    timed = [source for source in sources if source.first_ns is not None]
    absolute = [source for source in timed if (source.first_ns or 0) >= FIRST_EPOCH_NS]
    first = [source.first_ns for source in absolute or timed if source.first_ns is not None]
    last = [source.last_ns for source in absolute or timed if source.last_ns is not None]
    started, ended = known.get("started_ns"), known.get("ended_ns")
    return Run(
        name=name or known.get("name") or "run",
        status=known.get("status") or "unknown",
        started_at_ns=min(first, default=None) if started is None else started,
        ended_at_ns=max(last, default=None) if ended is None else ended,
        relative_times=bool(timed) and not absolute,
        framework=known.get("framework"),
        instance_type=known.get("instance_type"),
        world_size=store.frame(PROCESSES)["world_size"].max(),  # type: ignore[arg-type]
        resources=_texts(known.get("resources")),
        hyperparameters=_pairs(known.get("hyperparameters")),
        labels=_pairs(known.get("labels")),
        metadata=_pairs(known.get("metadata")),
        sources=sources,
    )


def nodes(store: Store) -> tuple[Node, ...]:
    """Return every node, by host name."""
    places = Places(store)
    rows = store.frame(NODES).select("id", "cores", "memory_bytes", "gpus").rows()
    rows_of_nodes = (Node(places.node(i), cores, memory, gpus) for i, cores, memory, gpus in rows)
    return tuple(sorted(rows_of_nodes, key=lambda node: in_order(node.hostname)))


def devices(store: Store) -> tuple[Device, ...]:
    """Return every GPU that a source lists or that was used, by host and index."""
    if not store.has_rows("device", "device_event", "sample"):
        return ()
    places = Places(store)
    rows = store.frame("""
        WITH used AS (
            SELECT node, device AS "index" FROM device_event
            UNION SELECT node, unit FROM sample WHERE starts_with(metric, 'gpu_') AND unit IS NOT NULL
        )
        SELECT coalesce(d.node, u.node) AS node, coalesce(d."index", u."index") AS "index", d.name, d.uuid, d.memory_bytes, d.sm_count,
               d.compute_capability, d.vendor, u.node IS NOT NULL AS used
        FROM device AS d FULL JOIN used AS u ON u.node = d.node AND u."index" = d."index"
    """).rows(named=True)
    used = [Device(**{**row, "node": places.node(row["node"])}) for row in rows]
    return tuple(sorted(used, key=lambda device: (in_order(device.node), device.index, device.uuid or "")))


def processes(store: Store) -> tuple[Process, ...]:
    """Return every process, by host name, rank and pid."""
    places = Places(store)
    rows = store.frame(PROCESSES).select("id", "local_rank", "world_size", "label").rows()
    keyed = []
    for i, local_rank, world_size, label in rows:
        location = places.process(i)
        keyed.append((location.order, Process(location.node, location.pid, location.rank, local_rank, world_size, label)))
    return tuple(process for _, process in sorted(keyed, key=lambda item: item[0]))


def data_quality(store: Store) -> tuple[Note, ...]:
    """Return the notes of the readers: errors, warnings, then the rest by code.

    Errors and warnings have an entry per file; other notes have one per code. A profile with more steps or nodes than the documentation
    of the hosted profiler advises also gets a note, as does one with few steps or with Python frames.
    """
    rows = store.frame(_NOTES).rows() if store.has_rows("ingest_note") else []
    notes = [*(Note(*row) for row in rows), *_beyond_advice(store), *capture_notes(store)]
    return tuple(sorted(notes, key=lambda n: (_SEVERITIES.index(n.severity), n.file or "", n.code, n.message)))


def _beyond_advice(store: Store) -> Iterator[Note]:
    if not store.has_rows("step") and store.frame(NODES).height <= _ADVISED_MACHINES:
        return
    steps, machines = store.frame("""
        SELECT coalesce((SELECT max(steps) FROM (SELECT count(*) AS steps FROM step WHERE device_events > 0 GROUP BY process)), 0),
               (SELECT count(DISTINCT node) FROM device_event)
    """).row(0)
    advised = "; the documentation of the hosted profiler advises at most"
    if steps > _ADVISED_STEPS:
        text = f"What ran on GPUs was profiled in {count(steps)} steps of a process{advised} {_ADVISED_STEPS}. All are in this report."
        yield Note(None, "info", "many_steps", text, steps, None, None)
    if machines > _ADVISED_MACHINES:
        text = f"What ran on GPUs was profiled on {count(machines)} machines{advised} {_ADVISED_MACHINES}. All are in this report."
        yield Note(None, "info", "many_machines", text, machines, None, None)


def _sources(store: Store) -> tuple[Source, ...]:
    columns = ("path", "format", "bytes", "sha256", "events", "first_ns", "last_ns", "clock_offset_ns", "clock_evidence")
    rows = store.frame(SOURCES).select(columns).rows()
    return tuple(Source(path, form or "unknown", size, digest, events or 0, *rest) for path, form, size, digest, events, *rest in rows)


def _pairs(text: str | None) -> dict[str, str]:
    value = json.loads(text) if text else {}
    return {str(key): _text(item) for key, item in sorted(value.items())} if isinstance(value, dict) else {}


def _texts(text: str | None) -> tuple[str, ...]:
    value = json.loads(text) if text else []
    return tuple(_text(item) for item in (value if isinstance(value, list) else [value]))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
