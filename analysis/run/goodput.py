"""Run store -> goodput: the wall time of the job by part, so that each nanosecond of each rank is in one part.

A rank continues in a new process after a restart. Steps that the new process runs again were lost in the process before it. Parts claim
the time in a fixed order; the time that remains productive loses the excess of slow steps at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..causes.pauses import SAVING
from ..efficiency.energy import job_energy
from ..report.goodput import Goodput, GoodputPart
from ..report.model import Report
from ..steps.claims import claimed
from ..steps.data import StepData
from ..steps.loading_ranges import named_ranges
from ..steps.ranges import REMAINDER
from ..steps.slow import FENCE, FEWEST
from ..toolkit import wording
from ..toolkit.contents import PROCESSES
from ..toolkit.intervals import difference, intersection, length_inside, union
from ..toolkit.places import process_conditions
from ..toolkit.windows import recorded, windows
from .job_statistics import job_times

NOT_RECORDED: Final = "not_recorded"
LOST: Final = "lost_steps"
CHECKPOINT: Final = "checkpoint"
EVALUATION: Final = "evaluation"
DATA_WAIT: Final = "data_wait"
PRODUCTIVE: Final = "productive"
SLOW: Final = "slow_excess"
INITIALIZATION: Final = "initialization"
RESTART: Final = "restart_gap"
BETWEEN: Final = "between_steps"
TAIL: Final = "tail"

PARTS: Final = (
    INITIALIZATION, PRODUCTIVE, SLOW, DATA_WAIT, CHECKPOINT, EVALUATION, LOST, RESTART, BETWEEN, TAIL, NOT_RECORDED,
)  # fmt: skip
"""The parts in the order of the report."""

# In the order in which they claim the time; the rest is BETWEEN.
_CLAIMS: Final = (NOT_RECORDED, LOST, CHECKPOINT, EVALUATION, DATA_WAIT, PRODUCTIVE, INITIALIZATION, RESTART, TAIL)
_MOST_UNRECORDED: Final = 0.01  # of the wall time; above it the goodput is unknown
_FIRST_NUMBERS: Final = 1  # a process whose first step has at most this number ran no step before its recording began
HOUR_NS: Final = 3_600 * 10**9

_EVALUATION: Final = (
    r"(?i)^(run[ _-]?)?(eval|evaluat(e|ion|ing)|valid(ate|ation|ating)?|val)([ _-]?(step|epoch|loop|run|pass|phase))?[ _-]*\d*$"
)
_CHECKPOINT: Final = rf"{SAVING}|^((save|saving|write|writing)[ _-]?)?(checkpoint(ing)?|ckpt)([ _-]?(save|saving|write|writing))?[ _-]*\d*$"
EVALUATION_PHASE: Final = r"(?i)^(eval|valid|test|predict)"

_CAPTURE: Final = "Record the complete job with `postrun record`, and mark each training step."
_NO_JOB: Final = f"The goodput of the job is unknown: the recording contains only a part of the job. {_CAPTURE}"
_NO_STEPS: Final = f"The goodput of the job is unknown: the recording contains no training steps. {_CAPTURE}"
_UNRECORDED: Final = f"The goodput of the job is unknown: {{}} of the job's time was not recorded step by step. {_CAPTURE}"

_SCHEMA: Final = {"lane": pl.Int32, "start": pl.Int64, "end": pl.Int64}
_INTERVAL: Final = list(_SCHEMA)


class _Attempt(NamedTuple):
    """A process of a rank, the first or one after a restart; ``first``, ``last``: start and end of its steps (ns)."""

    process: int | None
    first: int
    last: int
    first_number: int | None


def goodput(store: Store, report: Report, data: StepData, price: tuple[float, str] | None = None) -> Goodput:
    """Divide the wall time of the job of ``report``; ``data``: that of the store.

    ``price``: of a GPU-hour, with its currency."""
    job = report.job_statistics
    start, end = job.started_at_ns, job.ended_at_ns
    if start is None or end is None or end <= start or job.captured_only:
        return Goodput(absent=_NO_JOB)
    timed = data.timed.filter(pl.col("host_start_ns") >= start)
    steps = extents(timed)
    if not steps["training"].any():
        return Goodput(absent=_NO_STEPS)
    lanes = _lanes(store, steps)
    of_lane = pl.DataFrame(
        [(attempt.process, lane, number) for lane, attempts in enumerate(lanes) for number, attempt in enumerate(attempts)],
        schema={"process": steps.schema["process"], "lane": pl.Int32, "attempt": pl.Int32},
        orient="row",
    )
    steps = with_lost(steps.join(of_lane, on="process", nulls_equal=True))
    phased = timed["phase"].is_not_null().any()  # sources that name phases record all the time
    covered = {NOT_RECORDED: _intervals([]) if phased else _unrecorded(store, lanes, start, end), **_periods(lanes, start, end)}
    covered |= _covered(store, data, steps, of_lane)
    times = divided(start, end, len(lanes), covered, steps.filter("training", ~pl.col("lost").fill_null(False)).select(_INTERVAL))
    gpus = sum(device.used for device in report.devices)
    gpu_hours = gpus * (end - start) / HOUR_NS if gpus else None
    total = len(lanes) * (end - start)
    unrecorded = (times[NOT_RECORDED] or 0) / total
    known = unrecorded <= _MOST_UNRECORDED
    parts = tuple(_part(name, times[name], total, gpu_hours) for name in PARTS)
    return Goodput(
        percent=next(part.percent for part in parts if part.name == PRODUCTIVE) if known else None,
        wall_ns=end - start,
        ranks=len(lanes),
        parts=parts,
        restarts=max(len(attempts) for attempts in lanes) - 1,
        lost_steps=None if times[LOST] is None else max(steps.group_by("lane").agg(pl.col("lost").sum())["lost"]),
        gpus=gpus,
        gpu_hours=gpu_hours,
        energy_joules=job_energy(store, start, end, gpus),
        price_per_gpu_hour=price[0] if price else None,
        currency=price[1] if price else None,
        cost=gpu_hours * price[0] if price and gpu_hours is not None else None,
        absent=None if known else _UNRECORDED.format(wording.percent(100 * unrecorded)),
    )


def _part(name: str, time_ns: int | None, total_ns: int, gpu_hours: float | None) -> GoodputPart:
    if time_ns is None:
        return GoodputPart(name, None, None, None)
    return GoodputPart(name, time_ns, 100 * time_ns / total_ns, None if gpu_hours is None else gpu_hours * time_ns / total_ns)


def extents(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps from step to step: ``start``, ``end`` (ns), ``training``.

    A step ends on the host or on the device, whichever is later. It begins at the end of the step before it, if that has the previous
    number, else on the host. The training steps of a process are disjoint, as are the others. If a source names phases, only its steps
    count. ``steps``: those of :func:`..steps.timed.timed_steps`.
    """
    if steps["phase"].is_not_null().any():
        steps = steps.filter(pl.col("phase").is_not_null())
    of = ["process", "training"]
    host_end = pl.col("host_start_ns") + pl.col("host_duration_ns")
    before = pl.col("end").shift(1).over(of)
    follows = pl.col("number") == pl.col("number").shift(1).over(of) + 1
    return (
        steps.sort("process", "host_start_ns", "host_duration_ns")
        .with_columns(training=pl.col("phase").str.contains(EVALUATION_PHASE).not_().fill_null(True))
        .with_columns(end=pl.max_horizontal(host_end, pl.col("device_start_ns") + pl.col("device_duration_ns")).cum_max().over(of))
        .with_columns(start=pl.when(follows).then(before).otherwise(pl.max_horizontal("host_start_ns", before)))
        .select("node", "process", "number", "training", "host_start_ns", "start", "end")
    )


def divided(start: int, end: int, lanes: int, covered: Mapping[str, pl.DataFrame], productive: pl.DataFrame) -> dict[str, int | None]:
    """Return the time of each of ``PARTS`` (ns), added up over the lanes.

    None: unknown. The known times add up to ``lanes`` x (``end`` - ``start``). ``covered``: part -> its intervals (lane, start, end), which
    may overlap; a part without an entry is unknown. ``productive``: the steps (lane, start, end), disjoint in each lane.
    """
    wall = pl.DataFrame({"group": range(lanes), "start": start, "end": end}, schema={"group": pl.Int32, "start": pl.Int64, "end": pl.Int64})
    parts = {**covered, PRODUCTIVE: productive}
    intervals = pl.concat(
        parts[name].select(pl.col("lane").alias("group"), pl.lit(number, pl.Int32).alias("number"), "start", "end")
        for number, name in enumerate(_CLAIMS)
        if name in parts
    )
    claims = claimed(wall, intervals, _CLAIMS).values()
    times: dict[str, int | None] = {name: sum(lane[name] for lane in claims) if name in parts else None for name in _CLAIMS}
    before = [covered[name].select(_INTERVAL) for name in _CLAIMS[: _CLAIMS.index(PRODUCTIVE)] if name in covered]
    excess = _slow_excess(productive, union(pl.concat(before), ["lane"]) if before else None)
    times[PRODUCTIVE] = (times[PRODUCTIVE] or 0) - (excess or 0)
    return {**times, SLOW: excess, BETWEEN: sum(lane[REMAINDER] for lane in claims)}


def _slow_excess(steps: pl.DataFrame, others: pl.DataFrame | None) -> int | None:
    """Return the time of slow steps beyond the median of their lane (ns).

    Time that ``others`` cover does not count. None without a lane with FEWEST steps.
    """
    length = steps["end"] - steps["start"]
    if others is not None:
        length -= length_inside(steps, others, "lane")
    grouped = steps.select("lane", length=length).filter(pl.col("length") > 0).group_by("lane")
    quartile = {name: pl.col("length").quantile(at, "linear") for name, at in (("low", 0.25), ("middle", 0.5), ("high", 0.75))}
    spread = grouped.agg(pl.col("length"), number=pl.len(), **quartile).filter(pl.col("number") >= FEWEST)
    if spread.is_empty():
        return None
    slow = spread.explode("length").filter(pl.col("length") > pl.col("high") + FENCE * (pl.col("high") - pl.col("low")))
    return int(slow.select((pl.col("length") - pl.col("middle").ceil().cast(pl.Int64)).sum()).item())


def _lanes(store: Store, steps: pl.DataFrame) -> list[list[_Attempt]]:
    """Return the processes of each rank in order of time, which follow each other.

    Processes of a node without a rank that follow each other are also one lane.
    """
    ranks = dict(store.frame(PROCESSES).select("id", "rank").iter_rows())
    spans = (
        steps.group_by("node", "process")
        .agg(first=pl.col("start").min(), last=pl.col("end").max(), number=pl.col("number").sort_by("host_start_ns").first())
        .sort("first", "last", "process")
    )
    lanes: dict[tuple[str, int | None], list[list[_Attempt]]] = {}
    for node, process, first, last, number in spans.iter_rows():
        rank = ranks.get(process)
        alike = lanes.setdefault(("node", node) if rank is None else ("rank", rank), [])
        lane = next((lane for lane in alike if lane[-1].last <= first), None)
        if lane is None:
            alike.append(lane := [])
        lane.append(_Attempt(process, first, last, number))
    return [lane for alike in lanes.values() for lane in alike]


def with_lost(steps: pl.DataFrame) -> pl.DataFrame:
    """Add ``lost``: whether a later attempt runs the training step again.

    It is null, unknown, if an attempt of a restarted lane repeats numbers, as in each epoch: the number then does not identify a step.
    """
    training = steps.filter("training")
    restarted = training.filter(pl.col("attempt").max().over("lane") > 0)
    if restarted.select(pl.struct("lane", "attempt", "number").is_duplicated().any()).item():
        return steps.with_columns(lost=pl.lit(None, pl.Boolean))
    again = pl.col("attempt") < pl.col("attempt").max().over("lane", "number", "training")
    return steps.with_columns(lost=pl.col("training") & again)


def _periods(lanes: list[list[_Attempt]], start: int, end: int) -> dict[str, pl.DataFrame]:
    """Return the time before the steps of each lane, between its attempts, and after."""
    rows: dict[str, list[tuple[int, int, int]]] = {INITIALIZATION: [], RESTART: [], TAIL: []}
    for lane, attempts in enumerate(lanes):
        rows[INITIALIZATION].append((lane, start, attempts[0].first))
        rows[RESTART] += [(lane, before.last, after.first) for before, after in pairwise(attempts)]
        rows[TAIL].append((lane, attempts[-1].last, end))
    return {name: _intervals(times) for name, times in rows.items()}


def _unrecorded(store: Store, lanes: list[list[_Attempt]], start: int, end: int) -> pl.DataFrame:
    """Return when the steps of each lane were not recorded.

    A process whose source has neither sessions of the recorder nor profile windows was recorded all the time. `postrun record` starts the
    recorder with the process.
    """
    sessions, profiled = _by_process(recorded(store)), _by_process(windows(store, "process"))
    stopped: set[int | None] = set()
    began: dict[int | None, int] = {}
    if sessions:
        facts = store.frame("SELECT process, min(process_started_ns), bool_or(stopped) FROM recorded_window GROUP BY process").rows()
        stopped = {process for process, _, early in facts if early}
        began = {process: at for process, at, _ in facts if at is not None}
    from_start = job_times(store)[0] is not None
    rows: list[tuple[int, int, int]] = []
    for lane, attempts in enumerate(lanes):
        lows = [start, *(attempt.last for attempt in attempts)]
        highs = [*(attempt.first for attempt in attempts[1:]), end]
        for number, (attempt, low, high) in enumerate(zip(attempts, lows, highs, strict=False)):
            spans = sessions.get(attempt.process) or profiled.get(attempt.process)
            if not spans:
                continue
            before, after = (low, spans[0][0]), (spans[-1][1], high)
            if attempt.process in sessions:
                known = from_start or (attempt.first_number is not None and attempt.first_number <= _FIRST_NUMBERS)
                before = (before[1] if known else max(low, began.get(attempt.process, low)), before[1])
                ended = number + 1 < len(attempts) or attempt.process not in stopped
                after = (after[1] if ended else after[0], after[1])
            between = [(first[1], second[0]) for first, second in pairwise(spans)]
            rows += [(lane, *gap) for gap in (before, *between, after)]
    return _intervals(rows)


def _by_process(spans: pl.DataFrame) -> dict[int | None, list[tuple[int, int]]]:
    return {process: rows.select("start", "end").rows() for (process,), rows in spans.sort("start").group_by("process")}


def _intervals(rows: list[tuple[int, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _covered(store: Store, data: StepData, steps: pl.DataFrame, of_lane: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the intervals (lane, start, end) of the parts that events show.

    ``steps``: with ``lane`` and ``lost``. Without ranges of checkpoints or of evaluation, and without loads in at least half of the
    training steps, these parts are unknown.
    """

    def placed(ranges: pl.DataFrame) -> pl.DataFrame:
        return ranges.cast({"process": of_lane.schema["process"]}).join(of_lane, on="process", nulls_equal=True).select(_INTERVAL)

    covered = {} if steps["lost"].null_count() else {LOST: steps.filter("lost").select(_INTERVAL)}
    checkpoints = placed(named_ranges(store, _CHECKPOINT))
    evaluation = pl.concat([placed(named_ranges(store, _EVALUATION)), steps.filter(~pl.col("training")).select(_INTERVAL)])
    covered |= {name: ranges for name, ranges in ((CHECKPOINT, checkpoints), (EVALUATION, evaluation)) if ranges.height}
    training = steps.filter("training").select(_INTERVAL)
    loads = union(placed(data.loads), ["lane"])
    if loads.height and 2 * (length_inside(training, loads, "lane") > 0).sum() >= training.height:
        covered[DATA_WAIT] = intersection(difference(loads, placed(_busy(store)), ["lane"]), training, ["lane"])
    return covered


def _busy(store: Store) -> pl.DataFrame:
    """Return when the GPUs of each process worked, by their recorded activity."""
    sql = 'SELECT e.process, e.start_ns AS start, e.end_ns AS "end" FROM device_run AS e WHERE '
    busy = [union(store.frame(sql + condition), ["process"]) for condition in process_conditions(store)]
    return pl.concat(busy) if busy else pl.DataFrame(schema={"process": pl.Int32, "start": pl.Int64, "end": pl.Int64})
