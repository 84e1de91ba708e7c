"""Cases that the report does not get right yet: name of the case -> its first broken expectation. The tests expect these to fail."""

from __future__ import annotations

from typing import Final

KNOWN: Final[dict[str, str]] = {}
