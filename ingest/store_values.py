"""Checks the values of a run store whose origin is unknown: raises an InputError that names the table and the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store import Store


def check(store: Store, name: str) -> None:
    """Raise InputError if the store has a value that no reader writes. ``name``: of its file, for the message."""
