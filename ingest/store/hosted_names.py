"""Hosts and processes in the names of the hosted profiler's files."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .registry import UNKNOWN_HOST


def node_label(name: str) -> str:
    """Return the documented node of a timeline file: ``27-algo-1`` -> ``algo-1-27``."""
    return re.sub(r"^(.*)-(algo.*)$", r"\2-\1", _node_field(name))


def machine_of(name: str) -> tuple[str, int | None]:
    """Return host and leading number (pid; rank under Horovod) of a timeline file.

    ``27-algo-1`` -> (algo-1, 27), ``905-b88ab1bb8259`` -> (b88ab1bb8259, 905), ``0001`` -> (0001, None).
    """
    node = _node_field(name)
    if split := re.match(r"^(\d+)-(.+)$", node):
        return split[2], int(split[1])
    return node or UNKNOWN_HOST, None


def _node_field(name: str) -> str:
    fields = PurePosixPath(name).name.split("_")
    return fields[1] if len(fields) > 2 and fields[0].isdigit() else ""
