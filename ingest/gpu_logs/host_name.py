"""The host name in the name of a GPU monitor's log, or of its folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..store.registry import UNKNOWN_HOST

_MONITOR: Final = r"(?:nvidia[-_]?smi|dcgmi?)(?:[-_.](?:dmon|exporter|query))?"
_TOOL: Final = rf"(?:{_MONITOR}|smi|gpu|dmon)"
_HOST: Final = r"(?P<host>[a-z][a-z0-9-]*[0-9][a-z0-9.-]*)"
_FIRST: Final = r"(?P<first>[a-z][a-z0-9-]*?[0-9][a-z0-9.-]*?)"
_NAMED: Final = re.compile(rf"(?:{_TOOL}[-_.]{_HOST}|{_FIRST}[-_.]{_TOOL})\.(?:csv|log|txt|out|tsv)(?:\.gz|\.zst)?", re.I)
_NO_HOST: Final = re.compile(
    r"(?:gpus?|rank|run|job|log|trace|test|step|epoch|exp|trial|version|v|part|dmon|stats?|metrics?|util\w*|usage|query|pid|bs|lr|[abhlptv]"
    r"|rtx|gtx|gb|gh|dgx-?[abh]|mi)[-_]?\d[\d._-]*(?:gb?|x|s|ti)?",
    re.I,
)
# The documented form: the host is between the tool and the ending, without the date or number of a rotated file.
_DOCUMENTED: Final = re.compile(
    rf"{_MONITOR}\.(?P<host>[a-z0-9][a-z0-9._-]*?)"
    r"(?:[.-]\d{4}-?\d\d-?\d\d(?:[-_T]?\d[\d-]*)?|\.\d{1,3})*\.(?:csv|log|txt|out|tsv|prom)(?:\.\d{1,3})?(?:\.gz|\.zst)?",
    re.I,
)
_ADDRESS: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_NUMBERED: Final = re.compile(r"(?:rank|run|job|pid|step|epoch|trial|version|part)[-_]?\d+|v\d+(?:\.\d+)*", re.I)
_WORDS: Final = frozenset({"log", "logs", "out", "output", "query", "dmon", "stats", "metrics", "usage", "util", "utilization", "csv"})
_BARE: Final = re.compile(rf"{_TOOL}(?:[-_.](?:log|dmon|query))?\.(?:csv|log|txt|out|tsv)(?:\.gz|\.zst)?", re.I)
_FOLDER: Final = re.compile(r"(?:node|host|worker|server|machine|algo)[-_]?(?:\d+|[a-z])|ip(?:-\d{1,3}){4}", re.I)
HOW_TO_NAME: Final = "Name the file after its machine (nvidia-smi.HOST.csv), or log the column uuid."


def documented_host(name: str) -> str | None:
    """Return the host in ``nvidia-smi.HOST.csv`` or ``dcgm.HOST.csv``, or None."""
    match = _DOCUMENTED.fullmatch(name)
    if match is None:
        return None
    stem = name[match.start("host") :]
    if (address := re.match(rf"(?:{_ADDRESS.pattern})(?=\.[a-z])", stem, re.I)) is not None:
        return address[0]
    host = match["host"]
    is_host = any(letter.isalpha() for letter in host) and not _NUMBERED.fullmatch(host) and host.lower() not in _WORDS
    return host if is_host else None


def named_host(path: Path) -> str | None:
    """Return the host in the name of a log, or of the folder of an unnamed log."""
    if _DOCUMENTED.fullmatch(path.name):
        return documented_host(path.name)
    match = _NAMED.fullmatch(path.name)
    host = (match["host"] or match["first"]) if match else None
    if host is not None:
        return None if _NO_HOST.fullmatch(host) else host
    return path.parent.name if _BARE.fullmatch(path.name) and _FOLDER.fullmatch(path.parent.name) else None


def has_host(name: str, hostname: str) -> bool:
    """Return whether the name of a file or folder contains a host name as a word."""
    if hostname.startswith(UNKNOWN_HOST):
        return False
    address = hostname.replace(".", "").isdecimal()  # which has no domain
    names = {hostname} if address else {hostname, hostname.partition(".")[0]}
    return any(re.search(rf"(?<![a-z0-9-]){re.escape(host)}(?![a-z0-9-])", name, re.I) is not None for host in names)
