"""Report -> report.md: what tickets, pull requests and assistants need, in at most 4,000 tokens.

Each figure has an evidence number, under which the last section has its place in report.json and the statement that computes it again.
The text is written from the largest extent to the smallest, until it fits; what is left out is stated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...analysis.framework.host_records import leading_functions
from ...analysis.report.device import Kernel
from ...analysis.report.model import Report
from ...analysis.report.rules import Finding, RuleParameter, RuleResult
from ...analysis.run.goodput import HOUR_NS
from ...analysis.run.summary_data import profile_window
from ...analysis.toolkit.wording import shape_text
from ..sections.actions import ActionRow, action_rows, gpu_time, savings_head
from ..sections.data_quality import data_quality
from ..sections.job_statistics import GOODPUT_PARTS
from ..sections.verdicts import counted, judged
from ..text import labels
from ..text.formats import UNKNOWN, capitalized, count, duration, moment, percent, percent_of, plural, sentences, united
from ..text.markdown import NOTE, Prose, bullets, code, columns, rule_name, tokens, unglued
from ..text.signs import ERROR, ISSUE, NOT_EVALUATED
from .evidence import Evidence, of_finding, of_gpu_time, of_kernels, of_window
from .run_names import run_names

MOST_TOKENS: Final = 4000
_WHERE: Final = (
    "Pointers (RFC 6901) are into `report.json` of this run. Statements (DuckDB) run on the store that"
    " `postrun ingest SOURCE... -o run.duckdb` makes of the same files. Times are nanoseconds."
)
_PARTS: Final = (
    ("Computation", "computation_ns"),
    ("Exposed communication", "exposed_communication_ns"),
    ("Exposed copies and memsets", "exposed_memory_ns"),
    ("Idle", "idle_ns"),
    ("GPU time", "span_ns"),
)
_LOSSES: Final = 3  # operators that lose the most time against the roof
_SEVERITIES: Final = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class _Extent:
    """How much is written: findings, statements of findings (at least), characters of a text and of a name, rows of a list, reasons,
    notes."""

    findings: int
    statements: int
    text: int
    name: int
    rows: int
    reasons: int
    notes: int


# The largest first. A text of a run with nothing but long words and emoji fits with the last one.
_EXTENTS: Final = (
    _Extent(12, 12, 900, 80, 5, 12, 5),
    _Extent(8, 8, 500, 72, 5, 8, 4),
    _Extent(8, 8, 380, 64, 4, 6, 3),
    _Extent(8, 5, 300, 56, 3, 5, 3),
    _Extent(8, 5, 240, 48, 3, 4, 2),
    _Extent(8, 5, 200, 48, 3, 3, 2),
    _Extent(8, 5, 160, 40, 2, 2, 2),
    _Extent(6, 3, 180, 40, 3, 3, 2),
    _Extent(5, 1, 160, 40, 2, 3, 2),
    _Extent(5, 0, 140, 32, 2, 2, 1),
    _Extent(3, 0, 120, 24, 2, 2, 1),
    _Extent(3, 0, 80, 16, 1, 1, 1),
)


def markdown(report: Report) -> bytes:
    """Return report.md; equal reports give equal bytes."""
    return _fitted(report).encode("utf-8", "backslashreplace")


def _fitted(report: Report) -> str:
    """Write the largest extent that fits, with as many statements as fit."""
    prose = Prose(run_names(report))
    for extent in _EXTENTS:
        page = _Page(report, prose, extent)
        for statements in range(page.findings, min(extent.statements, page.findings) - 1, -1):
            text = page.text(statements)
            if tokens(text) <= MOST_TOKENS:
                return text
    return text


class _Page:
    """The text of one extent. Evidence is numbered in the order in which the text names it."""

    def __init__(self, report: Report, prose: Prose, extent: _Extent) -> None:
        self._report, self._prose, self._extent = report, prose, extent
        self.findings = min(extent.findings, len(report.findings))
        self._evidence: dict[Evidence, int] = {}  # with the number of the finding that has it, -1 without one
        self._left: list[str] = []
        self._parts = [*self._head(), *self._time(), *self._findings(), *self._unknown()]

    def text(self, statements: int) -> str:
        """Return the text with the statements of the first findings."""
        return unglued("\n\n".join([*self._parts, *self._proofs(statements)])) + "\n"

    def _say(self, text: str, *, longest: int | None = None) -> str:
        return self._prose(text, longest or self._extent.text, self._extent.name)

    def _name(self, text: str) -> str:
        return code(text, self._extent.name)

    def _rule(self, name: str) -> str:
        return rule_name(name, self._extent.name)

    def _proof(self, evidence: Evidence, finding: int = -1) -> str:
        self._evidence.setdefault(evidence, finding)
        return f"E{list(self._evidence).index(evidence) + 1}"

    def _rows(self, total: int, noun: str, plural_noun: str | None = None, most: int | None = None) -> int:
        """Return how many rows of a list are written; note those that are left out."""
        rows = min(total, self._extent.rows if most is None else most)
        if rows < total:
            self._left.append(f"{count(total - rows)} of {plural(total, noun, plural_noun)}")
        return rows

    # -- headline ----------------------------------------------------------------------------------------------------------

    def _head(self) -> Iterator[str]:
        report = self._report
        verdicts = judged(report)
        issues = sum(verdict.kind == ISSUE for verdict in verdicts)
        yield f"# {plural(issues, 'issue') if issues else 'No issue'} in run {self._name(report.run.name)}"
        yield f"> {NOTE}"
        yield f"**{self._say(report.summary.headline, longest=max(self._extent.text, 320))}**"
        writer = f"{report.generator.name} {report.generator.version}, {moment(report.generator.generated_at_ns)}"
        items = [
            *(f"Note: {self._say(text)}" for text in (*report.summary.warnings[: self._extent.notes], *report.summary.caveats)),
            f"Run: {self._say(report.summary.subtitle)}; status {self._name(report.run.status)}",
            f"Rules: {self._say(counted(verdicts))}" if verdicts else "Rules: none ran",
            f"Profile window: {self._window()}",
            f"Data quality: {self._say(data_quality(report).lead.unescape())}",
            *self._tiles(),
            *self._utilization(),
            *self._goodput(),
            f"Written by: {self._say(writer)}",
        ]
        yield bullets(items)

    def _window(self) -> str:
        gpu_time = self._report.gpu_time
        if gpu_time is None:
            return "not known" if self._report.time_breakdown else "no GPU activity was recorded"
        relative = self._report.run.relative_times
        first, last = (moment(at, relative=relative) for at in (gpu_time.first_ns, gpu_time.last_ns))
        job = self._report.job_statistics.duration_ns
        of = f" of a job of {duration(job)}" if job and not self._report.job_statistics.captured_only else ""
        window = profile_window(self._report.time_breakdown)[0]
        parts = " in parts" if window < gpu_time.last_ns - gpu_time.first_ns else ""
        length, gpus = f"{duration(window)}{parts}", plural(gpu_time.gpus, "GPU")
        return self._say(f"{length}{of}, {first} to {last}, {gpus}") + f" ({self._proof(of_window(self._report))})"

    def _tiles(self) -> list[str]:
        """Write the figures of the first page."""
        known = [tile for tile in self._report.summary.tiles if tile.value != UNKNOWN]
        texts = [f"{tile.label} {tile.value}" + (f" ({tile.detail})" if tile.detail else "") for tile in known]
        text = self._say(capitalized("; ".join(texts)), longest=max(self._extent.text, 320))
        return [f"Figures: {text} (`/summary/tiles`)"] if known else []

    def _utilization(self) -> list[str]:
        """Write how much of the peaks the run used."""
        work = self._report.efficiency
        if work is None or work.mfu_percent is None:
            return []
        at_least = "at least " if work.lower_bound else ""
        losses = sorted((row for row in work.operators if row.lost_ns), key=lambda row: -(row.lost_ns or 0))[:_LOSSES]
        text = f"MFU {at_least}{percent(work.mfu_percent)}, over the {work.measured_over}"
        names = [self._name(" ".join(filter(None, (row.operator, shape_text(row.input_dims))))) for row in losses]
        lost = ", ".join(f"{name} {duration(row.lost_ns)}" for name, row in zip(names, losses, strict=True))
        return [f"Efficiency: {text} (`/efficiency/mfu_percent`)" + (f"; most time lost against the roof: {lost}" if lost else "")]

    def _goodput(self) -> list[str]:
        """Write the share of productive steps, and the parts of the rest."""
        work = self._report.goodput
        if work is None or work.percent is None:
            return []
        rest = [part for part in work.parts if part.time_ns and part.name != "productive"]
        parts = [f"{GOODPUT_PARTS[part.name][0].lower()} {percent(part.percent)}" for part in rest]
        used = "" if work.gpu_hours is None else f" of {gpu_time(work.gpu_hours * HOUR_NS, work.gpus)}"
        return [f"Goodput: {percent(work.percent)}{used} (`/goodput/percent`)" + (f"; {', '.join(parts)}" if parts else "")]

    # -- where time went ---------------------------------------------------------------------------------------------------

    def _time(self) -> Iterator[str]:
        lists = [*self._gpu_time(), *self._kernels(), *self._modules(), *self._operators(), *self._host()]
        if lists:
            yield "## Where time went"
            yield from lists

    def _row(self, share: float | None, ns: int, name: str, of: str = "") -> str:
        return f"{percent(share)}, {duration(ns)}{of}: {self._name(name)}"

    def _gpu_time(self) -> Iterator[str]:
        gpu_time = self._report.gpu_time
        if gpu_time is None or not gpu_time.span_ns:
            return
        times = [(label, getattr(gpu_time, part)) for label, part in _PARTS]
        rows = [(label, duration(ns), percent(percent_of(ns, gpu_time.span_ns))) for label, ns in times]
        yield f"GPU time is the profile windows of {plural(gpu_time.gpus, 'GPU')}, added up ({self._proof(of_gpu_time(self._report))}):"
        yield columns(rows)

    def _kernels(self) -> Iterator[str]:
        kernels = self._report.kernels
        rows = self._rows(len(kernels), "kernel", most=min(self._extent.rows, int(self._report.options.get("top", self._extent.rows))))
        if not rows:
            return
        yield f"Kernels, % of kernel time ({self._proof(of_kernels(self._report, rows))}):"
        yield bullets(
            self._row(kernel.share_of_kernel_time, kernel.total_ns, kernel.short_name, f" in {plural(kernel.count, 'run')}")
            + f" ({self._say(_class(kernel))}"
            + (f", of {self._name(kernel.operator)})" if kernel.operator else ")")
            for kernel in kernels[:rows]
        )

    def _modules(self) -> Iterator[str]:
        """List the modules with the longest own GPU time."""
        field = "module_kinds" if self._report.module_kinds else "modules"
        listed = [(number, row) for number, row in enumerate(getattr(self._report, field)) if row.path and row.self_device_ns]
        total = sum(row.self_device_ns for row in self._report.modules)
        rows = self._rows(len(listed), "module", most=min(3, self._extent.rows))
        if rows and total:
            listed.sort(key=lambda pair: -pair[1].self_device_ns)
            yield "Modules, % of GPU activity outside of their inner modules (`self_device_ns`):"
            yield bullets(
                self._row(percent_of(row.self_device_ns, total), row.self_device_ns, row.path) + f" (`/{field}/{number}`)"
                for number, row in listed[:rows]
            )

    def _operators(self) -> Iterator[str]:
        operators = self._report.operators
        if operators is None or not operators.rows:
            return
        rows = self._rows(len(operators.rows) + operators.further, "operator", most=min(3, self._extent.rows, len(operators.rows)))
        yield "Operators, % of GPU activity:"
        yield bullets(
            self._row(row.percent, row.total_ns, row.name, f" in {plural(row.calls, 'call')}") + f" (`/operators/rows/{number}`)"
            for number, row in enumerate(operators.rows[:rows])
        )

    def _host(self) -> Iterator[str]:
        """List operators, functions or collectives of a run without kernels."""
        report, most = self._report, min(3, self._extent.rows)
        if report.kernels:
            return
        functions = leading_functions(report.python_profile)
        if operators := report.framework.cpu_operators:
            yield "CPU operators, % of operator time:"
            yield bullets(
                self._row(row.percent, row.total_ns, row.name) + f" (`/framework/cpu_operators/{number}`)"
                for number, row in enumerate(operators[: self._rows(len(operators), "CPU operator", most=most)])
            )
        elif functions is not None:
            group, listed = functions
            yield "Python functions, % of own time:"
            yield bullets(
                self._row(percent_of(row.total_s, group.total_s), round(row.total_s * 1e9), row.short or row.function)
                for row in listed[: self._rows(len(listed), "function", most=most)]
            )
        elif collectives := report.framework.collectives:
            yield "Collectives, % of collective time:"
            yield bullets(
                self._row(row.percent, row.total_ns, row.name) + f" (`/framework/collectives/{number}`)"
                for number, row in enumerate(collectives[: self._rows(len(collectives), "collective", most=most)])
            )

    # -- findings ----------------------------------------------------------------------------------------------------------

    def _findings(self) -> Iterator[str]:
        findings = self._report.findings
        rows = self._rows(len(findings), "finding", most=self._extent.findings)
        yield "## Findings"
        if not rows:
            yield "No rule found an issue with a cost." if self._report.rules else "No rule ran."
        elif note := savings_head(self._report.actions, rows)[1]:
            yield self._say(note)
        results = {result.rule: result for result in reversed(self._report.rules)}
        actions = {row.rank: row for row in action_rows(self._report, judged(self._report))}
        for number, finding in enumerate(findings[:rows]):
            yield f"### {number + 1}. {self._say(finding.title, longest=min(110, self._extent.text))}"
            yield bullets(self._finding(number, finding, results.get(finding.rule), actions.get(finding.rank)))

    def _finding(self, number: int, finding: Finding, result: RuleResult | None, action: ActionRow | None) -> Iterator[str]:
        yield f"{self._rule(finding.rule)}, {finding.severity}: {self._say(finding.text)}"
        if result is not None:
            yield from self._threshold(finding, result)
        if finding.recommendation:
            yield f"Do: {self._say(finding.recommendation)}"
        yield f"Saves: {self._saving(action)}"
        if finding.explained_by:
            yield f"Explained by {self._rule(finding.explained_by)}: take that finding up first."
        at = " ".join(self._name(text) for text in (finding.module, finding.source_line) if text)
        if at and self._extent.rows > 1:
            yield f"Code: {at}"
        rows = self._report.actions.rows if self._report.actions is not None else ()
        at = "".join(f", `/actions/rows/{place}`" for place, row in enumerate(rows) if row.finding == finding.rank)
        yield f"Evidence: {self._proof(of_finding(self._report, number), number)}, `/findings/{number}`{at}"

    def _threshold(self, finding: Finding, result: RuleResult) -> Iterator[str]:
        values = [_setting(known) for known in result.parameter_table if known.name != "scan_interval_us" and known.value is not None]
        limits = ", ".join(values[: self._extent.rows + 1]) or "none"
        where = f"{self._say(finding.where, longest=90)}, " if finding.where else ""
        over = f"{plural(result.violations, 'violation')} in {plural(result.datapoints, 'data point')}"
        yield f"Threshold: {self._say(limits)}; scope: {where}{self._say(over)}"

    def _saving(self, action: ActionRow | None) -> str:
        """Write the saving in the words of the page."""
        if action is None or not action.saves:
            return f"not known; it costs {self._say(action.cost)}" if action is not None and action.cost else "not known"
        notes = f" ({', '.join(action.saving_notes)})" if action.saving_notes else ""
        return self._say(f"{action.saving} {action.base}".rstrip() + notes)

    # -- what is not known -------------------------------------------------------------------------------------------------

    def _unknown(self) -> Iterator[str]:
        items = [*self._unevaluated(), *self._notes(), *self._absent()]
        yield "## What is not known"
        if self._left:
            items.append(self._say(f"Left out here: {', '.join(self._left)}; all are in report.json.", longest=400))
        yield bullets(items) if items else "Every rule was evaluated, and the readers noted nothing."

    def _unevaluated(self) -> Iterator[str]:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for verdict in judged(self._report):
            if verdict.kind in (ERROR, NOT_EVALUATED):
                word = "error" if verdict.kind == ERROR else "not evaluated"
                key = (word, verdict.rule.reason or "no reason is known", verdict.rule.capture or "")
                groups.setdefault(key, []).append(verdict.rule.rule)
        rows = self._rows(len(groups), "reason of rules without a verdict", "reasons of rules without a verdict", self._extent.reasons)
        for (word, reason, capture), rules in list(groups.items())[:rows]:
            more = f" and {count(len(rules) - 6)} more" if len(rules) > 6 else ""
            names = ", ".join(map(self._rule, rules[:6]))
            record = f". Record: {self._say(capture, longest=min(200, self._extent.text))}" if capture else ""
            yield f"{names}{more} {word}: {self._say(reason, longest=min(200, self._extent.text))}{record}"

    def _notes(self) -> Iterator[str]:
        """Write the notes of the readers, errors first; those for information are counted."""
        notes = sorted(
            (note for note in self._report.data_quality if note.severity != "info"),
            key=lambda note: _SEVERITIES.index(note.severity) if note.severity in _SEVERITIES else 0,
        )
        for note in notes[: self._rows(len(notes), "warning of the readers", "warnings of the readers", self._extent.notes)]:
            file = f" ({self._name(note.file)})" if note.file else ""
            yield f"Data, {note.severity}, {plural(note.count, 'time')}: {self._say(note.message)}{file}"

    def _absent(self) -> Iterator[str]:
        parts = (getattr(self._report, field.name) for field in dataclasses.fields(self._report))
        reasons = list(dict.fromkeys(sentences(text, 1) for part in parts if (text := getattr(part, "absent", None))))
        for reason in reasons[: self._rows(len(reasons), "part without data", "parts without data", self._extent.reasons)]:
            yield self._say(reason, longest=min(200, self._extent.text))

    # -- evidence ----------------------------------------------------------------------------------------------------------

    def _proofs(self, statements: int) -> Iterator[str]:
        if not self._evidence:
            return
        yield "## Evidence"
        yield _WHERE
        for number, (evidence, finding) in enumerate(self._evidence.items(), 1):
            values = ", ".join(f"`{where}` = {value}" for where, value in zip(evidence.pointers, evidence.texts, strict=True))
            written = evidence.sql if finding < statements else None
            why = evidence.why or "left out for length"
            yield f"**E{number}** {evidence.label}: {values}" + ("" if written else f" (no statement: {why})")
            if written:
                yield f"```sql\n{written}\n```"


def _class(kernel: Kernel) -> str:
    category = labels.category(kernel.category)
    return category if kernel.precision == "unknown" else f"{category}, {kernel.precision}"


def _setting(parameter: RuleParameter) -> str:
    value = str(parameter.value)
    value = united(value, parameter.unit) if parameter.unit not in ("", "factor") else value
    changed = f" (default {parameter.default})" if parameter.changed else ""
    return f"`{parameter.name}` = {value}{changed}"
