"""Configuration file -> defaults of the options of each command.

Precedence: command line > environment (``POSTRUN_*``) > file > default. The file is the one named with ``--config``; else
``postrun.toml`` in the current folder; else the table ``[tool.postrun]`` of ``pyproject.toml`` there. A file that was found rather than
named is not trusted: it can set only the options of FOUND_MAY_SET. Keys are the long option names, with ``-`` or ``_``::

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

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..errors import UsageError

FILE_NAME = "postrun.toml"
_TABLES = frozenset({"rules"})
_SETTINGS = "set"
_LARGEST: Final = 1 << 20  # bytes; a configuration is a few KB
THRESHOLDS: Final = frozenset(
    {"new_issue_history", "peak", "preset", "regression_deviations", "regression_history", "regression_threshold", "rules", "threshold"}
)
"""Options (with ``_``) that a found file may set and that can change a verdict (of ``rules``: parameters only)."""
FOUND_MAY_SET: Final = THRESHOLDS | {
    "dashboard", "format", "histogram", "name", "paper", "price_per_gpu_hour", "sections", "theme", "timeline_events", "title", "top",
    "verbose",
}  # fmt: skip
"""Options (with ``_``) that a file may set that was found, not named: display and thresholds (of ``rules``: parameters only).

An option that is not here needs ``--config``: it may write elsewhere, load code, read or send files, hide an issue or a message, or lift
a bound. A new option is not here unless someone decides that it is harmless."""
_GATES: Final = ("custom_rule", "fail_on")
_FINDINGS: Final = frozenset({"rules", "data-quality"})  # Sections that a found file cannot leave out


def find(explicit: Path | None, folder: Path, sources: Sequence[str] = (), notes: list[str] | None = None) -> Path | None:
    """Return the configuration file to use, or None.

    ``sources``: inputs of the command; a file inside one of them is part of the input. A file of ``folder`` that is ignored adds a line to
    ``notes``. Raise UsageError if ``explicit`` does not exist.
    """
    if explicit is not None:
        if not explicit.is_file():
            raise UsageError(f"{explicit}: there is no such configuration file; check --config (or POSTRUN_CONFIG)")
        return explicit
    for path in (folder / FILE_NAME, folder / "pyproject.toml"):
        if not path.is_file():
            continue
        reason = _distrust(path, sources)
        if path.name == "pyproject.toml":
            try:
                tool = _load(path).get("tool")
            except UsageError:
                if reason is None:
                    raise
                continue
            if not isinstance(tool, dict) or "postrun" not in tool:
                continue
        if reason is None:
            return path
        if notes is not None:
            notes.append(f"ignoring ./{path.name}: {reason}; use --config ./{path.name} if you trust it")
    return None


def _distrust(path: Path, sources: Sequence[str]) -> str | None:
    """The reason not to use a file that was found; None if there is none."""
    link, file = path.lstat(), path.stat()
    if {link.st_uid, file.st_uid} != {os.geteuid()}:
        return "it belongs to another user"
    if file.st_mode & stat.S_IWOTH:
        return "every user can write to it"
    places = (Path(os.path.realpath(path.parent)) / path.name, Path(os.path.realpath(path)))
    for source in sources:
        folder = _local(source)
        if folder is not None and any(place.is_relative_to(folder) for place in places):
            return f"it is inside the input ({source})"
    return None


def _local(source: str) -> Path | None:
    """Resolve the local path of SOURCE, or return None for an object store."""
    scheme, separator, rest = source.partition("://")
    if separator and scheme.lower() == "file":
        from urllib.parse import unquote

        return Path(os.path.realpath(unquote(rest)))
    return None if separator else Path(os.path.realpath(source))


def restrict(path: Path, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Split off the ``values`` that a found file must not set; a note lists them.

    Raise UsageError for keys that decide which code runs or which verdict fails: a gate must not turn green silently.
    """
    gates = [key.replace("_", "-") for key in _GATES if key in values]
    table = values.get("rules")
    if isinstance(table, dict):
        gates += ["[rules] only"] if "only" in table else []
        off = [name for name, rule in table.items() if isinstance(rule, dict) and rule.get("enabled") is False]
        gates += [f"[rules.{name}] enabled = false" for name in off]
    elif table is not None:
        gates.append("rules")
    if gates:
        verb, keys = ("is", "key") if len(gates) == 1 else ("are", "keys")
        raise UsageError(
            f"./{path.name}: {' and '.join(gates)} {verb} accepted only from a file that you name; "
            f"use --config ./{path.name} if you trust the file, or remove the {keys}"
        )
    refused = [key for key in values if key not in FOUND_MAY_SET or (key == "sections" and _hides(values[key]))]
    ignored = ", ".join(key.replace("_", "-") for key in refused)
    note = f"./{path.name}: ignored: {ignored} (only a file named with --config can set {'it' if len(refused) == 1 else 'them'})"
    return {key: value for key, value in values.items() if key not in refused}, [note] * bool(refused)


def _hides(sections: Any) -> bool:
    """Whether this choice of sections leaves out findings; False if it is wrong."""
    from ..option_values import words
    from ..report_templates.text.section_names import left_out

    try:
        return not _FINDINGS.isdisjoint(left_out(words(sections)))
    except UsageError:
        return False


def read(path: Path, commands: Mapping[str, frozenset[str]]) -> dict[str, dict[str, Any]]:
    """Read the defaults of each command from ``path``.

    ``commands`` maps each command to the names of its options (with ``_``). Raise UsageError for a file that is not TOML and for a key
    that no command has; the message names the file, the key and the possible keys.
    """
    content = _load(path)
    if path.name == "pyproject.toml":
        content = content.get("tool", {}).get("postrun", {})
        if not isinstance(content, dict):
            raise UsageError(f"{path}: tool.postrun = {content!r} is not a table; write [tool.postrun] and the options below it")
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
    """Convert the table ``[rules]`` to words of ``--rules`` and to parameters.

    None for the words means all rules; a parameter is "LowGPUUtilization_patience" -> value. Raise UsageError for an unknown key, a value
    out of range, and values of a rule that the file itself turns off.
    """
    from ..analysis.rules.engine import selection
    from ..analysis.rules.engine.catalogue import PROFILER_REPORT

    words: list[str] = []
    settings: dict[str, Any] = {}
    tables: dict[str, str] = {}
    for name, content in table.items():
        label = f"{path}: [rules.{name}]"
        if name == "only":
            if not isinstance(content, list) or not content or not all(isinstance(one, str) for one in content):
                raise UsageError(
                    f'{path}: [rules] only = {content!r} is not a list of rules; write it like only = ["CPUBottleneck", "StepOutlier"]'
                )
            words = [*content, *words]
            continue
        if name.lower() == PROFILER_REPORT.lower():
            raise UsageError(
                f"{label}: its parameters are those of the rules it runs; write them into their tables, such as [rules.LowGPUUtilization]."
                f' Its sum is turned off with rules = ["-{PROFILER_REPORT}"]'
            )
        try:
            rule = selection.find(name)
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from error
        if not isinstance(content, dict):
            raise UsageError(f"{path}: rules.{name} = {content!r} is not a table; write [rules.{rule.name}] and below it enabled = false")
        for key, value in content.items():
            if key == "enabled":
                if not isinstance(value, bool):
                    raise UsageError(f"{label} enabled = {value!r}: accepted: true, false")
                words += [] if value else [f"-{rule.name}"]
                continue
            try:
                owner, parameter = selection.setting(f"{rule.name}_{key}")
                settings[f"{rule.name}_{parameter.name}"] = selection.checked(owner, parameter, value, integral=True)
                tables[rule.name] = label
            except UsageError as error:
                raise UsageError(f"{label}: {error}") from error
    _all_run(tables, words)
    return words or None, settings


def _all_run(tables: Mapping[str, str], words: Sequence[str]) -> None:
    """Raise UsageError for values of a rule that ``words`` turn off."""
    from ..analysis.rules.engine import selection

    for rule, label in tables.items():
        if f"-{rule}" in words:
            raise UsageError(f"{label}: {rule} is turned off by enabled = false; leave its values out, or that line")
        only = [word for word in words if not word.startswith("-")]
        try:
            running = {one.rule.name for one in selection.select(only or None).rules}
        except UsageError:
            return
        if rule not in running:
            raise UsageError(f"{label}: {rule} is turned off, because only does not list it; add it there, or leave its values out")


def _unknown(path: Path, key: str, possible: frozenset[str]) -> UsageError:
    if key.rpartition(".")[2] == _SETTINGS:
        return UsageError(f"{path}: {key!r} is no key; write a table per rule: [rules.LowGPUUtilization] and below it patience = 100")
    return UsageError(f"{path}: unknown key {key!r}; possible: {', '.join(sorted(name.replace('_', '-') for name in possible))}")


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"{path}: is larger than 1 MiB, which no configuration file is")
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not valid TOML: {error}{_twice(path)}") from error
    except RecursionError:
        raise UsageError(f"{path}: is not valid TOML: nested too deeply") from None


def _twice(path: Path) -> str:
    """Return advice for a list of rules next to tables of rules, which TOML excludes."""
    text = path.read_bytes().decode("utf-8", "replace")
    if re.search(r"^\s*rules\s*=", text, re.MULTILINE) and re.search(r"^\s*\[([\w.]+\.)?rules(\.[\w.]+)?\]", text, re.MULTILINE):
        return '; rules = [...] and tables [rules.NAME] exclude each other: beside tables write [rules] and below it only = ["StepOutlier"]'
    return ""
