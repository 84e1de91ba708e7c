"""Iterations of inference engines: their ranges -> kind, batch, tokens, the gap before each, graph or eager, busy devices.

The range of an iteration lasts as long as the host needs to launch it; an engine that runs ahead leaves it before the devices are done.
So rates and busy shares are over the time from the start of an iteration to the start of the next one of the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..report.causes import Iteration, IterationKind, Iterations
from ..toolkit.contents import kinds
from ..toolkit.intervals import length_inside, outermost, union
from ..toolkit.quantiles import quantile
from ..toolkit.shared import shared
from .program import ENGINES, INFERENCE, program

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "mixed"
DENOISE: Final = "denoise"
FORWARD: Final = "forward"  # a forward pass of unknown kind
KINDS: Final = (PREFILL, DECODE, MIXED, DENOISE, FORWARD)
MOST: Final = 500  # iterations in the list, the first ones; the table by kind counts all

_SGLANG_KINDS: Final = {"EXTEND": PREFILL, "SPLIT_PREFILL": PREFILL, "DECODE": DECODE, "TARGET_VERIFY": DECODE, "MIXED": MIXED}


class _Meaning(NamedTuple):
    """The statement of a name of a range; None for values that it does not state."""

    kind: str
    batch: int | None = None
    tokens: int | None = None


def _by_share(context: int, generation: int, tokens: int | None) -> _Meaning:
    """Return the meaning of an iteration of context and generation requests."""
    kind = MIXED if context and generation else PREFILL if context else DECODE if generation else FORWARD
    return _Meaning(kind, context + generation, tokens)


def _sglang(mode: str, batch: str, tokens: str | None) -> _Meaning:
    if tokens is None and mode == "DECODE":
        tokens = batch  # one token of each request
    return _Meaning(_SGLANG_KINDS.get(mode, FORWARD), int(batch), None if tokens is None else int(tokens))


def _tensorrt_llm(context: str, tokens: str | None, generation: str) -> _Meaning:
    new = 0 if context == "0" else None if tokens is None else int(tokens)
    return _by_share(int(context), int(generation), None if new is None else new + int(generation))


# Names of iterations, as the engines write them -> what they state. The first pattern that a process has counts for it: an engine's own
# range first, then ranges that may lie inside of it.
_FORMS: Final[tuple[tuple[str, Callable[..., _Meaning]], ...]] = (
    (r"^step\[([A-Z_]{1,30}) bs=(\d{1,9})(?: toks=(\d{1,12}))?[^\]]*\]$", _sglang),
    (
        r"^execute_context_(\d{1,9})\((\d{1,12})\)_generation_(\d{1,9})\((\d{1,12})\)$",
        lambda context, new, generation, old: _by_share(int(context), int(generation), int(new) + int(old)),
    ),
    (r"^execute_new_(\d{1,9})_cached_(\d{1,9})$", lambda new, cached: _by_share(int(new), int(cached), None)),
    (r"^\[Executor\] _forward_step ?\d*: (\d{1,9}) ctx reqs,(?: (\d{1,12}) ctx tokens,)? (\d{1,9}) gen reqs", _tensorrt_llm),
    (
        r"^(prefill|decode)\[bs=(\d{1,9})(?: tok=(\d{1,12}))?[^\]]*\]$",
        lambda kind, batch, tokens: _Meaning(kind, int(batch), int(tokens) if tokens else int(batch) if kind == DECODE else None),
    ),
    (r"^execute_diffusion_", lambda: _Meaning(DENOISE)),
    (r"^(?:## )?[Dd]enois(?:e|ing)\b", lambda: _Meaning(DENOISE)),
    (r"^execute_model$", lambda: _Meaning(FORWARD)),
    (r"^ProfilerStep#\d+$", lambda: _Meaning(FORWARD)),
    (r"^## Call CompiledFxGraph ", lambda: _Meaning(FORWARD)),
)
_EVERY: Final = "|".join(pattern for pattern, _ in _FORMS)
_WEAK: Final = len(_FORMS) - 4  # forms from here on are also names of other programs: they count in an inference alone
_RANGES: Final = """
    WITH named AS MATERIALIZED (SELECT id, text FROM name WHERE regexp_matches(text, ?))
    SELECT a.node, a.process, a.side, a.stream, n.text, a.start_ns AS start, a.start_ns + a.duration_ns AS "end"
    FROM annotation AS a JOIN named AS n ON n.id = a.name WHERE a.complete IS NOT FALSE AND a.duration_ns > 0
"""
_GRAPHS: Final = """
    SELECT process, start_ns AS launch FROM host_event
    WHERE kind = 'launch' AND name IN (SELECT id FROM name WHERE regexp_matches(text, '^(cu|cuda|hip)GraphLaunch')) ORDER BY start_ns
"""
_WORK: Final = 'SELECT process, device, start_ns AS start, start_ns + duration_ns AS "end" FROM device_run WHERE duration_ns > 0'


@shared
def iterations(store: Store) -> Iterations:
    """Return the iterations of all processes, and figures per kind."""
    rows = _rows(store)
    if rows.is_empty():
        return Iterations((), ())
    rows = _with_graphs(store, _with_busy(store, rows))
    places = store.frame("SELECT p.id AS process, p.rank, n.hostname FROM process AS p LEFT JOIN node AS n ON n.id = p.node")
    listed = rows.head(MOST).join(places, on="process", how="left", maintain_order="left")
    by_kind = tuple(_kind(kind, rows.filter(pl.col("kind") == kind)) for kind in KINDS if kind in rows["kind"])
    columns = listed.select("hostname", "rank", "kind", "start", pl.col("end") - pl.col("start"), "gap", "batch", "tokens", "graph", "busy")
    return Iterations(tuple(Iteration(hostname or "", *rest) for hostname, *rest in columns.iter_rows()), by_kind)


def between_iterations(store: Store) -> pl.DataFrame:
    """Return the times between iterations of engines: process, start, end.

    There an engine reads the tokens, schedules the next requests and prepares their input. Empty for other programs."""
    known = program(store)
    rows = _rows(store) if known.kind == INFERENCE and not set(ENGINES).isdisjoint(known.frameworks) else pl.DataFrame()
    if rows.is_empty():
        return pl.DataFrame(schema={"process": pl.Int32, "start": pl.Int64, "end": pl.Int64})
    return rows.filter(pl.col("gap") > 0).select(pl.col("process").cast(pl.Int32), start=pl.col("start") - pl.col("gap"), end="start")


def iteration_periods(store: Store) -> pl.DataFrame:
    """Return the time from the start of each iteration to the next one of its process.

    Columns: process, start, end; without the last iteration of a process, whose device work may end later."""
    rows = _rows(store)
    if rows.is_empty():
        return pl.DataFrame(schema={"process": pl.Int32, "start": pl.Int64, "end": pl.Int64})
    periods = rows.select(pl.col("process").cast(pl.Int32), "start", end=pl.col("start") + pl.col("period"))
    return periods.filter(pl.col("end") > pl.col("start"))


@shared
def _rows(store: Store) -> pl.DataFrame:
    """Return the iterations in order of time, with the gap before each and its period.

    Columns: process, start, end, kind, batch, tokens, host, gap, period (ns; null for the last of a process).
    """
    if not store.has_rows("annotation"):
        return pl.DataFrame()
    ranges = store.frame(_RANGES, [_EVERY])
    if ranges.is_empty():
        return ranges
    texts = ranges["text"].unique(maintain_order=True).to_list()
    meanings = [_meaning(text) for text in texts]
    schema = {"form": pl.Int32, "kind": pl.String, "batch": pl.Int64, "tokens": pl.Int64}
    meant = pl.DataFrame([(form, *meaning) for form, meaning in meanings], schema=schema, orient="row")
    rows = ranges.join(meant.with_columns(text=pl.Series(texts, dtype=pl.String)), on="text").with_columns(host=pl.col("side") == "host")
    if program(store).kind != INFERENCE:
        rows = rows.filter(pl.col("form") < _WEAK)
    # Of each process one form, on the host if it is there, else on the stream with most of them.
    rows = rows.filter(pl.col("form") == pl.col("form").min().over("process"))
    rows = rows.filter(pl.col("host") == pl.col("host").any().over("process"))
    if rows.is_empty():
        return rows
    counts = rows.group_by("process", "stream").len().sort("process", "len", "stream", descending=[False, True, False], nulls_last=True)
    rows = rows.join(counts.unique("process", keep="first"), on=["process", "stream"], how="semi", nulls_equal=True)
    rows = outermost(rows.sort("process", "start", "end", "text"), ["process"])
    return rows.with_columns(
        gap=(pl.col("start") - pl.col("end").cum_max().shift().over("process")).clip(lower_bound=0),
        period=pl.col("start").shift(-1).over("process") - pl.col("start"),
    ).sort("start", "process")


def _meaning(text: str) -> tuple[int, _Meaning]:
    for number, (pattern, meaning) in enumerate(_FORMS):
        if matched := re.search(pattern, text):
            return number, meaning(*matched.groups())
    return len(_FORMS), _Meaning(FORWARD)


def _with_busy(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the busy share of the devices of the process until the next iteration."""
    work = store.frame(_WORK) if store.has_rows("device_event") else pl.DataFrame()
    if work.is_empty():
        return rows.with_columns(busy=pl.lit(None, pl.Float64))
    keys = ["process", "device"]
    busy = union(work, keys)
    windows = rows.select("process", "start", end=pl.col("start") + _elapsed()).join(busy.select(keys).unique(), on="process")
    covered = windows.with_columns(covered=length_inside(windows, busy, keys))
    shares = covered.group_by("process", "start").agg(busy=100.0 * pl.col("covered").sum() / (pl.col("end") - pl.col("start")).sum())
    return rows.join(shares, on=["process", "start"], how="left", maintain_order="left")


def _with_graphs(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """Add whether the iteration launches a graph; null if the trace has no launches."""
    if "launch" not in kinds(store, "host_event"):
        return rows.with_columns(graph=pl.lit(None, pl.Boolean))
    launches = store.frame(_GRAPHS)
    launched = rows.sort("start").join_asof(
        launches, left_on="start", right_on="launch", by="process", strategy="forward", check_sortedness=False
    )
    inside = pl.when("host").then(pl.col("launch").is_not_null() & (pl.col("launch") < pl.col("end")))
    return launched.with_columns(graph=inside).sort("start", "process")


def _elapsed() -> pl.Expr:
    """Return the time to the next iteration; of the last one its duration."""
    return pl.coalesce(pl.col("period"), pl.col("end") - pl.col("start"))


def _kind(kind: str, rows: pl.DataFrame) -> IterationKind:
    durations = (rows["end"] - rows["start"]).sort()
    counted = rows.filter(pl.col("tokens").is_not_null())
    elapsed = int(counted.select(_elapsed().sum()).item() or 0)
    graphs = rows["graph"].drop_nulls()
    busy = rows.filter(pl.col("busy").is_not_null())
    weight = busy.select(_elapsed()).to_series()
    return IterationKind(
        kind=kind,
        count=len(rows),
        median_ns=quantile(durations, 0.5),
        p90_ns=quantile(durations, 0.9),
        batch=_median(rows["batch"]),
        tokens=_median(rows["tokens"]),
        tokens_per_s=int(counted["tokens"].sum()) * 1e9 / elapsed if elapsed else None,
        gap_ns=_median(rows["gap"]),
        graph_percent=100.0 * int(graphs.sum()) / len(graphs) if len(graphs) else None,
        busy_percent=float((busy["busy"] * weight).sum()) / int(weight.sum()) if len(busy) and weight.sum() else None,
    )


def _median(values: pl.Series) -> float | None:
    ordered = values.drop_nulls().sort()
    return quantile(ordered, 0.5) if len(ordered) else None
