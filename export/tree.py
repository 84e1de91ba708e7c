"""Tracks of a run: the documented tree, node -> CPU, GPUs -> process -> device and host -> streams and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from ..analysis.toolkit.places import Places, in_order
from ..ingest.store.metrics import COUNTER, METRICS
from ..ingest.store.store import Store


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the tree; its number is its index in ``Tree.tracks``, parents before children. ``kind``: node, cpu, cores, gpus, process,
    counter, device, stream, host, thread, steps or annotations. ``unit``: of a counter. ``id``: number of the stream or thread."""

    parent: int | None
    kind: str
    name: str
    unit: str | None = None
    id: int | None = None
    pid: int | None = None


class TrackKey(NamedTuple):
    """Values that the rows of a track share. ``kind``: stream, thread, ranges of stream, ranges of thread, steps, sample or average.
    ``unit``: device, thread, or unit of a sample. ``stream``: of the device. ``word``: phase (empty without one) or metric."""

    kind: str
    node: int | None
    process: int | None = None
    unit: int | None = None
    stream: int | None = None
    word: str | None = None


class Tree:
    """The tracks of one store, and which one a row belongs to."""

    def __init__(self, store: Store) -> None:
        self.tracks: list[Track] = []
        self._of: dict[TrackKey, int] = {}
        self._places = Places(store)
        self._build(store)

    def path(self, number: int | None) -> list[str]:
        """Return the names from the root to a track."""
        names: list[str] = []
        while number is not None:
            names.append(self.tracks[number].name)
            number = self.tracks[number].parent
        return names[::-1]

    def places(self) -> pa.Table:
        """Return the rows' tracks: a column per field of :class:`TrackKey`, and ``track``."""
        types = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.string())
        columns = {
            field: pa.array([key[number] for key in self._of], sort)
            for number, (field, sort) in enumerate(zip(TrackKey._fields, types, strict=True))
        }
        return pa.table({**columns, "track": pa.array(self._of.values(), pa.int64())})

    # -- making it -------------------------------------------------------------------------------------------------------

    def _add(self, parent: int | None, kind: str, name: str, key: TrackKey | None = None, **more: Any) -> int:
        number = len(self.tracks)
        self.tracks.append(Track(parent, kind, name, **more))
        if key is not None:
            self._of[key] = number
        return number

    def _build(self, store: Store) -> None:
        def distinct(sql: str) -> list[tuple[Any, ...]]:
            return sorted(store.frame(sql).rows(), key=lambda row: [(value is None, value if value is not None else 0) for value in row])

        streams = distinct("SELECT DISTINCT node, process, device, stream FROM device_event")
        threads = distinct("SELECT DISTINCT node, process, tid FROM host_event")
        of_streams = distinct("SELECT DISTINCT node, process, device, stream FROM annotation WHERE side = 'device'")
        of_threads = distinct("SELECT DISTINCT node, process, tid FROM annotation WHERE side IS DISTINCT FROM 'device'")
        phases = distinct("SELECT DISTINCT node, process, coalesce(phase, '') FROM step")
        samples = distinct("SELECT DISTINCT node, metric, unit FROM sample WHERE isfinite(value)")
        known = distinct("SELECT node, id FROM process")
        owners = {row[:2] for rows in (streams, threads, of_streams, of_threads, phases, known) for row in rows}
        # The counters of a process are under the process, whatever node the sample names.
        home = {process: node for node, process in sorted(owners, key=str)}
        nodes = {node for node, _ in owners} | {node for node, _, _ in samples} | {n for (n,) in distinct("SELECT id FROM node")}
        ordered = sorted(nodes, key=lambda node: (in_order(self._places.node(node)), -1 if node is None else node))
        for index, node in enumerate(ordered):
            top = self._add(None, "node", self._places.node(node))
            mine = [(metric, unit) for at, metric, unit in samples if at == node]
            self._cpu(top, node, mine)
            processes = sorted(
                (process for at, process in owners if at == node), key=lambda process: (self._places.process(process).order, str(process))
            )
            used = {p: sorted({d for n, q, d, _ in streams + of_streams if (n, q) == (node, p)}, key=_last) for p in processes}
            if any(used.values()) or any(metric.startswith("gpu_") for metric, _ in mine):
                gpus = self._add(top, "gpus", "GPUs")
                if any(metric == "gpu_utilization" and unit is not None for metric, unit in mine):
                    self._add(gpus, "counter", "SUM Utilization", TrackKey("average", node, word="gpu_utilization"), unit="%")
                claimed = {device for devices in used.values() for device in devices}
                for device in sorted({unit for metric, unit in mine if metric.startswith("gpu_") and unit not in claimed}, key=_last):
                    self._gpu_counters(gpus, node, device, mine)
            for process in processes:
                parent = gpus if used[process] else top
                label = self._label(index, process)
                track = self._add(parent, "process", label)
                for n, q, phase in phases:
                    if (n, q) == (node, process):
                        self._add(track, "steps", f"steps {phase}".strip(), TrackKey("steps", n, q, word=phase))
                for at, metric, unit in samples:
                    if metric.startswith(COUNTER) and unit == process and home.get(unit) == node:
                        self._add(track, "counter", counter_name(metric), _sample(at, metric, unit))
                for device in used[process]:
                    self._gpu_counters(track, node, device, mine)
                    name = "device" if device is None else f"GPU-{device} device"
                    group = self._add(track, "device", name)
                    for n, q, d, stream in streams:
                        if (n, q, d) == (node, process, device):
                            self._add(group, "stream", _numbered("stream", stream), TrackKey("stream", n, q, d, stream), id=stream)
                    for n, q, d, stream in of_streams:
                        if (n, q, d) == (node, process, device):
                            key = TrackKey("ranges of stream", n, q, d, stream)
                            self._add(group, "annotations", f"annotations of {_numbered('stream', stream)}", key)
                self._host(track, node, process, used[process], threads, of_threads)
            for at, metric, unit in samples:  # of processes without other rows
                if at == node and _sample(at, metric, unit) not in self._of and (unit is None or home.get(unit) is None):
                    self._add(top, "counter", _numbered(counter_name(metric), unit), _sample(at, metric, unit), unit=_unit(metric))
        for at, metric, unit in samples:
            if _sample(at, metric, unit) not in self._of:
                self._add(None, "counter", _numbered(counter_name(metric), unit), _sample(at, metric, unit), unit=_unit(metric))

    def _cpu(self, top: int, node: int | None, samples: list[tuple[str, int | None]]) -> None:
        of_machine = [(m, u) for m, u in samples if not m.startswith(("gpu_", COUNTER))]
        if not of_machine:
            return
        cpu = self._add(top, "cpu", "CPU")
        if any(metric == "cpu_utilization" and unit is not None for metric, unit in of_machine):
            self._add(cpu, "counter", "CPU utilization", TrackKey("average", node, word="cpu_utilization"), unit="%")
        for metric, unit in of_machine:
            if unit is None:
                self._add(cpu, "counter", metric, _sample(node, metric, unit), unit=_unit(metric))
        if any(unit is not None for _, unit in of_machine):
            cores = self._add(cpu, "cores", "cores")
            for metric, unit in sorted(((m, u) for m, u in of_machine if u is not None), key=lambda pair: (pair[1], pair[0])):
                self._add(cores, "counter", f"core {unit} {metric}", _sample(node, metric, unit), unit=_unit(metric))

    def _gpu_counters(self, parent: int, node: int | None, device: int | None, samples: list[tuple[str, int | None]]) -> None:
        """Add the counters of a GPU; if processes share it, under the first of them."""
        label = "GPU" if device is None else f"GPU-{device}"
        mine = [m for m, unit in samples if m.startswith("gpu_") and unit == device and _sample(node, m, unit) not in self._of]
        for metric in sorted(mine, key=lambda metric: (metric != "gpu_utilization", metric)):
            word = "utilization" if metric == "gpu_utilization" else metric.removeprefix("gpu_").replace("_", " ")
            self._add(parent, "counter", f"{label} {word}", _sample(node, metric, device), unit=_unit(metric))

    def _host(
        self, parent: int, node: int | None, process: int | None, used: list[int | None], threads: list[tuple[Any, ...]],
        ranges: list[tuple[Any, ...]],
    ) -> None:  # fmt: skip
        mine = [tid for n, q, tid in threads if (n, q) == (node, process)]
        annotated = [tid for n, q, tid in ranges if (n, q) == (node, process)]
        if not mine and not annotated:
            return
        name = f"GPU-{used[0]} host" if len(used) == 1 and used[0] is not None else "host"
        group = self._add(parent, "host", name, pid=self._places.process(process).pid)
        for tid in sorted({*mine, *annotated}, key=_last):
            if tid in annotated:
                key = TrackKey("ranges of thread", node, process, tid)
                self._add(group, "annotations", f"annotations of {_numbered('thread', tid)}", key, id=tid)
            if tid in mine:
                self._add(group, "thread", _numbered("thread", tid), TrackKey("thread", node, process, tid), id=tid)

    def _label(self, index: int, process: int | None) -> str:
        known = self._places.process(process)
        pid = "?" if known.pid is None else str(known.pid)
        return f"HOST-{index} PID-{pid}" + ("" if known.rank is None else f" rank {known.rank}")


def counter_name(metric: str) -> str:
    """Return a metric without the prefix of the program's own counters."""
    return metric.removeprefix(COUNTER)


def _sample(node: int | None, metric: str, unit: int | None) -> TrackKey:
    return TrackKey("sample", node, None, unit, word=metric)


def _unit(metric: str) -> str | None:
    """Return a unit for a viewer; the metric's name shows the base of a percentage."""
    unit = METRICS.get(metric)
    return "%" if unit is not None and unit.startswith("%") else unit


def _numbered(word: str, number: int | None) -> str:
    return word if number is None else f"{word} {number}"


def _last(number: int | None) -> tuple[bool, int]:
    return number is None, number or 0
