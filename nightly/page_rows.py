"""Rows of the tables of runs: an index -> what the page shows of each run, the worst runs first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from ..analysis.rules.engine.catalogue import PROFILER_REPORT, RULES
from ..report_templates.text.formats import UNKNOWN, clip, count, duration, ended, moment, percent, plural, signed_percent
from ..report_templates.text.signs import ERROR, FINE, ISSUE, NOT_EVALUATED
from .addresses import PATH, file_of, filled, path_of
from .page_head import first_sentence
from .prune import PRUNED

if TYPE_CHECKING:
    from .index_model import Index
    from .model import Row

MARKS: Final = {
    "regression": ("▲ slower", "v-issue"),
    "new_issue": ("✕ new issue", "v-issue"),
    "improvement": ("▼ faster", "v-fine"),
}
"""Kind of a finding -> its sign and the class of style.css."""
_STATES: Final = {
    "reported": ("✓", "v-fine"),
    "failed": ("✕", "v-issue"),
    "running": ("…", "v-info"),
    "waiting": ("…", "v-info"),
    "removed": ("–", "v-none"),
}
"""State of a row on the page -> its sign and the class of style.css. "removed": reported, and nightly prune removed the report."""
_VERDICTS: Final = {
    ISSUE: Markup('<td class="v-issue">✕<span class="quiet"> issue</span></td>'),
    ERROR: Markup('<td class="v-error">!<span class="quiet"> error</span></td>'),
    FINE: Markup('<td class="v-fine">•<span class="quiet"> passed</span></td>'),
    NOT_EVALUATED: Markup("<td>–</td>"),
}
_NO_VERDICT: Final = Markup("<td></td>")
_KINDS: Final = {"html": "html", "pdf": "pdf", "json": "json", "md": "md", "xml": "junit", "log": "log"}
_INFORMING: Final = frozenset({PROFILER_REPORT, *(name for name, rule in RULES.items() if rule.informs)})
_MOST_ISSUES: Final = 3  # rules that a row without a comparable run names


def link(index: Index, row: Row, file: str) -> str:
    """Return the URL of a report's file: relative, or by --base-url."""
    return filled(index.base_url or PATH, path_of(row, file))


def report_link(index: Index, row: Row | None) -> str | None:
    """Return the URL of the report: its HTML, else its PDF or JSON."""
    file = None if row is None else file_of(row)
    return None if row is None or file is None else link(index, row, file)


def run_id(row: Row) -> str:
    """Return the run's id, which is unique."""
    return clip(row.id, 160)


def family_name(index: Index, row: Row) -> str:
    name: str = index.added.get(row.id, {}).get("family", "")
    return name


def evaluated_rules(rows: Iterable[Row]) -> list[str]:
    """List the rules that were evaluated in any listed run and can find an issue."""
    evaluated: dict[str, bool] = {}
    for row in rows:
        for rule, verdict in row.verdicts.items():
            evaluated[rule] = evaluated.get(rule, False) or verdict != NOT_EVALUATED
    return [rule for rule in _in_order(evaluated) if evaluated[rule] and rule not in _INFORMING]


def worst_first(index: Index, rows: Sequence[Row]) -> list[Row]:
    """Order runs: regressions by size, failures, new issues, then the newest."""
    order = {finding.id: number for number, finding in reversed(list(enumerate(index.findings))) if finding.kind == "regression"}
    issues = {finding.id for finding in index.findings if finding.kind == "new_issue"}

    def key(row: Row) -> tuple[int, int]:
        if row.id in order:
            return 0, order[row.id]
        return (1, 0) if row.state == "failed" else (2, 0) if row.id in issues else (3, 0)

    return sorted(rows, key=key)


def alone_rows(index: Index, most: int) -> list[Row]:
    """Return runs without a comparable run, ordered by their number of issues."""
    alone = set(index.alone)
    rows = [row for row in index.rows if row.id in alone]
    return sorted(rows, key=lambda row: -len(_issues(row)))[:most]


def _issues(row: Row) -> list[str]:
    return [rule for rule in _in_order(row.verdicts) if row.verdicts[rule] == ISSUE and rule not in _INFORMING]


def _in_order(rules: Iterable[str]) -> list[str]:
    """Order rules as the reports list them, custom ones last.

    Done-markers have them by name."""
    places = {name: number for number, name in enumerate(RULES)}
    return sorted(rules, key=lambda rule: (places.get(rule, len(places)), rule))


def entry(index: Index, row: Row, rules: Sequence[str]) -> dict[str, Any]:
    """Return the data of a row; ``full_note`` is empty if ``note`` is not cut."""
    removed = row.state == "reported" and PRUNED in row.warnings
    state = "removed" if removed else row.state
    sign, mark = _STATES[state]
    added = index.added.get(row.id, {})
    change, step_mark = added.get("step_change_percent"), added.get("step_mark")
    devices = UNKNOWN
    if row.gpus:
        devices = f"{count(row.gpus)} × {clip(row.gpu_name, 40)}" if row.gpu_name else plural(row.gpus, "GPU")
    full_note = note = row.reason or ""
    if row.state == "reported":
        parts = [f"job {row.status}"] * (row.status not in (None, "completed", "unknown"))
        parts += [warning for warning in row.warnings if warning != PRUNED][-2:]
        full_note, note = "; ".join(parts), "; ".join(ended(part, 60) for part in parts)
    elif row.state == "failed":
        note = ended(first_sentence(full_note, row.id), 120)
    return {
        "name": clip(row.name or row.id.rpartition("/")[2], 80),
        "id": run_id(row),
        "href": report_link(index, row),
        "links": tuple((_KINDS.get(file.rpartition(".")[2], file), link(index, row, file)) for file in row.written) if row.folder else (),
        "family": clip(family_name(index, row), 80),
        "state": state,
        "hint": PRUNED if removed else "",
        "sign": sign,
        "mark": mark,
        "note": ended(note, 240),
        "full_note": clip(full_note, 2_000) if full_note != note else "",
        "started": moment(row.started_ns),
        "started_sort": "" if row.started_ns is None else row.started_ns // 10**6,
        "devices": devices,
        "step": duration(row.step_median_ns),
        "step_sort": "" if row.step_median_ns is None else row.step_median_ns,
        "change": signed_percent(change),
        "change_sort": _sort(change),
        "regressed": step_mark == "regression",
        "step_mark": MARKS[step_mark] if step_mark else None,
        "figures": (
            (percent(row.gpu_busy_percent), _sort(row.gpu_busy_percent)),
            (percent(row.gpu_utilization_percent), _sort(row.gpu_utilization_percent)),
            (percent(row.exposed_communication_percent), _sort(row.exposed_communication_percent)),
            (percent(row.gpu_memory_percent), _sort(row.gpu_memory_percent)),
        ),
        "issues": _issue_text(row),
        "verdicts": Markup("").join(
            _NO_VERDICT if (verdict := row.verdicts.get(rule)) is None else _VERDICTS.get(verdict, _VERDICTS[ERROR]) for rule in rules
        ),
    }


def _sort(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _issue_text(row: Row) -> str:
    """Write the rules with an issue: "IOBottleneck, StepOutlier and 2 more"."""
    issues = _issues(row)
    if not issues:
        return "none" if row.verdicts else UNKNOWN
    more = len(issues) - _MOST_ISSUES
    return ", ".join(clip(rule, 60) for rule in issues[:_MOST_ISSUES]) + (f" and {count(more)} more" if more > 0 else "")
