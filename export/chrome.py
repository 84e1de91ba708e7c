"""Chrome traces (JSON) of a run: complete events on threads of invented processes, one per group of the tree.

The format has two levels, processes and threads; the levels above are in the name of the process. Categories and arguments are named as in
PyTorch's profiler. Times are microseconds with three decimals since ``baseTimeNanoseconds``: nothing is lost in a double.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .counts import Counts
from .events import ANNOTATION, DEVICE, HOST, STEP, Block, Events, Kind
from .lanes import Lanes
from .texts import codes_of, complete_texts, put, row_texts, together
from .tree import Tree

_CATEGORIES: Final = {
    "kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "sync": "cuda_sync", "launch": "cuda_runtime",
    "host sync": "cuda_runtime", "call": "cuda_runtime", "operator": "cpu_op", "python": "python_function", "loader": "cpu_op",
    "overhead": "overhead", "annotation of a thread": "user_annotation", "annotation of a stream": "gpu_user_annotation", "step": "step",
}  # fmt: skip
_ARROW: Final = ',"cat":"ac2g","name":"ac2g"'
_DECIMALS: Final = pa.array([f".{number:03d}" for number in range(1000)])
NEXT: Final = ",\n"  # Before each event; of the first one it is cut
_INVENTED: Final = 1_000_000_000  # Process and thread numbers of at least this are not those of the node
_GROUPS: Final = frozenset({"node", "cpu", "cores", "gpus", "process", "device", "host"})

Row = dict[str, Any]


def write(out: BinaryIO, tree: Tree, events: Events, properties: dict[str, Any]) -> Counts:
    """Write the whole run to ``out``; ``properties`` go next to the events."""
    return _Writer(out, tree, events).run(properties)


class _Writer:
    def __init__(self, out: BinaryIO, tree: Tree, events: Events) -> None:
        self.out = out
        self.tree = tree
        self.events = events
        self.counts = Counts(tracks=len(tree.tracks))
        self.base = events.first or 0
        self._names = pa.array([_json(name) for name in events.texts])
        self._lines: list[str] = []
        self._first = True
        self._threads: dict[tuple[int, int], tuple[int, int]] = {}
        self._pids: dict[int | None, int] = {}
        self._next_tid = _INVENTED

    def run(self, properties: dict[str, Any]) -> Counts:
        head = {**properties, "displayTimeUnit": "ns", "baseTimeNanoseconds": self.base}
        self.out.write((_json(head)[:-1] + ',"traceEvents":[').encode())
        self._processes()
        for kind in (HOST, DEVICE, ANNOTATION, STEP):
            self._slices(kind)
        for block in self.events.values():
            self._values(block)
        self._flush()
        self.out.write(b"\n]}\n")
        self.counts.cut = self.events.cut
        return self.counts

    # -- processes and threads -------------------------------------------------------------------------------------------

    def _processes(self) -> None:
        """Describe the groups with tracks; one of host threads keeps its process's number."""
        taken: set[int] = set()
        tracks = self.tree.tracks
        parents = dict.fromkeys(track.parent for track in tracks if track.kind not in _GROUPS)
        for order, group in enumerate(parents):
            pid = tracks[group].pid if group is not None else None
            if pid is None or pid in taken or not 0 < pid < _INVENTED:
                pid = _INVENTED + order
            taken.add(pid)
            self._pids[group] = pid
            self._meta("process_name", pid, 0, {"name": " / ".join(self.tree.path(group)) or "run"})
            self._meta("process_sort_index", pid, 0, {"sort_index": order})
        used: set[tuple[int, int]] = set()
        for number, track in enumerate(tracks):
            if track.kind not in _GROUPS and track.kind != "counter":
                pid, tid = self._pids[track.parent], track.id
                if tid is None or not 0 <= tid < _INVENTED or (pid, tid) in used:
                    tid = self._tid()
                used.add((pid, tid))
                self._thread(number, 0, pid, tid)

    def _tid(self) -> int:
        self._next_tid += 1
        return self._next_tid

    def _thread(self, number: int, lane: int, pid: int, tid: int) -> None:
        self._threads[number, lane] = pid, tid
        self._meta("thread_name", pid, tid, {"name": self.tree.tracks[number].name})
        self._meta("thread_sort_index", pid, tid, {"sort_index": number})

    def _meta(self, name: str, pid: int, tid: int, arguments: Row) -> None:
        self._line({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": arguments})

    # -- events ------------------------------------------------------------------------------------------------------------

    def _slices(self, kind: Kind) -> None:
        lanes = Lanes(nested=kind.nested)
        heads = pa.array([f'{{"ph":"X","cat":"{_CATEGORIES[word]}","name":' for word in _qualified(kind)])
        for block in self.events.blocks(kind):
            placed = lanes.assign(block.tracks, block.starts, block.ends)
            for track, lane in placed.fresh:
                self._thread(track, lane, self._threads[track, 0][0], self._tid())
            self._flush()
            self.counts.lanes += len(placed.fresh)
            self.counts.slices += len(block)
            pairs, of_rows = np.unique(np.stack((block.tracks, placed.lanes)), axis=1, return_inverse=True)
            numbers = [self._threads[track, lane] for track, lane in pairs.T.tolist()]
            where = pa.array([f',"pid":{pid},"tid":{tid},"ts":' for pid, tid in numbers]).take(pa.array(of_rows.ravel()))
            when = row_texts([where, *self._times(block.starts)])
            names = _quoted(block.rows["title"]) if block.has("title") else self._names.take(pa.array(block.names))
            line = [NEXT, heads.take(pa.array(block.numbers("word")[0])), names, when, ',"dur":', *_micro(block.ends - block.starts)]
            line += [_arguments(block, kind), "}"]
            self._put([row_texts(line), *self._arrows(block, when)])

    def _arrows(self, block: Block, when: Any) -> list[Any]:
        """Return the lines of arrows that end or begin with each event."""
        if block.has("arrow"):
            self.counts.arrows += len(block) - block.rows["arrow"].null_count
            numbers = block.rows["arrow"].cast(pa.string())  # without a number the line is missing
            return [row_texts([complete_texts([NEXT + '{"ph":"f","id":', numbers, _ARROW, when, ',"bp":"e"}'])])]
        if block.has("arrows"):
            numbers, of_rows = block.lists("arrows")
            rows = np.repeat(np.arange(len(block)), np.diff(of_rows))
            lines = complete_texts([NEXT + '{"ph":"s","id":', pa.array(numbers).cast(pa.string()), _ARROW, when.take(pa.array(rows)), "}"])
            return [together(lines, of_rows)]
        return []

    def _values(self, block: Block) -> None:
        tracks, of_rows = np.unique(block.tracks, return_inverse=True)
        heads, keys = [], []
        for number in tracks.tolist():
            track = self.tree.tracks[number]
            heads.append(f'{NEXT}{{"ph":"C","name":{_json(track.name)},"pid":{self._pids[track.parent]},"ts":')
            keys.append(f',"args":{{{_json(track.unit or "value")}:')
        of_rows = pa.array(of_rows)
        values = block.rows["value"].cast(pa.string())
        self._put([row_texts([pa.array(heads).take(of_rows), *self._times(block.starts), pa.array(keys).take(of_rows), values, "}}"])])
        self.counts.values += len(block)

    def _times(self, moments: NDArray[np.int64]) -> list[Any]:
        return _micro(moments - self.base)  # of 64 bits without a sign: the difference of any two moments

    # -- text --------------------------------------------------------------------------------------------------------------

    def _line(self, event: Row) -> None:
        self._lines.append(NEXT + _json(event))

    def _flush(self) -> None:
        """Write the lines that wait."""
        if self._lines:
            self._put([pa.array(["".join(self._lines)])])
            self._lines.clear()

    def _put(self, pieces: list[Any]) -> None:
        self._first = put(self.out, pieces, skip=1 if self._first else 0) == 0 and self._first


def _qualified(kind: Kind) -> list[str]:
    return [f"host {word}" if kind is HOST and word == "sync" else word for word in kind.words]


def _arguments(block: Block, kind: Kind) -> Any:
    """Return the arguments of each event as JSON; missing without any."""
    arguments = []
    for key, columns in kind.arguments:
        if not block.has(columns[0]):
            continue
        column = block.rows[columns[0]]
        if len(columns) > 1:
            sizes = [block.rows[name].cast(pa.string()) for name in columns]
            column = complete_texts(["[", complete_texts([sizes[0], *(size.fill_null("null") for size in sizes[1:])], ","), "]"])
        elif pa.types.is_string(column.type):
            column = _quoted(column)
        else:
            column = column.cast(pa.string())  # of a number or a truth value, as JSON writes it
        arguments.append(complete_texts([f"{_json(key)}:", column]))
    if not arguments:
        return ""
    some = row_texts(arguments, ",")
    return pc.if_else(pc.equal(some, ""), "", row_texts([',"args":{', some, "}"]))


def _quoted(column: Any) -> Any:
    """Return texts as JSON strings."""
    words, codes = codes_of(column)
    return pa.array([None, *map(_json, words)], pa.string()).take(pa.array(codes + 1))


def _micro(nanoseconds: NDArray[np.int64]) -> list[Any]:
    """Return microseconds with three decimals, in two pieces, of unsigned values."""
    micro, rest = np.divmod(nanoseconds.view(np.uint64), np.uint64(1000))
    return [pa.array(micro).cast(pa.string()), _DECIMALS.take(pa.array(rest))]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
