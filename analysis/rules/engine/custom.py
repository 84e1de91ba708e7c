"""Rules from outside postrun: rule files, rule classes and installed rule packages, guarded so that they cannot stop a run.

Any exception of such a rule becomes the verdict Error of that rule; its prints go to standard error; its result is converted to plain
data.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Final

from ....errors import Terminated
from ...report.rules import ERROR, FINE, ISSUES
from ...toolkit.wording import count, duration
from ..evidence.base import SCAN_INTERVAL, Category, Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.run_data import RunData
from .bounds import LIMIT_S, printing_aside
from .catalogue import PROFILER_REPORT, RULES
from .conversion import LISTED, MisuseError, described, first_line, number, plain, sound_outcome
from .rule_file import RuleFile
from .trial import ContractRule, Trial, in_us

GROUP: Final = "postrun.rules"  # Entry points of this group name the rule classes of an installed package

_WINDOWS: Final = 1_000_000
_OF_THE_BASE: Final = ("action_str", "other_trials")  # parameters of the contract's base class, not settings of a rule


class FreeParameter(Parameter):
    """A parameter of a rule file: any value is accepted, the file itself decides."""

    def problem(self, value: Any) -> str | None:
        return None


# -- classes of postrun's own kind ---------------------------------------------------------------------------------------------


class Guarded(Rule):
    """A rule from outside postrun. Subclasses are created by :func:`guarded`."""

    category: ClassVar[Category] = "custom"
    file: ClassVar[RuleFile | None] = None
    path: ClassVar[str | None] = None
    make: ClassVar[Callable[[], Rule]]
    loaded_values: ClassVar[Mapping[str, Any]] = {}
    """Values of parameters that the rule was loaded with."""
    problem: ClassVar[str | None] = None
    """Why the rule could not be loaded: the reason of its verdict Error."""
    misused: ClassVar[bool] = False
    """Whether the values it was loaded with are the problem."""
    invoked: ClassVar[str | None] = None
    """Name of the class in its file, which also selects the rule."""

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if self.problem is not None:
            return Outcome(ERROR, reason=self.problem)
        try:
            with self.file.active() if self.file else printing_aside(self.name):
                return self._judge(run, parameters)
        except (KeyboardInterrupt, Terminated):
            raise
        except BaseException as error:
            return Outcome(ERROR, reason=described(error, self.path))

    def _judge(self, run: RunData, parameters: Parameters) -> Outcome:
        return sound_outcome(type(self).make().evaluate(run, parameters))


def guarded(
    kind: type[Rule],
    make: Callable[[], Rule] | None = None,
    *,
    name: str | None = None,
    file: RuleFile | None = None,
    values: Mapping[str, Any] | None = None,
) -> type[Guarded]:
    """Return ``kind`` as a rule that cannot stop the others.

    ``make`` returns the instance (default: ``kind()``); ``name``: in the report, instead of its own; ``file``, ``values``: the file and
    the parameter values that the class was loaded with. Missing descriptions (checks, condition, advice) are filled in. A class whose
    parameters are wrong is a broken rule."""
    known = name or getattr(kind, "name", None) or kind.__name__
    problem = _problem(kind, known)
    if problem:
        return broken(str(known), problem)
    return type(kind.__name__, (Guarded,), {
        "name": known,
        "parameters": tuple(kind.parameters),
        "needs": getattr(kind, "needs", None) or Rule.needs,
        "checks": getattr(kind, "checks", None) or first_line(kind) or f"What the rule {known} looks at.",
        "condition": getattr(kind, "condition", None) or "its own condition is met",
        "advice": getattr(kind, "advice", None) or f"Look at what {known} found.",
        "file": file,
        "path": str(file.path) if file else getattr(sys.modules.get(kind.__module__), "__file__", None),
        "loaded_values": _fitting(kind, values or {}),
        "make": staticmethod(make or kind),
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
    })  # fmt: skip


def broken(name: str, reason: str, *, misused: bool = False) -> type[Guarded]:
    """Return a rule that could not be loaded: its verdict is Error, with the reason."""
    return type("Broken", (Guarded,), {
        "name": name,
        "checks": f"Nothing: the rule {name} could not be loaded.",
        "condition": "never",
        "advice": f"Fix the rule {name}.",
        "problem": reason,
        "misused": misused,
    })  # fmt: skip


def _problem(kind: type[Rule], name: Any) -> str | None:
    """Return the mistake in a rule class, or None."""
    where = f"{kind.__name__}: "
    if not isinstance(name, str) or not name.strip() or "\n" in name:
        return f"{where}name must be a text of one line"
    parameters = kind.parameters
    if not isinstance(parameters, tuple | list) or not all(isinstance(parameter, Parameter) for parameter in parameters):
        return f"{where}parameters must be a tuple of postrun.Parameter"
    names = [parameter.name for parameter in parameters]
    if len({*names, SCAN_INTERVAL.name}) <= len(names):
        return f"{where}parameter names must differ, and {SCAN_INTERVAL.name} is there already"
    return None


def _fitting(kind: type[Rule], texts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``texts`` to values of the parameters of ``kind``. Raises MisuseError."""
    parameters = {parameter.name: parameter for parameter in (*kind.parameters, SCAN_INTERVAL)}
    if unknown := [key for key in texts if key not in parameters]:
        raise MisuseError(f"{kind.__name__} has no parameter {', '.join(unknown)}; it has: {', '.join(parameters)}")
    values = {key: value if parameters[key].kind == "text" else number(value) for key, value in texts.items()}
    for key, value in values.items():
        if problem := parameters[key].problem(value):
            raise MisuseError(f"{problem} (given: {value!r})", "ValueError")
    return values


# -- rule files ----------------------------------------------------------------------------------------------------------------


def load(
    source: str | Path,
    rule_to_invoke: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    name: str | Callable[[str], str] | None = None,
    limit_s: float = LIMIT_S,
) -> Guarded:
    """Load the class ``rule_to_invoke`` of the Python file ``source`` as a rule.

    ``name``: of the rule (default: the ``name`` that the class declares, else that of the class; a function derives it from this
    default). The class is a subclass of :class:`postrun.Rule`, or a class of the public rule contract, which is created with
    ``base_trial`` and ``parameters`` and called for every evaluation window (docs/custom-rules.md). Texts are read as numbers, unless the
    default is a text. A file that cannot be loaded returns a rule with a ``problem``, whose verdict is Error. The file runs with the
    rights of this program; it may take ``limit_s`` to load, and again for its evaluation."""
    file = RuleFile(source, limit_s)
    report_name = _report_name(name, rule_to_invoke)
    try:
        with file.active():
            kind = file.find(rule_to_invoke)
            report_name = _report_name(name, _declared(kind) or rule_to_invoke)
            if issubclass(kind, Rule):
                rule = guarded(kind, name=report_name, file=file, values=parameters)
            else:
                rule = _contract(file, kind, dict(parameters or {}), report_name)
            rule.invoked = rule_to_invoke
            return rule()
    except (KeyboardInterrupt, Terminated):
        raise
    except BaseException as error:
        failed = broken(report_name, described(error, str(file.path)), misused=isinstance(error, MisuseError))
        failed.invoked = rule_to_invoke
        return failed()


def _report_name(name: str | Callable[[str], str] | None, default: str) -> str:
    return name(default) if callable(name) else name or default


def _declared(kind: type) -> str | None:
    """Return the name in the report that a class declares, or None."""
    name = getattr(kind, "name", None)
    return name if isinstance(name, str) and name.strip() and "\n" not in name else None


def _call(kind: type) -> tuple[str, bool]:
    """Return the most specific contract function of the file, and if it takes times."""
    for name in ("invoke_for_timerange", "invoke", "invoke_at_step"):
        owner = next((one for one in kind.__mro__ if name in vars(one)), None)
        if owner is not None and owner is not ContractRule and not owner.__module__.startswith("smdebug."):
            return name, name == "invoke_for_timerange"
    raise TypeError(f"{kind.__name__} has none of invoke_for_timerange(start_us, end_us), invoke(step) and invoke_at_step(step)")


class _Contract(Guarded):
    """A class of the public rule contract. Subclasses are created by :func:`_contract`."""

    kind: ClassVar[type]
    passed: ClassVar[dict[str, Any]]
    table: ClassVar[tuple[Parameter, ...]]
    takes_interval: ClassVar[bool]

    @classmethod
    def all_parameters(cls) -> tuple[Parameter, ...]:
        return cls.table

    def _judge(self, run: RunData, parameters: Parameters) -> Outcome:
        scan = parameters[SCAN_INTERVAL.name]
        if problem := SCAN_INTERVAL.problem(scan):
            raise ValueError(problem)
        trial = Trial(run, scan)
        if trial.empty:
            return not_evaluated("no samples and no events in this run")
        if trial.windows > _WINDOWS:
            raise ValueError(
                f"scan_interval_us={scan} makes {count(trial.windows)} windows of this run; at most {count(_WINDOWS)} are evaluated"
            )
        function, by_window = _call(self.kind)
        rule = self.kind(trial, **self._arguments(parameters))
        ask = getattr(rule, function)
        hits: list[int] = []
        windows = trial.windows
        for index in range(windows):
            if self.file is not None:
                self.file.limit.check()
            start = trial.first_ns + index * trial.interval_ns
            trial.window = (in_us(start), in_us(start + trial.interval_ns))
            try:
                met = bool(ask(*trial.window) if by_window else ask(index))
                over = False
            except Exception as error:
                kinds = {one.__name__ for one in type(error).__mro__}
                met, over = "RuleEvaluationConditionMet" in kinds, "NoMoreProfilerData" in kinds
                if not met and not over:
                    raise
                over = over or bool(getattr(error, "end_of_rule", False))
            if met:
                hits.append(index)
            if over:
                windows = index + 1
                break
        return self._outcome(trial, getattr(rule, "report", None), hits, windows)

    def _arguments(self, parameters: Parameters) -> dict[str, Any]:
        """Return the constructor's arguments: the loaded values, and later settings."""
        defaults = {parameter.name: parameter.documented for parameter in self.table}
        arguments = {}
        for name, value in parameters.items():
            if name == SCAN_INTERVAL.name and not self.takes_interval:
                continue
            if name in self.passed and self.loaded_values[name] == value:
                arguments[name] = self.passed[name]
            elif name in self.passed or value != defaults.get(name):
                arguments[name] = value if isinstance(defaults.get(name), str) else number(value)
        return arguments

    def _outcome(self, trial: Trial, report: object, hits: list[int], windows: int) -> Outcome:
        if not hits and trial.asked and not trial.delivered:
            return not_evaluated("the run has nothing of what the rule asked for", windows=windows)
        contents = report if isinstance(report, Mapping) else {}
        starts = [trial.first_ns + number * trial.interval_ns for number in hits]
        listed = [
            {"index": number, "start_ns": start, "end_ns": start + trial.interval_ns}
            for number, start in zip(hits[:LISTED], starts[:LISTED], strict=True)
        ]
        length = duration(trial.interval_ns)
        return Outcome(
            ISSUES if hits else FINE,
            triggered=(_counted(contents, "RuleTriggered") or len(hits)) if hits else 0,
            violations=_counted(contents, "Violations"),
            datapoints=_counted(contents, "Datapoints"),
            windows=windows,
            windows_triggered=len(hits),
            first_ns=starts[0] if hits else None,
            last_ns=min(starts[-1] + trial.interval_ns, trial.last_ns) if hits else None,
            details={"report": plain(report), "windows": listed},
            finding=f"{self.name} triggered in {count(len(hits))} of {count(windows)} evaluation windows of {length}." if hits else None,
        )


def _contract(file: RuleFile, kind: type, values: dict[str, Any], name: str) -> type[_Contract]:
    """Return a rule that calls ``kind``; its parameters are the constructor's."""
    _call(kind)
    signature = inspect.signature(kind)
    accepted = [
        one
        for one in list(signature.parameters.values())[1:]
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name not in _OF_THE_BASE
    ]
    free = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    defaults = {one.name: None if one.default is one.empty else plain(one.default) for one in accepted}
    if not free and (unknown := [key for key in values if key not in {*defaults, SCAN_INTERVAL.name}]):
        raise MisuseError(f"{kind.__name__} has no parameter {', '.join(unknown)}; it has: {', '.join(defaults) or 'none'}")
    missing = [one.name for one in accepted if one.default is one.empty and one.name not in values]
    if missing:
        raise MisuseError(
            f"{kind.__name__} needs a value for {', '.join(missing)}; give it in rule_parameters, or as CLASS?{missing[0]}=VALUE"
        )
    values = {key: value if isinstance(defaults.get(key), str) else number(value) for key, value in values.items()}
    names = [key for key in {**defaults, **values} if key != SCAN_INTERVAL.name]
    meaning = "parameter of the rule file"
    table: list[Parameter] = [FreeParameter(key, "", defaults.get(key), defaults.get(key), "text", meaning) for key in names]
    interval = defaults.get(SCAN_INTERVAL.name) or SCAN_INTERVAL.documented
    table.append(replace(SCAN_INTERVAL, documented=interval, service=interval))
    return type(kind.__name__, (_Contract,), {
        "name": name,
        "checks": first_line(kind) or f"The rule {kind.__name__} of {file.path.name}.",
        "condition": "its call for an evaluation window returns true or raises RuleEvaluationConditionMet",
        "advice": f"Look at what {name} found.",
        "file": file,
        "path": str(file.path),
        "kind": kind,
        "loaded_values": {key: plain(value) for key, value in values.items()},
        "passed": values,
        "parameters": tuple(table[:-1]),
        "table": tuple(table),
        "takes_interval": free or SCAN_INTERVAL.name in defaults,
    })  # fmt: skip


def _counted(report: Mapping[str, Any], key: str) -> int:
    value = report.get(key)
    try:
        return max(int(value), 0) if value is not None else 0
    except (TypeError, ValueError, OverflowError):
        return 0


# -- installed packages --------------------------------------------------------------------------------------------------------


def installed() -> dict[str, type[Guarded]]:
    """Return the rules of installed packages (entry points of ``postrun.rules``)."""
    return dict(_rules_on(tuple(sys.path), metadata.entry_points))


@cache
def _rules_on(path: tuple[str, ...], entry_points: Callable[..., Any]) -> dict[str, type[Guarded]]:
    """Read the entry points once per ``path``, on which the packages are."""
    rules: dict[str, type[Guarded]] = {}
    taken = {name.lower(): "postrun" for name in (*RULES, PROFILER_REPORT)}
    try:
        points = sorted(entry_points(group=GROUP), key=lambda point: (point.name.lower(), _package(point), point.value))
    except Exception as error:
        return {GROUP: broken(GROUP, f"the entry points of the installed packages cannot be read ({described(error)})")}
    for point in points:
        package = _package(point)
        owner = taken.get(point.name.lower())
        if owner is None:
            taken[point.name.lower()] = package
            rules[point.name] = _of_package(point)
        elif owner != package:  # an installation that is listed twice is not a clash
            label = f"{point.name} ({package})"
            rules[label] = broken(label, f"a rule of {owner} has the name {point.name}; the one of {package} is not run")
    return rules


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unnamed package"


def _of_package(point: metadata.EntryPoint) -> type[Guarded]:
    try:
        with printing_aside(point.name):
            kind = point.load()
        if not isinstance(kind, type) or not issubclass(kind, Rule):
            raise TypeError(f"{point.value} is not a subclass of postrun.Rule")
        declared = getattr(kind, "name", point.name)
        if declared != point.name:
            raise ValueError(f"the entry point is named {point.name}, its rule {declared}; name them alike")
        return guarded(kind, name=point.name)
    except (KeyboardInterrupt, Terminated):
        raise
    except BaseException as error:
        return broken(point.name, f"{described(error)}; loaded from the package {_package(point)}")
