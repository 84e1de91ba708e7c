"""Slowest steps compared with the typical ones: the parts, kernels and ranges that took longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.steps import SlowSteps, StepDifference
from ..toolkit.labels import process_place
from ..toolkit.quantiles import quantiles
from ..toolkit.wording import capitalized, count, duration, plural
from .data import StepData
from .profiled import without_profiled
from .times import PARTS, host_time, no_device_steps, step_times
from .work_in_steps import WorkInSteps

FEWEST: Final = 8  # steps needed to compare the slowest with the others
SLOWEST: Final = 5
TYPICAL: Final = 20
FENCE: Final = 1.5  # a slow step exceeds the upper quartile by more than this multiple of the distance between the quartiles
LISTED: Final = 12
LEAST: Final = 0.01  # smallest listed share of the extra time of the slow steps
AROUND: Final = 0.9  # a range that covers this share of the typical step is the step itself under another name

_NAMES: Final = {
    "computation": "computation",
    "exposed_communication": "exposed communication",
    "exposed_memory": "exposed memory operations",
    "idle": "idle time",
    "loader": "data loading",
    "operator": "host operators",
    "others": "exposed communication of the other ranks",
}


def slow_steps(store: Store, times: pl.DataFrame | None = None, data: StepData | None = None) -> SlowSteps:
    """Compare the slowest main steps with the typical ones.

    The comparison is on the process whose own work became longest in the slow steps. The time of a step is that of the rank on which it
    took longest. Slow are at most SLOWEST steps above the fence; typical are at most TYPICAL in the middle of all, within the quartiles.
    Steps that a configured profiler made longer are left out if enough others remain. ``times``: :func:`step_times` of the store.
    ``data``: that of the store, if known.
    """
    data = data or StepData(store)
    times = step_times(store, data) if times is None else times
    if times.is_empty():
        return SlowSteps(absent=no_device_steps(store))
    times = without_profiled(times)
    longest = times.group_by("number").agg(pl.col("step").max()).sort("step", "number")
    number = len(longest)
    if number < FEWEST:
        return SlowSteps(
            steps=number,
            absent=f"Only {plural(number, 'step')} with device work: {FEWEST} or more tell slow ones from typical ones. Record more.",
        )
    spread = quantiles(longest["step"])
    assert spread is not None
    fence = spread.p75 + FENCE * (spread.p75 - spread.p25)
    slow = longest.filter(pl.col("step") > fence).tail(SLOWEST)["number"].to_list()[::-1]
    if not slow:
        most = longest.row(number - 1, named=True)
        return SlowSteps(
            steps=number,
            absent=f"No step stands out: the longest of {count(number)}, step {most['number']}, took {duration(most['step'])}; from"
            f" {duration(fence)} on it would lie outside of how much the steps differ anyway (median {duration(spread.p50)}).",
        )
    middle = longest.slice(number // 4, number - 2 * (number // 4))["number"].to_list()
    cut = max(0, len(middle) - TYPICAL) // 2
    typical = middle[cut : cut + TYPICAL]
    process = _subject(times, slow, typical)
    here = pl.col("process").eq_missing(process)
    sides = [_rows(times.filter(here), numbers) for numbers in (slow, typical)]
    if sides[0].is_empty() or sides[1].is_empty():
        return SlowSteps(steps=number, absent="No process has both slow and typical steps, so nothing explains the slow ones.")
    parts = tuple(_difference("part", name, *(rows[name].to_list() for rows in sides)) for name in ("step", *PARTS))
    work = WorkInSteps(store, pl.concat(sides).to_dicts())
    beside = _beside(data, times.filter(~here), sides, (slow, typical), work.operator_times())
    ran = _ran(work, sides, parts[0].extra_ns)
    location = data.places.process(process, sides[0]["node"][0])
    numbers = tuple(sides[0]["number"].to_list())
    where = process_place(*location) if times["process"].n_unique() > 1 else None
    return SlowSteps(
        *location,
        steps=number,
        slow=numbers,
        typical=len(sides[1]),
        parts=parts,
        beside=beside,
        ran=ran,
        sentences=_sentences(numbers, number, parts, beside, ran, where),
    )


def _rows(times: pl.DataFrame, numbers: Sequence[int]) -> pl.DataFrame:
    """Return the steps of one process with these numbers, in their order."""
    order = pl.DataFrame({"number": numbers}, schema={"number": times.schema["number"]})
    return order.join(times, on="number", how="inner", maintain_order="left")


def _subject(times: pl.DataFrame, slow: Sequence[int], typical: Sequence[int]) -> int | None:
    """Return the process whose step without waiting for others became longest."""
    work = pl.col("step") - pl.col("exposed_communication")
    means = times.group_by("process").agg(
        slow=work.filter(pl.col("number").is_in(slow)).mean(), typical=work.filter(pl.col("number").is_in(typical)).mean()
    )
    known = means.drop_nulls(["slow", "typical"]).with_columns(extra=pl.col("slow") - pl.col("typical"))
    # A process may lack the slow steps; then another one has them.
    ordered = known.sort("extra", "process", descending=[True, False], nulls_last=True)
    process: int | None = ordered["process"][0] if len(ordered) else times.filter(pl.col("number") == slow[0])["process"][0]
    return process


def _difference(kind: str, name: str, slow: Sequence[float], typical: Sequence[float]) -> StepDifference:
    low, high = min(typical), max(typical)
    mean, usual = sum(slow) / len(slow), sum(typical) / len(typical)
    return StepDifference(
        kind=kind,
        name=name,
        slow_ns=mean,
        typical_ns=usual,
        typical_low_ns=low,
        typical_high_ns=high,
        extra_ns=mean - usual,
        beyond=sum(value > high for value in slow),
        claimed=mean > high or mean < low,
    )


def _beside(
    data: StepData,
    others: pl.DataFrame,
    sides: Sequence[pl.DataFrame],
    numbers: tuple[Sequence[int], Sequence[int]],
    operating: Sequence[int],
) -> tuple[StepDifference, ...]:
    differences = []
    number, process = len(sides[0]), sides[0]["process"][0]
    loading = host_time(data.loads, pl.concat(sides))
    if loading.null_count() == 0:
        differences.append(_difference("beside", "loader", loading[:number].to_list(), loading[number:].to_list()))
    if any(operating) or _has_operators(data.store, process):
        differences.append(_difference("beside", "operator", operating[:number], operating[number:]))
    if len(others):
        mean = others.group_by("number").agg(pl.col("exposed_communication").mean()).sort("number")
        slow, typical = (mean.filter(pl.col("number").is_in(wanted))["exposed_communication"] for wanted in numbers)
        if len(slow) and len(typical):
            differences.append(_difference("beside", "others", slow.to_list(), typical.to_list()))
    return tuple(differences)


def _has_operators(store: Store, process: int | None) -> bool:
    sql = "SELECT EXISTS (FROM host_event WHERE kind = 'operator' AND duration_ns > 0 AND process IS NOT DISTINCT FROM ?) AS found"
    return bool(store.frame(sql, [process]).item())


def _ran(work: WorkInSteps, sides: Sequence[pl.DataFrame], extra: float) -> tuple[StepDifference, ...]:
    """List activity that took longer beyond the typical spread, largest first."""
    times = work.times()
    slow, typical = times[: len(sides[0])], times[len(sides[0]) :]
    keys = sorted({key for times in (*slow, *typical) for key in times})
    differences = [_difference(*key, [times.get(key, 0) for times in slow], [times.get(key, 0) for times in typical]) for key in keys]
    host = sides[1]["host_duration_ns"].to_list()
    around = AROUND * sum(host) / len(host)
    inside = [one for one in differences if one.kind != "annotation" or one.typical_ns < around]
    longer = [one for one in inside if one.claimed and one.extra_ns > 0 and one.extra_ns >= LEAST * extra]
    return tuple(sorted(longer, key=lambda one: (-one.extra_ns, one.kind, one.name))[:LISTED])


def _sentences(
    numbers: Sequence[int],
    steps: int,
    parts: Sequence[StepDifference],
    beside: Sequence[StepDifference],
    ran: Sequence[StepDifference],
    where: str | None,
) -> tuple[str, ...]:
    step = parts[0]
    which = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {_listed([str(n) for n in sorted(numbers)])}"
    each = "took" if len(numbers) == 1 else "took on average"
    on_process = f" on {where}" if where else ""
    low, high = duration(step.typical_low_ns), duration(step.typical_high_ns)
    spread = f", between {low} and {high}" if low != high else ""
    sentences = [
        f"{capitalized(which)} of {count(steps)} {each} {duration(step.slow_ns)}{on_process}, {duration(abs(step.extra_ns))}"
        f" {'longer' if step.extra_ns >= 0 else 'shorter'} than the typical step ({duration(step.typical_ns)}{spread})."
    ]
    if longer := _largest(parts[1:]):
        sentences.append(f"The extra time is {_listed([_more(part, len(numbers)) for part in longer])}.")
    else:
        sentences.append("No part of a step is longer than in the typical steps.")
    if also := _largest(beside):
        sentences.append(f"At the same time: {_listed([_more(part, len(numbers)) for part in also])}.")
    if ran:
        first = ran[0]
        often = "" if len(numbers) == 1 else f" (longer in {first.beyond} of {len(numbers)})"
        if first.typical_high_ns:
            sentences.append(f"Largest increase: {first.name}, +{duration(first.extra_ns)}{often}.")
        else:
            sentences.append(f"Largest increase: {first.name}, {duration(first.slow_ns)} and in no typical step{often}.")
    else:
        sentences.append("No kernel, operator or range took longer than in the typical steps.")
    return tuple(sentences)


def _largest(differences: Sequence[StepDifference]) -> list[StepDifference]:
    return sorted((one for one in differences if one.claimed and one.extra_ns > 0), key=lambda one: -one.extra_ns)


def _more(part: StepDifference, slow: int) -> str:
    often = f", in {part.beyond} of {slow}" if part.beyond < slow else ""
    return f"{_NAMES[part.name]} (+{duration(part.extra_ns)}{often})"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
