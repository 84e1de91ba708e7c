"""Reads a trace in batches, in a thread of its own; memory does not grow with the length of the trace."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final

from .inflate import Inflate
from .scan import Batch, TraceScan

BATCH_BYTES: Final = 32 << 20  # of decompressed text that are converted to rows at a time
FLUSH_ROWS: Final = 122_880  # rows of a table that are stored at a time: one of DuckDB's row groups, so that none is merged later
DEPTH_ROWS: Final = 2_000_000  # annotations of a file that get a nesting depth; with more, ``depth`` stays null

Progress = Callable[[float], None]


def batches(inflate: Inflate, scan: TraceScan, size: int, progress: Progress | None) -> Iterator[Batch]:
    """Yield the batches of a file; another thread scans at most two batches ahead."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(1)
    stop = threading.Event()

    def put(item: Batch | BaseException | None) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            fed = 0
            for chunk in inflate:
                scan.feed(chunk)
                fed += len(chunk)
                if fed >= BATCH_BYTES:
                    put(scan.take())
                    fed = 0
                if stop.is_set():
                    return
            scan.finish()
            put(scan.take())
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="postrun-scan", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            if progress is not None and size:
                progress(min(inflate.read_bytes / size, 1.0))
            yield item
    finally:
        stop.set()
        thread.join()
