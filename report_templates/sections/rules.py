"""The sections "Findings", with the evidence of each issue, and "All rules", with every verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from markupsafe import Markup

from ...analysis.report.model import Report
from ...analysis.report.rule_details import DETAILS
from ...analysis.report.rules import RuleParameter, RuleResult
from ...analysis.toolkit import wording
from ..blocks import Block, Figure, Only, Section, Texts, coded, plain, say
from ..blocks.tables import Cell, Col, Table, table
from ..rules import across_ranks, bottlenecks, communication, compilation, generic, loop, products, trace, utilization
from ..rules.rule_context import Blocks, RuleContext
from ..rules.spans import span_of
from ..text.formats import UNKNOWN, capitalized, clip, count, duration, ended, glued, plural, sentences, significant, united
from ..text.signs import ERROR, FINE, ISSUE
from .actions import ActionRow, action_rows
from .verdicts import ABSENT, Judged, counted, judged

_BLOCKS: Final[dict[str, Callable[[RuleContext, Any], Blocks]]] = {
    "LowGPUUtilization": utilization.low_gpu_utilization,
    "BatchSize": utilization.batch_size,
    "GPUMemoryIncrease": utilization.gpu_memory_increase,
    "CPUBottleneck": partial(bottlenecks.bottleneck, what="CPU"),
    "IOBottleneck": partial(bottlenecks.bottleneck, what="I/O"),
    "LoadBalancing": utilization.load_balancing,
    "MaxInitializationTime": loop.max_initialization_time,
    "StepOutlier": loop.step_outlier,
    "Dataloader": loop.dataloader,
    "HostBound": trace.host_bound,
    "InputBound": loop.input_bound,
    "HostPreprocessing": loop.host_preprocessing,
    "ExposedCommunication": trace.exposed_communication,
    "LowPrecision": trace.low_precision,
    "PageableCopies": trace.pageable_copies,
    "SyncBound": trace.sync_bound,
    "ShortKernels": trace.short_kernels,
    "StragglerRank": trace.straggler_rank,
    "StageImbalance": across_ranks.stage_imbalance,
    "WorkImbalance": across_ranks.work_imbalance,
    "HostPauses": across_ranks.host_pauses,
    "SlowCollectives": communication.slow_collectives,
    "ExposedCopies": trace.exposed_copies,
    "UnfusedElementwise": trace.unfused_elementwise,
    "UnfusedAttention": trace.unfused_attention,
    "LowOccupancy": trace.low_occupancy,
    "LayoutConversions": trace.layout_conversions,
    "InefficientMatmul": products.inefficient_matmul,
    "Recompiles": compilation.recompiles,
}
# Their numbers have sections of their own.
_ELSEWHERE: Final = ("OverallSystemUsage", "OverallFrameworkMetrics")
_SEE: Final = {
    "OverallSystemUsage": ("system-usage", "System usage"),
    "OverallFrameworkMetrics": ("framework", "Framework metrics"),
    "MaxInitializationTime": ("job-statistics", "Job statistics"),
    "StepOutlier": ("steps", "Steps"),
    "HostBound": ("idle", "Idle causes"),
    "InputBound": ("steps", "Steps"),
    "HostPreprocessing": ("steps", "Steps"),
    "ExposedCommunication": ("time-breakdown", "Time breakdown"),
    "LowPrecision": ("precision", "Precision"),
    "PageableCopies": ("memory-operations", "Memory operations"),
    "SlowCollectives": ("collectives", "Collectives"),
    "ExposedCopies": ("memory-operations", "Memory operations"),
    "UnfusedElementwise": ("kernels", "Kernels"),
    "UnfusedAttention": ("kernels", "Kernels"),
    "LowOccupancy": ("launch-configurations", "Launch configurations"),
    "LayoutConversions": ("kernels", "Kernels"),
    "InefficientMatmul": ("efficiency", "Efficiency"),
    "Recompiles": ("idle", "Idle causes"),
}
_SCAN: Final = "scan_interval_us"
_ROUNDED: Final = 1e6
_REASON: Final = 110  # letters of a reason in the PDF
_FINDING: Final = 78  # letters of a finding in the table of all rules of the PDF: one line


def findings(report: Report) -> Section:
    """Make "Findings": a part per rule with an issue, in the order of their worth."""
    verdicts = judged(report)
    section = Section("findings", "Findings", say("{}", _lead(verdicts)))
    rows = {row.rank: row for row in action_rows(report, verdicts)}
    issues = [verdict for verdict in verdicts if verdict.kind == ISSUE]
    section.parts = tuple(_part(report, verdict, rows.get(verdict.rank or 0)) for verdict in issues)
    return section


def rules(report: Report) -> Section:
    """Make "All rules": every verdict, and details of rules without an issue."""
    verdicts = judged(report)
    if not verdicts:
        return Section(
            "rules", "All rules", say("No rule was selected for this report: select rules, or omit the selection to run all of them.")
        )
    section = Section("rules", "All rules", say("{}.", counted(verdicts)))
    summary = next((rule for rule in report.rules if rule.category == "report"), None)
    finding = (summary.finding or summary.reason) if summary else None
    section.facts["summary"] = say("{}: {}.", summary.rule, glued(ended(finding, 300)).removesuffix(".")) if summary and finding else None
    section.facts["changed"] = _changed(report)
    absent = [one for one in verdicts if not one.evaluated]
    section.add(
        _overview([one for one in verdicts if one.evaluated]), Only("pdf", _absent_by_reason(absent)), Only("html", _absent(absent))
    )
    section.parts = tuple(_part(report, one) for one in verdicts if one.evaluated and one.kind != ISSUE)
    return section


def _lead(verdicts: Sequence[Judged]) -> str:
    judging = [one for one in verdicts if one.evaluated and not one.informs]
    if not judging:
        return f"None of {plural(len(verdicts), 'rule')} could be evaluated." if verdicts else "No rule was selected for this report."
    issues = sum(one.kind == ISSUE for one in judging)
    of = plural(len(judging), "evaluated rule")
    heuristics = " Findings are heuristics: verify them before you act."
    return f"{count(issues)} of {of} found an issue.{heuristics}" if issues else f"None of {of} found an issue."


def _changed(report: Report) -> str:
    """List the parameters that are not the defaults."""
    preset = report.options.get("preset")
    text = f"Preset: {preset}." if preset else ""
    changed = report.options.get("parameters")
    if isinstance(changed, dict) and changed:
        text += " Changed: " + ", ".join(f"{clip(str(key), 80)} = {setting(held)}" for key, held in changed.items()) + "."
    return text


def _overview(verdicts: Sequence[Judged]) -> Table | None:
    """Make the table of the evaluated rules, issues first.

    Of equal verdicts, the rule that was triggered most often comes first.
    """
    order = [ISSUE, FINE]
    listed = sorted(
        verdicts, key=lambda one: (order.index(one.kind) if one.kind in order else len(order), -one.rule.triggered, one.rule.rule)
    )
    return table(
        "rules-overview",
        "Evaluated rules: issues first, then those triggered most often",
        listed,
        Col("Rule", lambda row: row.name, kind="name"),
        Col("Verdict", lambda row: row.cell),
        Col("Finding", lambda row: plain(row.rule.finding or row.rule.reason), limit=600, html_only=True),
        Col("Finding", lambda row: ended(plain(row.rule.finding or row.rule.reason) or "", _FINDING), pdf_only=True),
        Col("Description", lambda row: plain(row.rule.checks), limit=300, html_only=True),
        Col(
            "Recommendation",
            lambda one: plain(one.rule.recommendation or one.rule.advice) if one.kind == ISSUE else None,
            limit=300,
            html_only=True,
        ),
        Col("Times triggered", lambda row: None if row.informs else row.rule.triggered, _number, html_only=True),
        Col("Data points", lambda row: row.rule.datapoints, count, html_only=True),
        Col(
            "Parameters",
            lambda one: ", ".join(f"{key} {setting(held)}" for key, held in one.rule.parameters.items() if key != _SCAN) or None,
            limit=300,
            html_only=True,
        ),
        pdf_rows=len(listed),
        html_note="Counts are not comparable across rules (windows, snapshots, steps, or devices).",
    )


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else count(value)


def _absent(verdicts: Sequence[Judged]) -> Table | None:
    return table(
        ABSENT,
        "Rules without a verdict",
        verdicts,
        Col("Rule", lambda row: Cell(clip(row.rule.rule, 60), camel=True), kind="name"),
        Col("Verdict", lambda row: row.cell),
        Col("Why", lambda row: plain(_why(row.rule)), limit=300),
        Col("What to capture", lambda row: plain(row.rule.capture), limit=300),
        pdf_rows=0,
    )


def _absent_by_reason(verdicts: Sequence[Judged]) -> Texts | None:
    """Make the lines of the PDF, which rules with the same reason share."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for verdict in verdicts:
        groups[verdict.sign.text, plain(ended(_why(verdict.rule), _REASON)) or ""].append(clip(verdict.rule.rule, 60))
    lines = [say("{}: {} ({}).", sign, ", ".join(names), why.removesuffix(".")) for (sign, why), names in groups.items()]
    return Texts("absent_rules", lines) if lines else None


def _why(rule: RuleResult) -> str:
    return rule.reason or ("it failed without a message" if rule.verdict == ERROR else "no reason is known")


def _condition(rule: RuleResult) -> str:
    """Write when the rule finds an issue, with the values of its parameters."""
    return wording.with_values(
        rule.condition, [(row.name, None if row.value is None else setting(row.value), row.unit) for row in rule.parameter_table]
    )


def _part(report: Report, verdict: Judged, action: ActionRow | None = None) -> Section:
    rule = verdict.rule
    section = Section(verdict.id, rule.rule, coded(sentences(rule.finding or rule.reason or "", 600)))
    section.facts.update(
        sign=verdict.sign,
        action=action,
        recommendation=coded(sentences(rule.recommendation, 800)) if rule.recommendation else None,
        explained_by=_explained_by(report, verdict),
        checks=coded(ended(rule.checks, 400)),
        condition=None if verdict.informs else coded(ended(_condition(rule), 500)),
        counts="" if verdict.informs else _counts(report, rule),
        parameters=_line(rule.parameter_table),
        changed=_line([parameter for parameter in rule.parameter_table if parameter.changed]),
        see=_SEE.get(rule.rule),
        span=span_of(rule),
    )
    build = _BLOCKS.get(rule.rule)
    context = RuleContext(verdict.id, rule, report.run.started_at_ns or 0)
    blocks: Blocks = []
    if build is not None and isinstance(rule.details, DETAILS[rule.rule]):
        blocks = build(context, rule.details)
    elif rule.rule not in _ELSEWHERE:
        blocks = generic.own_report(context)
    section.add(*_evidence(blocks))
    known = [block for block in blocks if block is not None]
    first = next((block for block in known if isinstance(block, Figure) and not block.legend), known[0] if known else None)
    section.facts["evidence"], section.facts["further"] = first, [block for block in known if block is not first]
    section.facts["parameter_table"] = _parameters(verdict.id, rule.parameter_table)
    return section


def _evidence(blocks: Blocks) -> list[Block | Only]:
    """Leave the first figure and the first tables to the PDF."""
    kept: list[Block | Only] = []
    figures = tables = 0
    for block in blocks:
        if isinstance(block, Figure) and not block.legend:
            figures += 1
            kept.append(block if figures == 1 else Only("html", block))
        else:
            tables += block is not None and not (isinstance(block, Table) and not block.pdf_rows)
            kept.append(block if tables <= (1 if figures else 2) else Only("html", block) if block else None)
    return kept


def _explained_by(report: Report, verdict: Judged) -> str | None:
    """Return the rule to take up first, if its finding is the cause of this one."""
    causes = (finding.explained_by for finding in report.findings if finding.rank == verdict.rank)
    cause = next(causes, None)
    return clip(cause, 60) if cause else None


def _counts(report: Report, rule: RuleResult) -> str:
    points = plural(rule.datapoints, "data point")
    if not rule.triggered and not rule.violations:
        where = f" in {plural(rule.windows, 'window')}" if rule.windows else ""
        return f"Evaluated: {points}{where}." if rule.datapoints else ""
    clauses = [f"triggered {plural(rule.triggered, 'time')}"]
    if rule.datapoints:
        clauses.append(f"{plural(rule.violations, 'violation')} at {points}")
    if rule.windows:
        clauses.append(f"in {count(rule.windows_triggered)} of {plural(rule.windows, 'window')}")
    start = report.run.started_at_ns
    if start is not None and rule.first_ns is not None and rule.last_ns is not None and rule.triggered:
        clauses.append(f"from {duration(max(0, rule.first_ns - start))} to {duration(max(0, rule.last_ns - start))} after the run began")
    text = "; ".join(clauses)
    return f"{capitalized(text)}."


def _parameters(id: str, parameters: Sequence[RuleParameter]) -> Table | None:
    return table(
        f"{id}-parameters",
        "Parameters",
        parameters,
        Col("Parameter", lambda parameter: clip(parameter.name, 60), kind="name"),
        Col("Value", lambda parameter: Cell(setting(parameter.value)), kind="number"),
        Col("Unit", lambda parameter: clip(parameter.unit, 40)),
        Col("As time", lambda parameter: Cell(_time(parameter) or UNKNOWN), kind="number"),
        Col("Default", lambda parameter: Cell(setting(parameter.default)), kind="number"),
        Col(
            "Set by",
            lambda parameter: (
                Cell("▲ changed", mark="v-changed")
                if parameter.changed
                else Cell("default" if parameter.value == parameter.default else "preset")
            ),
        ),
        Col("Meaning", lambda parameter: parameter.meaning, limit=200),
        sortable=False,
        pdf_rows=0,
    )


def _line(parameters: Sequence[RuleParameter]) -> Markup:
    """Write all parameters on one line, the changed ones marked."""
    texts = []
    for parameter in parameters:
        if parameter.name == _SCAN and not parameter.changed:
            continue
        times = "×\u00a0" if parameter.unit[:1].isdigit() else ""
        unit = united("", times + clip(parameter.unit, 40)) if isinstance(parameter.value, int | float) and parameter.unit else ""
        notes = [
            text for text in (_time(parameter), f"changed; default {setting(parameter.default)}" if parameter.changed else None) if text
        ]
        texts.append(
            say(
                "{}{} {}{}{}",
                "▲ " if parameter.changed else "",
                clip(parameter.name, 60),
                setting(parameter.value),
                unit,
                f" ({'; '.join(notes)})" if notes else "",
            )
        )
    return Markup(", ").join(texts)


def _time(parameter: RuleParameter) -> str | None:
    if parameter.name == _SCAN and isinstance(parameter.value, int | float):
        return duration(parameter.value * 1000)
    return duration(parameter.seconds * 1e9) if parameter.seconds is not None else None


def setting(held: Any) -> str:
    """Write the value of a parameter."""
    if held is None:
        return "none"
    if isinstance(held, bool) or not isinstance(held, int | float):
        return clip(str(held), 60)
    if isinstance(held, int):
        return count(held)
    return f"{held:g}" if abs(held) < _ROUNDED else significant(held)
