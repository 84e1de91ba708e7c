"""Names of devices and processes in sentences: "rank 5, node-1 GPU 3"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ..report.device import DeviceTime

UNKNOWN_HOST: Final = "unknown host"  # the readers' name of a node that no file names; others are "unknown host 2" and so on


def place(node: str, rank: int | None, device: int | None) -> str:
    """Name a device: "rank 5, node-1 GPU 3"."""
    unknown = node == UNKNOWN_HOST or (rank is not None and node.startswith(UNKNOWN_HOST))
    gpu = f"GPU {device}" if unknown else f"{node} GPU {device}"
    return gpu if rank is None else f"rank {rank}, {gpu}"


def place_of(device: DeviceTime) -> str:
    return place(device.node, device.rank, device.device)


def process_place(node: str, rank: int | None, pid: int | None) -> str:
    """Name a process: "rank 5, node-1"; without a host that no file names."""
    process = f"rank {rank}" if rank is not None else f"pid {pid}" if pid is not None else ""
    if process and (node == UNKNOWN_HOST or (rank is not None and node.startswith(UNKNOWN_HOST))):
        return process
    return f"{process}, {node}" if process else node


def ranks(breakdown: Iterable[DeviceTime]) -> dict[tuple[str, int], int]:
    """Return the rank that used each (node, device), if it is known and unique."""
    users: dict[tuple[str, int], set[int | None]] = {}
    for device in breakdown:
        users.setdefault((device.node, device.device), set()).add(device.rank)
    return {key: rank for key, own in users.items() if len(own) == 1 for rank in own if rank is not None}


_VENDORS: Final = re.compile(r"^(nvidia|amd|intel|tesla|geforce|instinct|radeon|graphics|quadro)\b(?:\s|\(r\))*", re.IGNORECASE)


def short_model(name: str | None) -> str | None:
    """Return the model in a device's name: "H100" of "NVIDIA H100 80GB HBM3".

    "Tesla V100-SXM2-32GB" is V100, "AMD Instinct MI300X" is MI300X."""
    text = (name or "").strip()
    while (vendor := _VENDORS.match(text)) and vendor.end():
        text = text[vendor.end() :]
    words = re.split(r"[\s\-]+", text)
    until = next((i for i, word in enumerate(words) if re.search(r"\d", word)), len(words) - 1)
    return " ".join(words[: until + 1]) or None
