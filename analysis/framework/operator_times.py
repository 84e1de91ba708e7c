"""Times of CPU operators by name: in all, and in stretches of time such as phases. The operators are read once, by process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.contents import kinds
from ..toolkit.intervals import length_inside, union_length
from ..toolkit.places import batches, one_of

_SUMS: Final = {"text": pl.String, "count": pl.UInt32, "total": pl.Int64}
_COLUMNS: Final = "e.process, e.tid, e.name, e.start_ns AS start, e.duration_ns AS duration"
# Ranges of torch.compile, which PyTorch records as operators: they mark regions, lookups and compilations, and compute nothing.
_COMPILER: Final = (
    r"^(Torch-Compiled Region|TorchDynamo Cache Lookup$|## Call CompiledFxGraph |Pregraph bytecode$"
    r"|AOTDispatcher Runtime Wrapper Prologue$)| \(dynamo_timed\)$"
)
_OPERATORS: Final = f"""
    host_event AS e WHERE e.kind = 'operator' AND e.name NOT IN (SELECT id FROM name WHERE regexp_matches(text, '{_COMPILER}'))
"""
_FUNCTIONS: Final = "annotation AS e WHERE e.phase = 'cpu_functions'"


class Stretch(NamedTuple):
    """Disjoint times of processes, or of their threads."""

    by: tuple[str, ...]  # process, or process and tid
    times: pl.DataFrame  # by, start, end
    without: str | None  # pattern of the names that do not count


class OperatorTimes(NamedTuple):
    """Sums by name (text, count, total in ns), and the time in which operators ran."""

    all: pl.DataFrame
    inside: tuple[pl.DataFrame, ...]  # of the operators that began in each stretch
    recorded: int  # operators with a duration, without those of the hosted profiler
    ran_ns: int  # time of threads in at least one of them


def operator_times(store: Store, stretches: Sequence[Stretch] = ()) -> OperatorTimes:
    """Sum the inclusive times of operators, and of the hosted cpu_functions.

    Ranges of the compiler are not operators.
    """
    every: list[pl.DataFrame] = []
    inside: list[list[pl.DataFrame]] = [[] for _ in stretches]
    recorded = ran = 0
    for rows in _batches(store, _OPERATORS) if "operator" in kinds(store, "host_event") else ():
        timed = rows.select("process", "tid", "start", end=pl.col("start") + pl.col("duration"))
        recorded += timed["end"].count()
        ran += int(union_length(timed, ["process", "tid"])["length"].sum())
        del timed
        _add(rows, stretches, every, inside)
    for rows in _batches(store, _FUNCTIONS) if store.has_rows("annotation") else ():
        _add(rows, stretches, every, inside)
    names = store.frame("SELECT id AS name, text FROM name") if every else None
    left_out = [_left_out(store, stretch) for stretch in stretches]
    named = [_named(parts, names, without) for parts, without in zip(inside, left_out, strict=True)]
    return OperatorTimes(_named(every, names, []), tuple(named), recorded, ran)


def _batches(store: Store, events: str) -> Iterator[pl.DataFrame]:
    counts: list[tuple[int | None, int]] = store.frame(
        f"SELECT e.process, count(*) FROM {events} GROUP BY e.process ORDER BY e.process"
    ).rows()
    for processes in batches(counts):
        yield store.frame(f"SELECT {_COLUMNS} FROM {events} AND {one_of('e.process', processes)}")


def _add(rows: pl.DataFrame, stretches: Sequence[Stretch], every: list[pl.DataFrame], inside: Sequence[list[pl.DataFrame]]) -> None:
    every.append(_summed(rows))
    processes = rows["process"].unique().implode()
    for stretch, parts in zip(stretches, inside, strict=True):
        begin = rows.select(*stretch.by, "start", end=pl.col("start") + 1)
        times = stretch.times.filter(pl.col("process").is_in(processes))  # a null process has no times
        parts.append(_summed(rows.filter(length_inside(begin, times, stretch.by) > 0)))


def _summed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("name").agg(count=pl.len(), total=pl.col("duration").sum())


def _left_out(store: Store, stretch: Stretch) -> list[int]:
    if stretch.without is None:
        return []
    return store.frame("SELECT id FROM name WHERE regexp_matches(text, ?)", [stretch.without])["id"].to_list()


def _named(parts: Sequence[pl.DataFrame], names: pl.DataFrame | None, without: Sequence[int]) -> pl.DataFrame:
    if not parts or names is None:
        return pl.DataFrame(schema=_SUMS)
    sums = pl.concat(parts).filter(~pl.col("name").is_in(without)).join(names, on="name")
    return sums.group_by("text").agg(pl.col("count", "total").sum()).sort("total", "text", descending=[True, False])
