"""The history of jobs: rows of the index -> families of runs, their trends, regressions, improvements and new issues.

docs/nightly.md has the formulas in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Literal

import polars as pl

from ..analysis.report.rules import FINE, ISSUES
from ..analysis.rules.engine.catalogue import PROFILER_REPORT
from ..analysis.toolkit import wording
from ..errors import UsageError

Kind = Literal["regression", "improvement", "new_issue"]
LABEL: Final = "family"  # a run's label; it takes precedence over all patterns
METRICS: Final = (
    "step_median_ns", "gpu_busy_percent", "gpu_active_percent", "gpu_utilization_percent", "exposed_communication_percent",
    "gpu_memory_percent",
)  # fmt: skip
POINTS: Final = 60  # the newest runs of a family whose trend is kept
_NORMAL: Final = 1.4826  # standard deviation / median absolute deviation of normally distributed values
_SMALL: Final[dict[int, float]] = {3: 3.7, 4: 2.2, 5: 2.0, 6: 1.5, 7: 1.45}
_FLOOR: Final = 0.01
_MOST_FAMILIES: Final = 500
NIGHT_NS: Final = 36 * 3600 * 10**9  # before the last known end of a run: runs that ended then are new
_PAST_NS: Final = 30 * 86_400 * 10**9
_COMPARABLE: Final = ("completed", "unknown")
_SERIES: Final = ("family", "gpu_name", "gpus", "ranks")


@dataclass(frozen=True, slots=True)
class Settings:
    """``patterns``: of families; the first that matches counts. ``threshold_percent``, ``deviations``: a regression exceeds both.
    ``history``, ``least``: the largest and smallest number of earlier runs. ``fine_runs``: the number of runs without an issue before it
    counts as new."""

    patterns: tuple[re.Pattern[str], ...] = ()
    threshold_percent: float = 10.0
    deviations: float = 3.0
    history: int = 8
    least: int = 3
    fine_runs: int = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """``id``: of the run. ``value_ns``, ``base_ns``: its time from step to step and the median of the ``runs`` before. ``rule``: of a new
    issue."""

    kind: Kind
    id: str
    family: str
    text: str
    runs: int
    rule: str | None = None
    value_ns: int | None = None
    base_ns: float | None = None
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
    """``runs``: the number of reports. ``points``: the newest ones, oldest first. ``trends``: by the names in METRICS."""

    name: str
    runs: int
    points: tuple[Point, ...]
    trends: Mapping[str, Trend]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class History:
    """``findings``: regressions, then new issues, then improvements. ``families``: of ``families_total``, those with findings first.
    ``steps``: id, step_base_ns, step_change_percent, step_runs, step_mark of every run with earlier ones. ``alone``: ids of the runs whose
    family has no other run, the newest first."""

    findings: tuple[Finding, ...]
    families: tuple[Family, ...]
    families_total: int
    steps: pl.DataFrame
    alone: tuple[str, ...]


# -- families --------------------------------------------------------------------------------------------------------------

_OF_JOBS: Final = r"runs?|jobs?|exp|experiment|build|night|nightly|train|training"
_WITHIN_JOBS: Final = (
    r"attempts?|try|tries|trial|restart|retry|rep|repeat|seed|iter|iteration|part|number|no|id"
    r"|output|outputs|out|logs?|profile|trace|traces|kineto|postrun[-_]runs"
)
_WORDS: Final = rf"{_OF_JOBS}|{_WITHIN_JOBS}"
_DATE: Final = (
    r"(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T_\s.-]{0,3}(?:[01]\d|2[0-3])[-_:.h]?[0-5]\d(?:[-_:.m]?[0-5]\d(?:[.,]\d+)?)?)?Z?"
)
_UUID: Final = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_HASH: Final = r"(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}"
_COUNTER: Final = rf"(?:(?:{_WORDS})[-_.\s]?)?\#?\d+|\(\d+\)|\[\d+\]"
_END: Final = re.compile(rf"(?:^|[-_.\s/:@\#+,~]+|(?=[(\[]))(?:{_UUID}|{_DATE}|{_HASH}|{_COUNTER})$", re.IGNORECASE)
_SEPARATORS: Final = "-_. /:@#+,~\t\n"
_GENERIC: Final = re.compile(rf"(?:{_WORDS})", re.IGNORECASE)
_JOB: Final = re.compile(rf"(?:{_OF_JOBS})", re.IGNORECASE)
_COUNTED: Final = re.compile(rf"({_WORDS})[-_.\s]?\#?\d+", re.IGNORECASE)


def patterns_of(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile regular expressions. Raise UsageError for an invalid one."""
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"{text!r} is not a regular expression: {error}; write it like '^(gpt-[0-9]+b)'") from None
    return tuple(patterns)


def family_of(name: str | None, run_id: str, labels: Mapping[str, str], patterns: Sequence[re.Pattern[str]] = ()) -> str:
    """Return the family of a run.

    It is the label ``family``, else the match of the first pattern in the name or the id, else the name without dates, counters and hashes
    at its end. If the name contains nothing else, or only a word such as run, the nearest folder above that is more specific counts.
    Without one, it is the nearest word for jobs (train, run), then the nearest word for a part of a job (attempt, seed), then the entire
    name."""
    label = labels.get(LABEL)
    if isinstance(label, str) and label.strip():
        return label.strip()
    for pattern in patterns:
        for text in (name, run_id):
            if text and (match := pattern.search(text)):
                groups = [match["family"]] if "family" in pattern.groupindex else match.groups()
                return " ".join(group for group in groups if group) or pattern.pattern
    stems = [stem for text in (name, *reversed(run_id.split("/"))) if text and (stem := stem_of(text))]
    names = (stem for stem in stems if not _GENERIC.fullmatch(stem))
    words = (stem for stem in stems if _JOB.fullmatch(stem))
    return next(chain(names, words, stems), name or run_id)


@lru_cache(65_536)
def stem_of(text: str) -> str:
    """Remove dates, counters and hashes at the end; the result may be empty."""
    text = text[-256:].strip(_SEPARATORS)
    while text and (shorter := _END.sub("", text).rstrip(_SEPARATORS)) != text:
        if not shorter and (counted := _COUNTED.fullmatch(text)):
            return counted[1]
        text = shorter
    return text


# -- history ---------------------------------------------------------------------------------------------------------------


def history(runs: pl.DataFrame, settings: Settings) -> History:
    """Return the history of ``runs``: the index columns of a Row, and ``family``."""
    ordered = _ordered(runs)
    steps = _steps(ordered, settings)
    current = ordered.join(_current(ordered, steps), on="id", how="left").with_columns(pl.col("night", "newest").fill_null(False))
    findings = (*_step_findings(steps, current), *_new_issues(current, settings))
    order = {"regression": 0, "new_issue": 1, "improvement": 2}
    findings = tuple(
        sorted(findings, key=lambda one: (order[one.kind], -abs(one.change_percent or 0.0), one.family, one.id, one.rule or ""))
    )
    names, total = _chosen(ordered, findings)
    families = _families(ordered.filter(pl.col("family").is_in(names)), steps, names, settings)
    alone = ordered.filter(pl.len().over("family") == 1).sort(["at_ns", "id"], descending=[True, False], nulls_last=True)
    return History(findings, families, total, steps, tuple(alone["id"].to_list()))


def _ordered(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs that have a report, by family and time."""
    rules = runs.schema["verdicts"]
    assert isinstance(rules, pl.Struct)
    names = [field.name for field in rules.fields]
    return (
        runs.lazy()
        .filter(pl.col("state") == "reported")
        .select(
            "id", "family", "gpu_name", "gpus", "ranks", *METRICS, "verdicts",
            at_ns=pl.coalesce("started_ns", "reported_at_ns"),
            ended_ns=pl.coalesce(pl.col("started_ns") + pl.col("duration_ns").fill_null(0), "reported_at_ns"),
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


def _steps(ordered: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Compare each run's time from step to step with the runs before it."""
    step, base, count = pl.col("step_median_ns"), pl.col("step_base_ns"), pl.col("step_runs")
    before = [step.shift(k).over(_SERIES) for k in range(1, settings.history + 1)]
    small = pl.lit(1.0) + 2.0 / count
    for number, factor in _SMALL.items():
        small = pl.when(count == number).then(factor).otherwise(small)
    share = settings.threshold_percent / 100.0
    room = settings.deviations * pl.col("step_spread_ns")
    return (
        ordered.lazy()
        .filter(pl.col("comparable") & (step > 0))
        .select("id", "place", *_SERIES, "step_median_ns", "ended_ns")
        .with_columns(step.cast(pl.Float64))
        .with_columns(pl.concat_list(before).list.drop_nulls().alias("before"))
        .with_columns(step_base_ns=pl.col("before").list.median(), step_runs=pl.col("before").list.len().cast(pl.Int64))
        .drop("before")
        .with_columns(_mad=pl.concat_list([(one - base).abs() for one in before]).list.drop_nulls().list.median())
        .with_columns(
            step_spread_ns=pl.max_horizontal(_NORMAL * small * pl.col("_mad"), _FLOOR * base),
            step_change_percent=100.0 * (step - base) / base,
        )
        .with_columns(
            step_mark=pl.when(count < settings.least)
            .then(None)
            .when((step > base * (1.0 + share)) & (step > base + room))
            .then(pl.lit("regression"))
            .when((step < base * (1.0 - share)) & (step < base - room))
            .then(pl.lit("improvement"))
        )
        .drop("_mad")
        .collect()
    )


def _current(ordered: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the comparable runs to which findings may refer.

    ``night``: the run ended in the 36 hours before the last known end. ``newest``: it is the last of its series, and not older than 30 days
    at that time. ``newest_step``: the same among the runs that have steps."""
    runs = ordered.filter("comparable").select("id", "place", "ended_ns", *_SERIES)
    last = runs["ended_ns"].max()
    fresh = pl.col("ended_ns").is_null() if last is None else pl.col("ended_ns") >= pl.lit(last) - _PAST_NS
    night = pl.lit(False) if last is None else pl.col("ended_ns") >= pl.lit(last) - NIGHT_NS
    with_steps = steps.filter(pl.col("place") == pl.col("place").max().over(_SERIES)).select("id", newest_step=pl.lit(True))
    return (
        runs.with_columns(newest=(pl.col("place") == pl.col("place").max().over(_SERIES)) & fresh.fill_null(True), fresh=fresh)
        .with_columns(night=night.fill_null(False))
        .join(with_steps, on="id", how="left")
        .select("id", "night", "newest", newest_step=pl.col("newest_step").fill_null(False) & pl.col("fresh").fill_null(True))
    )


def _step_findings(steps: pl.DataFrame, current: pl.DataFrame) -> list[Finding]:
    reported = current.filter(pl.col("night") | pl.col("newest_step")).select("id")
    findings = []
    for row in steps.filter(pl.col("step_mark").is_not_null()).join(reported, on="id", how="semi").iter_rows(named=True):
        kind: Kind = "regression" if row["step_mark"] == "regression" else "improvement"
        change, count = row["step_change_percent"], row["step_runs"]
        differs = f"{wording.percent(abs(change))} {'more' if change > 0 else 'less'}"
        text = (
            f"{wording.duration(row['step_median_ns'])} from step to step, {differs} than the"
            f" median of the {count} comparable runs before ({wording.duration(row['step_base_ns'])})"
        )
        findings.append(
            Finding(kind, row["id"], row["family"], text, count, None, round(row["step_median_ns"]), row["step_base_ns"], change)
        )
    return findings


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
    """Return the families to list, those with findings first, and their number."""
    newest = (
        ordered.group_by("family").agg(pl.col("ended_ns").max()).sort(["ended_ns", "family"], descending=[True, False], nulls_last=True)
    )
    names = list(dict.fromkeys([*(one.family for one in findings), *newest["family"].to_list()]))
    return names[:_MOST_FAMILIES], len(newest)


def _families(ordered: pl.DataFrame, steps: pl.DataFrame, names: Sequence[str], settings: Settings) -> tuple[Family, ...]:
    marks = dict(steps.filter(pl.col("step_mark").is_not_null()).select("id", "step_mark").iter_rows())
    parts = ordered.partition_by("family", as_dict=True, maintain_order=True)
    return tuple(_family(name, parts[(name,)], marks, settings) for name in names)


def _family(name: str, runs: pl.DataFrame, marks: Mapping[str, Any], settings: Settings) -> Family:
    comparable = runs.filter("comparable")
    newest = (comparable if len(comparable) else runs).row(-1, named=True)
    same = comparable.filter(pl.all_horizontal(pl.col(key).eq_missing(pl.lit(newest[key])) for key in _SERIES[1:]))
    alike = set(same["id"].to_list())
    points = tuple(
        Point(
            id=row["id"], at_ns=row["at_ns"], **{metric: row[metric] for metric in METRICS}, issues=row["issues"],
            comparable=row["id"] in alike, mark=marks.get(row["id"]),
        )
        for row in runs.tail(POINTS).iter_rows(named=True)
    )  # fmt: skip
    trends = {}
    for metric in METRICS:
        earlier = same.filter((pl.col("id") != newest["id"]) & pl.col(metric).is_not_null())[metric].tail(settings.history)
        base = earlier.cast(pl.Float64).median()
        trends[metric] = Trend(newest[metric], base if isinstance(base, float) else None, len(earlier))
    return Family(name, len(runs), points, trends, _changes(same))


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
