"""The rules that run, with the values of their parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....errors import UsageError
from ..evidence.base import DISTANCE, Parameter, Parameters, Preset, Rule, Value
from .catalogue import DOCUMENTED, PROFILER_REPORT, RULES
from .conversion import number, plain
from .custom import Guarded, installed


@dataclass(frozen=True, slots=True)
class Chosen:
    """A rule to run. ``label``: its name in the report, if the configuration gives it another name than the rule's."""

    rule: Rule
    parameters: Parameters
    label: str | None = None

    @property
    def name(self) -> str:
        return self.label or self.rule.name


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules of a report, in order. ``summarized``: ProfilerReport's own verdict over the documented rules among them is included."""

    rules: tuple[Chosen, ...]
    summarized: bool = True
    preset: Preset = "documented"


def select(names: Sequence[str] | None = None, *, preset: Preset = "documented", settings: Mapping[str, Any] | None = None) -> Selection:
    """Choose the rules ``names`` (any case; None: all), in the order of RULES.

    Defaults are those of ``preset``, overridden by ``settings`` ("LowGPUUtilization_patience" -> value; strings are read as numbers).
    Rules of installed packages come last. The name ProfilerReport selects all documented rules. Raises UsageError, naming the accepted
    ones, for an unknown rule or parameter, for a value out of range, and for a value of a rule that does not run."""
    rules = known()
    wanted = _wanted(names, rules)
    values: dict[str, dict[str, Value]] = {}
    for key, value in (settings or {}).items():
        name, rule, parameter = named_setting(key, rules)
        if rule.name not in wanted:
            raise UsageError(turned_off(key, name, [rule.name for rule in rules.values() if rule.name in wanted]))
        values.setdefault(rule.name, {})[parameter.name] = checked(rule, parameter, value)
    chosen = [Chosen(rule(), effective(rule, preset, values.get(rule.name, {}))) for rule in rules.values() if rule.name in wanted]
    summarized = names is None or any(name.lower() == PROFILER_REPORT.lower() for name in names)
    return Selection(tuple(chosen), summarized, preset)


def turned_off(key: str, rule: str, running: Iterable[str]) -> str:
    """Write the error for a value of a rule that does not run."""
    return f"{key}: {rule} is turned off; leave it out, or turn the rule on (on: {', '.join(running) or 'none'})"


def known() -> dict[str, type[Rule]]:
    """Return all rules by name: postrun's own, then those of installed packages."""
    return {**RULES, **installed()}


def effective(rule: type[Rule], preset: Preset, values: Mapping[str, Value]) -> Parameters:
    """Return the defaults of ``preset``, overridden by loaded and then ``values``."""
    defaults = {parameter.name: parameter.default(preset) for parameter in rule.all_parameters()}
    if issubclass(rule, Guarded):
        values = plain({**rule.loaded_values, **values})
    return Parameters({**defaults, **values}, [name for name, value in values.items() if value != defaults[name]])


def find(name: str, rules: Mapping[str, type[Rule]] | None = None) -> type[Rule]:
    """Return the rule of that name in any case (None: out of :func:`known`)."""
    rules = known() if rules is None else rules
    for known_name, rule in rules.items():
        if known_name.lower() == name.lower():
            return rule
    if name.lower() == PROFILER_REPORT.lower():
        raise UsageError(f"{PROFILER_REPORT} has no parameters of its own; set those of its rules, such as LowGPUUtilization_patience")
    raise UsageError(f"{name!r} is not a rule{_meant(name, [*rules, PROFILER_REPORT])}; accepted: {', '.join([PROFILER_REPORT, *rules])}")


def setting(key: str, rules: Mapping[str, type[Rule]] | None = None) -> tuple[type[Rule], Parameter]:
    """Return the rule and parameter of a key like "LowGPUUtilization_patience"."""
    return named_setting(key, rules)[1:]


def named_setting(key: str, rules: Mapping[str, type[Rule]] | None = None) -> tuple[str, type[Rule], Parameter]:
    """Return the key's rule name in ``rules``, and the result of :func:`setting`."""
    rules = known() if rules is None else rules
    reported = f"{PROFILER_REPORT}_".lower()
    if key.lower().startswith(reported) and "_" in key[len(reported) :]:
        key = key[len(reported) :]
    longest = max((one for one in rules if key.lower().startswith(f"{one.lower()}_")), key=len, default=None)
    if longest is None:
        if same := [one for one, rule in rules.items() if any(parameter.name == key for parameter in rule.all_parameters())]:
            raise UsageError(f"{key!r} names no rule; write {' or '.join(f'{one}_{key}' for one in same)}")
        if "_" not in key:
            raise UsageError(f"{key!r} names no parameter; write it like LowGPUUtilization_patience")
        longest = key.partition("_")[0]
    rule, name = find(longest, rules), key[len(longest) + 1 :]
    for parameter in rule.all_parameters():
        if parameter.name == name:
            return longest, rule, parameter
    names = [parameter.name for parameter in rule.all_parameters()]
    raise UsageError(f"{name!r} is not a parameter of {longest}{_meant(name, names)}; accepted: {', '.join(names)}")


def checked(rule: type[Rule], parameter: Parameter, value: Any, *, integral: bool = False, documented: bool = False) -> Value:
    """Return ``value`` with the right type. Raises UsageError if it is out of range.

    ``integral``: patience and window must be integers, although the documented interface takes fractions. ``documented``: a value that
    could never trigger the rule passes if the documented interface accepts it."""
    if parameter.kind != "text":
        value = number(value)
    elif value in ("", "None", "none"):
        value = None
    problem = parameter.problem(value)
    if not problem and not documented and parameter.unit == DISTANCE and value > 1:
        problem = f"{parameter.name} is a distance, which is never above 1"
    if not problem and integral and parameter.name in ("patience", "window") and RULES.get(rule.name) is rule:
        if value != int(value):
            problem = f"{parameter.name} must be a whole number"
        else:
            value = int(value)
    if problem:
        raise UsageError(f"{rule.name}_{parameter.name}={value}: {problem} (accepted: {parameter.accepted}; unit: {parameter.unit})")
    result: Value = value
    return result


def _wanted(names: Iterable[str] | None, rules: Mapping[str, type[Rule]]) -> set[str]:
    if names is None:
        return set(rules)
    documented = {rule.name for rule in DOCUMENTED}
    return set().union(*(documented if name.lower() == PROFILER_REPORT.lower() else {find(name, rules).name} for name in names))


def _meant(word: str, accepted: Iterable[str]) -> str:
    lowered = {one.lower(): one for one in accepted}
    near = difflib.get_close_matches(word.lower(), lowered, n=1)
    return f" (did you mean {lowered[near[0]]}?)" if near else ""
