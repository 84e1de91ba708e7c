"""The interface of a rule: its parameters, the data that it evaluates, and its result."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from ...efficiency.largest_site import Site
from ...report.details import RuleDetails
from ...report.rules import FINE, ISSUES, NOT_EVALUATED

if TYPE_CHECKING:
    from .blocks import SampleBlock
    from .run_data import RunData

T = TypeVar("T")
Preset = Literal["documented", "service"]
PRESETS: Final[tuple[Preset, ...]] = ("documented", "service")

Value = int | float | str | None


Category = Literal["report", "system", "framework", "trace", "custom"]
KINDS: Final = ("percentile", "positive", "text")  # the checks of :class:`Parameter`
DISTANCE: Final = "distance 0..1"  # Unit of a parameter that is compared with a distance; the documented check lets it be 0 to 100


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a rule. ``kind``: "percentile" (0..100), "positive" (above 0), "text" (or none). ``seconds``: it counts samples."""

    name: str
    unit: str
    documented: Value
    service: Value
    kind: Literal["percentile", "positive", "text"]
    meaning: str
    seconds: bool = False
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the parameter {self.name} has the kind {self.kind!r}; accepted: {', '.join(KINDS)}")

    def default(self, preset: Preset) -> Value:
        return self.documented if preset == "documented" else self.service

    def problem(self, value: Any) -> str | None:
        """Return the error message for an invalid value, or None; numbers must be finite."""
        if self.kind == "text":
            if value is not None and not isinstance(value, str):
                return f"{self.name.capitalize()} must be a string if specified!"
            if value is not None and self.choices and value.rsplit(".", 1)[-1].upper() not in self.choices:
                return f"{self.name} must be one of {', '.join(self.choices)}"
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return f"{self.name} must be a number"
        if self.kind == "percentile" and not 0 <= value <= 100:
            return f"{self.name} must be a valid percentile!"
        if self.kind == "positive" and value <= 0:
            return f"{self.name} must be a positive integer!"
        return None

    @property
    def accepted(self) -> str:
        """Return the accepted values in words."""
        if self.unit == DISTANCE:
            return "0 to 1"
        return {"percentile": "0 to 100", "positive": "above 0"}.get(self.kind) or ", ".join(self.choices) or "a name"


SCAN_INTERVAL: Final = Parameter(
    "scan_interval_us", "µs", 60_000_000, 60_000_000, "positive", "length of an evaluation window (half open, aligned to full minutes)"
)


class Parameters(Mapping[str, Any]):
    """Effective values of a rule's parameters by name; ``changed`` names those that differ from the preset's default."""

    def __init__(self, values: Mapping[str, Value], changed: Sequence[str] = ()) -> None:
        self._values = dict(values)
        self.changed = tuple(changed)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of an issue, for the ranked findings. Times are in ns of device time (of the run if ``base`` is the run), over all devices
    concerned.

    ``of_ns``: the total that contains ``ns`` (span of all devices, all utilization samples x interval, duration of the run), so that ``ns
    / of_ns`` compares issues of different sources. ``saving_ns``: the saving (None: not reported), by ``saving_kind`` an upper bound or
    predicted by simulation. ``per_step_ns``: per step and device, if steps are known. ``title``: the imperative that heads the finding
    ("Overlap all-reduce with backward"). ``where``: location in words ("rank 5, node-1 GPU 3"; None: everywhere). ``base``: description
    of ``of_ns``."""

    title: str
    ns: int
    of_ns: int
    saving_ns: int | None = None
    per_step_ns: float | None = None
    where: str | None = None
    base: str = "GPU time in the profile window"
    saving_kind: Literal["upper_bound", "predicted"] = "upper_bound"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a rule.

    ``finding``: one plain sentence with the numbers and the threshold. ``recommendation``: an imperative with the concrete setting, then
    why it helps here. ``reason``: why not evaluated, or the error. ``capture``: which capture would supply the missing data. ``details``:
    the measurements; for a custom rule plain data (dicts, lists, strings, numbers, None) with times in ns under keys that end in ``_ns``.
    ``title``: the imperative that heads the finding if there is no cost (None: the rule's advice). ``checks``, ``condition``: what the
    rule checks in this run, and its condition for an issue (None: those of the rule). ``site``: the module and source line of most of the
    issue."""

    verdict: str
    reason: str | None = None
    triggered: int = 0
    violations: int = 0
    datapoints: int = 0
    windows: int = 0
    windows_triggered: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    details: RuleDetails | dict[str, Any] = field(default_factory=dict)
    finding: str | None = None
    recommendation: str | None = None
    capture: str | None = None
    cost: Cost | None = None
    title: str | None = None
    checks: str | None = None
    condition: str | None = None
    site: Site | None = None


def not_evaluated(reason: str, capture: str | None = None, **more: Any) -> Outcome:
    """Return the result of a rule without data."""
    return Outcome(NOT_EVALUATED, reason=reason, capture=capture, **more)


def required(value: T | None) -> T:
    """Return a value that is not None because the row was evaluated."""
    assert value is not None
    return value


def concluded(bad: Sequence[object], datapoints: int, times: Iterable[tuple[int | None, int | None]] = (), **more: Any) -> Outcome:
    """Return the result of a rule, by default of one that has one window.

    ``bad``: everything with the issue; ``times``: the first and last time of each, if it has them. ``more``: fields that override.
    """
    spans = [(first, last) for first, last in times if first is not None and last is not None]
    counted = {"triggered": len(bad), "violations": len(bad), "windows": 1, "windows_triggered": 1 if bad else 0}
    first_ns, last_ns = min((first for first, _ in spans), default=None), max((last for _, last in spans), default=None)
    values = {"datapoints": datapoints, "first_ns": first_ns, "last_ns": last_ns, **counted, **more}
    return Outcome(ISSUES if bad else FINE, **values)


class Rule(ABC):
    """A rule over a run. Subclasses set the class variables; ``parameters`` omits scan_interval_us, which every rule has.

    ``needs``: the data that a run must have for the rule to be evaluated, one sentence. ``informs``: it reports figures and never finds an
    issue. ``explains``: the names of the rules whose finding it is the cause of, if both find an issue; its own finding then ranks before
    theirs. ``of_training``: it is not evaluated if the run is inference. ``host_times``: its figures contain time of the host, which
    recording Python frames prolongs. ``names_code``: its advice names the Python code. ``checks``: one sentence, what the rule checks.
    ``condition``: when it finds an issue, with parameter names. ``advice``: general advice, one sentence (``Outcome.recommendation`` is the
    advice for one run)."""

    name: ClassVar[str]
    category: ClassVar[Category]
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    needs: ClassVar[str] = "What the rule itself reads of the run."
    informs: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ()
    of_training: ClassVar[bool] = False
    host_times: ClassVar[bool] = False
    names_code: ClassVar[bool] = False
    checks: ClassVar[str]
    condition: ClassVar[str]
    advice: ClassVar[str]

    @abstractmethod
    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        """Evaluate a run. An exception becomes the verdict Error of this rule alone."""

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        """Return the module and source line with at least half of an issue.

        Called for outcomes with an issue; None if unknown."""
        return None

    @classmethod
    def all_parameters(cls) -> tuple[Parameter, ...]:
        return (*cls.parameters, SCAN_INTERVAL)


class SampleRule(Rule):
    """A rule over samples.

    Runs of any size are read in blocks of whole nodes, once for all rules: :meth:`observe` reduces each block to the small data that
    :meth:`conclude` requires. ``figures``: those without which it is not evaluated, whatever the samples."""

    figures: ClassVar[tuple[str, ...]] = ()

    def observes(self, run: RunData) -> bool:
        """Return whether the run has samples of every figure that the rule requires."""
        return all(run.samples.has(figure) for figure in self.figures)

    @abstractmethod
    def observe(self, block: SampleBlock, parameters: Parameters) -> Any:
        """Reduce a block to small frames or dicts, never the samples themselves."""

    @abstractmethod
    def conclude(self, observed: Sequence[Any], run: RunData, parameters: Parameters) -> Outcome:
        """Return the result from the observations of all blocks."""

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        blocks = run.samples.blocks() if self.observes(run) else ()
        return self.conclude([self.observe(block, parameters) for block in blocks], run, parameters)
