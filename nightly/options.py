"""Texts of nightly's options -> values; a wrong text raises a UsageError that names what is accepted."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ..errors import UsageError

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def shard(text: str) -> tuple[int, int]:
    """ "0/4" as (0, 4)."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text)
    if not found:
        raise UsageError(f"{text!r} is no shard; write it like 0/4, which is the first of four")
    i, n = int(found[1]), int(found[2])
    if n < 1 or i >= n:
        accepted = "0/1" if n < 2 else f"0/{n} to {n - 1}/{n}"
        raise UsageError(f"{text!r} is no shard; they count from 0: {accepted}")
    return i, n


def moment(text: str, now_ns: int) -> int:
    """ "2026-11-20", "2026-11-20T06:00" (UTC unless it says otherwise), or "36h" before now (m, h, d, w), as Unix time in ns."""
    if ago := re.fullmatch(r"\s*(\d{1,6})\s*([mhdw])\s*", text):
        return now_ns - int(ago[1]) * _SECONDS[ago[2]] * 10**9
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{text!r} is no time; write it like 2026-11-20, 2026-11-20T06:00, or 36h (ago; also m, d, w)") from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1000) * 10**6
