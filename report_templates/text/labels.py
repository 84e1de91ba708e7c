"""Names of devices, processes, and kernel categories in tables and figures."""

from __future__ import annotations

from typing import Final

from ...analysis.toolkit.labels import UNKNOWN_HOST
from .formats import clip

_CATEGORIES: Final = {"normalisation": "normalization"}  # the store and report.json have the keys


def category(key: str) -> str:
    """Return the text of a kernel category."""
    return _CATEGORIES.get(key, key)


def process(node: str, rank: int | None, pid: int | None, phase: str | None = None) -> str:
    """Return "rank 3", or else the node and process id, with the phase."""
    name = f"rank {rank}" if rank is not None else f"{_before(node, rank, 24)}pid {pid}" if pid is not None else clip(node, 24)
    return f"{name} {phase}" if phase else name


def device(node: str, rank: int | None, index: int) -> str:
    """Return "rank 3 · node-0 GPU 3"."""
    where = f"{_before(node, rank, 14 if rank is not None else 22)}GPU {index}"
    return f"rank {rank} · {where}" if rank is not None else where


def _before(node: str, rank: int | None, limit: int) -> str:
    """Return the node's name before a GPU or process; "" if no file names it."""
    if node == UNKNOWN_HOST or (rank is not None and node.startswith(UNKNOWN_HOST)):
        return ""
    return f"{clip(node, limit)} "
