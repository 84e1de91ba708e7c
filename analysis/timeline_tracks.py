"""Which rows does a timeline have, and which one stands below which?

Node: CPU (average utilisation, counters); GPUs (average utilisation): process: its steps, annotations and counters, each GPU's utilisation
and its streams, the threads of the host. Without GPUs a process stands directly below its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from ..ingest.store import Store
from .places import Place, Places
from .timeline_data import Track
from .timeline_events import NONE, PLACES
from .timeline_lines import UTILISATION, Drawn

KEYS: Final = ("place", "node", "process", "device", "number")
"""What makes events of one track."""

Key = tuple[str, int, int, int, int]
_LONGEST: Final = 40


class Tree:
    """``tracks``; ``of``: the track of a key; ``line``: the tracks of the lines, None for a line that has no place."""

    def __init__(self, store: Store, keys: Iterable[tuple[int, ...]], lines: Sequence[Drawn]) -> None:
        self.tracks: list[Track] = []
        self.of: dict[Key, int] = {}
        self.line: dict[int, int] = {}
        self._keys: list[Key] = [(PLACES[place], node, process, device, number) for place, node, process, device, number in keys]
        self._lines = lines
        self._places = Places(store)
        self._homes: dict[int, int] = dict(store.frame("SELECT id, node FROM process WHERE node IS NOT NULL").rows())
        nodes = {key[1] for key in self._keys} | {line.node for line in lines}
        for node in sorted(nodes, key=lambda node: (self._host(node), node)):
            self._node(node)

    def events(self, frame: pl.DataFrame) -> pl.DataFrame:
        """``frame`` (columns ``KEYS``) with ``track`` in their place."""
        rows = [(PLACES.index(place), *key, track) for (place, *key), track in self.of.items()]
        schema = {key: frame.schema[key] for key in KEYS} | {"track": pl.Int32()}
        return frame.join(pl.DataFrame(rows, schema=schema, orient="row"), on=KEYS).drop(KEYS)

    def _host(self, node: int) -> str:
        return self._places.node(None if node == NONE else node)

    def _add(self, parent: int | None, kind: str, label: str, detail: str = "") -> int:
        short = label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
        self.tracks.append(Track(parent, kind, short, 0, detail or (label if short != label else "")))
        return len(self.tracks) - 1

    def _put(self, parent: int, lines: Iterable[Drawn]) -> None:
        # Utilisation first, then by name.
        for line in sorted(lines, key=lambda line: (line.number, line.metric not in (*UTILISATION, "mean"), line.label, line.metric)):
            kind = "utilisation" if line.metric in (*UTILISATION, "mean") else "counter"
            self.line[id(line)] = self._add(parent, kind, line.label, line.detail)

    def _node(self, node: int) -> None:
        top = self._add(None, "node", self._host(node))
        own = [line for line in self._lines if line.node == node]
        machine = [line for line in own if line.place == "machine"]
        if machine:
            self._put(self._add(top, "cpu", "CPU"), machine)
        keys = [key for key in self._keys if key[1] == node]
        counted = {line.number for line in own if line.place == "process"}
        processes = {key[2] for key in keys} | counted
        users: dict[int, set[int]] = {}
        for _, _, process, device, _ in keys:
            if device != NONE:
                users.setdefault(device, set()).add(process)
        mean, gpus = [line for line in own if line.place == "gpus"], [line for line in own if line.place == "gpu"]
        below = self._add(top, "gpus", "GPUs") if users or gpus else top
        self._put(below, mean)
        # A GPU that one process used is shown below that process, another one once for all.
        self._put(below, (line for line in gpus if len(users.get(line.number, ())) != 1))
        for process in sorted(processes, key=lambda process: (self._place(process, node).order, process)):
            single = [line for line in gpus if users.get(line.number) == {process}]
            self._process(below, process, node, [key for key in keys if key[2] == process], single,
                          [line for line in own if line.place == "process" and line.number == process])  # fmt: skip

    def _place(self, process: int, node: int) -> Place:
        return self._places.process(None if process < 0 else process, None if node == NONE else node)

    def _process(self, parent: int, process: int, node: int, keys: list[Key], gpus: list[Drawn], counters: list[Drawn]) -> None:
        place = self._place(process, node)
        ids = [*([f"rank {place.rank}"] if place.rank is not None else []), *([f"pid {place.pid}"] if place.pid is not None else [])]
        rest = " ".join(ids or ["unknown process"])
        host = place.node if len(place.node) + len(rest) < _LONGEST else f"{place.node[: max(_LONGEST - len(rest) - 2, 1)]}…"
        top = self._add(parent, "process", f"{host} {rest}", f"{place.node} {rest}" if host != place.node else "")
        of = {kind: sorted((key for key in keys if key[0] == kind), key=lambda key: key[3:]) for kind in ("steps", "annotations", "thread")}
        for key in of["steps"]:
            self.of[key] = self._add(top, "steps", "Steps")
        for key in of["annotations"]:
            self.of[key] = self._add(
                top, "annotations", "Annotations" if len(of["annotations"]) == 1 else f"Annotations, {_thread(key[4])}"
            )
        self._put(top, counters)
        for device in sorted({key[3] for key in keys if key[0] in ("stream", "ranges")} | {line.number for line in gpus}):
            self._device(top, device, keys, [line for line in gpus if line.number == device])
        if of["thread"]:
            threads = self._add(top, "host", "Host")
            for key in of["thread"]:
                self.of[key] = self._add(threads, "thread", _thread(key[4]))

    def _device(self, parent: int, device: int, keys: list[Key], lines: list[Drawn]) -> None:
        self._put(parent, lines)
        own = sorted((key for key in keys if key[0] in ("stream", "ranges") and key[3] == device), key=lambda key: (key[4], key[0]))
        if not own:
            return
        top = self._add(parent, "device", "GPU" if device == NONE else f"GPU {device}")
        for key in own:
            stream = "no stream" if key[4] == NONE else f"stream {key[4]}"
            ranges = key[0] == "ranges"
            self.of[key] = self._add(top, "annotations" if ranges else "stream", f"Annotations, {stream}" if ranges else stream)


def _thread(number: int) -> str:
    return "thread unknown" if number == NONE else f"thread {number}"
