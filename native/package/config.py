"""Which options come from a configuration file, and from which file?

Precedence: command line > environment (``POSTRUN_*``) > file > default. The file is the one named with ``--config``; else
``postrun.toml`` in the current folder; else the table ``[tool.postrun]`` of ``pyproject.toml`` there. Keys are the long option
names, with ``-`` or ``_``::

    top = 20
    format = "html,pdf"
    histogram = ["Forward", "Backward"]

A table named after a command (``[report]``, ``[ingest]``, ``[demo]``) holds values for that command only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import UsageError

FILE_NAME = "postrun.toml"


def find(explicit: Path | None, folder: Path) -> Path | None:
    """The configuration file that counts, or None. Raises UsageError where ``explicit`` does not exist."""
    if explicit is not None:
        if not explicit.is_file():
            raise UsageError(f"{explicit}: there is no such configuration file; check --config (or POSTRUN_CONFIG)")
        return explicit
    own = folder / FILE_NAME
    if own.is_file():
        return own
    project = folder / "pyproject.toml"
    if project.is_file() and "postrun" in _load(project).get("tool", {}):
        return project
    return None


def read(path: Path, commands: Mapping[str, frozenset[str]]) -> dict[str, dict[str, Any]]:
    """Defaults per command from ``path``. ``commands`` maps each command to the names of its options (with ``_``).

    Raises UsageError for a file that is no TOML, or a key that no command has, naming the file, the key and the possible keys.
    """
    content = _load(path)
    if path.name == "pyproject.toml":
        content = content.get("tool", {}).get("postrun", {})
    defaults: dict[str, dict[str, Any]] = {command: {} for command in commands}
    known = frozenset().union(*commands.values())
    for key, value in content.items():
        option = key.replace("-", "_")
        if isinstance(value, dict):
            if key not in commands:
                raise UsageError(f"{path}: table [{key}] is none of postrun's commands; possible: {', '.join(sorted(commands))}")
            for inner, inner_value in value.items():
                inner_option = inner.replace("-", "_")
                if inner_option not in commands[key]:
                    raise _unknown(path, f"{key}.{inner}", commands[key])
                defaults[key][inner_option] = inner_value
        elif option not in known:
            raise _unknown(path, key, known)
        else:
            for command, options in commands.items():
                if option in options:
                    defaults[command].setdefault(option, value)
    return defaults


def _unknown(path: Path, key: str, possible: frozenset[str]) -> UsageError:
    return UsageError(f"{path}: unknown key {key!r}; possible: {', '.join(sorted(name.replace('_', '-') for name in possible))}")


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not valid TOML: {error}") from error
