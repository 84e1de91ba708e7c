"""Mark some values of a parametrized test as slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_except(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return ``values`` as parameters; those that are not in ``quick`` are slow."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
