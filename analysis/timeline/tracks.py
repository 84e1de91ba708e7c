"""Tree of the rows of a timeline.

Node: CPU (average utilization, counters); GPUs (mean utilization): process (HOST-0 PID-7): its steps, GPU-i utilization, GPU-i device
with its streams, GPU-i host with its threads, counters. Names and order are those of the hosted service's timeline. Without GPUs a
process is directly below its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...ingest.store.store import Store
from ..toolkit.places import Place, Places, in_order
from .events import NONE, PLACES
from .lines import UTILIZATION, Drawn
from .model import Track

Key = tuple[str, int, int, int, int]
_LONGEST: Final = 40
_LAST_ID: Final = 4_194_304  # largest thread id of Linux; other numbers are addresses (some negative, cut to 32 bits) and get an index
# Autograd works in threads of its own.
_BACKWARD: Final = """
    SELECT DISTINCT process, tid FROM host_event AS e
    SEMI JOIN (FROM name WHERE starts_with(text, 'autograd::engine')) AS n ON n.id = e.name WHERE process IS NOT NULL AND tid IS NOT NULL
"""


class Tree:
    """Tracks of a timeline. ``of``: the track of a key; ``line``: the tracks of the lines; ``process``: the tracks of the processes."""

    def __init__(self, store: Store, keys: Iterable[tuple[int, ...]], lines: Sequence[Drawn]) -> None:
        self.tracks: list[Track] = []
        self.of: dict[Key, int] = {}
        self.line: dict[int, int] = {}
        self.process: dict[int, list[int]] = {}
        self._keys: list[Key] = [(PLACES[place], node, process, device, number) for place, node, process, device, number in keys]
        self._lines = lines
        self._places = Places(store)
        self._backward = set(store.frame(_BACKWARD).rows()) if any(key[0] == "thread" for key in self._keys) else set()
        nodes = {key[1] for key in self._keys} | {line.node for line in lines}
        for position, node in enumerate(sorted(nodes, key=lambda node: (in_order(self._host(node)), node))):
            self._node(node, position)

    def _host(self, node: int) -> str:
        return self._places.node(None if node == NONE else node)

    def _add(self, parent: int | None, kind: str, label: str, detail: str = "", narrow: str = "") -> int:
        short = label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
        self.tracks.append(Track(parent, kind, short, 0, detail or (label if short != label else ""), narrow))
        return len(self.tracks) - 1

    def _put(self, parent: int, lines: Iterable[Drawn]) -> None:
        # Lines of utilization come first, then lines by name.
        for line in sorted(lines, key=lambda line: (line.number, line.metric not in (*UTILIZATION, "mean"), line.label, line.metric)):
            kind = "utilization" if line.metric in (*UTILIZATION, "mean") else "counter"
            narrow = line.label.replace("tilization", "til.") if kind == "utilization" else ""
            self.line[id(line)] = self._add(parent, kind, line.label, line.detail, narrow if narrow != line.label else "")

    def _node(self, node: int, position: int) -> None:
        top = self._add(None, "node", self._host(node))
        lines = [line for line in self._lines if line.node == node]
        machine = [line for line in lines if line.scope == "machine"]
        if machine:
            self._put(self._add(top, "cpu", "CPU"), machine)
        keys = [key for key in self._keys if key[1] == node]
        counted = {line.number for line in lines if line.scope == "process"}
        processes = {key[2] for key in keys} | counted
        users: dict[int, set[int]] = {}
        for _, _, process, device, _ in keys:
            if device != NONE:
                users.setdefault(device, set()).add(process)
        mean, gpus = [line for line in lines if line.scope == "gpus"], [line for line in lines if line.scope == "gpu"]
        below = self._add(top, "gpus", "GPUs") if users or gpus else top
        self._put(below, mean)
        # A GPU that only one process used is below that process; other GPUs are listed once.
        self._put(below, (line for line in gpus if len(users.get(line.number, ())) != 1))
        for process in sorted(processes, key=lambda process: (self._location(process, node).order, process)):
            single = [line for line in gpus if users.get(line.number) == {process}]
            self._process(below, process, node, position, [key for key in keys if key[2] == process], single,
                          [line for line in lines if line.scope == "process" and line.number == process])  # fmt: skip

    def _location(self, process: int, node: int) -> Place:
        return self._places.process(None if process < 0 else process, None if node == NONE else node)

    def _process(
        self, parent: int, process: int, node: int, position: int, keys: list[Key], gpus: list[Drawn], counters: list[Drawn]
    ) -> None:  # fmt: skip
        known = self._location(process, node)
        rank = "" if known.rank is None else f"rank {known.rank}"
        pid = f"PID-{'?' if known.pid is None else known.pid}"
        pid_text = f"pid {known.pid}" if known.pid is not None else "" if rank else "unknown process"
        full = " ".join(word for word in (known.node, rank, pid_text) if word)
        top = self._add(parent, "process", f"HOST-{position} {pid} {rank}".rstrip(), full, rank or pid)
        self.process.setdefault(process, []).append(top)
        for key in sorted(key for key in keys if key[0] == "steps"):
            self.of[key] = self._add(top, "steps", "Steps")
        devices = sorted({key[3] for key in keys if key[0] in ("stream", "ranges")} | {line.number for line in gpus})
        for device in devices:
            self._device(top, device, keys, [line for line in gpus if line.number == device])
        self._host_threads(top, process, [key for key in keys if key[0] in ("thread", "annotations")], devices, known.pid)
        self._put(top, counters)

    def _device(self, parent: int, device: int, keys: list[Key], lines: list[Drawn]) -> None:
        self._put(parent, lines)
        device_keys = [key for key in keys if key[0] in ("stream", "ranges") and key[3] == device]
        if not device_keys:
            return
        top = self._add(parent, "device", "GPU device" if device == NONE else f"GPU-{device} device")
        # The streams come first, then the annotations on them.
        for key in sorted(device_keys, key=lambda key: (key[0] == "ranges", key[4] == NONE, key[4])):
            stream = "no stream" if key[4] == NONE else f"stream {key[4]}"
            if key[0] == "ranges":
                self.of[key] = self._add(
                    top, "annotations", f"{stream}, annotations", f"annotations of {stream}", f"annot. {stream.removeprefix('stream ')}"
                )
            else:
                self.of[key] = self._add(top, "stream", stream)

    def _host_threads(self, parent: int, process: int, keys: list[Key], devices: list[int], pid: int | None) -> None:
        if not keys:
            return
        top = self._add(parent, "host", f"GPU-{devices[0]} host" if len(devices) == 1 and devices[0] != NONE else "host")
        unreadable = sorted({key[4] for key in keys if key[4] != NONE and not 0 <= key[4] <= _LAST_ID})
        for key in sorted(keys, key=lambda key: (key[4] != pid, key[4] == NONE, key[4], key[0])):
            number = key[4]
            full = "thread unknown" if number == NONE else f"thread {number}"
            short = f"#{unreadable.index(number) + 1}" if number in unreadable else full.removeprefix("thread ")
            role = "main" if number == pid else "backward" if (process, number) in self._backward else ""
            thread = f"thread {short}" + (f" ({role})" if role else "")
            if key[0] == "annotations":
                self.of[key] = self._add(top, "annotations", f"{thread}, annotations", f"annotations of {full}", f"annot. {role or short}")
            else:
                self.of[key] = self._add(top, "thread", thread, full if full != thread else "", role)
