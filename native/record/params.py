"""Hyperparameters of a job, from --param, --params and the file of a hosted job: key -> text."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError

LONGEST_KEY: Final = 200
LONGEST_VALUE: Final = 60_000  # bytes of a key and of a value that a trace file accepts
MOST: Final = 10_000
_LARGEST_FILE: Final = 16 << 20


def pair(text: str) -> tuple[str, str]:
    """Return the key and the value of one --param. Raise UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{text!r} is not a parameter; write it like learning_rate=0.1")
    return _checked(key.strip(), value, repr(text))


def of_file(path: Path) -> dict[str, str]:
    """Read JSON or TOML; inner objects become keys with dots (``optimizer.lr``)."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); give a JSON or TOML file") from error
    if len(raw) > _LARGEST_FILE:
        raise UsageError(f"{path}: larger than {_LARGEST_FILE >> 20} MiB; give a file of parameters only")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 (byte {error.start:,}); save the file as UTF-8") from error
    value = _parsed(path, text)
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a text", bool: "a boolean", type(None): "nothing"}.get(type(value), "a number")
        raise UsageError(f'{path}: holds {kind}, not an object; write it like {{"learning_rate": 0.1}}')
    parameters = dict(_checked(key, one, f"{path}: {key[:60]}") for key, one in flat(value))
    if len(parameters) > MOST:
        raise UsageError(f"{path}: {len(parameters):,} parameters; at most {MOST:,} are taken")
    return parameters


def flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value with its path of keys; other values than texts are JSON."""
    waiting = [(above, iter(value.items()))]
    while waiting:
        prefix, items = waiting[-1]
        for key, inner in items:
            name = f"{prefix}{key}"
            if isinstance(inner, dict) and inner:
                waiting.append((f"{name}.", iter(inner.items())))
                break
            yield name, inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False, default=str)
        else:
            waiting.pop()


def hosted(hyperparameters: Mapping[str, Any]) -> dict[str, str]:
    """Decode a hosted job's parameters, which are JSON texts."""
    parameters = {}
    for key, value in hyperparameters.items():
        if key.startswith("sagemaker_") or len(key.encode()) > LONGEST_KEY:
            continue
        if isinstance(value, str) and value.startswith('"'):
            with suppress(ValueError):
                value = json.loads(value)
        for name, text in flat({key: value}):
            if name.isprintable() and "\0" not in text and len(text.encode("utf-8", "replace")) <= LONGEST_VALUE:
                parameters[name] = text
    return parameters


def together(of_host: Mapping[str, str], files: Iterable[Mapping[str, str]], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Merge parameters: --param over --params over the hosted job's file."""
    parameters = dict(of_host)
    for file in files:
        parameters.update(file)
    parameters.update(pairs)
    return parameters


def _parsed(path: Path, text: str) -> Any:
    try:
        if path.suffix.lower() == ".toml":
            return tomllib.loads(text)
        try:
            return json.loads(text)
        except ValueError:
            if path.suffix.lower() == ".json":
                raise
            return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deep") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}: no valid JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except tomllib.TOMLDecodeError as error:
        kind = "TOML" if path.suffix.lower() == ".toml" else "JSON or TOML"
        raise UsageError(f"{path}: no valid {kind}: {error}") from error


def _checked(key: str, value: str, what: str) -> tuple[str, str]:
    try:
        sizes = len(key.encode()), len(value.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"{what}: not UTF-8; write it in UTF-8") from error
    if not key.isprintable() or "\0" in value:
        raise UsageError(f"{what}: control characters; leave them out")
    if sizes[0] > LONGEST_KEY or sizes[1] > LONGEST_VALUE:
        raise UsageError(f"{what}: too long; a key has at most {LONGEST_KEY} bytes, a value {LONGEST_VALUE:,}")
    return key, value
