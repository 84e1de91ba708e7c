"""Rules and values that a program attaches to a run: ``rule_configs.*`` and ``ProfilerRule`` of the documented Python API.

``postrun.rule_configs`` is this module: it contains a configuration class per rule (``help(rule_configs.LowGPUUtilization)`` lists its
parameters) and ``ProfilerReport``. The classes are created from the parameters of the rules, so names, units, meanings and defaults are
defined once.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ....errors import UsageError
from ..evidence.base import PRESETS, Parameter, Preset, Rule, Value
from .bounds import LIMIT_S
from .catalogue import DOCUMENTED, PROFILER_REPORT, RULES
from .conversion import number
from .custom import Guarded, broken, guarded, load
from .selection import Chosen, Selection, checked, effective, find, known, named_setting, select, turned_off

ATTACHED: Final = 20  # How many rules can be attached to a run; postrun's own trace rules do not count
DEFAULT_IMAGE: Final = "DEFAULT_RULE_EVALUATOR_IMAGE"

_INVOKE: Final = "rule_to_invoke"
_SOURCE: Final = "source_s3_uri"


class RuleConfig:
    """A rule with values of its parameters. ``rule_name``: the rule; ``rule_parameters``: every parameter and ``rule_to_invoke``;
    ``preset``: the source of the other defaults, "documented" or "service"."""

    rule: ClassVar[type[Rule]]
    rule_name: str
    rule_parameters: dict[str, Any]
    preset: Preset | None

    def __init__(self, *, preset: Preset = "documented", **parameters: Any) -> None:
        name = type(self).__name__
        if not hasattr(type(self), "rule"):
            raise TypeError("RuleConfig is not a rule; take one of the classes of rule_configs")
        if preset not in PRESETS:
            raise TypeError(f"{name}() got preset={preset!r}; accepted: {', '.join(PRESETS)}")
        table = {parameter.name: parameter for parameter in self.rule.all_parameters()}
        for key in parameters:
            if key not in table:
                raise TypeError(f"{name}() got an unexpected keyword argument {key!r}; accepted: {', '.join(table)}")
        values = {key: _valid(table[key], value) for key, value in parameters.items()}
        self.preset = preset
        self.rule_name = name
        self.rule_parameters = {**{key: values.get(key, one.default(preset)) for key, one in table.items()}, _INVOKE: name}

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in _values(self.rule_parameters).items())
        return f"{self.rule_name}({values})"


class ProfilerReport(RuleConfig):
    """All documented rules in one. Parameters: ``<Rule>_<parameter>=value`` overrides one parameter of one of them; the rule's name is
    case insensitive. ``preset``: the source of the other defaults (None: that of the analysis). ``opt_out_telemetry`` is accepted and
    ignored: nothing is ever sent."""

    def __init__(self, *, preset: Preset | None = None, opt_out_telemetry: Any = None, **parameters: Any) -> None:
        if preset is not None and preset not in PRESETS:
            raise TypeError(f"{PROFILER_REPORT}() got preset={preset!r}; accepted: {', '.join(PRESETS)}")
        overrides(parameters)
        self.preset = preset
        self.rule_name = PROFILER_REPORT
        self.rule_parameters = {**parameters, _INVOKE: PROFILER_REPORT}


def overrides(parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return values by rule and parameter from keys ``<Rule>_<parameter>``."""
    reported = {rule.name.lower(): rule for rule in DOCUMENTED}
    values: dict[str, dict[str, Any]] = {}
    for key, value in parameters.items():
        if "_" not in key:
            raise AssertionError(f"Key ({key}) does not follow naming scheme: <rule_name>_<parameter_name>")
        name, _, parameter = key.partition("_")
        rule = reported.get(name.lower())
        if rule is None:
            raise AssertionError(
                f"{name.lower()} is an invalid rule name! Accepted rule names (case insensitive) are: {sorted(r.name for r in DOCUMENTED)}"
            )
        table = {one.name: one for one in rule.all_parameters()}
        if parameter.lower() not in table:
            signature = f"(self, {', '.join(f'{name}={known.documented!r}' for name, known in table.items())})"
            raise TypeError(f"{parameter.lower()} is an invalid parameter name! Accepted parameter names for {rule.name} are: {signature}")
        declared = table[parameter.lower()]
        if declared.name in values.setdefault(rule.name, {}):
            raise TypeError(f"{rule.name}_{declared.name} is given twice, in different spelling")
        values[rule.name][declared.name] = _valid(declared, value)
    return values


def _valid(parameter: Parameter, value: Any) -> Value:
    """Return ``value`` as a plain number or text."""
    if parameter.kind != "text":
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{parameter.name} must be a number, not {type(value).__name__} {value!r}")
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
        if not math.isfinite(value):
            value = -1  # out of every range: the documented message
    problem = parameter.problem(value)
    if problem:
        raise AssertionError(problem)
    result: Value = value
    return result


def _described(rule: type[Rule]) -> str:
    lines = [rule.checks, "", f"Issue when {rule.condition.replace('`', '')}.", "", "Parameters:"]
    for parameter in rule.all_parameters():
        same = parameter.documented == parameter.service
        default = f"{parameter.documented}" if same else f"{parameter.documented}; service: {parameter.service}"
        lines.append(f"    {parameter.name}: {parameter.meaning} [{parameter.unit}; default {default}]")
    return "\n".join(lines)


def _configuration(rule: type[Rule]) -> type[RuleConfig]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    accepted = [inspect.Parameter(one.name, keyword, default=one.documented) for one in rule.all_parameters()]
    configuration = type(rule.name, (RuleConfig,), {"rule": rule, "__doc__": _described(rule), "__module__": __name__})
    configuration.__signature__ = inspect.Signature([*accepted, inspect.Parameter("preset", keyword, default="documented")])  # type: ignore[attr-defined]
    return configuration


CONFIGURATIONS: Final[dict[str, type[RuleConfig]]] = {
    **{rule.name: _configuration(rule) for rule in RULES.values()},
    PROFILER_REPORT: ProfilerReport,
}
__all__ = ["ProfilerReport", "ProfilerRule", "RuleConfig", "selection"]
__all__ += list(RULES)


def __getattr__(name: str) -> type[RuleConfig]:
    if name in CONFIGURATIONS:
        return CONFIGURATIONS[name]
    raise AttributeError(f"rule_configs has no rule {name!r}; it has: {', '.join(CONFIGURATIONS)}")


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclasses.dataclass(eq=False, repr=False)
class ProfilerRule:
    """A rule attached to a run: one of ``rule_configs`` (:meth:`sagemaker`) or one of your own (:meth:`custom`).

    ``image_uri``, ``instance_type``, ``volume_size_in_gb``, ``container_local_output_path`` and ``s3_output_path`` are kept for
    :meth:`to_profiler_rule_config_dict`; rules run in this process, and write nothing there."""

    name: str
    image_uri: str
    instance_type: str | None = None
    container_local_output_path: str | None = None
    s3_output_path: str | None = None
    volume_size_in_gb: int | None = None
    rule_parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    preset: Preset | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        self.rule_parameters = dict(self.rule_parameters or {})

    @classmethod
    def sagemaker(
        cls,
        base_config: RuleConfig,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        instance_type: str | None = None,
        volume_size_in_gb: int | None = None,
        rule_parameters: Mapping[str, Any] | None = None,
    ) -> ProfilerRule:
        """Attach ``base_config``, an object of a class of ``rule_configs``.

        ``name`` replaces its name. ``rule_parameters`` override those of ``base_config`` and are validated like them; texts are read as
        numbers."""
        if not isinstance(base_config, RuleConfig):
            meant = f"{base_config.__name__}()" if isinstance(base_config, type) else "such as rule_configs.LowGPUUtilization()"
            raise TypeError(f"base_config must be an object of a class of rule_configs ({meant}), not {base_config!r}")
        overriding, base = _values(rule_parameters or {}), _values(base_config.rule_parameters)
        if isinstance(base_config, ProfilerReport):
            merged = {**base, **{key: _text(number(value)) for key, value in overriding.items()}}
            overrides(merged)
        else:
            texts = {one.name for one in base_config.rule.all_parameters() if one.kind == "text"}
            overriding = {key: _text(value if key in texts else number(value)) for key, value in overriding.items()}
            config = type(base_config)(preset=base_config.preset or "documented", **{**base, **overriding})
            merged = _values(config.rule_parameters)
        values = {**merged, _INVOKE: base_config.rule_name}
        paths = (container_local_output_path, s3_output_path)
        rule = cls(name or base_config.rule_name, DEFAULT_IMAGE, instance_type, *paths, volume_size_in_gb, values)
        rule.preset = base_config.preset
        return rule

    @classmethod
    def custom(
        cls,
        name: str | None = None,
        image_uri: str | None = None,
        instance_type: str | None = None,
        volume_size_in_gb: int | None = None,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        rule_parameters: Mapping[str, Any] | None = None,
    ) -> ProfilerRule:
        """Attach the class ``rule_to_invoke`` of the Python file ``source``.

        It is created with ``rule_parameters``; see docs/custom-rules.md. ``name``: in the report; by default the ``name`` that the class
        declares, else that of the class."""
        if bool(source) != bool(rule_to_invoke):
            raise ValueError("If you provide a source, you must also provide a rule to invoke (and vice versa).")
        if not name and not rule_to_invoke:
            raise ValueError("a custom rule needs a name, or a source and a rule to invoke")
        values = {_SOURCE: str(source), _INVOKE: rule_to_invoke} if source else {}
        values.update(rule_parameters or {})
        paths = (container_local_output_path, s3_output_path)
        return cls(name or str(rule_to_invoke), image_uri or DEFAULT_IMAGE, instance_type, *paths, volume_size_in_gb, values)

    def to_profiler_rule_config_dict(self) -> dict[str, Any]:
        """Return the hosted service's request for this rule; parameters are texts."""
        request = {
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size_in_gb,
            "LocalPath": self.container_local_output_path,
            "S3OutputPath": self.s3_output_path,
            "RuleParameters": {key: str(value) for key, value in self.rule_parameters.items()},
        }
        required_keys = {"RuleConfigurationName": self.name, "RuleEvaluatorImage": self.image_uri}
        return {**required_keys, **{key: value for key, value in request.items() if value}}

    def __repr__(self) -> str:
        return f"ProfilerRule({self.name!r}, {self.rule_parameters!r})"


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``parameters`` without the name of the rule."""
    return {key: value for key, value in parameters.items() if key != _INVOKE}


def _text(value: Any) -> Any:
    return None if isinstance(value, str) and value in ("", "None") else value


# -- what runs -----------------------------------------------------------------------------------------------------------------

Attached = str | RuleConfig | ProfilerRule | Rule | type[Rule]


def selection(
    rules: Sequence[Attached] | None = None,
    *,
    preset: Preset = "documented",
    settings: Mapping[str, Any] | None = None,
    rule_timeout: float = LIMIT_S,
) -> Selection:
    """Return the rules to run with ``rules`` attached (None: all, also of packages).

    Configurations contain all of their values; ``preset`` applies to rules by name or class and to ProfilerReport, and ``settings``
    ("LowGPUUtilization_patience" -> value) override everything. ``rule_timeout``: seconds that a rule file may take to load, and again
    for its evaluation. Raises UsageError for more than 20 rules, two rules of one name, unknown names, values out of range and values of
    rules that do not run, TypeError for an object that is not a rule."""
    if preset not in PRESETS:
        raise UsageError(f"preset={preset!r}; accepted: {', '.join(PRESETS)}")
    if not isinstance(rule_timeout, int | float) or not rule_timeout > 0:
        raise UsageError(f"rule_timeout={rule_timeout!r}; accepted: seconds above 0")
    if rules is None:
        return select(None, preset=preset, settings=settings)
    if isinstance(rules, str | RuleConfig | ProfilerRule | Rule | type):
        rules = [rules]
    return _Attaching(preset, rule_timeout).all(rules, settings or {})


class _Attaching:
    """Collects the attached rules and turns them into a Selection."""

    def __init__(self, preset: Preset, limit_s: float) -> None:
        self.preset = preset
        self.limit_s = limit_s
        self.known = known()
        self.chosen: dict[str, tuple[type[Rule], dict[str, Any], Preset]] = {}
        self.report: tuple[dict[str, dict[str, Any]], Preset] | None = None

    def all(self, rules: Sequence[Attached], settings: Mapping[str, Any]) -> Selection:
        named: set[str] = set()
        for rule in rules:
            if isinstance(rule, str):
                if rule.lower() in named:
                    continue  # a repeated name has no effect
                named.add(rule.lower())
            self._add(rule)
        counted = sum(kind.category != "trace" for kind, _, _ in self.chosen.values()) + (self.report is not None)
        if counted > ATTACHED:
            raise UsageError(
                f"{counted} rules are attached; at most {ATTACHED} can be (trace rules do not count). ProfilerReport counts as one and"
                f" runs {len(DOCUMENTED)} rules"
            )
        self._add_reported()
        values = self._settings(settings)
        order = {name: number for number, name in enumerate(RULES)}
        names = sorted(self.chosen, key=lambda name: (order.get(own := self.chosen[name][0].name, len(order)), name != own))
        choices = []
        for name in names:
            kind, own_values, preset = self.chosen[name]
            parameters = effective(kind, preset, {**own_values, **values.get(name, {})})
            choices.append(Chosen(kind(), parameters, name if name != kind.name else None))
        return Selection(tuple(choices), self.report is not None, self.preset)

    def _add(self, rule: Attached) -> None:
        if isinstance(rule, str):
            if rule.lower() == PROFILER_REPORT.lower():
                self._add_report({}, None)
            else:
                kind = find(rule, self.known)
                self._put(kind.name, kind, {}, self.preset)
        elif isinstance(rule, RuleConfig):
            self._add_configured(rule.rule_name, rule.rule_parameters, rule.preset)
        elif isinstance(rule, ProfilerRule):
            self._add_configured(rule.name, rule.rule_parameters, rule.preset)
        elif isinstance(rule, type) and issubclass(rule, RuleConfig):
            raise TypeError(f"{rule.__name__} is a class; attach an object of it: {rule.__name__}()")
        elif isinstance(rule, Rule) or (isinstance(rule, type) and issubclass(rule, Rule)):
            kind, make = (rule, None) if isinstance(rule, type) else (type(rule), lambda: rule)
            if RULES.get(getattr(kind, "name", "")) is not kind and not issubclass(kind, Guarded):
                kind = guarded(kind, make)
            self._put(kind.name, kind, {}, self.preset)
        else:
            raise TypeError(
                f"{rule!r} is not a rule; give names, objects of rule_configs, ProfilerRule objects or classes derived from Rule"
            )

    def _add_configured(self, name: str, parameters: Mapping[str, Any], preset: Preset | None) -> None:
        values = {key: value for key, value in _values(parameters).items() if key != _SOURCE}
        invoked = parameters.get(_INVOKE)
        if _SOURCE in parameters:
            chosen_name = None if name == invoked else name  # a name that is not given is that of the class
            kind: type[Rule] = type(load(str(parameters[_SOURCE]), str(invoked), values, name=chosen_name, limit_s=self.limit_s))
            self._put(kind.name, kind, {}, self.preset)
        elif invoked == PROFILER_REPORT:
            self._add_report(values, preset)
        elif invoked in self.known:
            kind = self.known[invoked]
            table = {one.name: one for one in kind.all_parameters()}
            if unknown := [key for key in values if key not in table]:
                raise UsageError(f"{', '.join(unknown)}: no parameter of {invoked}; accepted: {', '.join(table)}")
            self._put(
                name, kind, {key: checked(kind, table[key], value, documented=True) for key, value in values.items()}, preset or self.preset
            )
        else:
            reason = "its code is in a container image, which does not run here; give a source file and rule_to_invoke"
            self._put(name, broken(name, reason), {}, self.preset)

    def _add_report(self, values: Mapping[str, Any], preset: Preset | None) -> None:
        if self.report is not None:
            raise UsageError(f"{PROFILER_REPORT} is attached twice; once is enough: it takes the parameters of all its rules")
        self.report = (overrides(values), preset or self.preset)

    def _add_reported(self) -> None:
        """Add the rules of ProfilerReport that are not attached themselves."""
        if self.report is None:
            return
        values, preset = self.report
        for rule in DOCUMENTED:
            if rule.name not in self.chosen:
                self._put(rule.name, rule, values.get(rule.name, {}), preset)
            elif rule.name in values:
                raise UsageError(
                    f"{rule.name} is attached itself, and {PROFILER_REPORT} sets {', '.join(values[rule.name])} of it;"
                    " set them in one place"
                )

    def _put(self, name: str, kind: type[Rule], values: dict[str, Any], preset: Preset) -> None:
        lowered = name.lower()
        if any(lowered == one.lower() for one in self.chosen):
            raise UsageError(
                f"two rules of the name {name} are attached; give one of them another: ProfilerRule.sagemaker(config, name=...)"
            )
        taken = {**{one.lower(): rule for one, rule in self.known.items()}, PROFILER_REPORT.lower(): None}
        if lowered in taken and taken[lowered] is not kind:
            raise UsageError(f"{name} is the name of another rule; give yours a name of its own")
        self.chosen[name] = (kind, values, preset)

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, dict[str, Value]]:
        """Return values by name of a chosen rule."""
        chosen = {name: kind for name, (kind, _, _) in self.chosen.items()}
        aliases = {kind.invoked: name for name, kind in chosen.items() if issubclass(kind, Guarded) and kind.invoked}
        by_name = {**self.known, **{alias: chosen[name] for alias, name in aliases.items()}, **chosen}
        values: dict[str, dict[str, Value]] = {}
        for key, value in settings.items():
            setting_name, kind, parameter = named_setting(key, by_name)
            name = setting_name if setting_name in chosen else aliases.get(setting_name, setting_name)
            if name not in chosen:
                raise UsageError(turned_off(key, name, chosen))
            values.setdefault(name, {})[parameter.name] = checked(kind, parameter, value)
        return values
