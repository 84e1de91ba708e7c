"""Run stores: tables, identities, and limits. Readers fill a `Store`, and the analysis queries it."""

from __future__ import annotations

from .store import Store

__all__ = ["Store"]
