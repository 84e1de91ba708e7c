"""Reads the plan of a ``--profiler-config`` file, and converts a ProfilerConfig to a plan or a file.

A file is JSON, in the service's form (:mod:`postrun.native.profiling.config_json`), or TOML (:mod:`postrun.native.profiling.config_toml`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError
from .config_json import agents_form, plan_of_request
from .plan import ProfilingPlan
from .profiler_config import ProfilerConfig

_LARGEST_FILE: Final = 1 << 20
_EXAMPLE: Final = (
    'write {"ProfilingParameters": {"DetailedProfilingConfig": {"StartStep": 5}}}, or TOML as in docs/profiling-configuration.md'
)


def read_profiler_config(path: str | os.PathLike[str]) -> ProfilingPlan:
    """Return the plan of a JSON or TOML file. Raise UsageError."""
    file = Path(path)
    text = _text(file)
    if file.suffix.lower() == ".json" or (file.suffix.lower() != ".toml" and text.lstrip().startswith("{")):
        return plan_of_request(_json(file, text), str(file))
    from .config_toml import config_of

    return _plan(config_of(_toml(file, text), str(file)), str(file))


def plan_of(config: ProfilerConfig) -> ProfilingPlan:
    """Return the plan of a ProfilerConfig, also of one from the service's own SDK.

    Raise TypeError for another object, UsageError for a meaningless value, such as a duration that is not a number.
    """
    if isinstance(config, type) or not callable(getattr(config, "_to_request_dict", None)):
        raise TypeError(f"profiler_config must be a ProfilerConfig, such as postrun.ProfilerConfig(), not {config!r}")
    return _plan(config, "profiler_config")


def to_profilerconfig_json(config: ProfilerConfig) -> str:
    """Return the hosted agent's file of ``config``, with both names of durations."""
    return json.dumps(agents_form(config._to_request_dict()), indent=2, ensure_ascii=False) + "\n"


def _plan(config: ProfilerConfig, source: str) -> ProfilingPlan:
    return plan_of_request(config._to_request_dict(), source)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or error}); check the path") from error
    if len(raw) > _LARGEST_FILE:
        raise UsageError(f"{file}: larger than {_LARGEST_FILE >> 20} MiB; give a file of profiling configuration")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 (byte {error.start:,}); save the file as UTF-8") from error
    if not text.strip():
        raise UsageError(f"{file}: is empty; {_EXAMPLE}")
    return text


def _json(file: Path, text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise UsageError(f"{file}: {twice[:60]!r} is given twice")
        return content

    try:
        value = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UsageError(f"{file}: no valid JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: nested too deep; {_EXAMPLE}") from error
    except ValueError as error:
        raise UsageError(f"{file}: no valid JSON: a number with too many digits") from error
    if not isinstance(value, dict):
        raise UsageError(f"{file}: holds no object; {_EXAMPLE}")
    return value


def _toml(file: Path, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{file}: nested too deep; {_EXAMPLE}") from error
    except ValueError as error:
        if file.suffix.lower() in (".yaml", ".yml"):
            raise UsageError(f"{file}: YAML is not read; JSON and TOML are: {_EXAMPLE}") from error
        raise UsageError(f"{file}: no valid TOML: {str(error)[:200]}") from error
