"""What did the slowest steps do differently from the typical ones?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import SlowSteps, StepDifference
from ..toolkit.labels import process_place
from ..toolkit.places import Places
from ..toolkit.quantiles import quantiles
from ..toolkit.wording import count, duration, plural
from .profiled import without_profiled
from .ran_in import ran_in_steps
from .times import PARTS, host_time, no_device_steps, step_times

FEWEST: Final = 8  # Steps from which on the slowest are compared with the others
SLOWEST: Final = 5
TYPICAL: Final = 20
FENCE: Final = 1.5  # A slow step lies so many times the distance between the quartiles above the upper one
LISTED: Final = 12
LEAST: Final = 0.01  # Less than this share of what the slow steps took longer is not listed
AROUND: Final = 0.9  # A range that covers this share of the typical step is the step under another name, and tells nothing

_NAMES: Final = {
    "computation": "computation",
    "exposed_communication": "exposed communication",
    "exposed_memory": "exposed memory operations",
    "idle": "idle time",
    "loader": "data loading",
    "operator": "host operators",
    "others": "exposed communication of the other ranks",
}


def slow_steps(store: Store, times: pl.DataFrame | None = None) -> SlowSteps:
    """The slowest main steps against the typical ones, on the process whose own work became longest in them.

    A step's time is that of the rank on which it took longest. Slow are at most SLOWEST steps above the fence, typical at most TYPICAL in
    the middle of all, within the quartiles. Steps that a profiler of a configuration made longer are left out where enough others remain.
    ``times``: :func:`step_times` of the store.
    """
    times = step_times(store) if times is None else times
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
    own = [_rows(times.filter(here), numbers) for numbers in (slow, typical)]
    if own[0].is_empty() or own[1].is_empty():
        return SlowSteps(steps=number, absent="No process has both slow and typical steps, so nothing explains the slow ones.")
    parts = tuple(_difference("part", name, *(rows[name].to_list() for rows in own)) for name in ("step", *PARTS))
    extra = parts[0].extra_ns
    beside = _beside(store, times.filter(~here), own, (slow, typical))
    ran = _ran(store, own, extra)
    place = Places(store).process(process, own[0]["node"][0])
    numbers = tuple(own[0]["number"].to_list())
    several = times["process"].n_unique() > 1
    return SlowSteps(
        node=place.node,
        rank=place.rank,
        pid=place.pid,
        steps=number,
        slow=numbers,
        typical=len(own[1]),
        parts=parts,
        beside=beside,
        ran=ran,
        sentences=_sentences(numbers, number, parts, beside, ran, process_place(place.node, place.rank, place.pid) if several else None),
    )


def _rows(times: pl.DataFrame, numbers: Sequence[int]) -> pl.DataFrame:
    """The steps of one process with these numbers, in their order."""
    order = pl.DataFrame({"number": numbers}, schema={"number": times.schema["number"]})
    return order.join(times, on="number", how="inner", maintain_order="left")


def _subject(times: pl.DataFrame, slow: Sequence[int], typical: Sequence[int]) -> int | None:
    """The process whose step without exposed communication, which is waiting for others, became longest in the slow steps."""
    work = pl.col("step") - pl.col("exposed_communication")
    means = times.group_by("process").agg(
        slow=work.filter(pl.col("number").is_in(slow)).mean(), typical=work.filter(pl.col("number").is_in(typical)).mean()
    )
    known = means.drop_nulls(["slow", "typical"]).with_columns(extra=pl.col("slow") - pl.col("typical"))
    # A process may lack the slow steps; then some other has them.
    ordered = known.sort("extra", "process", descending=[True, False], nulls_last=True)
    found: int | None = ordered["process"][0] if len(ordered) else times.filter(pl.col("number") == slow[0])["process"][0]
    return found


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
    store: Store, others: pl.DataFrame, own: Sequence[pl.DataFrame], numbers: tuple[Sequence[int], Sequence[int]]
) -> tuple[StepDifference, ...]:
    found = []
    for kind in ("loader", "operator"):
        slow, typical = (host_time(store, kind, rows) for rows in own)
        if slow is not None and typical is not None:
            found.append(_difference("beside", kind, slow.to_list(), typical.to_list()))
    if len(others):
        mean = others.group_by("number").agg(pl.col("exposed_communication").mean())
        slow, typical = (mean.filter(pl.col("number").is_in(wanted))["exposed_communication"] for wanted in numbers)
        if len(slow) and len(typical):
            found.append(_difference("beside", "others", slow.to_list(), typical.to_list()))
    return tuple(found)


def _ran(store: Store, own: Sequence[pl.DataFrame], extra: float) -> tuple[StepDifference, ...]:
    """What ran longer by more than the typical steps differ, most extra time first."""
    slow, typical = (_times(store, rows) for rows in own)
    keys = sorted({key for times in (*slow, *typical) for key in times})
    found = [_difference(*key, [times.get(key, 0) for times in slow], [times.get(key, 0) for times in typical]) for key in keys]
    host = own[1]["host_duration_ns"].to_list()
    around = AROUND * sum(host) / len(host)
    inside = [one for one in found if one.kind != "annotation" or one.typical_ns < around]
    longer = [one for one in inside if one.claimed and one.extra_ns > 0 and one.extra_ns >= LEAST * extra]
    return tuple(sorted(longer, key=lambda one: (-one.extra_ns, one.kind, one.name))[:LISTED])


def _times(store: Store, rows: pl.DataFrame) -> list[dict[tuple[str, str], int]]:
    return ran_in_steps(store, rows.to_dicts())


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
    place = f" on {where}" if where else ""
    low, high = duration(step.typical_low_ns), duration(step.typical_high_ns)
    spread = f", between {low} and {high}" if low != high else ""
    made = [
        f"{_capital(which)} of {count(steps)} {each} {duration(step.slow_ns)}{place}, {duration(abs(step.extra_ns))}"
        f" {'longer' if step.extra_ns >= 0 else 'shorter'} than the typical step ({duration(step.typical_ns)}{spread})."
    ]
    longer = _largest([part for part in parts[1:] if part.claimed and part.extra_ns > 0])
    if longer:
        made.append(f"More in {'it' if len(numbers) == 1 else 'them'}: {_listed([_more(part, len(numbers)) for part in longer])}.")
    else:
        made.append("No part of them is longer than in the typical steps.")
    also = _largest([part for part in beside if part.claimed and part.extra_ns > 0])
    if also:
        made.append(f"At the same time: {_listed([_more(part, len(numbers)) for part in also])}.")
    if ran:
        first = ran[0]
        often = "" if len(numbers) == 1 else f" (longer in {first.beyond} of {len(numbers)})"
        if first.typical_high_ns:
            made.append(f"Of all that ran, {first.name} took longest beyond the typical: {duration(first.extra_ns)} more{often}.")
        else:
            made.append(f"Of all that ran, {first.name} ran in no typical step and took {duration(first.slow_ns)}{often}.")
    else:
        made.append("No kernel, operator or range took longer than in the typical steps.")
    return tuple(made)


def _largest(found: Sequence[StepDifference]) -> list[StepDifference]:
    return sorted(found, key=lambda one: -one.extra_ns)


def _more(part: StepDifference, slow: int) -> str:
    often = f", in {part.beyond} of {slow}" if part.beyond < slow else ""
    return f"{_NAMES[part.name]} (+{duration(part.extra_ns)}{often})"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
