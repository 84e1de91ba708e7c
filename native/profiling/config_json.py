"""Converts the service's form of a profiling configuration to a plan: the request's dictionary, and the agent's profilerconfig.json.

It is read like the agent reads it: keys in any case, numbers also as texts, inner configurations as objects or as texts of Python
dictionaries (never evaluated: ``ast.literal_eval``). A value that the agent silently ignores is a UsageError here.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any, Final, cast

from ...errors import UsageError
from . import classes
from .classes import CONFIGS
from .plan import DetailedPlan, LoaderPlan, ProfilingPlan, PythonPlan, Timer, Window
from .profiler_config import INTERVALS_MS

_LONGEST: Final = 4096
_LARGEST: Final = 2**63 - 1
_LATEST_S: Final = 253_402_300_799  # the end of the year 9999

_REQUEST: Final = ("ProfilingParameters", "DisableProfiler", "ProfilingIntervalInMilliseconds", "S3OutputPath")
_WRAPPER: Final = "ProfilerConfig"
_PARAMETERS: Final = (
    "LocalPath",
    "RotateMaxFileSizeInBytes",
    "RotateFileCloseIntervalInSeconds",
    "FileOpenFailThreshold",
    *(kind.name for kind in CONFIGS),
    "CPUProfilingDuration",
    "SMPFileRotationSecs",
    "ProfilerEnabled",
    "UsePyInstrument",
)
_RANGE: Final = ("StartStep", "NumSteps", "StartTimeInSecSinceEpoch", "Duration", "DurationInSeconds")
_OF_KIND: Final = {
    "DetailedProfilingConfig": ("RecordShapes", "WithStack"),
    "DataloaderProfilingConfig": ("MetricsRegex",),
    "PythonProfilingConfig": ("ProfilerName", "cProfileTimer"),
}
_NOT_DOUBLED: Final = re.compile(r"[\x00-\x06\x08]")
_PROFILERS: Final = tuple(profiler.value for profiler in classes.PythonProfiler)
_TIMERS: Final = tuple(timer.value for timer in classes.cProfileTimer)
# Spelled as on a page of the documentation.
_TIMER_NAMES: Final = {"total": "total_time", "cpu": "cpu_time", "off_cpu": "off_cpu_time"}


def plan_of_request(request: Mapping[str, Any], source: str) -> ProfilingPlan:
    """Return the plan of a request or an agent's file. Raise UsageError."""
    for key, value in request.items():
        if key.lower() == _WRAPPER.lower():  # the request of a whole job
            request = _object(value, f"{source}: {key}")
            source = f"{source}: {key}"
            break
    values = _keys(request, _REQUEST, source)
    if _switch(values, "DisableProfiler", source):
        return ProfilingPlan(disabled=True)
    where = f"{source}: ProfilingParameters"
    parameters_value = values.get("ProfilingParameters")
    parameters = _keys({} if parameters_value is None else _object(parameters_value, where), _PARAMETERS, where)
    if not _switch(parameters, "ProfilerEnabled", where, default=True):
        parameters = {}
    interval = values.get("ProfilingIntervalInMilliseconds")
    if interval is not None and _read(interval) not in INTERVALS_MS:
        raise _wrong(source, "ProfilingIntervalInMilliseconds", interval, ", ".join(map(str, INTERVALS_MS)))
    if isinstance(values.get("S3OutputPath"), bool | int | float | list | dict):
        raise _wrong(source, "S3OutputPath", values["S3OutputPath"], "a text")
    local = parameters.get("LocalPath")
    if local is not None and (not isinstance(local, str) or not local or "\0" in local):
        raise _wrong(where, "LocalPath", local, "the path of a folder")
    detailed, loader, python, horovod, smdataparallel = (_window(parameters, kind.name, where) for kind in CONFIGS)
    return ProfilingPlan(
        max_file_bytes=_integer(parameters, "RotateMaxFileSizeInBytes", where, 1) or classes.FILE_MAX_SIZE,
        close_interval_s=_number(parameters, "RotateFileCloseIntervalInSeconds", where) or classes.FILE_CLOSE_INTERVAL,
        open_fail_threshold=_integer(parameters, "FileOpenFailThreshold", where, 1) or classes.FILE_OPEN_FAIL_THRESHOLD,
        sample_ms=None if interval is None else int(_read(interval)),
        cpu_seconds=_integer(parameters, "CPUProfilingDuration", where, 1),
        rotate_s=_integer(parameters, "SMPFileRotationSecs", where, 0) or None,
        local_path=None if local == classes.LOCAL_PATH else local,
        detailed=detailed and _detailed(*detailed, where),
        loader=loader and LoaderPlan(loader[0], _regex(loader[1], where)),
        python=python and _python(*python, where, pyinstrument=_switch(parameters, "UsePyInstrument", where)),
        horovod=horovod and horovod[0],
        smdataparallel=smdataparallel and smdataparallel[0],
    )


def agents_form(request: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a request to the agent's file: each duration has both of its names."""
    agent_request = dict(request)
    if "ProfilingParameters" in agent_request:
        agent_request["ProfilingParameters"] = parameters = dict(agent_request["ProfilingParameters"])
        for kind in CONFIGS:
            inner = ast.literal_eval(parameters.get(kind.name, "{}"))
            if "Duration" in inner:
                parameters[kind.name] = classes.dictionary_text({**inner, "DurationInSeconds": inner["Duration"]})
    return agent_request


# -- one kind of profiling ----------------------------------------------------------------------------------------------------

_Parsed = tuple[Window, dict[str, Any]]


def _window(parameters: Mapping[str, Any], kind: str, where: str) -> _Parsed | None:
    """Return the window and the values of a kind of profiling; None if it is off."""
    if parameters.get(kind) is None:
        return None
    name = kind.removesuffix("ProfilingConfig").lower() + " profiling"
    where = f"{where}: {kind}"
    inner = _keys(_inner(parameters[kind], where), (*_RANGE, *_OF_KIND.get(kind, ())), where)
    values = {key: value for key, value in inner.items() if value is not None}
    if not values:
        return None
    first, steps = _integer(values, "StartStep", where, 0), _integer(values, "NumSteps", where, 1)
    start_s = _number(values, "StartTimeInSecSinceEpoch", where, signed=True)
    lengths = {_number(values, key, where) for key in ("Duration", "DurationInSeconds") if key in values}
    if len(lengths) > 1:
        raise UsageError(f"{where}: Duration and DurationInSeconds differ; give one of them, or the same seconds twice")
    duration_s = next(iter(lengths), None)
    by_steps, by_time = not first is steps is None, not start_s is duration_s is None
    if by_steps and by_time:
        raise UsageError(
            f"{where}: Found step and time fields in {name} config! Give StartStep and NumSteps, or StartTimeInSecSinceEpoch and Duration"
        )
    if not by_steps and not by_time:
        raise UsageError(f"{where}: neither steps nor a time; give StartStep and NumSteps, or StartTimeInSecSinceEpoch and Duration")
    if by_steps:
        return Window(first_step=first or 0, steps=steps or 1), values
    return Window(start_s=start_s, duration_s=duration_s), values


def _inner(value: Any, where: str) -> Mapping[str, Any]:
    """Read an inner configuration: an object, or a text of Python or JSON."""
    if not isinstance(value, str):
        return _object(value, where)
    if len(value) > _LONGEST:
        raise UsageError(f"{where}: a text of {len(value):,} characters; at most {_LONGEST:,} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a regular expression whose backslashes are not doubled
            dictionary = ast.literal_eval(value.strip() or "{}")
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        try:
            dictionary = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(f'{where}: {_quoted(value)} is no dictionary; write it like {{"StartStep": 5, "NumSteps": 1}}') from None
    return _object(dictionary, where)


def _detailed(window: Window, values: Mapping[str, Any], where: str) -> DetailedPlan:
    where = f"{where}: DetailedProfilingConfig"
    return DetailedPlan(window, shapes=_switch(values, "RecordShapes", where), stacks=_switch(values, "WithStack", where))


def _regex(values: Mapping[str, Any], where: str) -> str:
    where = f"{where}: DataloaderProfilingConfig"
    text = values.get("MetricsRegex", ".*")
    if not isinstance(text, str):
        raise _wrong(where, "MetricsRegex", text, "a regular expression")
    if _NOT_DOUBLED.search(text):  # "\\b" and "\\1" with one backslash; the others mean the same in a regular expression
        raise UsageError(f"{where}: MetricsRegex = {_quoted(text)} holds a control character; write each backslash of it twice")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{where}: {error} encountered in dataloader profiling config; MetricsRegex = {_quoted(text)}") from error
    return text


def _python(window: Window, values: Mapping[str, Any], where: str, *, pyinstrument: bool) -> PythonPlan:
    where = f"{where}: PythonProfilingConfig"
    profiler = str(values.get("ProfilerName", _PROFILERS[pyinstrument])).lower()
    timer = str(values.get("cProfileTimer", "total_time")).lower()
    timer = _TIMER_NAMES.get(timer, timer)
    if profiler == "pyinstrument":
        if timer != "total_time":
            warnings.warn(
                classes.timer_left_out(timer if timer in _TIMERS else _quoted(values["cProfileTimer"])), UserWarning, stacklevel=2
            )
        return PythonPlan(window, "pyinstrument")
    if profiler != "cprofile":
        raise UsageError(f"{where}: Profiler name must be cprofile or pyinstrument! ProfilerName = {_quoted(values['ProfilerName'])}")
    if timer not in _TIMERS:
        raise _wrong(where, "cProfileTimer", values["cProfileTimer"], ", ".join(_TIMERS))
    return PythonPlan(window, "cprofile", cast(Timer, timer))


# -- keys and values ----------------------------------------------------------------------------------------------------------


def _keys(content: Mapping[Any, Any], accepted: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return the values under the documented names; keys can be in any case."""
    names = {name.lower(): name for name in accepted}
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = names.get(key.lower()) if isinstance(key, str) else None
        if name is None:
            raise UsageError(f"{where}: unknown key {_quoted(key)}; possible: {', '.join(accepted)}")
        if name in values:
            raise UsageError(f"{where}: {name} is given twice, in different case")
        values[name] = value
    return values


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f'{where}: {_quoted(value)} is no object; write it like {{"StartStep": 5, "NumSteps": 1}}')
    return value


def _switch(values: Mapping[str, Any], key: str, where: str, *, default: bool = False) -> bool:
    value = values.get(key, default)
    read = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(read, bool):
        raise _wrong(where, key, value, "true, false")
    return read


def _read(value: Any) -> Any:
    """Convert a number or its text, a whole one to int; None for other values."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value) if re.search(r"[.eE]", value) else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return int(value) if value == int(value) else value


def _integer(values: Mapping[str, Any], key: str, where: str, least: int) -> int | None:
    value = values.get(key)
    if value is None:
        return None
    read = _read(value)
    if not isinstance(read, int) or not least <= read <= _LARGEST:
        raise _wrong(where, key, value, f"whole numbers from {least} on")
    return read


def _number(values: Mapping[str, Any], key: str, where: str, *, signed: bool = False) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    read = _read(value)
    if signed and (read is None or abs(read) > _LATEST_S):
        raise _wrong(where, key, value, "seconds since 1970-01-01 in UTC")
    if read is None or (read <= 0 and not signed) or read > 1e300:
        raise _wrong(where, key, value, "seconds greater than 0")
    return float(read)


def _wrong(where: str, key: str, value: Any, accepted: str) -> UsageError:
    return UsageError(f"{where}: {key} = {_quoted(value)}; accepted: {accepted}")


def _quoted(value: Any) -> str:
    if isinstance(value, dict | list | tuple | set):
        return f"a {'list' if isinstance(value, list) else type(value).__name__} of {len(value):,}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a number with too many digits"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if not isinstance(value, str) or len(value) <= 60 else f"{text}..."
