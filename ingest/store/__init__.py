"""Run stores: tables, identities, and limits. `Store` is what readers fill and analyses ask."""

from __future__ import annotations

from .store import Store

__all__ = ["Store"]
