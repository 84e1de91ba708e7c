"""What does the service's form of a profiling configuration ask for? The request's dictionary, and the hosted agent's profilerconfig.json.

Read as the agent reads it: keys in any case, numbers also as texts, the inner configurations as objects or as texts of Python dictionaries
(never evaluated: ``ast.literal_eval``). Where the agent leaves out in silence what it cannot read, this is a UsageError.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any, Final

from ...errors import UsageError
from .classes import CONFIGS, FILE_CLOSE_INTERVAL, FILE_MAX_SIZE, FILE_OPEN_FAIL_THRESHOLD, LOCAL_PATH, dictionary_text, timer_left_out
from .plan import LoaderPlan, ProfilingPlan, PythonPlan, Window
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
_KINDS: Final = {
    "DetailedProfilingConfig": ("detailed profiling", ()),
    "DataloaderProfilingConfig": ("dataloader profiling", ("MetricsRegex",)),
    "PythonProfilingConfig": ("python profiling", ("ProfilerName", "cProfileTimer")),
    "HorovodProfilingConfig": ("horovod profiling", ()),
    "SMDataParallelProfilingConfig": ("smdataparallel profiling", ()),
}
_NOT_DOUBLED: Final = re.compile(r"[\x00-\x06\x08]")
_PROFILERS: Final = ("cprofile", "pyinstrument")
_TIMERS: Final = ("total_time", "cpu_time", "off_cpu_time", "default")
# As a page of the documentation writes them.
_TIMER_NAMES: Final = {"total": "total_time", "cpu": "cpu_time", "off_cpu": "off_cpu_time"}


def plan_of_request(request: Mapping[str, Any], source: str) -> ProfilingPlan:
    """The plan of a request or an agent's file. ``source`` stands before every message. Raises UsageError."""
    for key, value in request.items():
        if key.lower() == _WRAPPER.lower():  # the request of a whole job
            request = _object(value, f"{source}: {key}")
            source = f"{source}: {key}"
            break
    found = _keys(request, _REQUEST, source)
    if _switch(found, "DisableProfiler", source):
        return ProfilingPlan(disabled=True)
    place = f"{source}: ProfilingParameters"
    given = found.get("ProfilingParameters")
    parameters = _keys({} if given is None else _object(given, place), _PARAMETERS, place)
    if not _switch(parameters, "ProfilerEnabled", place, default=True):
        parameters = {}
    interval = found.get("ProfilingIntervalInMilliseconds")
    if interval is not None and _read(interval) not in INTERVALS_MS:
        raise _wrong(source, "ProfilingIntervalInMilliseconds", interval, ", ".join(map(str, INTERVALS_MS)))
    if isinstance(found.get("S3OutputPath"), bool | int | float | list | dict):
        raise _wrong(source, "S3OutputPath", found["S3OutputPath"], "a text")
    local = parameters.get("LocalPath")
    if local is not None and (not isinstance(local, str) or not local or "\0" in local):
        raise _wrong(place, "LocalPath", local, "the path of a folder")
    windows = {kind: _window(parameters, kind, place) for kind in _KINDS}
    loader, python = windows["DataloaderProfilingConfig"], windows["PythonProfilingConfig"]
    max_bytes = _whole(parameters, "RotateMaxFileSizeInBytes", place, 1)
    close_s = _number(parameters, "RotateFileCloseIntervalInSeconds", place)
    threshold = _whole(parameters, "FileOpenFailThreshold", place, 1)
    return ProfilingPlan(
        sample_ms=None if interval is None else int(_read(interval)),
        cpu_seconds=_whole(parameters, "CPUProfilingDuration", place, 1),
        rotate_s=_whole(parameters, "SMPFileRotationSecs", place, 0) or None,
        local_path=None if local == LOCAL_PATH else local,
        max_file_bytes=FILE_MAX_SIZE if max_bytes is None else max_bytes,
        close_interval_s=FILE_CLOSE_INTERVAL if close_s is None else close_s,
        open_fail_threshold=FILE_OPEN_FAIL_THRESHOLD if threshold is None else threshold,
        detailed=_of(windows["DetailedProfilingConfig"]),
        loader=loader and LoaderPlan(loader[0], _regex(loader[1], place)),
        python=python and _python(*python, place, pyinstrument=_switch(parameters, "UsePyInstrument", place)),
        horovod=_of(windows["HorovodProfilingConfig"]),
        smdataparallel=_of(windows["SMDataParallelProfilingConfig"]),
    )


def agents_form(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as the agent's file: every duration is written under both of its names."""
    found = dict(request)
    if "ProfilingParameters" in found:
        found["ProfilingParameters"] = {key: _both_durations(key, value) for key, value in found["ProfilingParameters"].items()}
    return found


def _both_durations(key: str, value: str) -> str:
    if key not in _KINDS:
        return value
    inner = ast.literal_eval(value)
    return dictionary_text({**inner, "DurationInSeconds": inner["Duration"]}) if "Duration" in inner else value


# -- one kind of profiling ----------------------------------------------------------------------------------------------------

_Found = tuple[Window, dict[str, Any]]


def _window(parameters: Mapping[str, Any], kind: str, place: str) -> _Found | None:
    """The window and the values of one kind; None where it is not to be profiled."""
    if parameters.get(kind) is None:
        return None
    name, own = _KINDS[kind]
    place = f"{place}: {kind}"
    values = {key: value for key, value in _keys(_inner(parameters[kind], place), (*_RANGE, *own), place).items() if value is not None}
    if not values:
        return None
    first, steps = _whole(values, "StartStep", place, 0), _whole(values, "NumSteps", place, 1)
    start_s = _number(values, "StartTimeInSecSinceEpoch", place, signed=True)
    lengths = {_number(values, key, place) for key in ("Duration", "DurationInSeconds") if key in values}
    if len(lengths) > 1:
        raise UsageError(f"{place}: Duration and DurationInSeconds differ; give one of them, or the same seconds twice")
    duration_s = next(iter(lengths), None)
    by_steps, by_time = not first is steps is None, not start_s is duration_s is None
    if by_steps and by_time:
        raise UsageError(
            f"{place}: Found step and time fields in {name} config! Give StartStep and NumSteps, or StartTimeInSecSinceEpoch and Duration"
        )
    if not by_steps and not by_time:
        raise UsageError(f"{place}: neither steps nor a time; give StartStep and NumSteps, or StartTimeInSecSinceEpoch and Duration")
    if by_steps:
        return Window(first_step=first or 0, steps=steps or 1), values
    return Window(start_s=start_s, duration_s=duration_s), values


def _of(found: _Found | None) -> Window | None:
    return found and found[0]


def _inner(value: Any, place: str) -> Mapping[str, Any]:
    """An inner configuration: an object, or the text of a Python dictionary or of a JSON object."""
    if not isinstance(value, str):
        return _object(value, place)
    if len(value) > _LONGEST:
        raise UsageError(f"{place}: a text of {len(value):,} characters; at most {_LONGEST:,} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a regular expression whose backslashes are not doubled
            found = ast.literal_eval(value.strip() or "{}")
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(f'{place}: {_shown(value)} is no dictionary; write it like {{"StartStep": 5, "NumSteps": 1}}') from None
    return _object(found, place)


def _regex(values: Mapping[str, Any], place: str) -> str:
    place = f"{place}: DataloaderProfilingConfig"
    text = values.get("MetricsRegex", ".*")
    if not isinstance(text, str):
        raise _wrong(place, "MetricsRegex", text, "a regular expression")
    if _NOT_DOUBLED.search(text):  # "\\b" and "\\1" with one backslash; the others mean the same in a regular expression
        raise UsageError(f"{place}: MetricsRegex = {_shown(text)} holds a control character; write each backslash of it twice")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{place}: {error} encountered in dataloader profiling config; MetricsRegex = {_shown(text)}") from error
    return text


def _python(window: Window, values: Mapping[str, Any], place: str, *, pyinstrument: bool) -> PythonPlan:
    place = f"{place}: PythonProfilingConfig"
    profiler = str(values.get("ProfilerName", _PROFILERS[pyinstrument])).lower()
    given = str(values.get("cProfileTimer", "total_time")).lower()
    given = _TIMER_NAMES.get(given, given)
    if profiler == "pyinstrument":
        if given != "total_time":
            told = given if given in _TIMERS else _shown(values["cProfileTimer"])
            warnings.warn(timer_left_out(told), UserWarning, stacklevel=2)
        return PythonPlan(window, "pyinstrument")
    if profiler != "cprofile":
        raise UsageError(f"{place}: Profiler name must be cprofile or pyinstrument! ProfilerName = {_shown(values['ProfilerName'])}")
    for timer in _TIMERS:
        if timer == given:
            return PythonPlan(window, "cprofile", timer)
    raise _wrong(place, "cProfileTimer", values["cProfileTimer"], ", ".join(_TIMERS))


# -- keys and values ----------------------------------------------------------------------------------------------------------


def _keys(given: Mapping[Any, Any], accepted: tuple[str, ...], place: str) -> dict[str, Any]:
    """The values under the documented names; keys count in any case."""
    names = {name.lower(): name for name in accepted}
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = names.get(key.lower()) if isinstance(key, str) else None
        if name is None:
            raise UsageError(f"{place}: unknown key {_shown(key)}; possible: {', '.join(accepted)}")
        if name in found:
            raise UsageError(f"{place}: {name} is given twice, in different case")
        found[name] = value
    return found


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f'{place}: {_shown(value)} is no object; write it like {{"StartStep": 5, "NumSteps": 1}}')
    return value


def _switch(found: Mapping[str, Any], key: str, place: str, *, default: bool = False) -> bool:
    value = found.get(key, default)
    read = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(read, bool):
        raise _wrong(place, key, value, "true, false")
    return read


def _read(value: Any) -> Any:
    """A text that is a number as this number, a whole one as int; None for what is none."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value) if re.search(r"[.eE]", value) else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return int(value) if value == int(value) else value


def _whole(found: Mapping[str, Any], key: str, place: str, least: int) -> int | None:
    value = found.get(key)
    if value is None:
        return None
    read = _read(value)
    if not isinstance(read, int) or not least <= read <= _LARGEST:
        raise _wrong(place, key, value, f"whole numbers from {least} on")
    return read


def _number(found: Mapping[str, Any], key: str, place: str, *, signed: bool = False) -> float | None:
    value = found.get(key)
    if value is None:
        return None
    read = _read(value)
    if signed and (read is None or abs(read) > _LATEST_S):
        raise _wrong(place, key, value, "seconds since 1970-01-01 in UTC")
    if read is None or (read <= 0 and not signed) or read > 1e300:
        raise _wrong(place, key, value, "seconds greater than 0")
    return float(read)


def _wrong(place: str, key: str, value: Any, accepted: str) -> UsageError:
    return UsageError(f"{place}: {key} = {_shown(value)}; accepted: {accepted}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list | tuple | set):
        return f"a {'list' if isinstance(value, list) else type(value).__name__} of {len(value):,}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a number with too many digits"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if not isinstance(value, str) or len(value) <= 60 else f"{text}..."
