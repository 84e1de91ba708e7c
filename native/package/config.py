"""Which options come from a configuration file, and from which file?

Precedence: command line > environment (``POSTRUN_*``) > file > default. The file is the one named with ``--config``; else
``postrun.toml`` in the current folder; else the table ``[tool.postrun]`` of ``pyproject.toml`` there. Keys are the long option
names, with ``-`` or ``_``::

    top = 20
    format = "html,pdf"
    histogram = ["Forward", "Backward"]

A table named after a command (``[report]``, ``[ingest]``, ``[demo]``) holds values for that command only. ``rules`` is a list of names
as after ``--rules``, or a table with one table per rule; ``only`` among them lists the rules that run::

    [rules.LowGPUUtilization]
    patience = 100

    [rules.StepOutlier]
    enabled = false
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import UsageError

FILE_NAME = "postrun.toml"
_TABLES = frozenset({"rules"})
_SETTINGS = "set"


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
        if isinstance(value, dict) and key not in _TABLES & known:
            if option == _SETTINGS:
                raise _unknown(path, key, known)
            if key not in commands:
                possible = sorted({*commands, *(_TABLES & known)})
                raise UsageError(f"{path}: table [{key}] is none of postrun's commands; possible: {', '.join(possible)}")
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


def rules(path: Path, table: Mapping[str, Any]) -> tuple[list[str] | None, dict[str, Any]]:
    """The table ``[rules]`` as words of ``--rules`` (None: all rules) and parameters ("LowGPUUtilization_patience" -> value).

    Raises UsageError naming the file, the key and the accepted names, also for a value out of range, and for values of a rule that the
    file itself turns off.
    """
    from .analysis.rules import selection
    from .analysis.rules.catalogue import PROFILER_REPORT

    words: list[str] = []
    settings: dict[str, Any] = {}
    tables: dict[str, str] = {}
    for name, content in table.items():
        place = f"{path}: [rules.{name}]"
        if name == "only":
            if not isinstance(content, list) or not content or not all(isinstance(one, str) for one in content):
                raise UsageError(
                    f'{path}: [rules] only = {content!r} is no list of rules; write it like only = ["CPUBottleneck", "StepOutlier"]'
                )
            words = [*content, *words]
            continue
        if name.lower() == PROFILER_REPORT.lower():
            raise UsageError(
                f"{place}: its parameters are those of the rules it runs; write them into their tables, such as [rules.LowGPUUtilization]."
                f' Its sum is turned off with rules = ["-{PROFILER_REPORT}"]'
            )
        try:
            rule = selection.find(name)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
        if not isinstance(content, dict):
            raise UsageError(f"{path}: rules.{name} = {content!r} is no table; write [rules.{rule.name}] and below it enabled = false")
        for key, value in content.items():
            if key == "enabled":
                if not isinstance(value, bool):
                    raise UsageError(f"{place} enabled = {value!r}: accepted: true, false")
                words += [] if value else [f"-{rule.name}"]
                continue
            try:
                found, parameter = selection.setting(f"{rule.name}_{key}")
                settings[f"{rule.name}_{parameter.name}"] = selection.checked(found, parameter, value, whole=True)
                tables[rule.name] = place
            except UsageError as error:
                raise UsageError(f"{place}: {error}") from error
    _all_run(tables, words)
    return words or None, settings


def _all_run(tables: Mapping[str, str], words: Sequence[str]) -> None:
    """Raises UsageError where a table gives values to a rule that ``words`` turn off. A mistake in ``words`` is told elsewhere."""
    from .analysis.rules import selection

    for rule, place in tables.items():
        if f"-{rule}" in words:
            raise UsageError(f"{place}: {rule} is turned off by enabled = false; leave its values out, or that line")
        only = [word for word in words if not word.startswith("-")]
        try:
            running = {one.rule.name for one in selection.select(only or None).rules}
        except UsageError:
            return
        if rule not in running:
            raise UsageError(f"{place}: {rule} is turned off, because only does not list it; add it there, or leave its values out")


def _unknown(path: Path, key: str, possible: frozenset[str]) -> UsageError:
    if key.rpartition(".")[2] == _SETTINGS:
        return UsageError(f"{path}: {key!r} is no key; write a table per rule: [rules.LowGPUUtilization] and below it patience = 100")
    return UsageError(f"{path}: unknown key {key!r}; possible: {', '.join(sorted(name.replace('_', '-') for name in possible))}")


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not valid TOML: {error}{_twice(path)}") from error


def _twice(path: Path) -> str:
    """What to do about a list of rules beside tables of rules, which TOML does not allow."""
    text = path.read_bytes().decode("utf-8", "replace")
    if re.search(r"^\s*rules\s*=", text, re.MULTILINE) and re.search(r"^\s*\[([\w.]+\.)?rules(\.[\w.]+)?\]", text, re.MULTILINE):
        return '; rules = [...] and tables [rules.NAME] exclude each other: beside tables write [rules] and below it only = ["StepOutlier"]'
    return ""
