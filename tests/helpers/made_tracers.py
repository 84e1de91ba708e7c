"""Rows of several tracers that recorded one run, in a run store as readers bring them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from postrun.ingest.gpu_logs.rows import GpuLogs
from postrun.ingest.joining.join import Joining
from postrun.ingest.joining.sources import SourceFile
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NSIGHT, TRACE
from postrun.ingest.store.registry import ReadResult, Registry

BASE = 1_700_000_000 * 10**9
MS = 10**6
Kernels = list[tuple[int, int]]  # Starts and durations


@dataclass
class Made:
    """A store that is filled source by source, as readers do."""

    store: Store
    sources: list[SourceFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = Registry(self.store)

    def process(self, host: str, pid: int, rank: int | None = None) -> int:
        return self.registry.process(self.registry.node(host), pid, rank=rank, source=0, fresh=True)

    def source(self, format: str, processes: dict[int, Kernels], *, device: int = 0, tid: int = 1, shift: int = 0) -> None:
        """Add a file with these kernels, their launches, and ranges ``forward``.

        A launch is 5 us before its kernel, a range lasts from the launch to the kernel's end; a trace also has operators.
        """
        number = len(self.sources)
        kernel, launch, operator, forward = self.store.name_ids(["gemm", "cudaLaunchKernel", "aten::mm", "forward"])
        for process, kernels in processes.items():
            ((node,),) = self.store.connection.execute("SELECT node FROM process WHERE id = ?", [process]).fetchall()
            rows = pl.DataFrame(
                [
                    (node, process, device, "kernel", kernel, start + shift, duration, place + 1)
                    for place, (start, duration) in enumerate(kernels)
                ],
                schema={
                    "node": pl.Int32, "process": pl.Int32, "device": pl.Int32, "kind": pl.String, "name": pl.Int32,
                    "start_ns": pl.Int64, "duration_ns": pl.Int64, "correlation": pl.Int64,
                },
                orient="row",
            )  # fmt: skip
            self.store.append("device_event", rows, source=number)
            host = rows.drop("device").with_columns(start_ns=pl.col("start_ns") - 5000, tid=pl.lit(tid, pl.Int64))
            calls = host.with_columns(kind=pl.lit("launch"), name=pl.lit(launch, pl.Int32), duration_ns=pl.lit(3000, pl.Int64))
            self.store.append("host_event", calls, source=number)
            if format == TRACE:
                self.store.append("host_event", calls.with_columns(kind=pl.lit("operator"), name=pl.lit(operator, pl.Int32)), source=number)
            ranges = host.drop("kind", "correlation").with_columns(
                name=pl.lit(forward, pl.Int32), duration_ns=pl.col("duration_ns") + 5000, side=pl.lit("host"), complete=pl.lit(True)
            )
            self.store.append("annotation", ranges, source=number)
        every = [start + shift for kernels in processes.values() for start, _ in kernels]
        result = ReadResult(1, min(every), max(every) + MS)
        self.sources.append(SourceFile(number, format, Path(f"file{number}"), result))

    def settle(self) -> Joining:
        joining = Joining(self.store, GpuLogs(self.store, self.registry), self.sources, {TRACE, NSIGHT})
        joining.settle()
        return joining

    def machines(self) -> list[str]:
        return [name for (name,) in self.store.connection.execute("SELECT hostname FROM node ORDER BY 1").fetchall()]

    def processes(self) -> list[tuple[str, int, int | None]]:
        query = "SELECT hostname, pid, rank FROM process JOIN node ON node.id = process.node ORDER BY ALL"
        return [(host, pid, rank) for host, pid, rank in self.store.connection.execute(query).fetchall()]

    def count(self, table: str, where: str = "true") -> int:
        return int(self.store.frame(f"SELECT count(*) FROM {table} WHERE {where}").item())

    def told(self, code: str) -> list[str]:
        return [text for (text,) in self.store.connection.execute("SELECT message FROM ingest_note WHERE code = ?", [code]).fetchall()]


def work(seed: int, many: int = 60, begin: int = BASE) -> Kernels:
    """Kernels every millisecond that take 0.1 to 0.9 ms."""
    dice = random.Random(seed)
    return [(begin + place * MS + dice.randrange(1000), dice.randrange(100_000, 900_000)) for place in range(many)]
