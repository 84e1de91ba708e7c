"""Which rules do the options of the command line choose, with which values, and which verdicts fail a run?

``--rules``, ``--set``, ``--custom-rule`` and ``--fail-on`` as texts become a Selection. Everything wrong in them is a UsageError that names
what is accepted; nothing of the run is read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .analysis.report import Report
from .analysis.rules import custom
from .analysis.rules.base import ERROR, ISSUES, Preset
from .analysis.rules.catalogue import PROFILER_REPORT
from .analysis.rules.custom import Guarded
from .analysis.rules.selection import Chosen, Selection, checked, effective, known, select, setting
from .errors import UsageError
from .option_values import words

_ANY = "issues"
_FAILED = "error"


def names(value: Any) -> tuple[str, ...] | None:
    """The words of --rules (None: all rules); every one is the name of a rule, after a minus or not."""
    if value is None:
        return None
    found = words(value)
    if not found:
        raise UsageError("nothing is named; write it like --rules CPUBottleneck,StepOutlier or --rules -StepOutlier")
    for word in found:
        select([word.removeprefix("-")])
    return tuple(found)


def settings(texts: Iterable[str]) -> dict[str, Any]:
    """ "LowGPUUtilization_patience=100" of --set as name and value."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} sets nothing; write it like LowGPUUtilization_patience=100")
        rule, parameter = setting(name.strip())
        found[f"{rule.name}_{parameter.name}"] = checked(rule, parameter, value.strip())
    return found


def custom_rules(texts: Iterable[str]) -> tuple[Guarded, ...]:
    """The rules of --custom-rule FILE.py:CLASS?NAME=VALUE&NAME=VALUE, loaded; their names differ from each other and from all others."""
    found: list[Guarded] = []
    for text in texts:
        place, _, query = text.partition("?")
        source, colon, name = place.rpartition(":")
        if not colon or not source or not name:
            raise UsageError(f"{text!r} names no class; write it like checks.py:SlowSteps or checks.py:SlowSteps?limit=3")
        given: dict[str, str] = {}
        for pair in filter(None, query.split("&")):
            key, equals, given[key] = pair.partition("=")
            if not equals or not key:
                raise UsageError(f"{pair!r} in {text!r} sets nothing; write it like checks.py:SlowSteps?limit=3")
        rule = custom.load(source, name, given, name=_free_name(name, [rule.name for rule in found]))
        if rule.problem is not None:
            raise UsageError(f"{source}: {rule.problem}")
        found.append(rule)
    return tuple(found)


def _free_name(name: str, others: Iterable[str]) -> str:
    """``name``, or "name-2" and so on where it is taken."""
    taken = {one.lower() for one in (PROFILER_REPORT, _ANY, _FAILED, *known(), *others)}
    shown, number = name, 1
    while shown.lower() in taken:
        number += 1
        shown = f"{name}-{number}"
    return shown


def fail_words(value: Any) -> tuple[str, ...]:
    """The words of --fail-on; :func:`chosen` tells which of them are names of rules that run."""
    found = () if value is None else tuple(words(value))
    if value is not None and not found:
        raise UsageError("nothing is named; write it like --fail-on issues or --fail-on CPUBottleneck,StepOutlier")
    return found


def chosen(
    rules: Sequence[str] | None,
    preset: Preset,
    *,
    settings: Mapping[str, Any],
    of_file: Mapping[str, Any],
    own: Iterable[Guarded] = (),
    fail_on: Iterable[str] = (),
) -> tuple[Selection, tuple[str, ...]]:
    """The rules that run, and the words of --fail-on as the report names the rules. ``settings``: of the command line and the environment;
    ``of_file``: of the configuration file, below them, where a value for a rule that is turned off is no mistake."""
    given = rules or ()
    on = [word for word in given if not word.startswith("-")]
    off = [word.removeprefix("-") for word in given if word.startswith("-")]
    wanted = select(on or None, preset=preset, settings={**of_file, **settings})
    dropped = select(off) if off else Selection((), False)
    without = {one.rule.name for one in dropped.rules}
    kept = [one for one in wanted.rules if one.rule.name not in without]
    running = [one.rule.name for one in kept]
    for key in settings:
        rule = setting(key)[0].name
        if rule not in running:
            raise UsageError(f"--set {key}: {rule} is turned off; leave it out, or turn the rule on (on: {', '.join(running) or 'none'})")
    brought = [Chosen(one, effective(type(one), preset, one.given)) for one in own]
    selection = Selection((*kept, *brought), wanted.summarised and not dropped.summarised, preset)
    return selection, _running(fail_on, selection)


def _running(fail_on: Iterable[str], selection: Selection) -> tuple[str, ...]:
    running = [one.label or one.rule.name for one in selection.rules] + [PROFILER_REPORT] * selection.summarised
    accepted = {word.lower(): word for word in (_ANY, _FAILED, *running)}
    found = []
    for word in fail_on:
        if word.lower() not in accepted:
            try:
                select([word])
            except UsageError as error:
                raise UsageError(f"--fail-on: {error}, {_ANY}, {_FAILED}") from error
            raise UsageError(f"--fail-on {word}: this rule is turned off; accepted: {', '.join(accepted.values())}")
        found.append(accepted[word.lower()])
    return tuple(found)


def matched(report: Report, fail_on: Sequence[str]) -> str | None:
    """Which verdicts match --fail-on, in words; None where none does. What is not evaluated does not match."""
    any_rule = _ANY in fail_on
    issues = [
        result.rule
        for result in report.rules
        if result.verdict == ISSUES and (result.rule in fail_on or (any_rule and result.category != "report"))
    ]
    failed = [result.rule for result in report.rules if result.verdict == ERROR and _FAILED in fail_on]
    told = [f"{', '.join(issues)} found issues"] * bool(issues) + [f"{', '.join(failed)} failed"] * bool(failed)
    return "; ".join(told) or None
