"""Which rules do the options of the command line choose, with which values, and which verdicts fail a run?

``--rules``, ``--set``, ``--custom-rule`` and ``--fail-on`` as texts become a Selection. Everything wrong in them is a UsageError that names
what is accepted; nothing of the run is read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ....errors import UsageError
from ....option_values import words
from ...report.model import ERROR, ISSUES, NOT_EVALUATED, Report
from ..evidence.base import Preset
from . import custom
from .bounds import LIMIT_S
from .catalogue import PROFILER_REPORT
from .custom import Guarded
from .selection import Chosen, Selection, checked, effective, known, named_setting, select, setting, turned_off

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
        if word == "-":
            raise UsageError("'-' names no rule; the rule to turn off stands behind the minus: --rules -StepOutlier")
        select([word.removeprefix("-")])
    return tuple(found)


def pairs(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """ "LowGPUUtilization_patience=100" of --set as name and value, as they are written."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} sets nothing; write it like LowGPUUtilization_patience=100")
        found.append((name.strip(), value.strip()))
    return tuple(found)


def settings(given: Iterable[tuple[str, str]], own: Iterable[Guarded] = ()) -> dict[str, Any]:
    """The pairs of --set as name ("LowGPUUtilization_patience") and value, checked. ``own``: rules of --custom-rule, which can be meant
    by their name in the report and by that of their class."""
    brought = _by_name(own)
    rules = {**known(), **{name: type(rule) for name, rule in brought.items()}}
    found = {}
    for key, value in given:
        name, rule, parameter = named_setting(key, rules)
        shown = brought[name].name if name in brought else rule.name
        found[f"{shown}_{parameter.name}"] = checked(rule, parameter, value, whole=True)
    return found


def _by_name(own: Iterable[Guarded]) -> dict[str, Guarded]:
    """Rules of one's own by the names they can be meant by; the names in the report count first."""
    rules = list(own)
    taken = {one.lower() for one in (PROFILER_REPORT, _ANY, _FAILED, *known(), *(rule.name for rule in rules))}
    found: dict[str, Guarded] = {}
    for rule in rules:
        if rule.invoked and rule.invoked.lower() not in taken:
            found.setdefault(rule.invoked, rule)
    return {**found, **{rule.name: rule for rule in rules}}


@dataclass(frozen=True, slots=True)
class RuleText:
    """FILE.py:CLASS?NAME=VALUE&NAME=VALUE of --custom-rule in its parts."""

    source: str
    kind: str
    given: dict[str, str]


def rule_texts(texts: Iterable[str]) -> tuple[RuleText, ...]:
    """What --custom-rule names. The files are there; nothing of them has run."""
    found = []
    for text in texts:
        place, _, query = text.partition("?")
        source, colon, name = place.rpartition(":")
        if not colon or not source or not name or name.startswith("//"):
            raise UsageError(f"{text!r} names no class; write it like checks.py:SlowSteps or checks.py:SlowSteps?limit=3")
        given: dict[str, str] = {}
        for pair in filter(None, query.split("&")):
            key, equals, given[key] = pair.partition("=")
            if not equals or not key:
                raise UsageError(f"{pair!r} in {text!r} sets nothing; write it like checks.py:SlowSteps?limit=3")
        if "://" in source:
            raise UsageError(f"{source} is no file of this machine; copy it here and give its path")
        try:
            with Path(source).open("rb"):
                pass
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{source}: cannot be read ({getattr(error, 'strerror', None) or error}); give the path of a Python file"
            ) from error
        found.append(RuleText(source, name, given))
    return tuple(found)


def custom_rules(texts: Iterable[RuleText], limit_s: float = LIMIT_S) -> tuple[Guarded, ...]:
    """The rules of --custom-rule, loaded; their names differ from each other and from all others. A file that fails gives a rule with a
    ``problem``, whose verdict is Error; values that its class does not take are a UsageError."""
    found: list[Guarded] = []
    for text in texts:
        others = [rule.name for rule in found]
        rule = custom.load(text.source, text.kind, text.given, name=partial(_free_name, others=others), limit_s=limit_s)
        if rule.problem is not None and rule.misused:
            raise UsageError(f"{text.source}: {rule.problem}")
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
    ``of_file``: of the configuration file, below them; its values for rules that the command line or the environment turns off are
    kept for another time. ``own``: loaded rules of --custom-rule, which run beside them."""
    own = list(own)
    given = rules or ()
    on = [word for word in given if not word.startswith("-")]
    off = [word.removeprefix("-") for word in given if word.startswith("-")]
    wanted = select(on or None, preset=preset)
    dropped = select(off) if off else Selection((), False)
    without = {one.rule.name for one in dropped.rules}
    kept = [one for one in wanted.rules if one.rule.name not in without]
    running = [one.rule.name for one in kept] + [one.name for one in own]
    of_own = {f"{one.name}_{parameter.name}": (one.name, parameter.name) for one in own for parameter in type(one).all_parameters()}
    values: dict[str, dict[str, Any]] = {name: {} for name in running}
    for key, value in {**of_file, **settings}.items():
        rule, parameter = of_own.get(key) or _named(key)
        if rule in values:
            values[rule][parameter] = value
        elif key in settings:
            raise UsageError(f"--set {turned_off(key, rule, running)}")
    made = [Chosen(one.rule, effective(type(one.rule), preset, values[one.rule.name])) for one in kept]
    brought = [Chosen(one, effective(type(one), preset, {**one.given, **values[one.name]})) for one in own]
    selection = Selection((*made, *brought), wanted.summarised and not dropped.summarised, preset)
    return selection, _running(fail_on, selection)


def _named(key: str) -> tuple[str, str]:
    rule, parameter = setting(key)
    return rule.name, parameter.name


def _running(fail_on: Iterable[str], selection: Selection) -> tuple[str, ...]:
    running = [one.label or one.rule.name for one in selection.rules] + [PROFILER_REPORT] * selection.summarised
    own = _by_name(one.rule for one in selection.rules if isinstance(one.rule, Guarded))
    names = {name: rule.name for name, rule in own.items()} | {word: word for word in (_ANY, _FAILED, *running)}
    accepted = {word.lower(): meant for word, meant in names.items()}
    listed = [_ANY, _FAILED, *running, *(name for name, rule in own.items() if name != rule.name)]
    found = []
    for word in fail_on:
        if word.lower() not in accepted:
            try:
                select([word])
            except UsageError as error:
                more = [name for name in listed if name not in known() and name != PROFILER_REPORT]
                raise UsageError(f"--fail-on: {error}, {', '.join(more)}") from error
            raise UsageError(f"--fail-on {word}: this rule is turned off; accepted: {', '.join(listed)}")
        found.append(accepted[word.lower()])
    return tuple(found)


def unmatched(report: Report, fail_on: Sequence[str]) -> Iterator[str]:
    """What --fail-on asks for and no verdict answers: rules named there that could not be evaluated, and rules that failed."""
    by_name = {result.rule: result for result in report.rules}
    for name in dict.fromkeys(fail_on):
        result = by_name.get(name)
        if result is not None and result.verdict == NOT_EVALUATED:
            yield f"{name} was not evaluated ({result.reason}), so it cannot match"
    failed = [result.rule for result in report.rules if result.verdict == ERROR and (result.rule in fail_on or _ANY in fail_on)]
    if failed and _FAILED not in fail_on:
        yield f"{', '.join(failed)} failed, so it is not known whether there is an issue; --fail-on error matches rules that fail"


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
