"""The words and numbers of a digest: sums of GPU-ns -> its headline, tiles and tables, for the page and for Markdown.

The numbers of a column of GPU-hours are rounded so that they add up to the number in its last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..analysis.report.run import Tile
from ..analysis.run import goodput
from ..report_templates.sections.job_statistics import GOODPUT_PARTS
from ..report_templates.text.formats import UNKNOWN, capitalized, clip, count, glued, percent, percent_of, plural, signed_percent
from .change_points import ChangePoint
from .digest import CAUSES, LOST, NO_CAUSE, Digest, Hours, Job, joined
from .metrics import METRICS

LABELS: Final = {**{name: label for name, (label, _) in GOODPUT_PARTS.items()}, NO_CAUSE: "Unknown"}
COLORS: Final = {**{name: color for name, (_, color) in GOODPUT_PARTS.items()}, NO_CAUSE: "idle"}
_LOSSES: Final = {
    goodput.CHECKPOINT: "checkpoints",
    goodput.RESTART: "restart gaps",
    goodput.BETWEEN: "the time between steps",
    goodput.TAIL: "the time after the last step",
}
_MOST_GROUPS: Final = 25  # rows of a table; the last one has the rest
_MOST_JOBS: Final = 10
_MOST_CHANGES: Final = 25
_DIGITS: Final = ((10, 2), (100_000, 1))  # below this many GPU-hours, decimals of the numbers
_MOST: Final = 50.0  # percent of a loss, above which a group is named in the headline
_LONGEST_NAME: Final = 80
_MOST_LABELS: Final = 10
_HIDDEN: Final = (goodput.DATA_WAIT, goodput.CHECKPOINT)  # losses that a recording of all steps may not show


@dataclass(frozen=True, slots=True)
class Numbers:
    """Rounds GPU-hours and costs of a digest: ``digits`` decimals each."""

    hours: int
    money: int

    def of_hours(self, times: Sequence[int]) -> list[str]:
        """Write GPU-ns as GPU-hours, which add up to the rounded sum."""
        return _column(times, goodput.HOUR_NS, self.hours)

    def of_money(self, costs: Sequence[float]) -> list[str]:
        """Write costs, which add up to the rounded sum."""
        return _column([round(cost * 1e6) for cost in costs], 10**6, self.money)

    def total(self, time: int) -> str:
        return self.of_hours([time])[0]


def _column(values: Sequence[int], unit: int, digits: int) -> list[str]:
    scale = 10**digits
    total = (2 * sum(values) * scale + unit) // (2 * unit)
    shares = [divmod(value * scale, unit) for value in values]
    left = total - sum(share for share, _ in shares)
    up = set(sorted(range(len(shares)), key=lambda number: -shares[number][1])[:left])
    return [f"{(share + (number in up)) / scale:,.{digits}f}" for number, (share, _) in enumerate(shares)]


def numbers(digest: Digest) -> Numbers:
    """Choose the decimals by the sums."""
    total_hours, cost = digest.total.allocated_ns / goodput.HOUR_NS, digest.total.cost() or 0.0
    return Numbers(next((digits for below, digits in _DIGITS if total_hours < below), 0), 2 if cost < 1000 else 0)


# -- sentences -------------------------------------------------------------------------------------------------------------


def headline(digest: Digest) -> str:
    """Word the GPU-hours, their productive share, and the largest loss."""
    total = digest.total
    if not total.jobs:
        if digest.unmeasured:
            return f"{plural(digest.unmeasured, 'job')} ended; the GPU-hours are not recorded."
        return "No job ended in this period."
    used = f"{plural(total.jobs, 'job')} used {glued_hours(digest, total.allocated_ns)}"
    if not total.known_ns:
        return f"{used}; the recordings do not show the causes."
    base = "" if total.known_ns == total.allocated_ns else f" of the {glued_hours(digest, total.known_ns)} with a known cause"
    text = f"{used}; {percent(100 * total.productive_ns / total.known_ns)}{base} were productive."
    cause = max(LOST, key=lambda one: total.causes[one])
    if not (lost := total.causes[cause]):
        return text
    where = _mostly(digest, cause, lost)
    share = percent(100 * lost / total.known_ns)
    return f"{text} The largest loss is {_LOSSES.get(cause) or LABELS[cause].lower()}: {glued_hours(digest, lost)} ({share}{where})."


def _mostly(digest: Digest, cause: str, lost: int) -> str:
    """Name the group with more than half of a loss, if there are several."""
    first = max(digest.groups, key=lambda group: group.causes[cause])
    share = 100 * first.causes[cause] / lost
    if len(digest.groups) < 2 or first.name is None or share <= _MOST:
        return ""
    return f"; {percent(share)} of it in {clip(first.name, _LONGEST_NAME)}"


def glued_hours(digest: Digest, time: int) -> str:
    """Write GPU-hours in a sentence; from 100, without decimals."""
    number = f"{round(time / goodput.HOUR_NS):,}" if time >= 100 * goodput.HOUR_NS else numbers(digest).total(time)
    return f"{number}\u00a0GPU-hours"


def name_of(group: Hours, by: str) -> str:
    return f"no {by}" if group.name is None else clip(group.name, _LONGEST_NAME)


def tiles(digest: Digest) -> list[Tile]:
    total, before, rounded = digest.total, digest.before, numbers(digest)
    change = "none known in the period before"
    if before.allocated_ns:
        change = f"{signed_percent(100 * (total.allocated_ns - before.allocated_ns) / before.allocated_ns)} against the period before"
    known = bool(total.jobs) or not digest.unmeasured
    rows = [Tile("gpu-hours", "GPU-hours", rounded.total(total.allocated_ns) if known else UNKNOWN, change, "causes")]
    earlier = percent_of(before.productive_ns, before.known_ns)
    rows.append(
        Tile(
            "productive", "productive", percent(percent_of(total.productive_ns, total.known_ns)),
            f"of known GPU-hours; {percent(earlier)} before" if earlier is not None else "of known GPU-hours", "causes",
        )
    )  # fmt: skip
    share = f"; {percent(percent_of(total.lost_ns, total.known_ns))} of known" if known else ""
    rows.append(Tile("lost", "lost", rounded.total(total.lost_ns) if known else UNKNOWN, f"GPU-hours{share}", "lost"))
    idle = rounded.total(total.inactive_ns) if total.sampled_ns else UNKNOWN
    detail = f"of {rounded.total(total.sampled_ns)} sampled GPU-hours" if total.sampled_ns else "no utilization was sampled"
    rows.append(Tile("inactive", "allocated, no activity", idle, detail, "inactive"))
    for currency in total.costs:
        cost = sum(total.costs[currency].values())
        part = "" if _all_priced(digest) else f" for {percent(100 * total.priced_ns / total.allocated_ns)} of GPU-hours"
        rows.append(Tile("cost", "cost", f"{rounded.of_money([cost])[0]}\u00a0{currency}", f"GPU-hours × price{part}", "causes"))
    without = [plural(digest.failed, "run") + " without a report"] * bool(digest.failed)
    without += [f"{count(digest.unmeasured)} without GPU-hours"] * bool(digest.unmeasured)
    rows.append(Tile("jobs", "jobs", count(total.jobs + digest.unmeasured), ", ".join(without) or "ended in this period", "groups"))
    return rows


def notes(digest: Digest) -> list[str]:
    """Write what the sums do not contain."""
    texts = []
    if digest.unmeasured:
        those = plural(digest.unmeasured, "job")
        texts.append(
            f"The GPU-hours of {those} are unknown and in no sum: only a part of the job was recorded, such as a profile window, no GPU was"
            " recorded, or the report is of an earlier version."
        )
    if unknown := digest.total.causes[NO_CAUSE]:
        texts.append(
            f"{glued_hours(digest, unknown)} have no cause: their recordings have no training steps. Record the complete job with"
            " `postrun record`, and mark each training step."
        )
    total = digest.total
    if hidden := [cause for cause in _HIDDEN if total.visible[cause] < total.visible[goodput.PRODUCTIVE]]:
        shares = [f"{LABELS[cause].lower()} in {percent(100 * total.visible[cause] / total.allocated_ns)}" for cause in hidden]
        texts.append(
            f"The recordings show {' and '.join(shares)} of the GPU-hours. Elsewhere, this time counts as another cause, usually as"
            " productive steps."
        )
    if digest.period.until_ns > digest.generated_at_ns:
        texts.append("The period is not over: more jobs can end in it. The period before is complete.")
    if digest.jobs and not any(job.label for job in digest.jobs):
        labels = sorted({label for job in digest.jobs for label in job.row.labels})
        known = f"; their labels are {', '.join(map(_quoted, labels[:_MOST_LABELS]))}" if labels else ""
        texts.append(f"No job has the label {_quoted(digest.by)}{known}.")
    if len(digest.total.costs) > 1:
        texts.append("The prices have several currencies, so the tables have no costs.")
    elif digest.total.costs and not _all_priced(digest):
        texts.append(f"The costs are those of {glued_hours(digest, digest.total.priced_ns)}; the other jobs have no price.")
    return texts


def _quoted(label: str) -> str:
    """Write a label of users in a note, in which backticks mark code."""
    name = clip(label.replace("`", "'"), _LONGEST_NAME)
    return f'"{name}"'


# -- tables ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cause:
    """A row by cause. ``share``: of all GPU-hours, in percent. ``visible``: share of the GPU-hours whose recordings show the cause."""

    key: str
    label: str
    color: str
    hours: str
    share: float
    visible: str
    cost: str


def causes(digest: Digest) -> list[Cause]:
    """Return the causes with time, in the order of the report."""
    total = digest.total
    keys = [key for key in CAUSES if total.causes[key]]
    times = numbers(digest).of_hours([total.causes[key] for key in keys])
    costs = _costs(digest, [total.cost(key) for key in keys])
    return [
        Cause(
            key, LABELS[key], COLORS[key], time, 100 * total.causes[key] / total.allocated_ns,
            UNKNOWN if key == NO_CAUSE else percent(100 * total.visible[key] / total.allocated_ns), cost,
        )
        for key, time, cost in zip(keys, times, costs, strict=True)
    ]  # fmt: skip


def _costs(digest: Digest, costs: Sequence[float | None]) -> list[str]:
    """Write costs that add up.

    If not all jobs have a price, a cost of nothing is unknown."""
    if digest.total.currency is None:
        return [UNKNOWN] * len(costs)
    texts = numbers(digest).of_money([cost or 0.0 for cost in costs])
    return texts if _all_priced(digest) else [text if cost else UNKNOWN for text, cost in zip(texts, costs, strict=True)]


def _all_priced(digest: Digest) -> bool:
    return digest.total.priced_ns == digest.total.allocated_ns


@dataclass(frozen=True, slots=True)
class Group:
    """A row by label or family. Percentages are of the GPU-hours of the row; ``bar``: cause, color and percent."""

    name: str
    jobs: str
    hours: str
    share: str
    productive: str
    lost: str
    unknown: str
    inactive: str
    cost: str
    bar: tuple[tuple[str, str, float], ...]


def bar(group: Hours) -> tuple[tuple[str, str, float], ...]:
    """Return the cause, color and percent of each part of a bar."""
    return tuple((cause, COLORS[cause], 100 * time / group.allocated_ns) for cause, time in group.causes.items() if time)


def groups(digest: Digest, some: Sequence[Hours], nouns: str) -> list[Group]:
    """Return the largest groups, the rest of them, and the total as the last row."""
    if len(some) > _MOST_GROUPS:
        kept = _MOST_GROUPS - 1
        some = [*some[:kept], replace(joined("", some[kept:]), name=f"{count(len(some) - kept)} more {nouns}")]
    rows = [*some, replace(digest.total, name="Total")]
    rounded = numbers(digest)
    # The total is written by itself; the rows add up to it.
    times = [*rounded.of_hours([group.allocated_ns for group in some]), rounded.total(digest.total.allocated_ns)]
    idle = [*rounded.of_hours([group.inactive_ns for group in some]), rounded.total(digest.total.inactive_ns)]
    costs = [*_costs(digest, [group.cost() for group in some]), *_costs(digest, [digest.total.cost()])]
    return [
        Group(
            name=name_of(group, digest.by),
            jobs=count(group.jobs),
            hours=time,
            share=percent(percent_of(group.allocated_ns, digest.total.allocated_ns)),
            productive=percent(percent_of(group.productive_ns, group.allocated_ns) if group.known_ns else None),
            lost=percent(percent_of(group.lost_ns, group.allocated_ns) if group.known_ns else None),
            unknown=percent(percent_of(group.allocated_ns - group.known_ns, group.allocated_ns)),
            inactive=inactive if group.sampled_ns else "not recorded",
            cost=cost,
            bar=bar(group),
        )
        for group, time, inactive, cost in zip(rows, times, idle, costs, strict=True)
    ]


def most_lost(digest: Digest) -> list[tuple[Job, str, str, str, str]]:
    """Return the jobs that lost the most.

    With each: its GPU-hours, the lost ones, their share, and the largest cause."""
    first = [job for job in sorted(digest.jobs, key=lambda job: (-job.lost_ns, job.row.id)) if job.lost_ns][:_MOST_JOBS]
    rounded, rows = numbers(digest), []
    for job in first:
        cause = max(LOST, key=lambda one: job.causes.get(one, 0))
        most = f"{LABELS[cause]}, {percent(100 * job.causes[cause] / job.lost_ns)}"
        rows.append((job, rounded.total(job.allocated_ns), rounded.total(job.lost_ns), percent(100 * job.lost_ns / job.allocated_ns), most))
    return rows


def most_inactive(digest: Digest) -> list[tuple[Job, str, str, str]]:
    """Return the jobs that had no activity for the longest time.

    With each: its sampled GPU-hours, those without activity, and their share."""
    first = [job for job in sorted(digest.jobs, key=lambda job: (-job.inactive_ns, job.row.id)) if job.inactive_ns][:_MOST_JOBS]
    rounded = numbers(digest)
    return [
        (job, rounded.total(job.sampled_ns), rounded.total(job.inactive_ns), percent(100 * job.inactive_ns / job.sampled_ns))
        for job in first
    ]


def inactivity(digest: Digest) -> str:
    """Word how much of the allocated time had no activity."""
    total = digest.total
    if not total.sampled_ns:
        return "No job has samples of the GPU utilization, so GPUs without activity are not known."
    rest = total.allocated_ns - total.sampled_ns
    text = f"{glued_hours(digest, total.inactive_ns)} of {glued_hours(digest, total.sampled_ns)} with samples had no activity."
    idle = sum(job.inactive_ns == job.sampled_ns for job in digest.jobs if job.sampled_ns)
    text += f" In {plural(idle, 'job')} no sample was above 0%." if idle else ""
    return f"{text} {glued_hours(digest, rest)} were not sampled and do not count as inactive." if rest else text


def worse(digest: Digest) -> tuple[list[tuple[str, str, str]], int]:
    """Return a line for each run since which figures are worse.

    A line: id of the run, family, text. Also return how many lines are left out."""
    texts: dict[tuple[str, str], list[str]] = {}
    for change in digest.changes:
        texts.setdefault((change.id, change.family), []).append(_changed(digest, change))
    for finding in digest.regressions:
        texts.setdefault((finding.id, finding.family), []).append(finding.text)
    lines = [(run_id, family, glued(capitalized("; ".join(some)))) for (run_id, family), some in texts.items()]
    return lines[:_MOST_CHANGES], max(0, len(lines) - _MOST_CHANGES)


def _changed(digest: Digest, change: ChangePoint) -> str:
    metric = next(metric for metric in METRICS if metric.key == change.metric)
    row = digest.links.get(change.id)
    values = " → ".join(metric.text(value, row.currency if row else None) for value in (change.before, change.after))
    runs = f"medians of {plural(change.runs_before, 'run')} before and {plural(change.runs, 'run')} since"
    return f"{metric.label} {metric.moved(change.change_percent)} since this run ({values}; {runs})"
