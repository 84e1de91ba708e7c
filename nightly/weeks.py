"""Periods of a digest: texts of options -> start and end, in UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from ..errors import UsageError

DAY_NS: Final = 86_400 * 10**9
_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class Period:
    """Jobs that ended since ``since_ns`` and before ``until_ns`` (Unix time). ``week``: its ISO week, such as "2026-W48", or None."""

    since_ns: int
    until_ns: int
    week: str | None = None

    @property
    def before(self) -> Period:
        """Return the period of equal length before it."""
        return Period(2 * self.since_ns - self.until_ns, self.since_ns)

    @property
    def title(self) -> str:
        """Return "Week 48 of 2026", or start and end."""
        return f"Week {int(self.week[6:])} of {self.week[:4]}" if self.week else self.days

    @property
    def days(self) -> str:
        """Return the first and the last day, or the times if they are not whole days."""
        since, until = _time(self.since_ns), _time(self.until_ns)
        if self.since_ns % DAY_NS or self.until_ns % DAY_NS:
            return f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
        return f"{since:%Y-%m-%d} to {until - timedelta(days=1):%Y-%m-%d} UTC"


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC)


def week(text: str) -> Period:
    """Parse an ISO week: "2026-W48" is from Monday, 00:00 UTC. Raise UsageError."""
    match = re.fullmatch(r"\s*(\d{4})-?W(\d{2})\s*", text)
    try:
        monday = date.fromisocalendar(int(match[1]), int(match[2]), 1) if match else None
    except ValueError:
        monday = None
    if monday is None or monday.year < 1970:
        raise UsageError(f"{text!r} is not a week; write it like 2026-W48")
    return _week_of(monday)


def _week_of(monday: date) -> Period:
    since = (monday - date(1970, 1, 1)).days * DAY_NS
    year, number, _ = monday.isocalendar()
    return Period(since, since + _DAYS * DAY_NS, f"{year}-W{number:02}")


def last_week(now_ns: int) -> Period:
    """Return the last ISO week that is over."""
    today = _time(now_ns).date()
    return _week_of(today - timedelta(days=today.weekday() + _DAYS))


def period(week: Period | None, since_ns: int | None, until_ns: int | None, now_ns: int) -> Period:
    """Return the period of --week, or of --since and --until. Raise UsageError."""
    if since_ns is None and until_ns is None:
        return _begun(week or last_week(now_ns), now_ns)
    if week is not None:
        raise UsageError("--week excludes --since and --until; leave it out, or them")
    until = now_ns if until_ns is None else until_ns
    since = until - _DAYS * DAY_NS if since_ns is None else since_ns
    if not 0 <= since < until:
        raise UsageError("--until is not after --since; swap them, or leave one out")
    return _begun(Period(since, until), now_ns)


def _begun(period: Period, now_ns: int) -> Period:
    if period.since_ns >= now_ns:
        raise UsageError(f"the period {period.days} is in the future; give one that has begun")
    return period
