"""The HTML page of all runs: an index -> findings first, then families and their trends, then a table of the runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from markupsafe import Markup

from ..analysis.toolkit.wording import threshold_text
from ..report_templates.figures.trend import Dot, trend
from ..report_templates.output import pages, styles
from ..report_templates.text.formats import UNKNOWN, clip, count, duration, moment, percent, plural, points
from ..report_templates.text.signs import ERROR, FINE, ISSUE, NOT_EVALUATED, SIGNS

if TYPE_CHECKING:
    from .history import Family, Finding, Trend
    from .index_model import Index
    from .model import Row

_MOST_LINES: Final = 25  # of each kind of finding
_SIGNS: Final = {
    "regression": ("▲ slower", "v-issue"),
    "new_issue": ("✕ new issue", "v-issue"),
    "improvement": ("▼ faster", "v-fine"),
}
_STATES: Final = {
    "reported": ("✓", "v-fine"),
    "failed": ("✕", "v-issue"),
    "running": ("…", "v-info"),
    "waiting": ("…", "v-info"),
}
_VERDICTS: Final = {
    ISSUE: Markup('<td class="v-issue">✕<span class="quiet"> issue</span></td>'),
    ERROR: Markup('<td class="v-error">!<span class="quiet"> error</span></td>'),
    FINE: Markup('<td class="v-fine">✓<span class="quiet"> passed</span></td>'),
    NOT_EVALUATED: Markup("<td>–</td>"),
}
_NO_VERDICT: Final = Markup("<td></td>")
_KINDS: Final = {"html": "html", "pdf": "pdf", "json": "json", "md": "md", "xml": "junit", "log": "log"}
STEP_TO_STEP: Final = (
    "median time from the end of the GPU work of one step to that of the next, so waits between steps count; without GPU work the step's"
    " duration on the host. The report shows the same number"
)
BUSY: Final = "busy time of all GPUs / their profile spans, as in the report's first sentence"
ACTIVE: Final = "share of utilization samples above 0%; ~: nothing was sampled, share of the stretches of the trace with any kernel"
_METRICS: Final = (
    ("step_median_ns", "Step time"),
    ("gpu_busy_percent", "GPU busy"),
    ("gpu_active_percent", "GPU active"),
    ("gpu_utilization_percent", "GPU utilization"),
    ("exposed_communication_percent", "Exposed communication"),
    ("gpu_memory_percent", "GPU memory"),
)


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


def index_page(index: Index, *, most_runs: int = 1_000, most_families: int = 60) -> str:
    """Render the page for a browser or a phone; it loads nothing."""
    rows = index.rows[:most_runs]
    rules = _rules(rows)
    families = [family for family in index.families if family.runs > 1][:most_families]
    anchors = {family.name: f"family-{number}" for number, family in enumerate(families, 1)}
    groups = _groups(index, anchors)
    entries = [_entry(index, row, rules) for row in rows]
    alone = index.alone_told
    return pages.rendered(
        "index.html.j2",
        style=styles.asset("style.css", "index.css"),
        script=styles.asset("index.js"),
        index=index,
        headline=_headline(index),
        tiles=_tiles(index),
        groups=groups,
        cards=[_card(family, anchors[family.name], index.findings) for family in families],
        alone=f"{clip(alone[0], 400)}. {alone[1][0].upper()}{alone[1][1:]}." if alone else "",
        rules=rules,
        entries=entries,
        left_out=f"all {count(index.total)} are in index.parquet",
        hints={"Step time": STEP_TO_STEP, "GPU busy": BUSY, "GPU active": ACTIVE},
        place=clip(index.place, 200),
        threshold=threshold_text(index.settings.threshold_percent),
        deviations=f"{index.settings.deviations:g}",
    )


def link(row: Row, file: str) -> str:
    """Return the relative URL of a report's file, with all characters quoted."""
    return quote(f"{row.folder}/{file}", safe="/", errors="surrogatepass")


def _href(row: Row | None) -> str | None:
    if row is None or row.folder is None:
        return None
    file = next((name for kind in ("html", "pdf", "json") for name in row.written if name == f"report.{kind}"), None)
    return link(row, file) if file else None


def _rules(rows: Iterable[Row]) -> list[str]:
    """List the rules that were evaluated in any listed run."""
    evaluated: dict[str, bool] = {}
    for row in rows:
        for rule, verdict in row.verdicts.items():
            evaluated[rule] = evaluated.get(rule, False) or verdict != NOT_EVALUATED
    return [rule for rule, told in evaluated.items() if told and rule != "ProfilerReport"]


# -- findings --------------------------------------------------------------------------------------------------------------


def _headline(index: Index) -> str:
    numbers = Counter(finding.kind for finding in index.findings)
    counts = [plural(numbers[kind], kind.replace("_", " ")) for kind in ("regression", "new_issue") if numbers[kind]]
    if index.failed:
        counts.append(f"{plural(len(index.failed), 'run')} without a report")
    if not counts:
        return f"No regression, no new issue, nothing failed: {plural(index.total, 'run')}."
    return f"{', '.join(counts)}, in {plural(index.total, 'run')}."


def _tiles(index: Index) -> list[tuple[str, str, str]]:
    numbers = Counter(finding.kind for finding in index.findings)
    tiles = [
        ("Runs", count(index.total), plural(index.families_total, "family", "families")),
        ("Reported", count(index.states.get("reported", 0)), ""),
        ("Failed", count(index.states.get("failed", 0)), "no report"),
        ("Regressions", count(numbers["regression"]), "from step to step"),
        ("New issues", count(numbers["new_issue"]), "passed before"),
        ("Improvements", count(numbers["improvement"]), "from step to step"),
    ]
    unfinished = index.states.get("running", 0) + index.states.get("waiting", 0)
    if unfinished:
        tiles.insert(3, ("Not yet", count(unfinished), "running or waiting"))
    return tiles


def _groups(index: Index, anchors: dict[str, str]) -> list[Group]:
    rows = {row.id: row for row in (*index.failed, *index.rows)}

    def lines(kind: str) -> list[Line]:
        """Return a line per run for its findings of a kind."""
        by_run: dict[str, list[Finding]] = {}
        for finding in index.findings:
            if finding.kind == kind:
                by_run.setdefault(finding.id, []).append(finding)
        return [_line(found, rows.get(run_id), anchors) for run_id, found in by_run.items()]

    failed = [
        Line(_name(row), None, _family(index, row), anchors.get(_family(index, row)), clip(row.reason or "", 600)) for row in index.failed
    ]
    groups = [
        ("regressions", "Regressions", *_SIGNS["regression"], lines("regression")),
        ("failed", "Runs without a report", SIGNS[ISSUE].text[0] + " failed", "v-issue", failed),
        ("new-issues", "New issues", *_SIGNS["new_issue"], lines("new_issue")),
        ("improvements", "Improvements", *_SIGNS["improvement"], lines("improvement")),
    ]
    return [
        Group(id, title, sign, mark, tuple(found[:_MOST_LINES]), max(0, len(found) - _MOST_LINES))
        for id, title, sign, mark, found in groups
        if found
    ]


def _line(findings: Sequence[Finding], row: Row | None, anchors: dict[str, str]) -> Line:
    first = findings[0]
    if first.kind == "new_issue":
        rules = ", ".join(one.rule or "" for one in findings)
        text = f"{rules}: passed in the {first.runs} comparable runs before"
    else:
        text = first.text
    return Line(_name(row) if row else first.id, _href(row), first.family, anchors.get(first.family), text)


def _family(index: Index, row: Row) -> str:
    name: str = index.added.get(row.id, {}).get("family", "")
    return name


def _name(row: Row) -> str:
    """Return the run's id, which is unique."""
    return clip(row.id, 160)


# -- families --------------------------------------------------------------------------------------------------------------


def _card(family: Family, anchor: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the data of a family. ``figures``: name, newest, before, change."""
    kinds = {one.kind for one in findings if one.family == family.name}
    sign, mark = next((signs for kind, signs in _SIGNS.items() if kind in kinds), ("", ""))
    newest = next((point.at_ns for point in reversed(family.points) if point.at_ns is not None), None)
    return {
        "id": anchor,
        "name": clip(family.name, 90),
        "sign": sign,
        "mark": mark,
        "detail": f"{plural(family.runs, 'run')}, the last {moment(newest)}" if newest is not None else plural(family.runs, "run"),
        "drawing": _drawing(family),
        "figures": tuple(
            _figure(name, family.trends[metric], metric.endswith("_ns"))
            for metric, name in _METRICS
            if (family.trends[metric].newest is not None or family.trends[metric].base is not None)
            and not (metric == "gpu_active_percent" and family.trends["gpu_busy_percent"].newest is not None)
        ),
        "worse": ", ".join(change.rule for change in family.changes if change.after == ISSUE),
        "better": ", ".join(change.rule for change in family.changes if change.after == FINE),
    }


def _figure(name: str, values: Trend, is_time: bool) -> tuple[str, str, str, str]:
    form = duration if is_time else percent
    change = UNKNOWN
    if values.newest is not None and values.base is not None:
        change = (
            _signed(100 * (values.newest - values.base) / values.base) if is_time and values.base else points(values.newest - values.base)
        )
    return name, form(values.newest), form(values.base), change


def _signed(change: float) -> str:
    return f"{'+' if change > 0 else '−' if change < 0 else ''}{percent(abs(change))}"


def _drawing(family: Family) -> Markup | None:
    points = [point for point in family.points if point.step_median_ns is not None]
    if len(points) < 2:
        return None
    dots = [Dot(float(point.step_median_ns or 0), "other" if not point.comparable else point.mark or "plain") for point in points]
    steps = [point.step_median_ns for point in points if point.step_median_ns is not None]
    marks = [point.mark for point in points if point.comparable]
    marked = [plural(marks.count("regression"), "regression")] * ("regression" in marks)
    marked += [plural(marks.count("improvement"), "improvement")] * ("improvement" in marks)
    alt = (
        f"Time from step to step of the last {plural(len(points), 'run')}, from {duration(min(steps))} to {duration(max(steps))};"
        f" the newest {duration(steps[-1])}" + (f"; {' and '.join(marked)} marked" if marked else "")
    )
    return Markup('<svg role="img" aria-label="{}"{}').format(alt, Markup(trend(dots, duration).removeprefix("<svg")))


# -- the table -------------------------------------------------------------------------------------------------------------


def _entry(index: Index, row: Row, rules: Sequence[str]) -> dict[str, Any]:
    """Return the data of a row; ``full_note`` is empty if ``note`` is not cut."""
    sign, mark = _STATES[row.state]
    added = index.added.get(row.id, {})
    change, regressed = added.get("step_change_percent"), added.get("step_mark")
    devices = UNKNOWN
    if row.gpus:
        devices = f"{count(row.gpus)} × {clip(row.gpu_name, 40)}" if row.gpu_name else plural(row.gpus, "GPU")
    full_note = note = row.reason or ""
    if row.state == "reported":
        parts = [f"job {row.status}"] * (row.status not in (None, "completed", "unknown")) + list(row.warnings[-2:])
        full_note, note = "; ".join(parts), "; ".join(clip(part, 60) for part in parts)
    elif row.state == "failed":
        note = clip(_first_sentence(full_note, row.id), 120)
    return {
        "name": clip(row.name or row.id.rpartition("/")[2], 80),
        "id": _name(row),
        "href": _href(row),
        "links": tuple((_KINDS.get(file.rpartition(".")[2], file), link(row, file)) for file in row.written) if row.folder else (),
        "family": clip(_family(index, row), 80),
        "state": row.state,
        "sign": sign,
        "mark": mark,
        "note": clip(note, 240),
        "full_note": clip(full_note, 2_000) if full_note != note else "",
        "started": moment(row.started_ns),
        "started_sort": "" if row.started_ns is None else row.started_ns // 10**6,
        "devices": devices,
        "step": duration(row.step_median_ns),
        "step_sort": "" if row.step_median_ns is None else row.step_median_ns,
        "change": UNKNOWN if change is None else _signed(change),
        "change_sort": _sort(change),
        "regressed": _SIGNS[regressed][0] if regressed else None,
        "figures": (
            (percent(row.gpu_busy_percent), _sort(row.gpu_busy_percent)),
            (
                "~" * bool(row.gpu_active_derived and row.gpu_active_percent is not None) + percent(row.gpu_active_percent),
                _sort(row.gpu_active_percent),
            ),
            (percent(row.exposed_communication_percent), _sort(row.exposed_communication_percent)),
            (percent(row.gpu_memory_percent), _sort(row.gpu_memory_percent)),
        ),
        "verdicts": Markup("").join(
            _NO_VERDICT if (verdict := row.verdicts.get(rule)) is None else _VERDICTS.get(verdict, _VERDICTS[ERROR]) for rule in rules
        ),
    }


def _first_sentence(text: str, run_id: str) -> str:
    """Shorten a reason, without the path of the run, which its row contains."""
    first = re.split(r"(?<=\.)\s+(?=[A-Z])|\n", text, maxsplit=1)[0]
    prefix, colon, rest = first.partition(f"{run_id}: ")
    return rest if colon and rest and not re.search(r"\s", prefix) else first


def _sort(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
