"""Damage found while a trace is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Defect:
    """One kind of damage: how often, where first (byte offset in the decompressed text) and what it looked like."""

    code: str
    count: int
    first_offset: int
    example: str
