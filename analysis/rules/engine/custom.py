"""Rules from outside postrun: rule files, rule classes and installed rule packages, guarded so that they cannot stop a run.

Any exception of such a rule becomes the verdict Error of that rule; its prints go to standard error; its result is converted to plain
data.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass, replace
from enum import Enum
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final

from ....errors import Terminated
from ....ingest.store.texts import storable
from ...report.rules import ERROR, FINE, ISSUES, VERDICTS
from ...toolkit.wording import count, duration
from ..evidence.base import SCAN_INTERVAL, Category, Cost, Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.run_data import RunData
from .bounds import LIMIT_S, TimeLimit, printing_aside
from .catalogue import PROFILER_REPORT, RULES
from .trial import ContractRule, Trial, in_us, stand_ins

GROUP: Final = "postrun.rules"  # Entry points of this group name the rule classes of an installed package

_WINDOWS: Final = 1_000_000
_LISTED: Final = 1000
_DEPTH: Final = 20
_TEXT: Final = 500
_OF_THE_BASE: Final = ("action_str", "other_trials")  # parameters of the contract's base class, not settings of a rule


class MisuseError(Exception):
    """A rule file is loaded with values that its class does not accept: a mistake of the caller, not of the file."""

    def __init__(self, message: str, kind: str = "TypeError") -> None:
        super().__init__(message)
        self.kind = kind


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
        return _sound(type(self).make().evaluate(run, parameters))


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
        "checks": getattr(kind, "checks", None) or _first_line(kind) or f"What the rule {known} looks at.",
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
        "advice": f"Mend the rule {name}.",
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


def number(value: Any) -> Any:
    """Convert a text that is a number to this number; keep everything else."""
    if isinstance(value, str):
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(value)
    return value


def _sound(outcome: object) -> Outcome:
    """Return an outcome that a report can show. Raises TypeError for other objects."""
    if not isinstance(outcome, Outcome):
        raise TypeError(f"evaluate() must return a postrun.Outcome, not {type(outcome).__name__}")
    if outcome.verdict not in VERDICTS:
        raise ValueError(f"the verdict must be one of {', '.join(VERDICTS)}, not {outcome.verdict!r}")
    if outcome.cost is not None and not isinstance(outcome.cost, Cost):
        raise TypeError(f"cost must be a postrun.Cost, not {type(outcome.cost).__name__}")
    counts = ("triggered", "violations", "datapoints", "windows", "windows_triggered")
    numbers: dict[str, Any] = {key: _integer(key, getattr(outcome, key)) for key in counts}
    times: dict[str, Any] = {key: _integer(key, value) for key in ("first_ns", "last_ns") if (value := getattr(outcome, key)) is not None}
    texts: dict[str, Any] = {
        key: storable(str(value)) for key in ("reason", "finding", "recommendation", "capture") if (value := getattr(outcome, key))
    }
    if not isinstance(outcome.details, Mapping):
        raise TypeError(f"details must be a dict, not {type(outcome.details).__name__}")
    cost = outcome.cost
    if cost is not None:
        where = None if cost.where is None else storable(str(cost.where))
        saving = None if cost.saving_ns is None else _integer("saving_ns", cost.saving_ns)
        step = None if cost.per_step_ns is None or not math.isfinite(cost.per_step_ns) else float(cost.per_step_ns)
        cost = replace(
            cost, title=storable(str(cost.title)), ns=_integer("ns", cost.ns), of_ns=_integer("of_ns", cost.of_ns), saving_ns=saving,
            per_step_ns=step, where=where, base=storable(str(cost.base)),
        )  # fmt: skip
    return replace(outcome, **numbers, **times, **texts, details=plain(outcome.details), cost=cost)


def _integer(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{key} must be a whole number, not {value!r}") from None


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


class RuleFile:
    """A Python file with rules. Its additions to ``sys.modules`` and ``sys.path`` exist only while it runs."""

    def __init__(self, source: str | Path, limit_s: float = LIMIT_S) -> None:
        self.path = Path(source)
        self.limit = TimeLimit(limit_s)
        self._source = str(source)
        self._name = f"postrun_rule_file_{self.path.stem}"
        self._modules: dict[str, ModuleType] = {}

    def find(self, name: str) -> type:
        """Return the class of that name; ValueError lists the classes of the file."""
        kind = getattr(self._module, name, None)
        if isinstance(kind, type):
            return kind
        classes = [key for key, value in vars(self._module).items() if isinstance(value, type) and value.__module__ == self._name]
        raise ValueError(f"{self.path.name} has no class {name}; it has: {', '.join(classes) or 'none'}")

    @cached_property
    def _module(self) -> ModuleType:
        if "://" in self._source:
            raise ValueError(f"{self._source} is no file of this machine; copy it here and give its path")
        try:
            text = self.path.read_bytes()
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be read ({error.strerror}); give the path of a Python file") from error
        module = ModuleType(self._name)
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module
        exec(compile(text, str(self.path), "exec"), module.__dict__)
        return module

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Prepare the process for loading or calling the file.

        Its own modules and its folder can be imported, its prints go to standard error, and its time is limited."""
        folder = self.path.resolve().parent
        added = str(folder) not in sys.path
        lent = {} if _installed("smdebug") else stand_ins()
        mine = {**lent, **self._modules}
        hidden = {key: sys.modules[key] for key in mine if key in sys.modules}
        before = set(sys.modules)
        sys.modules.update(mine)
        if added:
            sys.path.append(str(folder))
        try:
            with printing_aside(self.path.name), self.limit.running():
                yield
        finally:
            if added:
                with contextlib.suppress(ValueError):
                    sys.path.remove(str(folder))
            fresh = [key for key in sys.modules if key not in before]
            brought = [key for key in fresh if key == self._name or (added and _lies_in(key, folder))]
            for key in {*brought, *self._modules} & set(sys.modules):
                self._modules[key] = sys.modules[key]
            for key in {*lent, *self._modules}:
                sys.modules.pop(key, None)
            sys.modules.update(hidden)


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return name in sys.modules


def _lies_in(name: str, folder: Path) -> bool:
    """Return whether a module or its package is in the folder of the rule file."""
    file = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
    if not isinstance(file, str):
        return False
    path = Path(file)
    return (path.parent.parent if path.name == "__init__.py" else path.parent) == folder


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
        for number in range(windows):
            if self.file is not None:
                self.file.limit.check()
            start = trial.first_ns + number * trial.interval_ns
            trial.window = (in_us(start), in_us(start + trial.interval_ns))
            try:
                met = bool(ask(*trial.window) if by_window else ask(number))
                over = False
            except Exception as error:
                kinds = {one.__name__ for one in type(error).__mro__}
                met, over = "RuleEvaluationConditionMet" in kinds, "NoMoreProfilerData" in kinds
                if not met and not over:
                    raise
                over = over or bool(getattr(error, "end_of_rule", False))
            if met:
                hits.append(number)
            if over:
                windows = number + 1
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
            for number, start in zip(hits[:_LISTED], starts[:_LISTED], strict=True)
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
        "checks": _first_line(kind) or f"The rule {kind.__name__} of {file.path.name}.",
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
            raise TypeError(f"{point.value} is no subclass of postrun.Rule")
        declared = getattr(kind, "name", point.name)
        if declared != point.name:
            raise ValueError(f"the entry point is named {point.name}, its rule {declared}; name them alike")
        return guarded(kind, name=point.name)
    except (KeyboardInterrupt, Terminated):
        raise
    except BaseException as error:
        return broken(point.name, f"{described(error)}; loaded from the package {_package(point)}")


# -- errors and plain values ---------------------------------------------------------------------------------------------------


def described(error: BaseException, file: str | None = None) -> str:
    """Describe an exception: "ValueError: no data (my_rule.py, line 12)"."""
    try:
        text = str(error).strip().splitlines()
    except Exception:
        text = []
    line = None
    if isinstance(error, SyntaxError):
        text = [str(error.msg)]
        line, file = error.lineno, error.filename or file
    elif file is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = lines[-1] if lines else None
    kind = error.kind if isinstance(error, MisuseError) else type(error).__name__
    message = f"{kind}: {text[0][:_TEXT]}" if text else kind
    location = f" ({Path(file).name}, line {line})" if file and line else ""
    return storable(message + location)


def plain(value: Any, depth: int = 0) -> Any:
    """Convert ``value`` to dicts, lists, texts, numbers and None for report.json.

    Long lists are cut, with a note; numbers that are not finite become None; other objects become their text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, str):
        return storable(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth > _DEPTH:
        return f"<{type(value).__name__}>"
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), depth + 1)
    if isinstance(value, Mapping):
        items = list(value.items())
        converted = {storable(str(plain(key, depth + 1))): plain(item, depth + 1) for key, item in items[:_LISTED]}
        return {**converted, "...": f"and {len(items) - _LISTED} more"} if len(items) > _LISTED else converted
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple | deque):
        listed = [plain(item, depth + 1) for item in list(value)[:_LISTED]]
        return [*listed, f"... and {len(value) - _LISTED} more"] if len(value) > _LISTED else listed
    if not isinstance(value, type):
        for method in ("tolist", "to_list", "to_dicts", "to_dict"):  # arrays, numbers, series and frames
            if callable(convert := getattr(value, method, None)):
                return plain(convert(), depth + 1)
    return storable(str(value)[:_TEXT])


def _first_line(kind: type) -> str | None:
    text = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip() if kind.__doc__ else ""
    return storable(text[:_TEXT]) or None
