"""Events of a whole run in the order in which they are drawn, as columns in blocks of limited size.

Every query is ordered by all columns that distinguish rows, so that two exports of one run are equal to the byte. An arrow has a number; it
leads from the launch to each kernel execution of its correlation, as the launch figures of a report count them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import InputError
from ..ingest.store.schema import ENUM_VALUES
from ..ingest.store.store import Store
from .tree import Tree

BATCH: Final = 50_000  # Rows that are read at a time
BLOCK: Final = 16_384  # Rows that are written at a time; fewer if their texts have more than BLOCK_BYTES
BLOCK_BYTES: Final = 16 << 20
LAST_NS: Final = (1 << 63) - 1

_REST: Final = """d.context, d.external_id, d.bytes, d.graph_node, d.copy_kind, d.pageable, d.grid_x, d.grid_y, d.grid_z, d.block_x,
    d.block_y, d.block_z, d.registers, d.shared_memory"""
# The first launch of a correlation by start is its launch; a synchronization record is not an execution.
_ARROWS: Final = f"""
    CREATE OR REPLACE TEMP TABLE export_arrow AS
    WITH call AS (
        SELECT process, correlation,
               arg_min(id, {{'start': start_ns, 'duration': duration_ns, 'tid': tid, 'name': name, 'row': id}}) AS launch
        FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL GROUP BY process, correlation
    )
    SELECT d.id AS run, c.launch, row_number() OVER (
               ORDER BY d.process, d.correlation, d.start_ns, d.device, d.stream, d.duration_ns, d.name, {_REST}, d.id) AS id
    FROM device_run AS d JOIN call AS c USING (process, correlation)
"""
_DEVICE: Final = f"""
    SELECT p.track, d.start_ns, d.duration_ns, enum_code(d.kind) AS word, d.name, a.id AS arrow, d.device, d.stream, d.context,
        d.correlation, d.external_id, d.bytes, d.copy_kind, d.pageable, d.registers, d.shared_memory, d.graph_node,
        CASE WHEN d.kind = 'kernel' THEN n.precision END AS precision, CASE WHEN d.kind = 'kernel' THEN n.category END AS category,
        d.grid_x, d.grid_y, d.grid_z, d.block_x, d.block_y, d.block_z
    FROM device_event AS d
    JOIN export_place AS p ON p.kind = 'stream' AND p.node IS NOT DISTINCT FROM d.node AND p.process IS NOT DISTINCT FROM d.process
        AND p.unit IS NOT DISTINCT FROM d.device AND p.stream IS NOT DISTINCT FROM d.stream
    LEFT JOIN export_arrow AS a ON a.run = d.id LEFT JOIN name AS n ON n.id = d.name
    ORDER BY p.track, d.start_ns, d.duration_ns DESC, d.name, d.correlation, a.id, {_REST}
"""
_HOST: Final = """
    SELECT p.track, h.start_ns, h.duration_ns, enum_code(h.kind) AS word, h.name, a.arrows, h.correlation, h.external_id
    FROM host_event AS h
    JOIN export_place AS p ON p.kind = 'thread' AND p.node IS NOT DISTINCT FROM h.node AND p.process IS NOT DISTINCT FROM h.process
        AND p.unit IS NOT DISTINCT FROM h.tid
    LEFT JOIN (SELECT launch, list(id ORDER BY id) AS arrows FROM export_arrow GROUP BY launch) AS a ON a.launch = h.id
    ORDER BY p.track, h.start_ns, h.duration_ns DESC, h.kind, h.name, h.correlation, h.external_id, a.arrows
"""
_ANNOTATION: Final = """
    SELECT p.track, t.start_ns, t.duration_ns, (t.side IS NOT DISTINCT FROM 'device')::TINYINT AS word, t.name, t.value, t.phase,
        t.arguments, t.device, t.stream, CASE WHEN NOT t.complete THEN false END AS complete
    FROM annotation AS t
    JOIN export_place AS p ON p.node IS NOT DISTINCT FROM t.node AND p.process IS NOT DISTINCT FROM t.process
        AND p.kind = CASE WHEN t.side = 'device' THEN 'ranges of stream' ELSE 'ranges of thread' END
        AND p.unit IS NOT DISTINCT FROM CASE WHEN t.side = 'device' THEN t.device ELSE t.tid END
        AND p.stream IS NOT DISTINCT FROM CASE WHEN t.side = 'device' THEN t.stream END
    ORDER BY p.track, t.start_ns, t.duration_ns DESC, t.depth, t.name, t.value, t.phase, t.complete, t.arguments, t.device, t.stream
"""
_STEP: Final = """
    SELECT p.track, s.host_start_ns AS start_ns, s.host_duration_ns AS duration_ns, 0 AS word, concat_ws(' ', 'step', s."index") AS title,
        s."index", s.phase, s.device_start_ns, s.device_duration_ns, s.device_events
    FROM step AS s
    JOIN export_place AS p ON p.kind = 'steps' AND p.node IS NOT DISTINCT FROM s.node AND p.process IS NOT DISTINCT FROM s.process
        AND p.word = coalesce(s.phase, '')
    ORDER BY p.track, s.host_start_ns, s.host_duration_ns DESC, s."index", s.phase, s.device_start_ns, s.device_duration_ns, s.device_events
"""
# Means are over the cores or GPUs of a node at one time, added in their order: the last bit of a sum depends on it.
_AVERAGE: Final = """
    SELECT p.track, s.time_ns AS start_ns, s.value FROM (
        SELECT node, metric, time_ns, list_aggregate(list(value ORDER BY unit, value), 'avg') AS value FROM sample
        WHERE metric IN ('cpu_utilization', 'gpu_utilization') AND unit IS NOT NULL AND isfinite(value) GROUP BY node, metric, time_ns
    ) AS s
    JOIN export_place AS p ON p.kind = 'average' AND p.node IS NOT DISTINCT FROM s.node AND p.word = s.metric
    WHERE isfinite(s.value) ORDER BY p.track, s.time_ns
"""
_SAMPLE: Final = """
    SELECT p.track, s.time_ns AS start_ns, s.value FROM sample AS s
    JOIN export_place AS p ON p.kind = 'sample' AND p.node IS NOT DISTINCT FROM s.node AND p.word = s.metric
        AND p.unit IS NOT DISTINCT FROM s.unit
    WHERE isfinite(s.value) ORDER BY p.track, s.time_ns, s.value
"""
_SPAN: Final = """
    SELECT min(first), max(last), sum(rows) FROM (
        SELECT min(start_ns) AS first, max(start_ns) AS last, count(*) AS rows FROM device_event
        UNION ALL SELECT min(start_ns), max(start_ns), count(*) FROM host_event
        UNION ALL SELECT min(start_ns), max(start_ns), count(*) FROM annotation
        UNION ALL SELECT min(host_start_ns), max(host_start_ns), count(*) FROM step
        UNION ALL SELECT min(time_ns), max(time_ns), count(*) FROM sample WHERE isfinite(value)
    )
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """Events of one table.

    ``words``: texts by the number in ``word`` of a row. ``arguments``: other facts of a row, by their names in PyTorch's traces, and their
    columns. ``nested``: whether an event may be inside another one.
    """

    sql: str
    words: tuple[str, ...]
    arguments: tuple[tuple[str, tuple[str, ...]], ...]
    nested: bool = True


HOST: Final = Kind(_HOST, ENUM_VALUES["HOST_KIND"], (("correlation", ("correlation",)), ("External id", ("external_id",))))
DEVICE: Final = Kind(
    _DEVICE, ENUM_VALUES["DEVICE_KIND"],
    (
        ("device", ("device",)), ("stream", ("stream",)), ("context", ("context",)), ("correlation", ("correlation",)),
        ("External id", ("external_id",)), ("bytes", ("bytes",)), ("copy kind", ("copy_kind",)), ("pageable", ("pageable",)),
        ("registers per thread", ("registers",)), ("shared memory", ("shared_memory",)), ("graph node id", ("graph_node",)),
        ("precision", ("precision",)), ("kernel category", ("category",)), ("grid", ("grid_x", "grid_y", "grid_z")),
        ("block", ("block_x", "block_y", "block_z")),
    ),
    nested=False,
)  # fmt: skip
ANNOTATION: Final = Kind(
    _ANNOTATION, ("annotation of a thread", "annotation of a stream"),
    tuple((word, (word,)) for word in ("value", "phase", "arguments", "device", "stream", "complete")),
)  # fmt: skip
STEP: Final = Kind(
    _STEP, ("step",), tuple((word, (word,)) for word in ("index", "phase", "device_start_ns", "device_duration_ns", "device_events"))
)


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows. ``names``: index in ``Events.texts`` of each row. ``ends`` are at or after ``starts``."""

    rows: pa.RecordBatch
    tracks: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    names: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tracks)

    def has(self, column: str) -> bool:
        """Whether any row has a value in the column."""
        return column in self.rows.schema.names and self.rows[column].null_count < len(self)

    def numbers(self, column: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the integers of a column, and which of them are valid."""
        return _int64(self.rows[column]), self.rows[column].is_valid().to_numpy(zero_copy_only=False)

    def lists(self, column: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the integers of all lists, and the offset of each row, with one more."""
        values = self.rows[column]
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(_int64(pc.list_value_length(values)), out=offsets[1:])
        return _int64(pc.list_flatten(values)), offsets


class Events:
    """The events of one store; use one iterator at a time. ``shift_ns`` is added to every time.

    ``cut``: how many events end before they start, or too late for 64 bits; these are shortened.
    """

    def __init__(self, store: Store, tree: Tree, progress: Callable[[str, float | None], None] | None = None) -> None:
        self.store = store
        self.shift_ns = 0
        self.cut = 0
        self._progress = progress
        self._done = 0
        names = store.connection.sql("SELECT id, coalesce(text, '') AS text FROM name WHERE id IS NOT NULL ORDER BY id").to_arrow_table()
        self._ids = np.append(names["id"].to_numpy().astype(np.int64), LAST_NS)
        self.texts: list[str] = [*names["text"].to_pylist(), ""]
        """The distinct names; the last one is that of events without one."""
        self._sizes = np.array([len(text) for text in self.texts])
        places = tree.places()
        store.connection.register("export_places", places)
        store.connection.execute("CREATE OR REPLACE TEMP TABLE export_place AS SELECT * FROM export_places")
        store.connection.unregister("export_places")
        store.connection.execute(_ARROWS)
        first, last, rows = store.frame(_SPAN).row(0)
        self.first: int | None = first  # start of the first event; None without times
        self._last: int = last or 0
        self._rows = max(1, int(rows))

    def move_up(self) -> int:
        """Make all times at least 0; return the offset that is added to each."""
        self.shift_ns = max(0, -(self.first or 0))
        if self._last + self.shift_ns > LAST_NS:
            raise InputError("the times of this run lie more than 292 years apart, which this format cannot hold; use --format parquet")
        return self.shift_ns

    def blocks(self, kind: Kind) -> Iterator[Block]:
        """Yield the events of a kind."""
        return self._blocks(kind.sql)

    def values(self) -> Iterator[Block]:
        """Yield counters with numeric values, and mean utilization by node."""
        yield from self._blocks(_AVERAGE)
        yield from self._blocks(_SAMPLE)

    def _blocks(self, sql: str) -> Iterator[Block]:
        for batch in self.store.connection.sql(sql).to_arrow_reader(BATCH):
            if not len(batch):
                continue
            block = self._block(batch)
            cuts = _cuts(batch, self._sizes[block.names])
            for begin, end in pairwise(cuts):
                part = slice(begin, end)
                if self._progress:
                    self._progress("writing", min(1.0, self._done / self._rows))
                yield Block(batch[part], block.tracks[part], block.starts[part], block.ends[part], block.names[part])
                self._done += end - begin

    def _block(self, batch: pa.RecordBatch) -> Block:
        starts = _int64(batch["start_ns"]) + self.shift_ns
        ends = starts
        names = np.full(len(batch), len(self.texts) - 1)
        if "duration_ns" in batch.schema.names:
            durations = _int64(batch["duration_ns"])
            ends = starts + np.maximum(durations, 0)
            late = ends < starts
            ends[late] = LAST_NS
            self.cut += int(np.count_nonzero(late | (durations < 0)))
        if "name" in batch.schema.names:
            ids = _int64(batch["name"].fill_null(LAST_NS - 1 if batch["name"].type == pa.int64() else -1))
            indices = np.searchsorted(self._ids, ids)
            names = np.where(self._ids[indices] == ids, indices, names)
        return Block(batch, _int64(batch["track"]), starts, ends, names)


def _int64(column: Any) -> NDArray[np.int64]:
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0) if column.null_count else column
    values: NDArray[np.int64] = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _cuts(batch: pa.RecordBatch, weights: NDArray[np.int64]) -> list[int]:
    """Return the limits of the blocks of a batch; ``weights``: bytes of the names."""
    sizes = weights.copy()
    for column in batch.columns:
        if pa.types.is_string(column.type):
            sizes += _int64(pc.binary_length(column))
        elif pa.types.is_list(column.type):
            sizes += 100 * _int64(pc.list_value_length(column))
    before = np.concatenate(([0], np.cumsum(sizes)))
    cuts = [0]
    while cuts[-1] < len(batch):
        fits = int(np.searchsorted(before, before[cuts[-1]] + BLOCK_BYTES, "right")) - 1
        cuts.append(min(len(batch), cuts[-1] + BLOCK, max(fits, cuts[-1] + 1)))
    return cuts
