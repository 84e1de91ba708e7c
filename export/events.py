"""Which events does a whole run have, in the order in which they are drawn? Rows in batches, whatever their number.

Every query is ordered by all that tells rows apart, so that two exports of one run are alike to the byte. An arrow has a number; it
leads from the launch to each device run of its correlation, as the launch figures of a report count them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from ..ingest.store import COUNTER, Store

BATCH: Final = 50_000
"""Rows that are held at a time."""

# The first launch of a correlation by start is its launch; a synchronisation record is no run.
_ARROWS: Final = """
    CREATE OR REPLACE TEMP TABLE export_arrow AS
    WITH call AS (
        SELECT process, correlation,
               arg_min(rowid, {'start': start_ns, 'duration': duration_ns, 'tid': tid, 'name': name, 'row': rowid}) AS launch
        FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL GROUP BY process, correlation
    )
    SELECT row_number() OVER (ORDER BY d.process, d.correlation, d.start_ns, d.device, d.stream, d.duration_ns, d.name, d.rowid) AS id,
           d.rowid AS run, c.launch
    FROM device_event AS d JOIN call AS c USING (process, correlation) WHERE d.kind <> 'sync'
"""
_DEVICE: Final = """
    SELECT d.*, d.kind::VARCHAR AS word, a.id AS arrow FROM device_event AS d LEFT JOIN export_arrow AS a ON a.run = d.rowid
    ORDER BY d.node, d.process, d.device, d.stream, d.start_ns, d.duration_ns DESC, d.name, d.correlation, a.id, d.external_id, d.context,
        d.bytes, d.graph_node
"""
_HOST: Final = """
    SELECT h.*, h.kind::VARCHAR AS word, a.arrows FROM host_event AS h
    LEFT JOIN (SELECT launch, list(id ORDER BY id) AS arrows FROM export_arrow GROUP BY launch) AS a ON a.launch = h.rowid
    ORDER BY h.node, h.process, h.tid, h.start_ns, h.duration_ns DESC, h.kind, h.name, h.correlation, h.external_id, a.arrows
"""
_ANNOTATION: Final = """
    SELECT * FROM annotation ORDER BY node, process, side, tid, device, stream, start_ns, duration_ns DESC, depth, name, value, phase,
        complete, arguments
"""
_STEP: Final = """
    SELECT node, process, phase, "index", host_start_ns AS start_ns, host_duration_ns AS duration_ns, device_start_ns, device_duration_ns,
        device_events
    FROM step ORDER BY node, process, phase, host_start_ns, host_duration_ns DESC, "index"
"""
_SAMPLE: Final = "SELECT node, metric, unit, time_ns, value FROM sample ORDER BY node, metric, unit, time_ns, value"
# Over the cores or GPUs of a machine at one time, added in their order: the last bit of a sum depends on it.
_AVERAGE: Final = """
    SELECT node, metric, time_ns, list_aggregate(list(value ORDER BY unit, value), 'avg') AS value FROM sample
    WHERE metric IN ('cpu_utilization', 'gpu_utilization') AND unit IS NOT NULL AND isfinite(value)
    GROUP BY node, metric, time_ns ORDER BY node, metric, time_ns
"""
_SPAN: Final = """
    SELECT min(first), max(last) FROM (
        SELECT min(start_ns) AS first, max(start_ns + coalesce(duration_ns, 0)) AS last FROM device_event
        UNION ALL SELECT min(start_ns), max(start_ns + coalesce(duration_ns, 0)) FROM host_event
        UNION ALL SELECT min(start_ns), max(start_ns + coalesce(duration_ns, 0)) FROM annotation
        UNION ALL SELECT min(host_start_ns), max(host_start_ns + coalesce(host_duration_ns, 0)) FROM step
        UNION ALL SELECT min(time_ns), max(time_ns) FROM sample WHERE isfinite(value)
    )
"""

Row = dict[str, Any]


class Events:
    """The events of one store. One of its iterators at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names: dict[int, str] = dict(store.frame("SELECT id, coalesce(text, '') FROM name").rows())
        self.classes: dict[int, tuple[str | None, str | None]] = {
            name: (precision, category)
            for name, precision, category in store.frame(
                "SELECT id, precision, category FROM name WHERE precision IS NOT NULL OR category IS NOT NULL"
            ).rows()
        }
        store.connection.execute(_ARROWS)

    def span(self) -> tuple[int, int] | None:
        """First and last moment of anything; None where nothing has a time."""
        first, last = self.store.frame(_SPAN).row(0)
        return None if first is None else (first, last)

    def device(self) -> Iterator[Row]:
        """Runs on devices; ``arrow``: the arrow that ends there."""
        return self._rows(_DEVICE)

    def host(self) -> Iterator[Row]:
        """What threads did; ``arrows``: those that begin there."""
        return self._rows(_HOST)

    def annotations(self) -> Iterator[Row]:
        return self._rows(_ANNOTATION)

    def steps(self) -> Iterator[Row]:
        return self._rows(_STEP)

    def samples(self) -> Iterator[Row]:
        """Values that are numbers."""
        return (row for row in self._rows(_SAMPLE) if row["value"] is not None and math.isfinite(row["value"]))

    def averages(self) -> Iterator[Row]:
        """Mean utilisation of the cores and of the GPUs of each machine."""
        return self._rows(_AVERAGE)

    def name(self, number: int | None) -> str:
        return self.names.get(number, "") if number is not None else ""

    def _rows(self, sql: str) -> Iterator[Row]:
        for batch in self.store.connection.sql(sql).to_arrow_reader(BATCH):
            yield from batch.to_pylist()


def device_arguments(row: Row, events: Events) -> Row:
    """What is known of a run on a device beside its name and its time, under the words that PyTorch's traces use."""
    precision, category = events.classes.get(row["name"], (None, None)) if row["word"] == "kernel" else (None, None)
    found = {
        "device": row["device"],
        "stream": row["stream"],
        "context": row["context"],
        "correlation": row["correlation"],
        "External id": row["external_id"],
        "bytes": row["bytes"],
        "copy kind": row["copy_kind"],
        "pageable": row["pageable"],
        "registers per thread": row["registers"],
        "shared memory": row["shared_memory"],
        "graph node id": row["graph_node"],
        "precision": precision,
        "kernel category": category,
    }
    for word in ("grid", "block"):
        size = [row[f"{word}_{axis}"] for axis in "xyz"]
        if size[0] is not None:
            found[word] = size
    return {key: value for key, value in found.items() if value is not None}


def host_arguments(row: Row) -> Row:
    found = {"correlation": row["correlation"], "External id": row["external_id"]}
    return {key: value for key, value in found.items() if value is not None}


def annotation_arguments(row: Row) -> Row:
    found = {key: row[key] for key in ("value", "phase", "arguments", "device", "stream") if row[key] is not None}
    return found if row["complete"] is not False else {**found, "complete": False}


def step_arguments(row: Row) -> Row:
    found = {key: row[key] for key in ("index", "phase", "device_start_ns", "device_duration_ns", "device_events")}
    return {key: value for key, value in found.items() if value is not None}


def counter_name(metric: str) -> str:
    """A metric without what marks it as the program's own."""
    return metric.removeprefix(COUNTER)
