"""The text and the JSON that ``postrun rules`` and ``postrun rules explain`` print."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..analysis.rules.engine import profiler_report
from ..analysis.rules.engine.catalogue import DOCUMENTED, PROFILER_REPORT
from ..analysis.rules.engine.selection import find, known
from ..analysis.rules.evidence.base import PRESETS, SCAN_INTERVAL, Parameter, Preset, Rule
from ..analysis.toolkit import wording

_WIDTH: Final = 98
_NAME, _UNIT, _DEFAULT = 26, 22, 12
_OF_RULE: Final = ("category", "checks", "condition", "advice", "needs")
_OF_PARAMETER: Final = ("name", "unit", "documented", "service", "meaning", "choices")


def listed(preset: Preset | None = None) -> Iterator[str]:
    """List every rule with its parameters and defaults (None: of both presets)."""
    for rule in known().values():
        yield f"{rule.name} ({rule.category})"
        yield _wrapped(rule.checks, "  ")
        yield from (f"    {line}" for line in _table(rule.parameters, [preset] if preset else PRESETS))
        yield ""
    yield _wrapped(f"{PROFILER_REPORT} selects all system and framework rules. {profiler_report.CHECKS}")
    yield _wrapped(f"Every rule also has {SCAN_INTERVAL.name} = {SCAN_INTERVAL.documented} {SCAN_INTERVAL.unit}: {SCAN_INTERVAL.meaning}.")
    yield _wrapped("Set a parameter with --set RULE_PARAMETER=VALUE. Describe a rule in full with: postrun rules explain NAME")


def as_data() -> list[dict[str, Any]]:
    """Return the data that ``postrun rules --json`` prints."""
    return [
        {"rule": rule.name}
        | {key: getattr(rule, key) for key in _OF_RULE}
        | {"parameters": [{key: getattr(parameter, key) for key in _OF_PARAMETER} for parameter in rule.all_parameters()]}
        for rule in known().values()
    ]


def explained(name: str, preset: Preset = "documented") -> Iterator[str]:
    """Yield the full text of a rule; ``name`` is in any case. Raise UsageError."""
    if name.lower() == PROFILER_REPORT.lower():
        return _explained_report()
    return _explained(find(name), preset)


def _explained_report() -> Iterator[str]:
    yield f"{PROFILER_REPORT} (report)"
    yield from _paragraph("Checks", profiler_report.CHECKS)
    yield from _paragraph("Issue when", profiler_report.CONDITION + ".")
    yield from _paragraph("Runs", ", ".join(rule.name for rule in DOCUMENTED) + ".")
    yield from _paragraph("Parameters", "Those of the rules that it runs, each named RULE_PARAMETER.")
    yield from _paragraph("Advice", profiler_report.ADVICE)


def _explained(rule: type[Rule], preset: Preset) -> Iterator[str]:
    parameters = rule.all_parameters()
    yield f"{rule.name} ({rule.category})"
    yield from _paragraph("Checks", rule.checks)
    if rule.condition:
        yield from _paragraph(
            f"Issue when ({preset} defaults)",
            wording.with_values(rule.condition, [(p.name, p.default(preset), p.unit) for p in parameters]) + ".",
        )
    yield "\nParameters"
    for parameter, line in zip(parameters, _table(parameters, PRESETS)[1:], strict=True):
        yield f"  {line}"
        yield _wrapped(parameter.meaning, "      ")
    yield from _paragraph("Needs", rule.needs)
    if rule.advice:
        yield from _paragraph("Advice", rule.advice)
    if rule.parameters:
        first = rule.parameters[0]
        yield f"\nSet with\n  --set {rule.name}_{first.name}={first.default('documented')}"


def _paragraph(title: str, text: str) -> Iterator[str]:
    yield f"\n{title}"
    yield _wrapped(text, "  ")


def _table(parameters: Sequence[Parameter], presets: Sequence[Preset]) -> list[str]:
    """Align a heading and a line per parameter: unit and the default of each preset."""
    if not parameters:
        return []
    rows = [["parameter", "unit", *presets]]
    for parameter in parameters:
        defaults = [parameter.default(preset) for preset in presets]
        rows.append([parameter.name, parameter.unit, *("none" if value is None else str(value) for value in defaults)])
    name, unit = max(_NAME, *(len(row[0]) for row in rows)), max(_UNIT, *(len(row[1]) for row in rows))
    return [f"{row[0]:<{name}}  {row[1]:<{unit}}" + "".join(f"{value:>{_DEFAULT}}" for value in row[2:]) for row in rows]


def _wrapped(text: str, margin: str = "") -> str:
    return textwrap.fill(text.replace("`", ""), _WIDTH, initial_indent=margin, subsequent_indent=margin)
