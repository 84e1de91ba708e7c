"""Converts a TOML file of profiling to a ProfilerConfig. It contains the parameters of the documented classes, a table per class::

    system_monitor_interval_millis = 500      # ProfilerConfig

    [framework_profile]                       # FrameworkProfile
    file_max_size = 10485760

    [framework_profile.detailed]              # DetailedProfilingConfig
    start_step = 10
    num_steps = 2

    [framework_profile.python]                # PythonProfilingConfig
    profile_default_steps = true

or, for deep profiling, ``[profiler]`` with ``cpu_profiling_duration``, which ``[framework_profile]`` also accepts, like the service's
form. All keys: docs/profiling-configuration.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date, datetime, time
from typing import Any, Final, TypeVar

from ...errors import UsageError
from .classes import CONFIGS, FrameworkProfile
from .profiler_config import EXCLUSIVE, Profiler, ProfilerConfig

_TABLE: Final = "a table"
_RANGE: Final = {
    "start_step": "whole numbers from 0 on",
    "num_steps": "whole numbers from 1 on",
    "start_unix_time": "whole seconds since 1970-01-01 in UTC, or a time like 2026-11-22T05:00:00Z",
    "duration": "seconds greater than 0",
}
_ROOT: Final = {
    "system_monitor_interval_millis": "100, 200, 500, 1000, 5000, 60000",
    "s3_output_path": "a text",
    "disable_profiler": "true, false",
    "profiler": _TABLE,
    "framework_profile": _TABLE,
}
_PROFILER: Final = {"cpu_profiling_duration": "whole seconds", "file_rotation_interval": "whole seconds"}
_PARAMETERS: Final = {"cpu_profiling_duration": "CPUProfilingDuration", "file_rotation_interval": "SMPFileRotationSecs"}
"""Names of the keys of ``_PROFILER`` in the service's form."""
_FILES: Final = {
    "local_path": "the path of a folder",
    "file_max_size": "whole numbers from 1 on",
    "file_close_interval": "seconds greater than 0",
    "file_open_fail_threshold": "whole numbers from 1 on",
}
_OF_KINDS: Final = {
    **_RANGE,
    "profile_default_steps": "true, false",
    "record_shapes": "true, false",
    "with_stack": "true, false",
    "metrics_regex": "a regular expression",
    "python_profiler": "cprofile, pyinstrument",
    "cprofile_timer": "total_time, cpu_time, off_cpu_time, default",
}
_KINDS: Final = {kind.name.removesuffix("ProfilingConfig").lower(): kind for kind in CONFIGS}
_SWITCHES: Final = frozenset({"disable_profiler", "profile_default_steps", "record_shapes", "with_stack"})
_Built = TypeVar("_Built")


def config_of(content: Mapping[str, Any], source: str) -> ProfilerConfig:
    """Convert the content of a file. Raise UsageError, prefixed by ``source``."""
    root = _checked(content, _ROOT, source)
    if "profiler" in root and "framework_profile" in root:
        raise UsageError(
            f"{source}: [profiler] and [framework_profile]: {EXCLUSIVE}; remove [profiler] and write its keys under [framework_profile]"
        )
    params: dict[str, Any] = {key: value for key, value in root.items() if key not in ("profiler", "framework_profile")}
    if "profiler" in root:
        values = _checked(_table(root["profiler"], f"{source}: profiler"), _PROFILER, f"{source}: [profiler]")
        params["profile_params"] = Profiler(**_whole_seconds(values, f"{source}: [profiler]"))
    if "framework_profile" in root:
        params["framework_profile_params"] = _framework(_table(root["framework_profile"], f"{source}: framework_profile"), source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of framework profiling in the hosted service
        return _build(ProfilerConfig, params, _ROOT, source)


def _whole_seconds(values: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    for key, value in values.items():
        if not str(value).isdecimal():
            raise UsageError(f"{where}: {key} = {_quoted(value)}; accepted: {_PROFILER[key]}")
    return values


def _framework(table: Mapping[str, Any], source: str) -> FrameworkProfile:
    where = f"{source}: [framework_profile]"
    accepted = {**_FILES, **_PROFILER, **_RANGE, **dict.fromkeys(_KINDS, _TABLE)}
    values = _checked(table, accepted, where)
    of_profiler = _whole_seconds({key: values.pop(key) for key in _PROFILER if key in values}, where)
    for name, kind in _KINDS.items():
        if name in values:
            inner = f"{source}: [framework_profile.{name}]"
            keys = {field.name: _OF_KINDS[field.name] for field in fields(kind) if field.init}
            table_values = _checked(_table(values.pop(name), inner), keys, inner)
            values[f"{name}_profiling_config"] = _build(kind, table_values, keys, inner)
    profile = _build(FrameworkProfile, values, accepted, where)
    profile.profiling_parameters |= {_PARAMETERS[key]: str(value) for key, value in of_profiler.items()}
    return profile


def _build(kind: Callable[..., _Built], values: Mapping[str, Any], accepted: Mapping[str, str], where: str) -> _Built:
    try:
        return kind(**values)
    except (AssertionError, ValueError) as error:
        key = str(error).partition(" ")[0]
        setting = f"{key} = {_quoted(values[key])}: " if key in values else ""
        accepted_values = f" Accepted: {accepted[key]}" if key in accepted and accepted[key] not in str(error) else ""
        raise UsageError(f"{where}: {setting}{error}{accepted_values}") from error


def _checked(table: Mapping[str, Any], accepted: Mapping[str, str], where: str) -> dict[str, Any]:
    """Check the keys and types of ``table``; convert times with a zone to seconds."""
    for key, value in table.items():
        if key not in accepted:
            raise UsageError(f"{where}: unknown key {key[:60]!r}; possible: {', '.join(accepted)}")
        if isinstance(value, bool) != (key in _SWITCHES) or (isinstance(value, dict | list) and accepted[key] != _TABLE):
            raise UsageError(f"{where}: {key} = {_quoted(value)}; accepted: {accepted[key]}")
    return {key: int(value.timestamp()) if isinstance(value, datetime) and value.tzinfo else value for key, value in table.items()}


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} = {_quoted(value)}; accepted: {_TABLE}")
    return value


def _quoted(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, dict | list):  # as deep as the file nests it
        return _TABLE if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date | time):
        return value.isoformat()
    return repr(value)[:60] if isinstance(value, str) else str(value)[:60]
