"""The weekly digest: rows of the index -> GPU-hours of the jobs that ended in a period, by cause, label and family.

Times are sums of integers (GPU-ns) and add up exactly. Nothing is estimated: what a recording does not contain is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Final

from ..analysis.run import goodput
from ..analysis.toolkit.wording import plural
from .change_points import ChangePoint
from .families import family_of
from .gpu_hours import LONGEST, column
from .history import Finding, Settings, changes_between
from .metrics import STEP
from .model import Row
from .weeks import Period

NO_CAUSE: Final = "unknown"
CAUSES: Final = (*goodput.PARTS, NO_CAUSE)
LOST: Final = tuple(cause for cause in goodput.PARTS if cause not in (goodput.PRODUCTIVE, goodput.EVALUATION, goodput.NOT_RECORDED))
"""Causes that are neither productive, nor evaluation, nor unknown."""
TEAM: Final = "team"
_LONGEST_LABEL: Final = 200
_MOST_PRICE: Final = 1e12  # as --price-per-gpu-hour accepts


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the period. ``causes``: its GPU-ns, which add up to ``allocated_ns``. ``visible``: the causes that its recording shows.
    ``sampled_ns``, ``inactive_ns``: with samples of the utilization, and without activity. ``price``: of a GPU-hour, with its currency."""

    row: Row
    family: str
    label: str | None
    allocated_ns: int
    causes: Mapping[str, int]
    visible: frozenset[str]
    sampled_ns: int = 0
    inactive_ns: int = 0
    price: tuple[float, str] | None = None

    @property
    def lost_ns(self) -> int:
        return sum(self.causes.get(cause, 0) for cause in LOST)


@dataclass(frozen=True, slots=True)
class Hours:
    """GPU-hours of some jobs, in GPU-ns. ``name``: of the group; None for jobs without the label. ``visible``: by cause, the time of the
    jobs whose recording shows it. ``costs``: by currency and cause. ``priced_ns``: the time that has a price."""

    name: str | None
    jobs: int
    allocated_ns: int
    causes: Mapping[str, int]
    visible: Mapping[str, int]
    sampled_ns: int
    inactive_ns: int
    costs: Mapping[str, Mapping[str, float]]
    priced_ns: int

    @property
    def productive_ns(self) -> int:
        return self.causes[goodput.PRODUCTIVE]

    @property
    def lost_ns(self) -> int:
        return sum(self.causes[cause] for cause in LOST)

    @property
    def known_ns(self) -> int:
        """Return the time whose cause is known."""
        return self.allocated_ns - self.causes[NO_CAUSE] - self.causes[goodput.NOT_RECORDED]

    @property
    def currency(self) -> str | None:
        """Return the currency of the costs; None without costs, or if there are several."""
        return next(iter(self.costs)) if len(self.costs) == 1 else None

    def cost(self, *causes: str) -> float | None:
        """Return the cost of some causes, of all without any; None without one currency."""
        if self.currency is None:
            return None
        costs = self.costs[self.currency]
        return fsum(costs[cause] for cause in causes or CAUSES)


@dataclass(frozen=True, slots=True)
class Digest:
    """The data of the digest. ``jobs``: with known GPU-hours, the largest first. ``unmeasured``: number of reported jobs whose
    GPU-hours are unknown. ``failed``: number of runs without a report. ``before``: the period before. ``groups``, ``families``: the largest
    first. ``links``: id of a run -> its row, of all runs that are named."""

    period: Period
    by: str
    generated_at_ns: int
    total: Hours
    before: Hours
    jobs: tuple[Job, ...]
    unmeasured: int
    failed: int
    groups: tuple[Hours, ...]
    families: tuple[Hours, ...]
    regressions: tuple[Finding, ...] = ()
    changes: tuple[ChangePoint, ...] = ()
    settings: Settings = field(default_factory=Settings)
    links: Mapping[str, Row] = field(default_factory=dict)
    base_url: str | None = None


def ended_ns(row: Row) -> int | None:
    """Return when a job ended, else when it was reported."""
    return row.started_ns + (row.duration_ns or 0) if row.started_ns is not None else row.reported_at_ns


def digest(
    rows: Iterable[Row],
    period: Period,
    settings: Settings,
    generated_at_ns: int,
    by: str = TEAM,
    price: tuple[float, str] | None = None,
    base_url: str | None = None,
) -> Digest:
    """Return the digest of the runs that ended in a period.

    ``by``: the label of the groups. ``price``: of a GPU-hour, for all jobs; None: the price of each report."""
    every = list(rows)
    named = {row.id: family_of(row.name, row.id, row.labels, settings.patterns) for row in every}
    ended = _within(every, period)
    reported = [row for row in ended if row.state == "reported"]
    jobs = _jobs(reported, named, by, price)
    families = {named[row.id] for row in reported}
    regressions, changes = _worse([row for row in every if named[row.id] in families], named, settings, period)
    mentioned = {one.id for one in regressions} | {one.id for one in changes}
    return Digest(
        period=period,
        by=by,
        generated_at_ns=generated_at_ns,
        total=hours(None, jobs),
        before=hours(None, _jobs([row for row in _within(every, period.before) if row.state == "reported"], named, by, price)),
        jobs=tuple(jobs),
        unmeasured=len(reported) - len(jobs),
        failed=sum(row.state == "failed" for row in ended),
        groups=_grouped(jobs, lambda job: job.label),
        families=_grouped(jobs, lambda job: job.family),
        regressions=tuple(regressions),
        changes=tuple(changes),
        settings=settings,
        links={row.id: row for row in every if row.id in mentioned},
        base_url=base_url,
    )


def _within(rows: Iterable[Row], period: Period) -> list[Row]:
    return [row for row in rows if (end := ended_ns(row)) is not None and period.since_ns <= end < period.until_ns]


def _jobs(rows: Sequence[Row], named: Mapping[str, str], by: str, price: tuple[float, str] | None) -> list[Job]:
    jobs = [job for row in rows if (job := job_of(row, named[row.id], by, price)) is not None]
    return sorted(jobs, key=lambda job: (-job.allocated_ns, job.row.id))


def job_of(row: Row, family: str, by: str = TEAM, price: tuple[float, str] | None = None) -> Job | None:
    """Return the job of a run; None if its GPU-hours are unknown.

    Others may have written the row: parts that do not add up are unknown."""
    allocated = row.allocated_ns
    if allocated is None or not 0 < allocated <= LONGEST:
        return None
    parts = {part: time for part in goodput.PARTS if (time := getattr(row, column(part))) is not None}
    sound = all(time >= 0 for time in parts.values()) and sum(parts.values()) == allocated
    causes = parts if sound else {NO_CAUSE: allocated}
    sampled, inactive = row.sampled_ns, row.inactive_ns
    measured = sampled is not None and inactive is not None and 0 <= inactive <= sampled <= allocated
    amount = row.price_per_gpu_hour
    stated = (amount, row.currency) if amount is not None and 0 <= amount < _MOST_PRICE and row.currency else None
    label = row.labels.get(by, "").strip()[:_LONGEST_LABEL] or None
    return Job(
        row, family, label, allocated, causes, frozenset(parts if sound else ()),
        sampled if measured and sampled else 0, inactive if measured and inactive else 0, price or stated,
    )  # fmt: skip


def hours(name: str | None, jobs: Sequence[Job]) -> Hours:
    """Add up the GPU-hours of jobs."""
    currencies = sorted({job.price[1] for job in jobs if job.price})
    return Hours(
        name=name,
        jobs=len(jobs),
        allocated_ns=sum(job.allocated_ns for job in jobs),
        causes={cause: sum(job.causes.get(cause, 0) for job in jobs) for cause in CAUSES},
        visible={cause: sum(job.allocated_ns for job in jobs if cause in job.visible) for cause in CAUSES},
        sampled_ns=sum(job.sampled_ns for job in jobs),
        inactive_ns=sum(job.inactive_ns for job in jobs),
        costs={
            currency: {
                cause: fsum(
                    job.causes.get(cause, 0) / goodput.HOUR_NS * job.price[0] for job in jobs if job.price and job.price[1] == currency
                )
                for cause in CAUSES
            }
            for currency in currencies
        },
        priced_ns=sum(job.allocated_ns for job in jobs if job.price),
    )


def _grouped(jobs: Sequence[Job], key: Callable[[Job], str | None]) -> tuple[Hours, ...]:
    groups: dict[str | None, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return tuple(
        sorted((hours(name, some) for name, some in groups.items()), key=lambda one: (-one.allocated_ns, one.name is None, one.name or ""))
    )


def joined(name: str, groups: Sequence[Hours]) -> Hours:
    """Add up groups of the same period."""
    currencies = sorted({currency for group in groups for currency in group.costs})
    return Hours(
        name=name,
        jobs=sum(group.jobs for group in groups),
        allocated_ns=sum(group.allocated_ns for group in groups),
        causes={cause: sum(group.causes[cause] for group in groups) for cause in CAUSES},
        visible={cause: sum(group.visible[cause] for group in groups) for cause in CAUSES},
        sampled_ns=sum(group.sampled_ns for group in groups),
        inactive_ns=sum(group.inactive_ns for group in groups),
        costs={
            currency: {cause: fsum(group.costs[currency][cause] for group in groups if currency in group.costs) for cause in CAUSES}
            for currency in currencies
        },
        priced_ns=sum(group.priced_ns for group in groups),
    )


def _worse(rows: Sequence[Row], named: Mapping[str, str], settings: Settings, period: Period) -> tuple[list[Finding], list[ChangePoint]]:
    """Return the largest regression of each family and figure, and the changed levels.

    A figure of a family whose level changed has no regressions."""
    import polars as pl

    from . import table

    if not rows:
        return [], []
    frame = table.frame(rows, family=pl.Series([table.valid(named[row.id]) for row in rows], dtype=pl.String))
    findings, changes = changes_between(frame, settings, period.since_ns, period.until_ns)
    changes.sort(key=lambda one: (one.metric != STEP.key, -abs(one.change_percent), one.family, one.metric))
    listed = {(change.family, change.metric) for change in changes}
    of_figure: dict[tuple[str, str | None], list[Finding]] = {}
    for finding in sorted(findings, key=lambda one: (-abs(one.change_percent or 0), one.family, one.id)):
        if (finding.family, finding.metric) not in listed:
            of_figure.setdefault((finding.family, finding.metric), []).append(finding)
    return [_with_others(*some) for some in of_figure.values()], changes


def _with_others(first: Finding, *others: Finding) -> Finding:
    """Name the number of other regressions of the same family and figure."""
    return replace(first, text=f"{first.text}; {plural(len(others), 'other run')} of the family also regressed") if others else first
