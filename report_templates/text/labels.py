"""Names of devices and processes in tables and figures."""

from __future__ import annotations

from .formats import clip


def process(node: str, rank: int | None, pid: int | None, phase: str | None = None) -> str:
    """ "rank 3", or the node and process id where there is no rank; with the phase where there is one."""
    name = f"rank {rank}" if rank is not None else f"{clip(node, 24)} pid {pid}" if pid is not None else clip(node, 24)
    return f"{name} {phase}" if phase else name


def device(node: str, rank: int | None, index: int) -> str:
    """ "rank 3 · node-0 GPU 3"."""
    where = f"{clip(node, 14 if rank is not None else 22)} GPU {index}"
    return f"rank {rank} · {where}" if rank is not None else where
