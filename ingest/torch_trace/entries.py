"""Entries of a structured log of torch.compile: lines -> JSON objects with the first lines of their payloads.

An entry is one line with a JSON object. The lines of its payload follow, each behind a tab. Most entries are of no use here; their lines
are skipped without being decoded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..chrome_trace.inflate import Inflate
from .recognize import HEADER

LONGEST_LINE: Final = 8 << 20  # bytes; the longest, with all settings of the compiler, have some 50 KB
_PIECE: Final = 1 << 20  # bytes that are split into lines at a time
_PAYLOAD_LINES: Final = 40  # of a payload; its first lines have what is read
_PAYLOAD_LINE: Final = 64 << 10  # bytes of such a line
_USED: Final = (b'compilation_metrics":', b'"recompile_reasons"', b'"dynamo_graph_break_reason"', b'"dynamo_start":', b'{"str":')


@dataclass(frozen=True, slots=True)
class Entry:
    """``pid``, ``rank``: of the process that wrote it. ``body``: its JSON object. ``payload``: the first lines of its payload."""

    pid: int
    rank: int | None
    body: dict[str, Any]
    payload: list[str]


class Entries:
    """Iterates once over the entries of a log that name compilations.

    ``counts``: lines that were left out, by reason (``too_long``, ``not_json``). ``headers``: lines of entries of any kind.
    Raises InputError if the file cannot be read.
    """

    def __init__(self, path: Path, max_unpacked: str | None = None) -> None:
        self._size = path.stat().st_size
        self._inflate = Inflate(path, size=_PIECE, max_unpacked=max_unpacked)
        self.counts = Counter[str]()
        self.headers = 0

    @property
    def part(self) -> float:
        """The fraction of the file that has been read."""
        return min(self._inflate.read_bytes / self._size, 1.0) if self._size else 1.0

    @property
    def inflate(self) -> Inflate:
        """The file, whose defects are known after the iteration."""
        return self._inflate

    def __iter__(self) -> Iterator[Entry]:
        entry: Entry | None = None
        for line in self._lines():
            if line.startswith(b"\t"):
                if entry is not None and len(entry.payload) < _PAYLOAD_LINES:
                    entry.payload.append(line[1:_PAYLOAD_LINE].decode("utf-8", "replace").rstrip("\r"))
                continue
            if entry is not None:
                yield entry
            entry = self._entry(line)
        if entry is not None:
            yield entry

    def _entry(self, line: bytes) -> Entry | None:
        header = HEADER.match(line)
        if header is None:
            return None
        self.headers += 1
        if not any(word in line for word in _USED):
            return None
        try:
            body = json.loads(header["body"])
        except (ValueError, RecursionError):
            self.counts["not_json"] += 1
            return None
        rank = header["rank"]
        return Entry(int(header["pid"]), None if rank is None else int(rank), body, []) if isinstance(body, dict) else None

    def _lines(self) -> Iterator[bytes]:
        rest, skipping = b"", False
        for piece in self._inflate:
            part = piece
            if skipping:
                _, end, part = piece.partition(b"\n")
                skipping = not end
                if skipping:
                    continue
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
            if len(rest) > LONGEST_LINE:
                self.counts["too_long"] += 1
                rest, skipping = b"", True
        if rest:
            yield rest
