"""A source whose path contains the date: only the folders of the days in question are listed.

``s3://bucket/{yyyy}/{mm}/{dd}/`` -> the source ``s3://bucket`` and the prefixes ``2026/11/20/``, ... of its listing. The ids of runs are
the same as without a template.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from ..errors import UsageError

_FIELDS: Final = {"{yyyy}": "%Y", "{mm}": "%m", "{dd}": "%d"}
_FIELD: Final = re.compile("|".join(map(re.escape, _FIELDS)))
_DEFAULT: Final = timedelta(days=7)
_ZONES: Final = timedelta(days=1)  # Dates in a path may be in another time zone
_MOST_DAYS: Final = 10_000


def divided(source: str) -> tuple[str, str | None]:
    """Return the part of a source without dates, and the rest; None without dates.

    Raise UsageError for dates without a year."""
    first = _FIELD.search(source)
    if first is None:
        return source, None
    above, slash, _ = source[: first.start()].rpartition("/")
    pattern = source[len(above) + len(slash) :]
    if "{yyyy}" not in pattern or ("{dd}" in pattern and "{mm}" not in pattern):
        raise UsageError(
            f"{source}: a date in the path needs {{yyyy}}, and {{mm}} with {{dd}}, such as s3://bucket/{{yyyy}}/{{mm}}/{{dd}}/"
        )
    if above.endswith(":/"):
        raise UsageError(f"{source}: the name of a bucket cannot contain the date; write s3://bucket/{{yyyy}}/{{mm}}/{{dd}}/")
    return above or ("/" if slash else "."), pattern


def prefixes(pattern: str, since_ns: int | None, until_ns: int | None, now_ns: int) -> tuple[str, ...]:
    """Return the prefixes of all days of a time, in order, and of one day around it.

    ``since_ns``: None is a week before the end. ``until_ns``: None is now."""
    end = _moment(now_ns if until_ns is None else until_ns)
    start = end - _DEFAULT if since_ns is None else _moment(since_ns)
    days = (end.date() - start.date()).days + 2 * _ZONES.days + 1
    if not 0 < days <= _MOST_DAYS:
        raise UsageError("--since and --until contain no day, or more than ten thousand; give nearer times")
    dates = [start.date() - _ZONES + timedelta(days=number) for number in range(days)]
    return tuple(sorted({_with_date(pattern, day) for day in dates}))


def _with_date(pattern: str, day: date) -> str:
    return _FIELD.sub(lambda match: day.strftime(_FIELDS[match[0]]), pattern)


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC)
