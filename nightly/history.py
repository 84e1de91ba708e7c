"""The history of jobs: rows of the index, by family -> trends, regressions, improvements and new issues.

docs/nightly.md has the formulas in words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import polars as pl

from ..analysis.report.rules import FINE, ISSUES
from ..analysis.rules.engine.catalogue import PROFILER_REPORT
from .change_points import NEWEST, ChangePoint, change_points
from .metrics import METRICS, STEP, Metric

Kind = Literal["regression", "improvement", "new_issue"]
TRENDS: Final = (
    "step_median_ns", "gpu_busy_percent", "gpu_active_percent", "gpu_utilization_percent", "exposed_communication_percent",
    "gpu_memory_percent", "iteration_median_ns", "mfu_percent", "data_loading_percent", "gpu_memory_peak_bytes", "cost_per_step",
)  # fmt: skip
_WITHIN: Final = {metric.column: metric.within for metric in METRICS}
POINTS: Final = NEWEST  # runs of a family whose trend is kept
_NORMAL: Final = 1.4826  # standard deviation / median absolute deviation of normally distributed values
_SMALL: Final[dict[int, float]] = {3: 3.7, 4: 2.2, 5: 2.0, 6: 1.5, 7: 1.45}
_MOST_FAMILIES: Final = 500
NIGHT_NS: Final = 36 * 3600 * 10**9  # before the last known end, or the first report: runs that ended then are new
_PAST_NS: Final = 30 * 86_400 * 10**9
_COMPARABLE: Final = ("completed", "unknown")
_SERIES: Final = ("family", "gpu_name", "gpus", "ranks")
_PRICE: Final = ("price_per_gpu_hour", "currency")


@dataclass(frozen=True, slots=True)
class Settings:
    """``patterns``: of families; the first that matches counts. ``metrics``: the figures that are compared, with their limits; a
    regression exceeds the limit and ``deviations``. ``history``, ``least``: the largest and smallest number of earlier runs. ``fine_runs``:
    the number of runs before without an issue, or a regression, after which it counts as new. ``baseline``: pattern of the name or id of
    runs that others are compared with, instead of the runs before."""

    patterns: tuple[re.Pattern[str], ...] = ()
    metrics: tuple[Metric, ...] = METRICS
    deviations: float = 3.0
    history: int = 8
    least: int = 3
    fine_runs: int = 3
    baseline: str | None = None

    @property
    def threshold_percent(self) -> float | None:
        """Return the limit of the step time; None if it is not compared."""
        return next((metric.limit for metric in self.metrics if metric.key == STEP.key), None)


@dataclass(frozen=True, slots=True)
class Finding:
    """``id``: of the run. ``metric``: the figure that changed, by its key; ``value``, ``base``: of the run, and the median of the ``runs``
    before. ``change_percent``: of the base; percentage points for a figure in percent of time. ``rule``: of a new issue."""

    kind: Kind
    id: str
    family: str
    text: str
    runs: int
    rule: str | None = None
    metric: str | None = None
    value: float | None = None
    base: float | None = None
    change_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a family. ``issues``: how many rules found one. ``comparable``: with the newest run of the family. ``mark``: the
    comparison with the runs before it."""

    id: str
    at_ns: int | None
    step_median_ns: int | None
    gpu_busy_percent: float | None
    gpu_active_percent: float | None
    gpu_utilization_percent: float | None
    exposed_communication_percent: float | None
    gpu_memory_percent: float | None
    iteration_median_ns: int | None
    mfu_percent: float | None
    data_loading_percent: float | None
    gpu_memory_peak_bytes: int | None
    cost_per_step: float | None
    issues: int
    comparable: bool
    mark: Literal["regression", "improvement"] | None


@dataclass(frozen=True, slots=True)
class Trend:
    """A metric of the newest run, and its median over ``runs`` comparable runs before."""

    newest: float | None
    base: float | None
    runs: int


@dataclass(frozen=True, slots=True)
class Change:
    """A rule whose verdict differs between the newest run and the comparable run before."""

    rule: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Family:
    """``runs``: the number of reports. ``points``: the newest ones, oldest first. ``trends``: by the names in TRENDS. ``currency``: of the
    cost of the newest run. ``change_points``: of the runs that are comparable with the newest, in order of the figures and of time."""

    name: str
    runs: int
    points: tuple[Point, ...]
    trends: Mapping[str, Trend]
    changes: tuple[Change, ...]
    currency: str | None = None
    change_points: tuple[ChangePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """``findings``: regressions, those of the step time first, then new issues, then improvements. ``families``: of ``families_total``,
    those with findings first. ``steps``: id, step_base_ns, step_change_percent, step_runs, step_mark of every run with earlier ones.
    ``alone``: ids of the runs whose family has no other run, the newest first."""

    findings: tuple[Finding, ...]
    families: tuple[Family, ...]
    families_total: int
    steps: pl.DataFrame
    alone: tuple[str, ...]


def history(runs: pl.DataFrame, settings: Settings, more: Sequence[Finding] = ()) -> History:
    """Return the history of ``runs``: the index columns of a Row, and ``family``.

    ``more``: other findings to list."""
    ordered = _ordered(runs)
    compared = {metric.key: _compared(ordered, metric, settings) for metric in settings.metrics}
    steps = _steps(compared.get(STEP.key), ordered)
    current = ordered.join(_current(ordered), on="id", how="left").with_columns(pl.col("night", "newest", "fresh").fill_null(False))
    current_findings = (
        *(finding for metric in settings.metrics for finding in _findings(metric, compared[metric.key], current, settings)),
        *_new_issues(current, settings),
    )
    by_figure = {(one.kind, one.id, one.metric, one.rule): one for one in (*more, *current_findings)}
    findings = tuple(sorted(by_figure.values(), key=rank))
    names, total = _chosen(ordered, findings)
    worse = {one.family for one in findings if one.kind != "improvement"}
    families = _families(ordered.filter(pl.col("family").is_in(names)), steps, names, worse, settings)
    alone = ordered.filter(pl.len().over("family") == 1).sort(["at_ns", "id"], descending=True, nulls_last=True)
    return History(findings, families, total, steps, tuple(alone["id"].to_list()))


def rank(finding: Finding) -> tuple[Any, ...]:
    order = {"regression": 0, "new_issue": 1, "improvement": 2}
    after_steps = finding.metric not in (None, STEP.key)
    change = -abs(finding.change_percent or 0.0)
    return order[finding.kind], after_steps, change, finding.family, finding.id, finding.metric or finding.rule or ""


def regressions(runs: pl.DataFrame, settings: Settings) -> list[Finding]:
    """Return the regressions of all runs, also of old ones.

    ``runs``: as of :func:`history`."""
    return sorted((finding for finding, _ in in_order(runs, settings)), key=rank)


def in_order(runs: pl.DataFrame, settings: Settings) -> list[tuple[Finding, tuple[str, ...]]]:
    """Return the regressions of all runs, figure by figure in order of time.

    Each has the ids of those regressions that are among the ``fine_runs`` comparable runs right before it. ``runs``: as of
    :func:`history`."""
    ordered, result = _ordered(runs), list[tuple[Finding, tuple[str, ...]]]()
    regressed = pl.when(pl.col("mark") == "regression").then("id")
    for metric in settings.metrics:
        series = (*_SERIES, *metric.within)
        recent = pl.concat_list([regressed.shift(k).over(series) for k in range(1, settings.fine_runs + 1)]).list.drop_nulls()
        rows = _compared(ordered, metric, settings).with_columns(recent=recent).filter(pl.col("mark") == "regression")
        result += [(_finding(metric, row, settings), tuple(row["recent"])) for row in rows.iter_rows(named=True)]
    return result


def besides_history(runs: pl.DataFrame, since_ns: int) -> set[str]:
    """Return the ids of the runs that ended at a time or later, or are the newest.

    ``runs``: as of :func:`history`. The newest are those of a series, if they ended within 30 days before the last known end of all."""
    ordered = _ordered(runs)
    late = ordered.filter((pl.col("ended_ns") >= since_ns).fill_null(True))
    return {*late["id"], *_current(ordered).filter("newest")["id"]}


def changes_between(runs: pl.DataFrame, settings: Settings, since_ns: int, until_ns: int) -> tuple[list[Finding], list[ChangePoint]]:
    """Return the regressions and the worse levels of a period.

    ``runs``: as of :func:`history`; runs that ended later do not count. A regression is of a run that ended in the period. A level began in
    it, differs from the one before by more than the limit of the figure, and has not changed again."""
    ordered = _ordered(runs).filter(pl.col("ended_ns") < until_ns)
    findings, changes = list[Finding](), list[ChangePoint]()
    for metric in settings.metrics:
        marked = _compared(ordered, metric, settings).filter(pl.col("ended_ns") >= since_ns, pl.col("mark") == "regression")
        findings += [_finding(metric, row, settings) for row in marked.iter_rows(named=True)]
        changes += [
            change
            for change in change_points(_with_value(ordered, metric), metric, (*_SERIES, *metric.within))
            if change.last and change.worse and abs(change.change_percent) > metric.limit and (change.ended_ns or 0) >= since_ns
        ]
    return findings, changes


def _ordered(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs that have a report, by family and time."""
    rules = runs.schema["verdicts"]
    assert isinstance(rules, pl.Struct)
    names = [field.name for field in rules.fields]
    return (
        runs.lazy()
        .filter(pl.col("state") == "reported")
        .select(
            "id", "name", *_SERIES, *TRENDS, *_PRICE, "verdicts",
            # No run is later than its report: a job whose clock is ahead would make all findings of the others old.
            at_ns=pl.min_horizontal("started_ns", "reported_at_ns"),
            ended_ns=pl.min_horizontal(pl.col("started_ns") + pl.col("duration_ns").fill_null(0), "reported_at_ns"),
            comparable=pl.col("status").is_null() | pl.col("status").is_in(_COMPARABLE),
            issues=pl.sum_horizontal(
                pl.lit(0),
                *(
                    pl.col("verdicts").struct.field(name).eq_missing(pl.lit(ISSUES)).cast(pl.Int64)
                    for name in names
                    if name != PROFILER_REPORT
                ),
            ),
        )
        .sort("family", "at_ns", "id", nulls_last=False)
        .with_row_index("place")
        .collect()
    )  # fmt: skip


def _compared(ordered: pl.DataFrame, metric: Metric, settings: Settings) -> pl.DataFrame:
    """Compare a figure of each run with the runs before it, or with the baseline.

    Columns: ``value``, ``base``, ``runs``, ``change``, ``mark``, ``pinned`` (whether the base is the baseline)."""
    series = (*_SERIES, *metric.within)
    value, base, count = pl.col("value"), pl.col("base"), pl.col("runs")
    before = pl.concat_list([value.shift(k).over(series) for k in range(1, settings.history + 1)]).list.drop_nulls()
    small = pl.lit(1.0) + 2.0 / count
    for number, factor in _SMALL.items():
        small = pl.when(count == number).then(factor).otherwise(small)
    share, points = metric.floor
    room = pl.max_horizontal(_NORMAL * small * pl.col("mad"), share * base + points) * settings.deviations
    limit = pl.lit(metric.limit) if metric.points else base * (metric.limit / 100.0)
    worse = value - base if metric.more_is_worse else base - value
    rows = _with_value(ordered, metric)
    is_baseline = _is_baseline(rows, settings.baseline)
    baseline = rows.filter(is_baseline).group_by(series).agg(baseline=pl.col("value"))
    return (
        rows.with_columns(own=is_baseline, before=before)
        .join(baseline, on=series, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pinned=pl.col("baseline").is_not_null() & ~pl.col("own"))
        .with_columns(before=pl.when("pinned").then("baseline").otherwise("before"))
        .with_columns(base=pl.col("before").list.median(), runs=pl.col("before").list.len().cast(pl.Int64))
        .with_columns(mad=(pl.col("before") - base).list.eval(pl.element().abs()).list.median())
        .with_columns(change=value - base if metric.points else 100.0 * (value - base) / base)
        .with_columns(
            mark=pl.when((count < settings.least) & ~pl.col("pinned"))
            .then(None)
            .when((worse > limit) & (worse > room))
            .then(pl.lit("regression"))
            .when((-worse > limit) & (-worse > room))
            .then(pl.lit("improvement"))
        )
        .drop("before", "baseline", "mad", "own")
    )


def _with_value(ordered: pl.DataFrame, metric: Metric) -> pl.DataFrame:
    """Return the comparable runs that have a figure, as ``value``."""
    return (
        ordered.filter(pl.col("comparable") & ((pl.col(metric.column) > 0) | metric.points))
        .select("id", "name", "place", *_SERIES, *_PRICE, "at_ns", "ended_ns", value=pl.col(metric.column).cast(pl.Float64))
        .drop_nulls("value")
    )


def _is_baseline(rows: pl.DataFrame, pattern: str | None) -> pl.Series:
    names = rows.select("id", "name").iter_rows()
    return pl.Series([pattern is not None and any(fnmatchcase(name or "", pattern) for name in pair) for pair in names], dtype=pl.Boolean)


def _steps(compared: pl.DataFrame | None, ordered: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of the index about step times."""
    if compared is None:  # --regression step=off
        compared = _compared(ordered, STEP, Settings(least=2**31))
    return compared.select("id", step_base_ns="base", step_runs="runs", step_change_percent="change", step_mark="mark")


def _current(ordered: pl.DataFrame) -> pl.DataFrame:
    """Return the comparable runs to which findings may refer.

    ``night``: the run ended in the 36 hours before the last known end. ``fresh``: it is not older than 30 days at that time. ``newest``: it
    is also the last of its series."""
    runs = ordered.filter("comparable").select("id", "place", "ended_ns", *_SERIES)
    last = runs["ended_ns"].max()
    fresh = pl.col("ended_ns").is_null() if last is None else pl.col("ended_ns") >= pl.lit(last) - _PAST_NS
    night = pl.lit(False) if last is None else pl.col("ended_ns") >= pl.lit(last) - NIGHT_NS
    return (
        runs.with_columns(fresh=fresh.fill_null(True), night=night.fill_null(False))
        .with_columns(newest=(pl.col("place") == pl.col("place").max().over(_SERIES)) & pl.col("fresh"))
        .select("id", "night", "newest", "fresh")
    )


def _findings(metric: Metric, compared: pl.DataFrame, current: pl.DataFrame, settings: Settings) -> list[Finding]:
    """Return the regressions of a figure; of the step time also the improvements.

    The newest run of a series is the newest that has the figure."""
    newest = pl.col("place") == pl.col("place").max().over(_SERIES)
    rows = compared.with_columns(last=newest).join(current.select("id", "night", "fresh"), on="id")
    kinds: tuple[Kind, ...] = ("regression", "improvement") if metric.key == STEP.key else ("regression",)
    rows = rows.filter(pl.col("mark").is_in(kinds) & (pl.col("night") | (pl.col("last") & pl.col("fresh"))))
    return [_finding(metric, row, settings) for row in rows.iter_rows(named=True)]


def _finding(metric: Metric, row: Mapping[str, Any], settings: Settings) -> Finding:
    count, value, base = row["runs"], row["value"], row["base"]
    than = f"the {count} comparable runs before" if not row["pinned"] else f"the baseline {settings.baseline}"
    median = "the median of " if count > 1 else ""
    newest, usual = (metric.text(number, row["currency"]) for number in (value, base))
    figure = f"{newest} from step to step" if metric.key == STEP.key else f"{metric.label} {newest}"
    text = f"{figure}, {metric.difference(row['change'])} than {median}{than} ({usual})"
    return Finding(row["mark"], row["id"], row["family"], text, count, None, metric.key, value, base, row["change"])


def _new_issues(current: pl.DataFrame, settings: Settings) -> list[Finding]:
    """Find issues that the rule did not find in the ``fine_runs`` runs before."""
    rules = current.schema["verdicts"]
    assert isinstance(rules, pl.Struct)
    comparable = current.filter("comparable")
    reported = pl.col("night") | pl.col("newest")
    findings = []
    for rule in (field.name for field in rules.fields if field.name != PROFILER_REPORT):
        new = (
            comparable.lazy()
            .select("id", "night", "newest", *_SERIES, verdict=pl.col("verdicts").struct.field(rule))
            .filter(pl.col("verdict").is_in([FINE, ISSUES]))
            .with_columns(
                fine=pl.all_horizontal(
                    pl.col("verdict").shift(k).over(_SERIES).eq_missing(pl.lit(FINE)) for k in range(1, settings.fine_runs + 1)
                )
            )
            .filter((pl.col("verdict") == ISSUES) & pl.col("fine") & reported)
            .collect()
        )
        text = f"{rule} finds an issue; the {settings.fine_runs} comparable runs before passed"
        findings += [Finding("new_issue", row["id"], row["family"], text, settings.fine_runs, rule) for row in new.iter_rows(named=True)]
    return findings


def _chosen(ordered: pl.DataFrame, findings: Sequence[Finding]) -> tuple[list[str], int]:
    """Return the families to list, those that became worse first, and their number."""
    newest = (
        ordered.group_by("family").agg(pl.col("ended_ns").max()).sort(["ended_ns", "family"], descending=[True, False], nulls_last=True)
    )
    worse = (one.family for one in findings if one.kind != "improvement")
    names = list(dict.fromkeys([*worse, *newest["family"].to_list()]))
    return names[:_MOST_FAMILIES], len(newest)


def _families(
    ordered: pl.DataFrame, steps: pl.DataFrame, names: Sequence[str], worse: Collection[str], settings: Settings
) -> tuple[Family, ...]:
    """Return the families, those in ``worse`` and those at a worse level first."""
    marks = dict(steps.filter(pl.col("step_mark").is_not_null()).select("id", "step_mark").iter_rows())
    parts = ordered.partition_by("family", as_dict=True, maintain_order=True)
    comparable = ordered.filter("comparable")
    newest = comparable.group_by("family").agg(pl.col(*_SERIES[1:], *_PRICE).last())
    changes: dict[str, list[ChangePoint]] = {}
    for metric in settings.metrics:
        series = (*_SERIES, *metric.within)
        same = _with_value(comparable, metric).join(newest, on=series, how="semi", nulls_equal=True, maintain_order="left")
        for change in change_points(same, metric, series):
            changes.setdefault(change.family, []).append(change)
    families = [_family(name, parts[(name,)], marks, tuple(changes.get(name, ())), settings) for name in names]
    return tuple(sorted(families, key=lambda family: family.name not in worse and not open_levels(family, settings)))


def open_levels(family: Family, settings: Settings) -> list[ChangePoint]:
    """Return the changes to levels that last, and are worse by more than the limit."""
    limits = {metric.key: metric.limit for metric in settings.metrics}
    return [
        change for change in family.change_points if change.last and change.worse and abs(change.change_percent) > limits[change.metric]
    ]


def _family(name: str, runs: pl.DataFrame, marks: Mapping[str, Any], changes: tuple[ChangePoint, ...], settings: Settings) -> Family:
    comparable = runs.filter("comparable")
    newest = (comparable if len(comparable) else runs).row(-1, named=True)
    same = comparable.filter(pl.all_horizontal(pl.col(key).eq_missing(pl.lit(newest[key])) for key in _SERIES[1:]))
    alike = set(same["id"].to_list())
    points = tuple(
        Point(
            id=row["id"], at_ns=row["at_ns"], **{metric: row[metric] for metric in TRENDS}, issues=row["issues"],
            comparable=row["id"] in alike, mark=marks.get(row["id"]),
        )
        for row in runs.tail(POINTS).iter_rows(named=True)
    )  # fmt: skip
    trends = {}
    for metric in TRENDS:
        alike_in = [pl.col(key).eq_missing(pl.lit(newest[key])) for key in _WITHIN.get(metric, ())]
        earlier = same.filter(pl.col("id") != newest["id"], pl.col(metric).is_not_null(), *alike_in)[metric].tail(settings.history)
        base = earlier.cast(pl.Float64).median()
        trends[metric] = Trend(newest[metric], base if isinstance(base, float) else None, len(earlier))
    return Family(name, len(runs), points, trends, _changes(same), newest["currency"], changes)


def _changes(same: pl.DataFrame) -> tuple[Change, ...]:
    if len(same) < 2:
        return ()
    before, after = same["verdicts"].tail(2).to_list()
    known = (FINE, ISSUES)
    return tuple(
        Change(rule, before[rule], after[rule])
        for rule in after
        if rule != PROFILER_REPORT and before[rule] in known and after[rule] in known and before[rule] != after[rule]
    )
