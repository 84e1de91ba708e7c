"""Texts of nightly's options -> values; a wrong text raises a UsageError that names what is accepted."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ..errors import UsageError

_LONGEST_LINK_S: Final = 604_800  # what the signatures of S3 and Google Cloud Storage allow
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def shard(text: str) -> tuple[int, int]:
    """Parse a shard: "0/4" -> (0, 4)."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text)
    if not match:
        raise UsageError(f"{text!r} is not a shard; write it like 0/4, which is the first of four")
    i, n = int(match[1]), int(match[2])
    if n < 1 or i >= n:
        accepted = "0/1" if n < 2 else f"0/{n} to {n - 1}/{n}"
        raise UsageError(f"{text!r} is not a shard; they count from 0: {accepted}")
    return i, n


def validity(text: str) -> int:
    """Parse how long a presigned link is valid: "12h" -> 43200 s, at most 7 days."""
    match = re.fullmatch(r"\s*(\d{1,4})\s*([mhd])\s*", text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 60 <= seconds <= _LONGEST_LINK_S:
        raise UsageError(f"{text!r} is not a valid lifetime of a link; write it like 12h or 7d, the longest")
    return seconds


def moment(text: str, now_ns: int) -> int:
    """Parse a time and return it as Unix time in ns.

    Accepts "2026-11-20", "2026-11-20T06:00" (UTC by default), or "36h" before now (m, h, d, w)."""
    if ago := re.fullmatch(r"\s*(\d{1,6})\s*([mhdw])\s*", text):
        return now_ns - int(ago[1]) * _SECONDS[ago[2]] * 10**9
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time; write it like 2026-11-20, 2026-11-20T06:00, or 36h (ago; also m, d, w)") from error
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000) * 10**6
