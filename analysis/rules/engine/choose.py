"""The rules that the options of the command line choose, their values, and the verdicts that fail a run.

``--rules``, ``--set``, ``--custom-rule`` and ``--fail-on`` as texts become a Selection. Any mistake in them is a UsageError that names
the accepted values; the run is not read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ....errors import UsageError
from ....option_values import words
from ...report.model import Report
from ...report.rules import ERROR, ISSUES, NOT_EVALUATED
from ..evidence.base import Preset
from . import custom
from .bounds import LIMIT_S
from .catalogue import PROFILER_REPORT
from .custom import Guarded
from .selection import Chosen, Selection, checked, effective, known, named_setting, select, setting, turned_off

_ANY = "issues"
_FAILED = "error"


def names(value: Any) -> tuple[str, ...] | None:
    """Return the words of --rules (None: all rules), checked as rule names."""
    if value is None:
        return None
    rule_names = words(value)
    if not rule_names:
        raise UsageError("nothing is named; write it like --rules CPUBottleneck,StepOutlier or --rules -StepOutlier")
    for word in rule_names:
        if word == "-":
            raise UsageError("'-' names no rule; write the rule to turn off after the minus: --rules -StepOutlier")
        select([word.removeprefix("-")])
    return tuple(rule_names)


def pairs(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Split "LowGPUUtilization_patience=100" of --set into name and value texts."""
    named_values = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} sets nothing; write it like LowGPUUtilization_patience=100")
        named_values.append((name.strip(), value.strip()))
    return tuple(named_values)


def settings(texts: Iterable[tuple[str, str]], custom_rules: Iterable[Guarded] = ()) -> dict[str, Any]:
    """Check the pairs of --set, such as ("LowGPUUtilization_patience", "100").

    ``custom_rules``: rules of --custom-rule, by their name in the report or that of their class."""
    brought = _by_name(custom_rules)
    rules = {**known(), **{name: type(rule) for name, rule in brought.items()}}
    values = {}
    for key, value in texts:
        name, rule, parameter = named_setting(key, rules)
        label = brought[name].name if name in brought else rule.name
        values[f"{label}_{parameter.name}"] = checked(rule, parameter, value, integral=True)
    return values


def _by_name(custom_rules: Iterable[Guarded]) -> dict[str, Guarded]:
    """Return custom rules by their accepted names; those in the report come first."""
    rules = list(custom_rules)
    taken = {one.lower() for one in (PROFILER_REPORT, _ANY, _FAILED, *known(), *(rule.name for rule in rules))}
    by_alias: dict[str, Guarded] = {}
    for rule in rules:
        if rule.invoked and rule.invoked.lower() not in taken:
            by_alias.setdefault(rule.invoked, rule)
    return {**by_alias, **{rule.name: rule for rule in rules}}


@dataclass(frozen=True, slots=True)
class RuleText:
    """FILE.py:CLASS?NAME=VALUE&NAME=VALUE of --custom-rule in its parts."""

    source: str
    kind: str
    values: dict[str, str]


def rule_texts(texts: Iterable[str], folder: Path = Path()) -> tuple[RuleText, ...]:
    """Parse --custom-rule; the files are opened but not run.

    ``folder``: that relative paths begin at."""
    parsed = []
    for text in texts:
        location, _, query = text.partition("?")
        source, colon, name = location.rpartition(":")
        if not colon or not source or not name or name.startswith("//"):
            raise UsageError(f"{text!r} names no class; write it like checks.py:SlowSteps or checks.py:SlowSteps?limit=3")
        values: dict[str, str] = {}
        for pair in filter(None, query.split("&")):
            key, equals, values[key] = pair.partition("=")
            if not equals or not key:
                raise UsageError(f"{pair!r} in {text!r} sets nothing; write it like checks.py:SlowSteps?limit=3")
        if "://" in source:
            raise UsageError(f"{source} is not a file of this machine; copy it here and give its path")
        source = str(folder / source)
        try:
            with Path(source).open("rb"):
                pass
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{source}: cannot be read ({getattr(error, 'strerror', None) or error}); give the path of a Python file"
            ) from error
        parsed.append(RuleText(source, name, values))
    return tuple(parsed)


def custom_rules(texts: Iterable[RuleText], limit_s: float = LIMIT_S) -> tuple[Guarded, ...]:
    """Load the rules of --custom-rule under unique names.

    A file that fails returns a rule with a ``problem``, whose verdict is Error; values that its class does not accept are a UsageError."""
    loaded: list[Guarded] = []
    for text in texts:
        others = [rule.name for rule in loaded]
        rule = custom.load(text.source, text.kind, text.values, name=partial(_free_name, others=others), limit_s=limit_s)
        if rule.problem is not None and rule.misused:
            raise UsageError(f"{text.source}: {rule.problem}")
        loaded.append(rule)
    return tuple(loaded)


def _free_name(name: str, others: Iterable[str]) -> str:
    """Return ``name``, or "name-2" and so on if it is taken."""
    taken = {one.lower() for one in (PROFILER_REPORT, _ANY, _FAILED, *known(), *others)}
    free, number = name, 1
    while free.lower() in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def fail_words(value: Any) -> tuple[str, ...]:
    """Return the words of --fail-on; :func:`chosen` checks them against the rules."""
    fail_on = () if value is None else tuple(words(value))
    if value is not None and not fail_on:
        raise UsageError("nothing is named; write it like --fail-on issues or --fail-on CPUBottleneck,StepOutlier")
    return fail_on


def chosen(
    rules: Sequence[str] | None,
    preset: Preset,
    *,
    settings: Mapping[str, Any],
    of_file: Mapping[str, Any],
    custom_rules: Iterable[Guarded] = (),
    fail_on: Iterable[str] = (),
) -> tuple[Selection, tuple[str, ...]]:
    """Return the rules that run, and the words of --fail-on by report name.

    ``settings``: of the command line and the environment. ``of_file``: of the configuration file, with lower precedence; its values for
    rules that the command line or the environment turns off are ignored. ``custom_rules``: loaded rules of --custom-rule, which run in
    addition."""
    custom_rules = list(custom_rules)
    listed = rules or ()
    on = [word for word in listed if not word.startswith("-")]
    off = [word.removeprefix("-") for word in listed if word.startswith("-")]
    wanted = select(on or None, preset=preset)
    dropped = select(off) if off else Selection((), False)
    without = {one.rule.name for one in dropped.rules}
    kept = [one for one in wanted.rules if one.rule.name not in without]
    running = [one.rule.name for one in kept] + [one.name for one in custom_rules]
    of_own = {
        f"{one.name}_{parameter.name}": (one.name, parameter.name) for one in custom_rules for parameter in type(one).all_parameters()
    }
    values: dict[str, dict[str, Any]] = {name: {} for name in running}
    for key, value in {**of_file, **settings}.items():
        if key in of_own:
            rule, parameter = of_own[key]
        else:
            rule, parameter = (part.name for part in setting(key))
        if rule in values:
            values[rule][parameter] = value
        elif key in settings:
            raise UsageError(f"--set {turned_off(key, rule, running)}")
    built_in = [Chosen(one.rule, effective(type(one.rule), preset, values[one.rule.name])) for one in kept]
    brought = [Chosen(one, effective(type(one), preset, {**one.loaded_values, **values[one.name]})) for one in custom_rules]
    selection = Selection((*built_in, *brought), wanted.summarized and not dropped.summarized, preset)
    return selection, _running(fail_on, selection)


def _running(fail_on: Iterable[str], selection: Selection) -> tuple[str, ...]:
    running = [one.name for one in selection.rules] + [PROFILER_REPORT] * selection.summarized
    custom_rules = _by_name(one.rule for one in selection.rules if isinstance(one.rule, Guarded))
    names = {name: rule.name for name, rule in custom_rules.items()} | {word: word for word in (_ANY, _FAILED, *running)}
    accepted = {word.lower(): meant for word, meant in names.items()}
    listed = [_ANY, _FAILED, *running, *(name for name, rule in custom_rules.items() if name != rule.name)]
    labels = []
    for word in fail_on:
        if word.lower() not in accepted:
            try:
                select([word])
            except UsageError as error:
                more = [name for name in listed if name not in known() and name != PROFILER_REPORT]
                raise UsageError(f"--fail-on: {error}, {', '.join(more)}") from error
            raise UsageError(f"--fail-on {word}: this rule is turned off; accepted: {', '.join(listed)}")
        labels.append(accepted[word.lower()])
    return tuple(labels)


def unmatched(report: Report, fail_on: Sequence[str]) -> Iterator[str]:
    """Explain words of --fail-on without a verdict: rules not evaluated or failed."""
    by_name = {result.rule: result for result in report.rules}
    for name in dict.fromkeys(fail_on):
        result = by_name.get(name)
        if result is not None and result.verdict == NOT_EVALUATED:
            yield f"{name} was not evaluated ({result.reason}), so it cannot match"
    failed = [result.rule for result in report.rules if result.verdict == ERROR and (result.rule in fail_on or _ANY in fail_on)]
    if failed and _FAILED not in fail_on:
        yield f"{', '.join(failed)} failed, so it is not known whether there is an issue; --fail-on error matches rules that fail"


def matched(report: Report, fail_on: Sequence[str]) -> str | None:
    """Describe the verdicts that match --fail-on, or return None."""
    any_rule = _ANY in fail_on
    issues = [
        result.rule
        for result in report.rules
        if result.verdict == ISSUES and (result.rule in fail_on or (any_rule and result.category != "report"))
    ]
    failed = [result.rule for result in report.rules if result.verdict == ERROR and _FAILED in fail_on]
    matches = [f"{', '.join(issues)} found issues"] * bool(issues) + [f"{', '.join(failed)} failed"] * bool(failed)
    return "; ".join(matches) or None
