"""The HTML page of all runs: an index -> verdict, findings, families and trends, runs without a comparable run, all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from ..analysis.toolkit.wording import threshold_text
from ..report_templates.figures.trend import Dot, trend
from ..report_templates.output import pages, styles
from ..report_templates.text.formats import UNKNOWN, clip, count, duration, ended, glued, moment, plural, points, signed_percent
from ..report_templates.text.look import Look
from ..report_templates.text.signs import FINE, ISSUE, SIGNS
from .metrics import METRICS, STEP
from .page_head import headline, tiles
from .page_rows import MARKS, alone_rows, entry, evaluated_rules, family_name, report_link, run_id, worst_first

if TYPE_CHECKING:
    from .change_points import ChangePoint
    from .history import Family, Finding
    from .index_model import Index
    from .model import Row

TITLE: Final = "Nightly reports"
_MOST_LINES: Final = 25  # of each kind of finding
_MOST_ALONE: Final = 200  # runs without a comparable run
_MOST_LEFT_OUT: Final = 5  # files
_HINTS: Final = {
    "Step time": "median time from the end of the GPU work of one step to that of the next, so waits between steps count; without GPU work"
    " the step's duration on the host. The report shows the same number",
    "GPU busy": "busy time of all GPUs / their profile windows",
    "GPU utilization": "mean over time of the sampled utilization",
}
_METRICS: Final = (
    ("step_median_ns", "Step time"),
    ("gpu_busy_percent", "GPU busy"),
    ("gpu_utilization_percent", "GPU utilization"),
    ("exposed_communication_percent", "Exposed communication"),
    ("gpu_memory_percent", "GPU memory"),
    ("iteration_median_ns", "Iteration time"),
    ("mfu_percent", "MFU"),
    ("data_loading_percent", "Data loading"),
    ("cost_per_step", "Cost per step"),
)
_BY_COLUMN: Final = {metric.column: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Line:
    """One finding. ``anchor``: the id of its family's card on the page, if it has one."""

    name: str
    href: str | None
    family: str
    anchor: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one kind. ``rest``: how many are left out."""

    id: str
    title: str
    sign: str
    mark: str
    lines: tuple[Line, ...]
    rest: int


def index_page(index: Index, look: Look | None = None, *, most_runs: int = 1_000, most_families: int = 60) -> str:
    """Render the page for a browser or a phone; it loads nothing.

    ``look``: theme, title, and logo.
    """
    look = look or Look()
    rows = index.rows[:most_runs]
    rules = evaluated_rules(rows)
    families = [family for family in index.families if family.runs > 1][:most_families]
    anchors = {family.name: f"family-{number}" for number, family in enumerate(families, 1)}
    groups = _groups(index, anchors)
    alone = [entry(index, row, ()) for row in alone_rows(index, _MOST_ALONE)]
    advice = index.alone_told
    return pages.rendered(
        "index.html.j2",
        style=styles.asset("style.css", "index.css"),
        script=styles.asset("index.js"),
        target="html",
        look=look,
        title=look.title or TITLE,
        generator={"name": "postrun", "version": index.version, "generated_at_ns": index.generated_at_ns},
        index=index,
        headline=headline(index),
        tiles=tiles(index),
        anchors={"runs", *(group.id for group in groups)},
        groups=groups,
        not_read=_not_read(index),
        cards=[_card(family, anchors[family.name], index.findings) for family in families],
        changed=any(family.change_points for family in families),
        families_total=index.families_total - len(index.alone),
        alone=alone,
        advice=f"{clip(advice[0], 400)}. {advice[1][0].upper()}{advice[1][1:]}." if advice else "",
        rules=rules,
        entries=[entry(index, row, rules) for row in worst_first(index, rows)],
        left_out=f"all {count(index.total)} are in index.parquet",
        hints=_HINTS,
        place=clip(index.place, 200),
        threshold=None if (limit := index.settings.threshold_percent) is None else threshold_text(limit),
        base=f"the baseline {index.settings.baseline}"
        if index.settings.baseline
        else f"the {index.settings.history} comparable runs before",
        deviations=f"{index.settings.deviations:g}",
    )


# -- findings --------------------------------------------------------------------------------------------------------------


def _groups(index: Index, anchors: dict[str, str]) -> list[Group]:
    rows = {row.id: row for row in (*index.failed, *index.rows)}

    def lines(kind: str) -> list[Line]:
        """Return a line per run for its findings of a kind."""
        by_run: dict[str, list[Finding]] = {}
        for finding in index.findings:
            if finding.kind == kind:
                by_run.setdefault(finding.id, []).append(finding)
        return [_line(index, found, rows.get(run_id), anchors) for run_id, found in by_run.items()]

    failed = [
        Line(run_id(row), None, family_name(index, row), anchors.get(family_name(index, row)), ended(row.reason or "", 600))
        for row in index.failed
    ]
    groups = [
        ("regressions", "Regressions", *MARKS["regression"], lines("regression")),
        ("failed", "Runs without a report", SIGNS[ISSUE].text[0] + " failed", "v-issue", failed),
        ("new-issues", "New issues", *MARKS["new_issue"], lines("new_issue")),
        ("improvements", "Improvements", *MARKS["improvement"], lines("improvement")),
    ]
    return [
        Group(id, title, sign, mark, tuple(found[:_MOST_LINES]), max(0, len(found) - _MOST_LINES))
        for id, title, sign, mark, found in groups
        if found
    ]


def _not_read(index: Index) -> list[Group]:
    lines = []
    for line in index.left_out[:_MOST_LEFT_OUT]:
        path, _, reason = line.partition(": ")
        lines.append(Line(clip(path, 160), None, "", None, ended(reason, 600)))
    title = f"Files that are not read ({count(len(index.left_out))})"
    return [Group("left-out", title, "– left out", "v-none", tuple(lines), len(index.left_out) - len(lines))] if lines else []


def _line(index: Index, findings: Sequence[Finding], row: Row | None, anchors: dict[str, str]) -> Line:
    first = findings[0]
    if first.kind == "new_issue":
        rules = ", ".join(one.rule or "" for one in findings)
        text = f"{rules}: passed in the {first.runs} comparable runs before"
    else:
        text = "; ".join(one.text for one in findings)
    return Line(run_id(row) if row else first.id, report_link(index, row), first.family, anchors.get(first.family), text)


# -- families --------------------------------------------------------------------------------------------------------------


def _card(family: Family, anchor: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the data of a family.

    ``figures``: name, newest, before, change, and since when the level is as it is."""
    kinds = {one.kind for one in findings if one.family == family.name}
    sign, mark = next((signs for kind, signs in MARKS.items() if kind in kinds), ("", ""))
    newest = next((point.at_ns for point in reversed(family.points) if point.at_ns is not None), None)
    return {
        "id": anchor,
        "name": clip(family.name, 90),
        "sign": sign,
        "mark": mark,
        "detail": f"{plural(family.runs, 'run')}, the last {moment(newest)}" if newest is not None else plural(family.runs, "run"),
        "drawing": _drawing(family),
        "figures": tuple(
            _figure(family, metric, name)
            for metric, name in _METRICS
            if family.trends[metric].newest is not None or family.trends[metric].base is not None
        ),
        "worse": ", ".join(change.rule for change in family.changes if change.after == ISSUE),
        "better": ", ".join(change.rule for change in family.changes if change.after == FINE),
    }


def _figure(family: Family, column: str, name: str) -> tuple[str, str, str, str, str]:
    metric, values = _BY_COLUMN[column], family.trends[column]
    newest, base = (UNKNOWN if value is None else metric.text(value, family.currency) for value in (values.newest, values.base))
    change = UNKNOWN
    if values.newest is not None and values.base is not None:
        difference = values.newest - values.base
        in_points = metric.unit == "percent" or not values.base
        change = points(difference) if in_points else signed_percent(100 * difference / values.base)
    last = next((one for one in family.change_points if one.metric == metric.key and one.last), None)
    return name, glued(newest), glued(base), change, since(last) if last else ""


def since(change: ChangePoint) -> str:
    """Write a change of the level: "since job-17 (2026-11-20): 12% slower"."""
    metric = next(metric for metric in METRICS if metric.key == change.metric)
    day = "" if change.at_ns is None else f" ({moment(change.at_ns)[:10]})"
    return f"since {clip(change.id, 80)}{day}: {metric.moved(change.change_percent)}"


def _drawing(family: Family) -> Markup | None:
    points = [point for point in family.points if point.step_median_ns is not None]
    if len(points) < 2:
        return None
    changed = {change.id for change in family.change_points if change.metric == STEP.key}
    dots = [
        Dot(float(point.step_median_ns or 0), "other" if not point.comparable else point.mark or "plain", point.id in changed)
        for point in points
    ]
    steps = [point.step_median_ns for point in points if point.step_median_ns is not None]
    marks = [point.mark for point in points if point.comparable]
    marked = [plural(marks.count("regression"), "regression")] * ("regression" in marks)
    marked += [plural(marks.count("improvement"), "improvement")] * ("improvement" in marks)
    marked += [plural(sum(dot.changed for dot in dots), "change of the level", "changes of the level")] * any(dot.changed for dot in dots)
    alt = (
        f"Time from step to step of the last {plural(len(points), 'run')}, from {duration(min(steps))} to {duration(max(steps))};"
        f" the newest {duration(steps[-1])}" + (f"; {' and '.join(marked)} marked" if marked else "")
    )
    return Markup('<svg role="img" aria-label="{}"{}').format(alt, Markup(trend(dots, duration).removeprefix("<svg")))
