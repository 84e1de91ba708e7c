"""StepOutlier: steps that take much longer than the others of their kind, with what ran in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import polars as pl

from ...report.causes import Program
from ...report.loop_details import RanInStep, SlowStep, StepGroup, StepOutlierDetails
from ...report.rows import Quantiles
from ...steps.profiled import without_profiled
from ...steps.steps import SLOWEST
from ...steps.work_in_steps import WorkInSteps
from ...toolkit import wording
from ...toolkit.labels import process_place
from ...toolkit.places import Place
from ...toolkit.quantiles import histogram, quantile, quantiles, tail_histogram
from ..evidence.active_during import active_during
from ..evidence.base import Category, Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.frameworks import FURTHER_AHEAD, PINNED, SAVE, WAITS, WITH_STACKS
from ..evidence.run_data import RunData

MODES: Final = ("TRAIN", "EVAL", "PREDICT", "GLOBAL")
UNNAMED: Final = "GLOBAL"  # mode of steps without a phase
NORMAL_BINS: Final = 100
MAD_TO_STD: Final = 1.4826  # ratio of standard deviation to median absolute deviation of a normal distribution

_REGULAR: Final = 0.8  # outliers are regular if this share of the distances between them is the same
_EXPLAINS: Final = 0.5
"""A cause makes up at least this share of the extra time: device work, loading or waiting rather than the ranges around it."""
_BASE: Final = "process time in the training loop"


class StepOutlier(Rule):
    """Steps that are much longer than the others of their process and phase (docs/rules.md).

    Steps that a profiler of a configuration made longer are left out if enough others remain. If a process has steps with and without
    phases, they are the same steps twice: each kind is evaluated, but slowest steps and cost are taken from one."""

    name: ClassVar[str] = "StepOutlier"
    category: ClassVar[Category] = "framework"
    of_training: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter(
            "stddev", "factor", 5, 3, "positive", "a step is an outlier if it is more than this many standard deviations above the mean"
        ),
        Parameter("mode", "phase", None, None, "text", "evaluate only the steps of this phase (none: of every phase)", choices=MODES),
        Parameter("n_outliers", "steps", 10, 10, "positive", "number of outliers that the steps of a process and phase may have"),
    )
    needs: ClassVar[str] = "Training steps, annotated by torch.profiler or recorded in the hosted profiler's framework metrics."
    checks: ClassVar[str] = "Finds steps that take much longer than the other steps of the same process and phase."
    condition: ClassVar[str] = (
        "more than `n_outliers` steps of a process and phase are longer than the mean of its steps + `stddev` x their standard deviation"
    )
    advice: ClassVar[str] = (
        "Find the activity that only the slow steps contain, such as checkpoints, logging or waits for data, and move it out of the steps."
    )

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        rows = run.step_data.timed.filter(pl.col("duration").is_not_null())
        if rows.is_empty():
            return not_evaluated(
                "no step annotations in this run",
                "Call step() of the profiler once per training step, or annotate the steps as step_0, step_1 and so on.",
            )
        factor, allowed = float(parameters["stddev"]), float(parameters["n_outliers"])
        rows = without_profiled(rows)
        chosen = _of_mode(rows, parameters["mode"])
        if chosen.is_empty():
            phases = ", ".join(sorted(set(rows["phase"].fill_null("none"))))
            return not_evaluated(
                f"no steps of phase {_mode(parameters['mode'])} in this run (its phases: {phases})",
                f"Record steps of this phase, or leave {self.name}_mode unset to judge every phase.",
            )
        chosen = chosen.with_columns(window=run.samples.windows_of(chosen["start"], parameters["scan_interval_us"]))
        windows = chosen["window"].n_unique()
        groups = [
            _group(run.places.process(process, members["node"][0]), members.sort("start", "duration"), factor, allowed)
            for (process, _, _), members in chosen.group_by("process", "phase", "on_device")
        ]
        groups.sort(key=lambda group: (group.location.order, group.row.phase or "", not group.row.on_device, group.process or 0))
        details = _details(run, groups, factor)
        evaluable = [group for group in groups if group.row.evaluable]
        if all(group.row.most_outliers <= allowed for group in evaluable):
            return _too_few(evaluable, groups, factor, allowed, details, windows)
        issues = [group for group in groups if group.row.issue]
        outliers = pl.concat([group.outliers for group in issues]) if issues else chosen.clear()
        triggered = outliers["window"].n_unique()
        return concluded(
            issues,
            len(chosen),
            [outliers.select(pl.col("start").min(), last=pl.col("start").max()).row(0)],
            triggered=triggered,
            violations=sum(len(group.outliers) for group in evaluable),
            windows=windows,
            windows_triggered=triggered,
            details=details,
            finding=_finding(groups, factor, allowed, details.slowest),
            recommendation=_recommendation(_once(issues), details.slowest, run.program) if issues else None,
            cost=_cost(groups) if issues else None,
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """The steps of one process and phase. ``outliers``: empty if the group is not evaluable. ``extra_ns``: the sum of their times beyond
    the median."""

    location: Place
    process: int | None
    members: pl.DataFrame
    spread: Quantiles
    outliers: pl.DataFrame
    extra_ns: int
    row: StepGroup

    @property
    def steps(self) -> str:
        """The steps in words: "TRAIN steps"."""
        return f"{self.row.phase} steps" if self.row.phase else "steps"


def fewest_steps(factor: float) -> int:
    """Return the number of steps that a group must exceed to have an outlier."""
    return math.floor(factor * factor + 1)


def _mode(mode: str | None) -> str | None:
    """Normalize a mode: ModeKeys.TRAIN and train are TRAIN; "None" is None."""
    return None if mode is None or mode.lower() in ("", "none") else mode.rsplit(".", 1)[-1].upper()


def _of_mode(rows: pl.DataFrame, mode: str | None) -> pl.DataFrame:
    wanted = _mode(mode)
    if wanted is None:
        return rows
    phase = pl.col("phase").str.split(".").list.last().str.to_uppercase().fill_null(UNNAMED)
    return rows.filter(phase == wanted)


def _group(location: Place, members: pl.DataFrame, factor: float, allowed: float) -> _Group:
    duration = members["duration"]
    spread = quantiles(duration)
    assert spread is not None
    # In multiples of 0.001 ns: a step that is exactly as long as the threshold is not an outlier, however the sums are rounded.
    threshold = round(spread.mean + factor * spread.std, 3)
    evaluable = spread.count > fewest_steps(factor)
    outliers = members.filter(pl.col("duration") > threshold) if evaluable else members.clear()
    deviation = (duration - spread.p50).abs().sort()
    robust = round(spread.p50 + factor * MAD_TO_STD * quantile(deviation, 0.5), 3)
    normal = members.filter(pl.col("duration") <= threshold)["duration"] if evaluable else duration
    extra_ns = round(float((outliers["duration"] - spread.p50).sum()))
    row = StepGroup(
        **location._asdict(),
        phase=members["phase"][0],
        on_device=bool(members["on_device"][0]),
        steps=spread.count,
        mean_ns=spread.mean,
        std_ns=spread.std,
        threshold_ns=threshold,
        outliers=len(outliers) if evaluable else None,
        most_outliers=max(0, math.ceil(spread.count / (1 + factor * factor)) - 1),
        evaluable=evaluable,
        issue=len(outliers) > allowed if evaluable else None,
        every_steps=_every(outliers["number"]),
        extra_ns=extra_ns if evaluable else None,
        robust_threshold_ns=robust,
        robust_outliers=int((duration > robust).sum()),
        max_ns=spread.max,
        p99_ns=spread.p99,
        p95_ns=spread.p95,
        p50_ns=spread.p50,
        min_ns=spread.min,
        histogram=tail_histogram(duration),
        normal_histogram=histogram(normal, bins=NORMAL_BINS),
    )
    return _Group(location, members["process"][0], members, spread, outliers, extra_ns, row)


def _every(numbers: pl.Series) -> int | None:
    """Return the regular distance of numbers, or None if there is not one.

    There must be at least three numbers, and most of their distances must be the same."""
    distances = numbers.diff().drop_nulls()
    if len(distances) < 2:
        return None
    common, times = distances.value_counts().sort("count", distances.name, descending=[True, False]).row(0)
    return int(common) if common > 1 and times >= _REGULAR * len(distances) else None


def _details(run: RunData, groups: Sequence[_Group], factor: float) -> StepOutlierDetails:
    outliers = pl.concat([group.outliers for group in groups])
    intervals = outliers.select("process", start="host_start_ns", end=pl.col("host_start_ns") + pl.col("host_duration_ns"))
    return StepOutlierDetails(
        groups=tuple(group.row for group in groups),
        slowest=_slowest(run, groups),
        limit_percent=100 / (1 + factor * factor),
        fewest_steps=fewest_steps(factor) + 1,
        active=active_during(run.store, intervals, run.top),
    )


def _once(groups: Iterable[_Group]) -> list[_Group]:
    """Drop groups without a phase of processes that also have groups with one."""
    listed = list(groups)
    named = {group.process for group in listed if group.row.phase is not None}
    return [group for group in listed if group.row.phase is not None or group.process not in named]


def _slowest(run: RunData, groups: Sequence[_Group]) -> tuple[SlowStep, ...]:
    """Return the ten steps furthest beyond their group's median.

    The times of their activities are compared with those of the group's step of median duration."""
    counted = _once(groups)
    slow = [
        (row["duration"] - group.spread.p50, position, row)
        for position, group in enumerate(counted)
        for row in group.members.sort("duration", "start", descending=[True, False]).head(SLOWEST).iter_rows(named=True)
    ]
    slow.sort(key=lambda item: (-item[0], item[1], item[2]["start"]))
    slow = slow[:SLOWEST]
    typical = {}  # steps of median duration (the shorter of two)
    for position in dict.fromkeys(position for _, position, _ in slow):
        members = counted[position].members
        typical[position] = members.sort("duration", "start").row((len(members) - 1) // 2, named=True)
    places = list(typical)
    ran = WorkInSteps(run.store, [row for _, _, row in slow] + [typical[position] for position in places]).times()
    return tuple(
        SlowStep(
            **group.location._asdict(),
            phase=group.row.phase,
            index=row["number"],
            start_ns=row["start"],
            duration_ns=row["duration"],
            typical_ns=typical[position]["duration"],
            outlier=group.row.evaluable and row["duration"] > group.row.threshold_ns,
            active=_compared(ran[at], ran[len(slow) + places.index(position)], run.top),
        )
        for at, (_, position, row) in enumerate(slow)
        for group in [counted[position]]
    )


def _compared(here: Mapping[tuple[str, str], int], there: Mapping[tuple[str, str], int], top: int) -> tuple[RanInStep, ...]:
    """Return times by kind and name in a step and a typical one, largest extra first."""
    times = [(kind, name, here.get((kind, name), 0), there.get((kind, name), 0)) for kind, name in {**here, **there}]
    times.sort(key=lambda item: (item[3] - item[2], -item[2], item[0], item[1]))
    return tuple(RanInStep(kind, name, time, typical, time - typical) for kind, name, time, typical in times[:top])


def steps_for_an_issue(factor: float, allowed: float) -> int:
    """Return the number of steps that a group must exceed for an issue."""
    return max(fewest_steps(factor), math.floor((math.floor(allowed) + 1) * (1 + factor * factor)))


def _too_few(
    evaluable: Sequence[_Group], groups: Sequence[_Group], factor: float, allowed: float, details: StepOutlierDetails, windows: int
) -> Outcome:
    """Return the result if no group can have an outlier, or more than are allowed."""
    largest = max(group.spread.count for group in evaluable or groups)
    needed = steps_for_an_issue(factor, allowed) if evaluable else fewest_steps(factor)
    why, fewer, finding = f"with fewer steps none can exceed mean + {factor:g}σ", "", None
    if evaluable:
        most = wording.count(max(group.row.most_outliers for group in evaluable))
        why = f"in this many steps at most {most} can exceed mean + {factor:g}σ; the limit is {allowed:g}"
        fewer = ", or allow fewer outliers (StepOutlier_n_outliers)"
        finding = _longest(details.slowest, several=len({group.location for group in groups}) > 1).strip() or None
    of_all = "" if len(groups) == 1 else f" in the largest of {wording.plural(len(groups), 'group')}"
    return not_evaluated(
        f"{wording.count(largest)} of more than {wording.plural(needed, 'step')} needed{of_all}: {why}",
        f"Record more than {wording.plural(needed, 'step')} of each process and phase{fewer}.",
        details=details,
        violations=sum(len(group.outliers) for group in evaluable),
        datapoints=sum(group.spread.count for group in groups),
        windows=windows,
        finding=finding,
    )


def _finding(groups: Sequence[_Group], factor: float, allowed: float, slowest: Sequence[SlowStep]) -> str:
    issues = [group for group in groups if group.row.issue]
    evaluable = [group for group in groups if group.row.evaluable]
    limit = f"the threshold of {wording.plural(int(allowed), 'outlier') if allowed == int(allowed) else f'{allowed:g} outliers'}"
    if issues:
        worst = max(issues, key=lambda group: (group.extra_ns, len(group.outliers)))
        of_place = f" of {_where(worst.location)}" if len({group.location for group in groups}) > 1 else ""
        others = f"; {len(issues)} of {wording.plural(len(evaluable), 'group')} of steps have more" if len(issues) > 1 else ""
        return f"{_counted(worst, of_place, factor)}, more than {limit}{others}."
    # The group nearest to an issue represents all.
    nearest = max(evaluable, key=lambda group: (len(group.outliers), group.spread.count))
    of_place = f" of {_where(nearest.location)}" if len({group.location for group in groups}) > 1 else ""
    others = f", and no other of {wording.plural(len(evaluable), 'group')} of steps has more" if len(evaluable) > 1 else ""
    text = f"{_counted(nearest, of_place, factor)}, within {limit}{others}"
    short = [group for group in groups if not group.row.evaluable]
    if len(short) == 1:
        text += f"; {wording.count(short[0].spread.count)} {short[0].steps} are too few to be judged"
    elif short:
        text += f"; {wording.count(len(short))} groups have too few steps to be judged"
    return f"{text}.{_longest(slowest, several=len({group.location for group in groups}) > 1)}"


def _longest(slowest: Sequence[SlowStep], *, several: bool) -> str:
    """Write a sentence on the outlier furthest beyond a typical step."""
    row = next((row for row in slowest if row.outlier), None)
    if row is None:
        return ""
    of_place = f" of {process_place(row.node, row.rank, row.pid)}" if several else ""
    causes = _causes([row])
    why = f": {causes[0][0][1]} in it took {wording.duration(causes[0][1])} longer than in a typical step" if causes else ""
    return f" The longest, step {row.index}{of_place}, took {wording.duration(row.duration_ns)}{why}."


def _counted(group: _Group, of_place: str, factor: float) -> str:
    number = len(group.outliers)
    return (
        f"{wording.count(number) if number else 'None'} of {wording.count(group.spread.count)} {group.steps}{of_place} took longer than"
        f" {wording.duration(group.row.threshold_ns)} (mean {wording.duration(group.spread.mean)} + {factor:g} × standard deviation"
        f" {wording.duration(group.spread.std)})"
    )


def _recommendation(issues: Sequence[_Group], slowest: Sequence[SlowStep], program: Program) -> str:
    worst = max(issues, key=lambda group: (group.extra_ns, len(group.outliers)))
    location = worst.location
    of_worst = [
        row
        for row in slowest
        if row.outlier and (row.node, row.rank, row.pid, row.phase) == (location.node, location.rank, location.pid, worst.row.phase)
    ]
    cause = _cause(of_worst, program)
    cost = (
        f"the {wording.plural(len(worst.outliers), 'outlier')} took {wording.duration(worst.extra_ns)} beyond the median"
        f" of {wording.duration(worst.spread.p50)}"
    )
    if cause:
        regular = f"; they are {worst.row.every_steps} steps apart" if worst.row.every_steps is not None else ""
        return f"{cause[0]}: {cause[1]}, and {cost}{regular}."
    if worst.row.every_steps is not None:
        return (
            f"Take what runs every {worst.row.every_steps} steps, such as a checkpoint, logging or validation, out of the step"
            f" (checkpoints: {SAVE.of(program)}): the outliers are {worst.row.every_steps} steps apart, and {cost}."
        )
    unknown = "nothing recorded tells why " if of_worst else ""
    return f"Record steps that include an outlier with call stacks {WITH_STACKS.of(program)}: {unknown}{cost}."


def _cause(rows: Sequence[SlowStep], program: Program) -> tuple[str, str] | None:
    """Return an imperative and a clause on the main cause of the outliers, or None.

    The cause explains most of the extra time in more than half of the slowest outliers. A first step, which is slow for another reason,
    does not hide it."""
    ranked = _causes(rows)
    if not ranked:
        return None
    (kind, name), time, number = ranked[0]
    seen = f"in {number} of the {len(rows)} slowest of them {name} took {wording.duration(time / number)} longer than in a typical step"
    return _imperative(kind, name, program), seen


def _causes(rows: Sequence[SlowStep]) -> list[tuple[tuple[str, str], int, int]]:
    """Rank the causes by kind and name: key, extra time, number of rows.

    A cause makes up most of the extra time over a typical step, in more than half of the rows. Device work comes first."""
    extra: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        beyond = row.duration_ns - row.typical_ns
        for active in row.active:
            if active.extra_ns >= max(1, _EXPLAINS * beyond):
                extra.setdefault((active.kind, active.name), []).append(active.extra_ns)
    ranked = sorted(
        ((key, sum(times), len(times)) for key, times in extra.items() if len(times) > len(rows) / 2), key=lambda item: (-item[1], item[0])
    )
    plain = [item for item in ranked if item[0][0] not in ("annotation", "operator")]
    work = [item for item in plain if item[0][0] != "sync"]  # a wait for the device is as long as its work
    return work or plain or ranked


def _imperative(kind: str, name: str, program: Program) -> str:
    if kind == "loader":
        return f"Load further ahead ({FURTHER_AHEAD.of(program)})"
    if kind == "sync":
        return f"Remove what waits for the device inside the step ({WAITS.of(program)})"
    if kind == "memcpy":
        if "pinned" in name.lower() and "pageable" not in name.lower():
            return "Look at what else uses the bus in these steps, because the copies are from pinned memory already"
        return f"Copy from pinned memory {PINNED.of(program)}"
    if kind in ("kernel", "memset"):
        if "ccl" in name.lower():
            return "Find the rank that comes late to the collective in these steps"
        return "Compare the inputs of the slow steps (batch size, sequence length) with those of the others"
    return f"Look at what {name} does in the slow steps only"


def _cost(groups: Sequence[_Group]) -> Cost:
    issues = _once(group for group in groups if group.row.issue)
    # Steps with phases are of the whole job: a profile window of another process is not in that time.
    phased = {group.row.phase is not None for group in issues}
    spans: dict[int | None, tuple[int, int]] = {}
    for group in groups:
        if (group.row.phase is not None) not in phased:
            continue
        first, last = group.members.select(pl.col("start").min(), last=(pl.col("start") + pl.col("duration")).max()).row(0)
        low, high = spans.get(group.process, (first, last))
        spans[group.process] = min(low, first), max(high, last)
    cost = sum(group.extra_ns for group in issues)
    # Ranks that recorded the same slow step count it once.
    number = len({(group.row.phase, *step) for group in issues for step in group.outliers.select("number", "again").iter_rows()})
    concerned = {group.location for group in issues}
    return Cost(
        title=f"Remove the {'stall' if number == 1 else 'stalls'} in {wording.plural(number, 'slow step')}",
        ns=cost,
        of_ns=sum(last - first for first, last in spans.values()),
        saving_ns=cost,
        per_step_ns=cost / sum(group.spread.count for group in issues),
        where=_where(next(iter(concerned))) if len(concerned) == 1 else None,
        base=_BASE,
    )


def _where(location: Place) -> str:
    """Name a process: "rank 5, node-1"."""
    return process_place(location.node, location.rank, location.pid)
