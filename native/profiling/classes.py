"""FrameworkProfile and the classes of the documented API: the framework metrics to profile, and their steps or times.

Parameters, defaults, messages and dictionaries are the documented ones: docs/profiling-configuration.md.
:func:`postrun.native.profiling.config_file.plan_of` converts the dictionaries to the plan of a recording.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, TypeVar

LOCAL_PATH: Final = "/opt/ml/output/profiler"  # the folder of the hosted agent; here: the recording's own folder
FILE_MAX_SIZE: Final = 10_485_760
FILE_CLOSE_INTERVAL: Final = 60
FILE_OPEN_FAIL_THRESHOLD: Final = 50
EVERY_METRIC: Final = ".*"


class PythonProfiler(Enum):
    """The profiler of Python functions."""

    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class cProfileTimer(Enum):  # noqa: N801  # the documented name
    """The clock of cProfile. DEFAULT: total, processor and off-processor time, one after the other."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


class StepRange:
    """Steps ``start_step`` to ``start_step + num_steps - 1``. No start: step 0; a start without a number: one step.

    Raises AssertionError.
    """

    def __init__(self, start_step: int | None, num_steps: int | None) -> None:
        _require(
            start_step is None or (isinstance(start_step, int) and start_step >= 0), "start_step must be integer greater or equal to 0!"
        )
        _require(num_steps is None or (isinstance(num_steps, int) and num_steps > 0), "num_steps must be integer greater than 0!")
        self.start_step = 0 if start_step is None else start_step
        self.num_steps = 1 if num_steps is None and start_step is not None else num_steps

    def to_json(self) -> dict[str, Any]:
        return {"StartStep": self.start_step, "NumSteps": self.num_steps}


class TimeRange:
    """``duration`` seconds (None: one step) from ``start_unix_time`` (None: immediately). Raises AssertionError."""

    def __init__(self, start_unix_time: int | None, duration: float | None) -> None:
        _require(start_unix_time is None or _is_unix_time(start_unix_time), "start_unix_time must be valid integer unix time!")
        _require(duration is None or _is_positive(duration), "duration must be float greater than 0!")
        self.start_unix_time = start_unix_time
        self.duration = duration

    def to_json(self) -> dict[str, Any]:
        values = {"StartTimeInSecSinceEpoch": self.start_unix_time, "Duration": self.duration}
        return {key: value for key, value in values.items() if value is not None}


@dataclass(repr=False, eq=False)
class MetricsConfigBase:
    """A kind of profiling and its range. ``name``: its key in the service's request; ``range``: a StepRange or a TimeRange.

    The default range applies without any of the four arguments, and with ``profile_default_steps=True``, which overrides a range of steps.
    """

    name: ClassVar[str]
    default_steps: ClassVar[tuple[int, int]]
    range: StepRange | TimeRange = field(init=False)
    start_step: int | None = None
    num_steps: int | None = None
    start_unix_time: int | None = None
    duration: float | None = None
    profile_default_steps: bool = False

    def __post_init__(self) -> None:
        _require(isinstance(self.profile_default_steps, bool), "profile_default_steps must be a boolean!")
        of_steps, of_time = (self.start_step, self.num_steps), (self.start_unix_time, self.duration)
        if self.profile_default_steps or all(value is None for value in (*of_steps, *of_time)):
            of_steps = self.default_steps
        steps, times = StepRange(*of_steps), TimeRange(*of_time)
        by_steps = of_steps != (None, None)
        _require(not by_steps or of_time == (None, None), "Both step and time fields cannot be specified in the metrics config!")
        self.range = steps if by_steps else times

    def _to_json(self) -> dict[str, Any]:
        return self.range.to_json()

    def to_json_string(self) -> str:
        """Return the text in the service's request: a dictionary with trailing commas."""
        return dictionary_text(self._to_json())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._to_json()!r})"


@dataclass(repr=False, eq=False)
class DetailedProfilingConfig(MetricsConfigBase):
    """Operators and kernels. Default: step 5.

    ``record_shapes``: with shapes and types of operators' inputs; ``with_stack``: with Python frames and modules. Both slow the program.
    They are parameters of postrun alone, and only in the request if they are True.
    """

    name = "DetailedProfilingConfig"
    default_steps = (5, 1)
    record_shapes: bool = False
    with_stack: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(isinstance(self.record_shapes, bool), "record_shapes must be a boolean!")
        _require(isinstance(self.with_stack, bool), "with_stack must be a boolean!")

    def _to_json(self) -> dict[str, Any]:
        options = {"RecordShapes": self.record_shapes, "WithStack": self.with_stack}
        return {**super()._to_json(), **{key: "True" for key, value in options.items() if value}}


@dataclass(repr=False, eq=False)
class DataloaderProfilingConfig(MetricsConfigBase):
    """Iterations of data loaders, and of their workers, whose metric matches ``metrics_regex``. Default: step 7."""

    name = "DataloaderProfilingConfig"
    default_steps = (7, 1)
    metrics_regex: str = EVERY_METRIC

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(is_regex(self.metrics_regex), "metrics_regex is invalid!")

    def _to_json(self) -> dict[str, Any]:
        return {**super()._to_json(), "MetricsRegex": self.metrics_regex}


@dataclass(repr=False, eq=False)
class PythonProfilingConfig(MetricsConfigBase):
    """Python functions, by cProfile or Pyinstrument. Default: steps 9 to 11.

    ``python_profiler``, ``cprofile_timer``: of :class:`PythonProfiler`, :class:`cProfileTimer`, or their values as texts in any case
    ("cProfile", "Pyinstrument", "cpu_time"). ``profile_default_steps=True`` takes total, processor and off-processor time, a step each.
    Pyinstrument has no timer: one that is given for it is a UserWarning.
    """

    name = "PythonProfilingConfig"
    default_steps = (9, 3)
    python_profiler: PythonProfiler | str = PythonProfiler.CPROFILE
    cprofile_timer: cProfileTimer | str | None = cProfileTimer.TOTAL_TIME

    def __post_init__(self) -> None:
        super().__post_init__()
        self.python_profiler = _member(PythonProfiler, self.python_profiler, "python_profiler must be of type PythonProfiler!")
        timer = _member(cProfileTimer, self.cprofile_timer, "cprofile_timer must be of type cProfileTimer")
        self.cprofile_timer = cProfileTimer.DEFAULT if self.profile_default_steps else timer
        if self.python_profiler is PythonProfiler.PYINSTRUMENT:
            self.cprofile_timer = None
            if timer is not cProfileTimer.TOTAL_TIME:
                warnings.warn(timer_left_out(timer.value), UserWarning, stacklevel=3)

    def _to_json(self) -> dict[str, Any]:
        timer = {} if self.cprofile_timer is None else {"cProfileTimer": cProfileTimer(self.cprofile_timer).value}
        return {**super()._to_json(), "ProfilerName": PythonProfiler(self.python_profiler).value, **timer}


def timer_left_out(timer: str) -> str:
    """Return the warning about a timer for Pyinstrument."""
    return f"cprofile_timer={timer} is left out: Pyinstrument takes wall-clock time, and only cProfile has timers"


class HorovodProfilingConfig(MetricsConfigBase):
    """The timeline of Horovod. Default: step 13."""

    name = "HorovodProfilingConfig"
    default_steps = (13, 1)


class SMDataParallelProfilingConfig(MetricsConfigBase):
    """The timeline of the service's data-parallel library. Default: step 15."""

    name = "SMDataParallelProfilingConfig"
    default_steps = (15, 1)


CONFIGS: Final[tuple[type[MetricsConfigBase], ...]] = (
    DetailedProfilingConfig,
    DataloaderProfilingConfig,
    PythonProfilingConfig,
    HorovodProfilingConfig,
    SMDataParallelProfilingConfig,
)


class FrameworkProfile:
    """The parts of the framework to profile; ``profiling_parameters`` is the service's form of it, all texts.

    With any ``*_profiling_config``, only these are profiled and the range is ignored. Else the range applies to all five kinds. Without a
    range, all five have their default steps.
    """

    profiling_parameters: dict[str, str]

    def __init__(
        self,
        local_path: str = LOCAL_PATH,
        file_max_size: int = FILE_MAX_SIZE,
        file_close_interval: float = FILE_CLOSE_INTERVAL,
        file_open_fail_threshold: int = FILE_OPEN_FAIL_THRESHOLD,
        detailed_profiling_config: DetailedProfilingConfig | None = None,
        dataloader_profiling_config: DataloaderProfilingConfig | None = None,
        python_profiling_config: PythonProfilingConfig | None = None,
        horovod_profiling_config: HorovodProfilingConfig | None = None,
        smdataparallel_profiling_config: SMDataParallelProfilingConfig | None = None,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
    ) -> None:
        _require(isinstance(local_path, str), "local_path must be a string!")
        _require(isinstance(file_max_size, int) and file_max_size > 0, "file_max_size must be an integer greater than 0!")
        _require(_is_positive(file_close_interval), "file_close_interval must be a float/integer greater than 0!")
        valid_threshold = isinstance(file_open_fail_threshold, int) and file_open_fail_threshold > 0
        _require(valid_threshold, "file_open_fail threshold must be an integer greater than 0!")
        given_configs: list[MetricsConfigBase | None] = [
            detailed_profiling_config,
            dataloader_profiling_config,
            python_profiling_config,
            horovod_profiling_config,
            smdataparallel_profiling_config,
        ]
        for kind, config in zip(CONFIGS, given_configs, strict=True):
            if config is not None and not isinstance(config, kind):
                raise TypeError(f"{kind.name} must be an object of {kind.__name__}, such as {kind.__name__}(start_step=10), not {config!r}")
        configs = [one for one in given_configs if one is not None]
        if not configs:
            in_all = {"start_step": start_step, "num_steps": num_steps, "start_unix_time": start_unix_time, "duration": duration}
            default = all(one is None for one in in_all.values())
            configs = [kind(profile_default_steps=True) if default else kind(**in_all) for kind in CONFIGS]  # type: ignore[arg-type]
        self.profiling_parameters = {
            "LocalPath": local_path,
            "RotateMaxFileSizeInBytes": str(int(file_max_size)),
            "RotateFileCloseIntervalInSeconds": str(file_close_interval),
            "FileOpenFailThreshold": str(int(file_open_fail_threshold)),
            **{config.name: config.to_json_string() for config in configs},
        }

    def __repr__(self) -> str:
        return f"FrameworkProfile({self.profiling_parameters!r})"


def dictionary_text(values: dict[str, Any]) -> str:
    """Return ``{"StartStep": 5, "NumSteps": 1, }``, which ``ast.literal_eval`` reads."""
    return "{" + "".join(f'"{key}": {_literal(value)}, ' for key, value in values.items()) + "}"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(int(value)) if isinstance(value, bool) else str(value)


def is_regex(text: Any) -> bool:
    """Whether a value is a regular expression that can be written to a file."""
    try:
        text.encode()
        re.compile(text)
    except (AttributeError, UnicodeEncodeError, re.error, OverflowError, RecursionError):
        return False
    return isinstance(text, str)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _is_positive(value: Any) -> bool:
    try:
        return isinstance(value, float | int) and value > 0 and math.isfinite(value)
    except OverflowError:
        return False


def _is_unix_time(value: Any) -> bool:
    try:
        return isinstance(value, int) and bool(datetime.fromtimestamp(value))
    except (OverflowError, ValueError, OSError):
        return False


_Of = TypeVar("_Of", bound=Enum)


def _member(kind: type[_Of], value: Any, message: str) -> _Of:
    """Return the member with this value, in any case. Raise AssertionError."""
    try:
        return value if isinstance(value, kind) else kind(value.lower())
    except (AttributeError, ValueError):
        raise AssertionError(message) from None
