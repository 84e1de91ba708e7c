"""Work of the host that delays launches: garbage collection, checkpoints, compilation and optimizers, by names of functions and ranges"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import length_inside, union
from ..toolkit.shared import shared

GARBAGE: Final = "garbage collection"
CHECKPOINT: Final = "checkpoint"

# Names of functions in stacks ("gc.collect" is built in), ranges and operators. Activation checkpointing saves no file.
SAVING: Final = (
    r"(?i)save_?(checkpoint|state|pretrained)|checkpoint_?sav|(torch|dcp|checkpoint)\.save\b|torch/serialization\.py\(\d+\): save$"
)
_NAMES: Final = {
    GARBAGE: r"(?i)(^|[^a-z])gc([^a-z]|$)|garbage.?collect|built-in (function|method) (gc\.)?collect\b",
    CHECKPOINT: SAVING,
}
# Compilation that PyTorch records in operators and ranges. Names of compiled regions are not compilation.
COMPILATION_NAMES: Final = r"(?i)dynamo_timed|_compile\.|compile_fx|inductor.*compil|triton.*compil|autotun"
# Optimizers that run on the host, for states that are offloaded: functions in stacks, ranges and operators of DeepSpeed.
_HOST_OPTIMIZERS: Final = r"deepspeed/ops/\w+/cpu_\w+\.py\(\d+\): step$|DeepSpeedCPU(Adam|Adagrad|Lion)"
_SCHEMA: Final = {
    "process": pl.Int64, "start": pl.Int64, "end": pl.Int64, "name": pl.String, "kind": pl.String,
}  # fmt: skip
_RANGES: Final = """
    SELECT e.process::BIGINT AS process, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", n.text AS name FROM (
        SELECT process, name, start_ns, duration_ns FROM host_event WHERE kind IN ({})
        UNION ALL SELECT process, name, start_ns, duration_ns FROM annotation WHERE side = 'host' AND complete IS NOT FALSE
    ) AS e JOIN name AS n ON n.id = e.name WHERE e.process IS NOT NULL AND e.name IN (SELECT id FROM name WHERE regexp_matches(text, ?))
"""


@shared
def host_pauses(store: Store) -> pl.DataFrame:
    """Return the pauses of each process, also those within another one.

    Columns: process, start, end (ns), name, kind (GARBAGE or CHECKPOINT)."""
    parts = [
        store.frame(_RANGES.format("'operator', 'python'"), [pattern]).with_columns(kind=pl.lit(kind))
        for kind, pattern in _NAMES.items()
        if store.frame("SELECT count(*) FROM name WHERE regexp_matches(text, ?)", [pattern]).item()
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema=_SCHEMA)


@shared
def compilations(store: Store) -> pl.DataFrame:
    """Return the compilation of PyTorch programs: process, start, end (ns), name.

    Functions in stacks do not count: files of the compiler also have code that runs in each step."""
    return store.frame(_RANGES.format("'operator'"), [COMPILATION_NAMES])


@shared
def host_optimizers(store: Store) -> pl.DataFrame:
    """Return updates of parameters on the host: process, start, end (ns), name."""
    return store.frame(_RANGES.format("'operator', 'python'"), [_HOST_OPTIMIZERS])


def meanwhile(operations: pl.DataFrame, times: pl.DataFrame) -> pl.Series:
    """Return how long the host did something in the gap before each operation, in ns.

    ``operations``: rank, start, idle, gap. ``times``: process, start, end, on the same clock."""
    if times.is_empty() or operations.is_empty():
        return pl.repeat(0, len(operations), dtype=pl.Int64, eager=True)
    before = operations.select(pl.col("rank").alias("process"), pl.col("start") - (pl.col("gap") - pl.col("idle")).clip(0), end="start")
    inside = length_inside(before, union(times.select("process", "start", "end"), ["process"]), ["process"])
    return inside.cast(pl.Int64)
