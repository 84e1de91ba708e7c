"""How does a run become a Chrome trace (JSON)? Complete events on threads of made-up processes, one per group of the tree.

The format has two levels, processes and threads: what lies above is in the name of the process. Categories and arguments are named as
PyTorch's profiler names them. Times are microseconds with three decimals since ``baseTimeNanoseconds``: nothing is lost in a double.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

from . import events as rows
from .counts import Counts
from .events import Events, Row
from .lanes import Lanes
from .tree import Tree

_CATEGORIES: Final = {
    "kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "sync": "cuda_sync", "launch": "cuda_runtime",
    "host sync": "cuda_runtime", "call": "cuda_runtime", "operator": "cpu_op", "python": "python_function", "loader": "cpu_op",
    "overhead": "overhead",
}  # fmt: skip
_MADE_UP: Final = 1_000_000_000
"""Process and thread numbers from here on are not those of the machine."""
_GROUPS: Final = frozenset({"node", "cpu", "cores", "gpus", "process", "device", "host"})
_BYTES: Final = 1 << 20


def write(out: BinaryIO, tree: Tree, events: Events, properties: dict[str, Any]) -> Counts:
    """Write the whole run to ``out``. ``properties``: what stands beside the events."""
    return _Writer(out, tree, events).run(properties)


class _Writer:
    def __init__(self, out: BinaryIO, tree: Tree, events: Events) -> None:
        self.out = out
        self.tree = tree
        self.events = events
        self.counts = Counts(tracks=len(tree.tracks))
        span = events.span()
        self.base = span[0] if span else 0
        self._lines: list[str] = []
        self._held = 0
        self._first = True
        self._place: dict[tuple[int, int], tuple[int, int]] = {}
        self._pids: dict[int | None, int] = {}
        self._next_tid = _MADE_UP

    def run(self, properties: dict[str, Any]) -> Counts:
        head = {**properties, "displayTimeUnit": "ns", "baseTimeNanoseconds": self.base}
        self._lines.append(_json(head)[:-1] + ',"traceEvents":[')
        self._processes()
        self._slices(self.events.host(), self.tree.host, True, self._of_host)
        self._slices(self.events.device(), self.tree.device, False, self._of_device)
        self._slices(self.events.annotations(), self.tree.annotation, True, self._of_annotation)
        self._slices(self.events.steps(), self.tree.step, True, lambda row: (f"step {row['index']}", "step", rows.step_arguments(row)))
        for samples, track_of in ((self.events.averages(), self.tree.average), (self.events.samples(), self.tree.sample)):
            for row in samples:
                self._counter(track_of(row), row)
        self._lines.append("\n]}\n")
        self._flush()
        return self.counts

    def _of_host(self, row: Row) -> tuple[str, str, Row]:
        word = "host sync" if row["word"] == "sync" else row["word"]
        return self.events.name(row["name"]), _CATEGORIES[word], rows.host_arguments(row)

    def _of_device(self, row: Row) -> tuple[str, str, Row]:
        return self.events.name(row["name"]), _CATEGORIES[row["word"]], rows.device_arguments(row, self.events)

    def _of_annotation(self, row: Row) -> tuple[str, str, Row]:
        category = "gpu_user_annotation" if row["side"] == "device" else "user_annotation"
        return self.events.name(row["name"]), category, rows.annotation_arguments(row)

    # -- processes and threads -------------------------------------------------------------------------------------------

    def _processes(self) -> None:
        """One for each group that has tracks of its own; a group of host threads keeps the number of its process."""
        taken: set[int] = set()
        tracks = self.tree.tracks
        parents = dict.fromkeys(track.parent for track in tracks if track.kind not in _GROUPS)
        for order, group in enumerate(parents):
            pid = tracks[group].pid if group is not None else None
            if pid is None or pid in taken or not 0 < pid < _MADE_UP:
                pid = _MADE_UP + order
            taken.add(pid)
            self._pids[group] = pid
            self._meta("process_name", pid, 0, {"name": " / ".join(self.tree.path(group)) or "run"})
            self._meta("process_sort_index", pid, 0, {"sort_index": order})
        used: set[tuple[int, int]] = set()
        for number, track in enumerate(tracks):
            if track.kind not in _GROUPS and track.kind != "counter":
                pid, tid = self._pids[track.parent], track.own
                if tid is None or not 0 <= tid < _MADE_UP or (pid, tid) in used:
                    tid = self._tid()
                used.add((pid, tid))
                self._thread(number, 0, pid, tid)

    def _tid(self) -> int:
        self._next_tid += 1
        return self._next_tid

    def _thread(self, number: int, lane: int, pid: int, tid: int) -> None:
        self._place[number, lane] = pid, tid
        self._meta("thread_name", pid, tid, {"name": self.tree.tracks[number].name})
        self._meta("thread_sort_index", pid, tid, {"sort_index": number})

    def _meta(self, name: str, pid: int, tid: int, arguments: Row) -> None:
        self._line({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": arguments})

    # -- events ------------------------------------------------------------------------------------------------------------

    def _slices(
        self, found: Iterator[Row], track_of: Callable[[Row], int], nested: bool, told: Callable[[Row], tuple[str, str, Row]]
    ) -> None:
        at, lanes, known = -1, Lanes(nested=nested), 1
        for row in found:
            number = track_of(row)
            if number != at:
                at, lanes, known = number, Lanes(nested=nested), 1
            start, duration = row["start_ns"], row["duration_ns"] or 0
            lane, _ = lanes.place(start, start + duration)
            if lane >= known:
                self._thread(number, lane, self._place[number, 0][0], self._tid())
                known += 1
                self.counts.lanes += 1
            pid, tid = self._place[number, lane]
            name, category, arguments = told(row)
            moment = self._time(start)
            more = f',"args":{_json(arguments)}' if arguments else ""
            self._text(
                f'{{"ph":"X","cat":"{category}","name":{_json(name)},"pid":{pid},"tid":{tid},"ts":{moment},"dur":{_micro(duration)}{more}}}'
            )
            self.counts.slices += 1
            arrow = row.get("arrow")
            if arrow is not None:
                self._arrow("f", arrow, pid, tid, moment)
                self.counts.arrows += 1
            for one in row.get("arrows") or ():
                self._arrow("s", one, pid, tid, moment)

    def _arrow(self, phase: str, number: int, pid: int, tid: int, moment: str) -> None:
        bound = ',"bp":"e"' if phase == "f" else ""
        self._text(f'{{"ph":"{phase}","id":{number},"cat":"ac2g","name":"ac2g","pid":{pid},"tid":{tid},"ts":{moment}{bound}}}')

    def _counter(self, number: int, row: Row) -> None:
        track = self.tree.tracks[number]
        value = {track.unit or "value": row["value"]}
        pid = self._pids[track.parent]
        self._text(f'{{"ph":"C","name":{_json(track.name)},"pid":{pid},"ts":{self._time(row["time_ns"])},"args":{_json(value)}}}')
        self.counts.values += 1

    def _time(self, moment: int) -> str:
        return _micro(moment - self.base)

    # -- text --------------------------------------------------------------------------------------------------------------

    def _line(self, event: Row) -> None:
        self._text(_json(event))

    def _text(self, text: str) -> None:
        self._lines.append("\n" + text if self._first else ",\n" + text)
        self._first = False
        self._held += len(text)
        if self._held > _BYTES:
            self._flush()

    def _flush(self) -> None:
        self.out.write("".join(self._lines).encode("utf-8", "backslashreplace"))
        self._lines.clear()
        self._held = 0


def _micro(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
