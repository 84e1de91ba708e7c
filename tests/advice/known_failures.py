"""Cases that the report does not get right yet: name of the case -> what it says instead. The tests expect exactly these to fail."""

from __future__ import annotations

from typing import Final

KNOWN: Final[dict[str, str]] = {}
