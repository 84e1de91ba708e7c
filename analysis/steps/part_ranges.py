"""Parts of training steps on the host: ranges of forward, backward, optimizer and data loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.contents import kinds
from ..toolkit.intervals import length_inside, outermost, union
from ..toolkit.places import batches, one_of
from ..toolkit.shared import shared
from .loading_names import DATA_LOADING

Parts = Mapping[str, tuple[str, pl.DataFrame]]
"""By part of a step: the pattern of the names of its ranges, and the ranges with process, tid, start and end."""

LOADER_PHASE: Final = "DataLoaderIter"  # phase of the ranges in which a profile of the data loader recorded a load
OF_TRACE: Final = "trace"
OF_LOADER: Final = "loader"

# Parts of a step by the phase or the name of a range. The hosted profiler's hooks name phases Forward, Backward(post-forward),
# ...-SubModuleInternal, DataLoaderIter, DataIterator; TensorFlow markers aws_marker-<part>/; PyTorch names optimizer steps and
# data-loader waits itself, and the functions of the autograd engine.
_LOADING: Final = "data loading"
_PARTS: Final = {
    "forward": (r"^Forward\b", r"(?i)^(## *)?forward([ _-]?pass)?( *##)?$|^DistributedDataParallel\.forward$|^aws_marker-ForwardPass/"),
    "backward": (
        r"^Backward\b",
        r"(?i)^(## *)?backward([ _-]?pass)?( *##)?$|^autograd::engine::evaluate_function"
        r"|^(torch::autograd::)?(AccumulateGrad|\w+Backward\d*)$|^aws_marker-ComputeGradient/",
    ),
    "optimizer": (
        r"^Optimizer\b",
        r"(?i)^(## *)?optimi[sz]er([ _-]?step)?( *##)?$|^Optimizer\.(step|zero_grad)#|^aws_marker-ApplyGradient/",
    ),
    _LOADING: (r"^(DataLoaderIter|DataIterator)$", DATA_LOADING),
}

PARTS: Final = tuple(_PARTS)

# A column for each part of ``_PARTS``: whether the range belongs to it.
_RANGES: Final = f"""
    WITH named AS MATERIALIZED (
        SELECT id, {{of_name}} FROM name WHERE id IN (
            SELECT a.name FROM annotation AS a WHERE {{{{of_a}}}}
            UNION SELECT h.name FROM host_event AS h WHERE h.kind = 'operator' AND {{{{of_h}}}}
        )
    ),
    phased AS MATERIALIZED (SELECT phase, {{of_phase}} FROM (SELECT DISTINCT a.phase FROM annotation AS a WHERE {{{{of_a}}}}))
    SELECT a.process, a.tid, a.start_ns AS start, a.start_ns + a.duration_ns AS "end",
        CASE WHEN a.phase = '{LOADER_PHASE}' THEN '{OF_LOADER}' END AS recorder, {{either}}
    FROM annotation AS a JOIN named AS n ON n.id = a.name LEFT JOIN phased AS p ON p.phase = a.phase
    WHERE a.side = 'host' AND a.complete IS NOT FALSE AND ({{any_either}}) AND {{{{of_a}}}}
    UNION ALL
    SELECT h.process, h.tid, h.start_ns, h.start_ns + h.duration_ns, NULL, {{of_n}}
    FROM host_event AS h JOIN named AS n ON n.id = h.name WHERE h.kind = 'operator' AND ({{any_n}}) AND {{{{of_h}}}}
    UNION ALL
    SELECT h.process, h.tid, h.start_ns, h.start_ns + h.duration_ns, '{OF_TRACE}', {{loads}}
    FROM host_event AS h WHERE h.kind = 'loader' AND {{{{of_h}}}}
""".format(
    of_name=", ".join(f'regexp_matches(text, ${2 * n + 2}) AS "part {n}"' for n in range(len(_PARTS))),
    of_phase=", ".join(f'regexp_matches(phase, ${2 * n + 1}) AS "part {n}"' for n in range(len(_PARTS))),
    either=", ".join(f'coalesce(p."part {n}", false) OR n."part {n}" AS "part {n}"' for n in range(len(_PARTS))),
    any_either=" OR ".join(f'p."part {n}" OR n."part {n}"' for n in range(len(_PARTS))),
    of_n=", ".join(f'n."part {n}"' for n in range(len(_PARTS))),
    any_n=" OR ".join(f'n."part {n}"' for n in range(len(_PARTS))),
    loads=", ".join(str(part == _LOADING).lower() for part in _PARTS),
)

_STEPS: Final = """
    SELECT process, phase, host_start_ns AS step, host_start_ns + host_duration_ns AS step_end
    FROM step WHERE host_duration_ns > 0 AND {}
"""

# Ranges and operators of each process: at least as many as it has ranges of parts.
_COUNTS: Final = """
    SELECT process, sum(n)::BIGINT AS n FROM (
        SELECT process, count(*) AS n FROM annotation GROUP BY process
        UNION ALL SELECT process, count(*) FROM host_event WHERE kind IN ('operator', 'loader') GROUP BY process
    ) GROUP BY process ORDER BY process
"""


def part_ranges(store: Store) -> Iterator[Parts]:
    """Yield the host ranges of the parts of a step, some processes at a time.

    Each ends at the latest with the step in which it began, and every load counts once. Those of a run of one group of processes are kept.
    """
    return (part_ranges_of(store, group) for group in _groups(store))


def part_ranges_of(store: Store, processes: Sequence[int | None]) -> Parts:
    """Return the ranges of :func:`part_ranges` of some processes.

    They are those of all processes if the run is one group."""
    return _of_run(store) if len(_groups(store)) <= 1 else _named(_of_processes(store, processes))


@shared
def _groups(store: Store) -> list[list[int | None]]:
    """Return the processes with ranges or operators, in groups that are read together."""
    if not store.has_rows("annotation") and kinds(store, "host_event").isdisjoint({"operator", "loader"}):
        return []
    counts: list[tuple[int | None, int]] = store.frame(_COUNTS).rows()
    return batches(counts)


@shared
def _of_run(store: Store) -> Parts:
    return _named(_of_processes(store, None)) if _groups(store) else {}


def _named(ranges: Mapping[str, pl.DataFrame]) -> Parts:
    return {part: (name, ranges[part]) for part, (_, name) in _PARTS.items() if part in ranges}


def _of_processes(store: Store, processes: Sequence[int | None] | None) -> dict[str, pl.DataFrame]:
    """Return the ranges of some processes by part; None: of all."""
    of_a, of_h, of_step = ("true" if processes is None else one_of(f"{alias}process", processes) for alias in ("a.", "h.", ""))
    steps = store.frame(_STEPS.format(of_step)).sort("step")
    sql = _RANGES.format(of_a=of_a, of_h=of_h)
    every = store.frame(sql, [pattern for patterns in _PARTS.values() for pattern in patterns])
    if every.is_empty():
        return {}
    columns = ["process", "tid", "start", "end", "recorder"]
    ranges = {part: every.filter(f"part {number}").select(columns) for number, part in enumerate(_PARTS)}
    ranges[_LOADING] = recorded_once(ranges[_LOADING])
    within = _within_steps(pl.concat([rows.with_columns(part=pl.lit(part)) for part, rows in ranges.items()]), steps)
    return {part: rows.drop("part", "recorder") for (part,), rows in within.partition_by("part", as_dict=True).items()}


def recorded_once(loads: pl.DataFrame) -> pl.DataFrame:
    """Remove nested and repeated loads.

    ``loads`` has the columns process, tid, start, end and ``recorder``. A load inside another one of its thread is nested. A load of a
    profile of the data loader (OF_LOADER) is repeated if a trace (OF_TRACE) of the process covers most of it on any thread, because
    timelines may number threads differently.
    """
    of_trace = union(loads.filter(pl.col("recorder") == OF_TRACE), ["process"])
    of_loader = pl.col("recorder").eq_missing(OF_LOADER)
    loader_loads, others = loads.filter(of_loader), loads.filter(~of_loader)
    twice = 2 * length_inside(loader_loads, of_trace, "process") > loader_loads["end"] - loader_loads["start"]
    return outermost(pl.concat([others, loader_loads.filter(~twice)]), ["process", "tid"])


def _within_steps(ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """End ``ranges`` with the step in which they began, of several the last."""
    numbered = ranges.with_row_index("range")
    begun = numbered.select("range", "process", "start").sort("start")
    around = [
        # Steps of one process and phase do not overlap, so only the last one that began can contain the range.
        begun.join_asof(own.drop("phase"), left_on="start", right_on="step", by="process", check_sortedness=False)
        for _, own in steps.group_by("phase")
    ]
    if not around:
        return ranges
    last = pl.concat(around).filter(pl.col("step_end") > pl.col("start")).group_by("range").agg(pl.col("step_end").max())
    ended = numbered.join(last, on="range", how="left", maintain_order="left")
    return ended.with_columns(end=pl.min_horizontal("end", "step_end")).select(ranges.columns)  # null, in no step, does not count
