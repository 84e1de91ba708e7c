"""Masking of secrets and redaction of a run store: the texts of its small tables, in one pass when the run has been read.

Secrets (:mod:`postrun.redaction`) are always masked. On request hosts get other names, user names are replaced, paths lose their folders,
and command lines are dropped. Everything that is made of a run is made of its store, so nothing else has to look at this again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, Final

from ...masked_values import mask_mapping, mask_value
from ...native.recording.host_name import KINDS
from ...redaction import MASK, mask_command, mask_text, masked_sentence
from ...secret_names import is_secret_name
from .signatures import TEXT_COLUMNS
from .store import Store

HOSTS, USERS, PATHS, COMMAND = KINDS

_RUN_JSON: Final = ("hyperparameters", "labels", "metadata", "resources")
# Texts of every table without events; ids, enumerations and hashes are not texts of the source.
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "run": ("name", "instance_type"),
    "source": ("path", "clock_evidence"),
    "node": ("hostname",),
    "process": ("command", "label"),
    "device": ("name",),
    "python_profile": ("function", "file"),
    "compilation": ("function", "file", "reason", "graph_break", "failure"),
    "signature": TEXT_COLUMNS,
    "ingest_note": ("file", "message"),
}
_HOST_KEYS: Final = re.compile(r"(?:^|[._ ])(?:hosts?|host_?names?|master_addr|node_?names?|nodes?)$", re.IGNORECASE)
_HOST_LISTS: Final = re.compile(r"nodelist$", re.IGNORECASE)
_USER_KEYS: Final = re.compile(r"(?:^|[._ ]|job_)(?:user|user_?name|logname|owner|login)$", re.IGNORECASE)
_COMMAND_KEYS: Final = re.compile(r"(?:^|[._ ])(?:command|cmdline|command_?line|argv)$", re.IGNORECASE)
_HOMES: Final = re.compile(r"(?:/home/|/Users/|[\\/]Users[\\/])([^/\\\s\"'`:;,()\[\]{}]+)")
_PART: Final = r"[^\s\"'`:;,()\[\]{}<>/\\]"
_ABSOLUTE: Final = re.compile(rf"(?:(?<![\w.~/\-])|(?<=\b[A-Za-z]:))(?:~?/(?!/)|\\)(?:{_PART}+[/\\]+)+{_PART}*")
_DRIVE: Final = re.compile(r"\b[A-Za-z]:[\\/](?=[^\s\\/])")
_OBJECT_URL: Final = re.compile(r"\b(?:s3|gs|gcs|az|abfss?|adl|file)://[^\s\"'`;,()\[\]{}<>]*")
_LIBRARY: Final = re.compile(r"^.*[/\\](?:site-packages|dist-packages|python3\.\d+)[/\\](?=.)")
_ADDRESS: Final = re.compile(r"^[\w.:-]*\w$")


def conceal(store: Store, redact: Iterable[str] = ()) -> None:
    """Mask and note the secrets of a store, and redact ``redact``, of :data:`KINDS`."""
    _mask(store)
    wanted = frozenset(redact)
    if wanted:
        _redact(store, wanted)


def redacted_text(text: str, redact: Iterable[str], hosts: Iterable[str] = (), places: Iterable[str] = ()) -> str:
    """Redact a text without a store; the users of paths in ``places`` also."""
    wanted = frozenset(redact)
    names: dict[str, str] = {}
    for host in hosts if HOSTS in wanted else ():
        short = host if re.fullmatch(r"[\d.:]+", host) else host.partition(".")[0]
        if len(short) > 1 and short != "localhost":
            names[host] = names.setdefault(short, f"node-{len(set(names.values())) + 1}")
    users = dict.fromkeys(_HOMES.findall("\n".join((text, *places)))) if USERS in wanted else ()
    return _Redaction(wanted, names, [user for user in users if len(user) > 1]).text(text)


# -- secrets ---------------------------------------------------------------------------------------------------------------


def _mask(store: Store) -> None:
    """Mask texts with secrets, and note the names of all masked values."""
    masked_names: list[str] = []
    commands: set[str] = set()

    def look(table: str, column: str, mask: Callable[[str], tuple[str, list[str]]]) -> None:
        def masked(text: str) -> str:
            new, more = mask(text)
            masked_names.extend(more)
            return new

        _update(store, table, column, masked)

    for column in _RUN_JSON:
        look("run", column, lambda text: _mask_json(text, commands))
    look("run", "name", mask_text)
    look("process", "command", lambda text: _mask_process(text, commands))
    look("process", "label", mask_text)
    for column in ("file", "message"):
        look("ingest_note", column, _mask_url)
    look("source", "path", _mask_url)
    for column in TEXT_COLUMNS:  # not counted: each is of many calls
        _update(store, "signature", column, lambda text: _mask_url(text)[0])
    for column in _TEXTS["compilation"]:  # guards contain values of the program
        look("compilation", column, mask_text)
    of_ranges = "id IN (SELECT arguments FROM raw.annotation)"
    _update(store, "text", "text", lambda text: _mask_json(text, commands)[0], of_ranges)  # not counted: each is of many ranges
    if masked_names and not store.connection.execute("SELECT 1 FROM ingest_note WHERE code = 'values_masked'").fetchall():
        store.note("info", "values_masked", masked_sentence(masked_names), count=len(masked_names))


def _mask_json(text: str, commands: set[str]) -> tuple[str, list[str]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return mask_text(text)
    if isinstance(value, dict):
        masked, names = mask_mapping(value)
        commands.update(one for key, one in masked.items() if isinstance(one, str) and _COMMAND_KEYS.search(key))
    else:
        masked, names = mask_value("", value)
    return (text if masked == value else json.dumps(masked, ensure_ascii=False)), names


def _mask_process(text: str, commands: set[str]) -> tuple[str, list[str]]:
    """Mask a command; what the ranks of a job have in common counts once."""
    new, names = mask_command(text)
    seen = new in commands or any(new.endswith(" " + known) or known.endswith(new) for known in commands)
    commands.add(new)
    return new, [] if seen else names


def _mask_url(text: str) -> tuple[str, list[str]]:
    return mask_text(text) if "://" in text or "earer " in text or "--" in text else (text, [])


def _distinct(store: Store, table: str, column: str, condition: str = "true") -> list[str]:
    rows = store.connection.execute(
        f'SELECT DISTINCT "{column}" FROM {table} WHERE "{column}" IS NOT NULL AND {condition} ORDER BY 1'
    ).fetchall()
    return [row[0] for row in rows]


# -- hosts, users, paths, command -------------------------------------------------------------------------------------------


class _Redaction:
    """Replacements of the texts of a run."""

    def __init__(self, wanted: frozenset[str], hosts: Mapping[str, str], users: Sequence[str]) -> None:
        self.wanted = wanted
        self.hosts = dict(hosts)
        words = dict(hosts)
        words.update((user, f"user-{number}") for number, user in enumerate(users, 1))
        self._words = words
        longest = sorted(words, key=len, reverse=True)
        self._pattern = re.compile(r"(?<![^\W_])(?:" + "|".join(map(re.escape, longest)) + r")(?![^\W_])") if longest else None

    def text(self, text: str) -> str:
        """Redact a text that may contain hosts, users and paths."""
        if PATHS in self.wanted:
            text = _without_folders(text)
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._words[match[0]], text)
        return text

    def path(self, text: str) -> str:
        """Redact a path, which may have spaces."""
        return self.text(_last_part(text) if PATHS in self.wanted else text)

    def value(self, key: str, value: Any) -> Any:
        """Redact a fact of the run, of any JSON type."""
        if isinstance(value, str):
            if HOSTS in self.wanted and _HOST_LISTS.search(key):
                return MASK
            if HOSTS in self.wanted and value in self.hosts:
                return self.hosts[value]
            return self.path(value) if value.startswith("/") and "\n" not in value and " /" not in value else self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): self.value(str(name), one)
                for name, one in value.items()
                if not (COMMAND in self.wanted and _COMMAND_KEYS.search(str(name)))
            }
        if isinstance(value, list):
            return [self.value(key, one) for one in value]
        return value


def _redact(store: Store, wanted: frozenset[str]) -> None:
    if COMMAND in wanted:
        store.connection.execute("UPDATE process SET command = NULL")
    facts = {column: _facts(store, column) for column in _RUN_JSON}
    hosts = _hosts(store, facts) if HOSTS in wanted else {}
    users = _users(store, facts) if USERS in wanted else []
    redaction = _Redaction(wanted, hosts, users)
    if HOSTS in wanted:  # first: also names that are too short to be looked for in texts
        for number, host in enumerate(_by_node(store), 1):
            store.connection.execute("UPDATE node SET hostname = ? WHERE hostname = ?", [f"\0node-{number}", host])
        store.connection.execute("UPDATE node SET hostname = substr(hostname, 2) WHERE starts_with(hostname, chr(0))")
    for column, value in facts.items():
        if value is not None:
            new = json.dumps(redaction.value("", value), ensure_ascii=False)
            store.connection.execute(f"UPDATE run SET {column} = ?", [new])
    for table, columns in _TEXTS.items():
        for column in columns:
            if (table, column) in {("node", "hostname"), ("source", "path")}:
                continue
            change = redaction.path if column in ("file", "kernel_file") else redaction.text
            _update(store, table, column, change)
    _sources(store, redaction)
    for table, column in (("text", "text"), ("name", "text"), ("name", "short")):
        _update(store, table, column, redaction.text)


def _facts(store: Store, column: str) -> Any:
    row = store.connection.execute(f"SELECT {column} FROM run").fetchone()
    if row is None or row[0] is None:
        return None
    try:
        return json.loads(row[0])
    except (ValueError, RecursionError):
        return row[0]


def _update(store: Store, table: str, column: str, change: Callable[[str], str], condition: str = "true") -> None:
    """Change each distinct text of a column, in rows of a condition."""
    changed = [(text, new) for text in _distinct(store, table, column, condition) if (new := change(text)) != text]
    if changed:
        import pyarrow as pa

        rows = pa.table({"old": [old for old, _ in changed], "new": [new for _, new in changed]})
        store.connection.register("redacted_rows", rows)
        try:
            store.connection.execute(
                f'UPDATE {table} AS t SET "{column}" = r.new FROM redacted_rows r WHERE t."{column}" = r.old AND {condition}'
            )
        finally:
            store.connection.unregister("redacted_rows")


def _sources(store: Store, redaction: _Redaction) -> None:
    """Make paths relative to the folder that all files share."""
    paths = _distinct(store, "source", "path")
    folders = [PurePosixPath(path.replace("\\", "/")).parent.parts for path in paths]
    shared = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False)))
    words = copy(redaction)
    words.wanted = redaction.wanted - {PATHS}

    def relative(path: str) -> str:
        return "/".join(PurePosixPath(path.replace("\\", "/")).parts[shared:]) or path

    _update(store, "source", "path", lambda path: words.text(relative(path) if PATHS in redaction.wanted else path))


def _by_node(store: Store) -> list[str]:
    """Return the names of the nodes, in the order of their ids."""
    rows = store.connection.execute("SELECT hostname FROM node WHERE hostname IS NOT NULL GROUP BY hostname ORDER BY min(id)").fetchall()
    return [row[0] for row in rows]


def _hosts(store: Store, facts: Mapping[str, Any]) -> dict[str, str]:
    """Map every name of a host to its replacement; its domain makes no difference."""
    names: dict[str, str] = {}
    short: dict[str, str] = {}

    def is_host(name: str) -> bool:
        return bool(_ADDRESS.match(name) and re.search(r"[A-Za-z:.]", name)) and len(name) > 1 and name != "localhost"

    def add(host: str) -> None:
        if host in names or not is_host(host):
            return
        first = host if re.fullmatch(r"[\d.:]+", host) else host.partition(".")[0]
        known = short.setdefault(first, f"node-{len(short) + 1}")
        names[host] = known
        if len(first) > 1:
            names[first] = known

    for host in _by_node(store):
        if is_host(host):
            add(host)
        else:
            short[host] = f"node-{len(short) + 1}"
    for key, value in _leaves(facts):
        if _HOST_KEYS.search(key):
            for host in re.split(r"[\s,]+", value):
                add(host)
    for _, host in _leaves(facts.get("resources")):
        add(host)
    for key, value in _leaves(facts):
        if _HOST_LISTS.search(key) and "[" not in value:
            for host in value.split(","):
                add(host)
    return names


def _users(store: Store, facts: Mapping[str, Any]) -> list[str]:
    """Return the users of home folders, and those that facts name."""
    names: dict[str, None] = {}
    for table, columns in _TEXTS.items():
        for column in columns:
            for text in _distinct(store, table, column):
                names.update(dict.fromkeys(_HOMES.findall(text)))
    for key, value in _leaves(facts):
        names.update(dict.fromkeys(_HOMES.findall(value)))
        if _USER_KEYS.search(key) and re.fullmatch(r"[\w.@-]{2,64}", value):
            names[value] = None
    rows = store.connection.execute("SELECT text FROM name WHERE contains(text, '/home/') OR contains(text, 'Users')").fetchall()
    for (text,) in rows:
        names.update(dict.fromkeys(_HOMES.findall(text)))
    return [user for user in names if len(user) > 1 and not is_secret_name(user)]


def _leaves(facts: Any, key: str = "") -> Iterable[tuple[str, str]]:
    """Yield every text of nested facts, with its key."""
    if isinstance(facts, str):
        yield key, facts
    elif isinstance(facts, Mapping):
        for name, value in facts.items():
            yield from _leaves(value, str(name))
    elif isinstance(facts, list):
        for value in facts:
            yield from _leaves(value, key)


def _without_folders(text: str) -> str:
    if "/" not in text and "\\" not in text:
        return text
    text = _OBJECT_URL.sub(lambda match: _last_part(match[0]), text)
    return _ABSOLUTE.sub(lambda match: _last_part(match[0]), _DRIVE.sub("/", text))


def _last_part(path: str) -> str:
    """Return a path relative to the folder of installed libraries, else its last part."""
    if library := _LIBRARY.match(path):
        return path[library.end() :]
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1] or path
