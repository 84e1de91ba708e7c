"""Scale the number of examples of a property test to the active Hypothesis profile."""

from __future__ import annotations

from hypothesis import settings

FULL = 50  # max_examples of the profile "full" (tests/conftest.py)


def examples(count: int) -> int:
    """Return how many examples to try where the profile "full" tries ``count``."""
    return max(3, count * settings.default.max_examples // FULL)
