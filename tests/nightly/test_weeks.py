"""Weeks of a digest are ISO weeks in UTC, also at the end of a year."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.errors import UsageError
from postrun.nightly.weeks import DAY_NS, Period, last_week, period, week


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("text", "monday", "days"),
    [
        ("2026-W48", "2026-11-23", "2026-11-23 to 2026-11-29 UTC"),
        ("2026W48", "2026-11-23", "2026-11-23 to 2026-11-29 UTC"),
        ("2026-W01", "2025-12-29", "2025-12-29 to 2026-01-04 UTC"),
        ("2026-W53", "2026-12-28", "2026-12-28 to 2027-01-03 UTC"),
        ("2027-W01", "2027-01-04", "2027-01-04 to 2027-01-10 UTC"),
    ],
)
def test_a_week_begins_on_monday(text: str, monday: str, days: str) -> None:
    parsed = week(text)
    assert (parsed.since_ns, parsed.until_ns) == (ns(monday), ns(monday) + 7 * DAY_NS)
    assert parsed.days == days
    assert parsed.title == f"Week {int(text[-2:])} of {text[:4]}"


@pytest.mark.parametrize("text", ["2025-W53", "2026-W00", "2026-W54", "48", "2026-48", "2026-W4", "", "1969-W10", "9999-W60"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a week; write it like 2026-W48"):
        week(text)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-11-28T14:00", "2026-W47"),
        ("2026-11-29T23:59", "2026-W47"),
        ("2026-11-30T00:00", "2026-W48"),
        ("2027-01-03T12:00", "2026-W52"),
        ("2027-01-04T00:00", "2026-W53"),
        ("2027-01-11T06:00", "2027-W01"),
    ],
)
def test_the_default_is_the_last_week_that_is_over(now: str, expected: str) -> None:
    assert period(None, None, None, ns(now)) == last_week(ns(now)) == week(expected)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_the_last_week_ends_at_most_seven_days_ago(now: datetime) -> None:
    now_ns = ns(now.isoformat(timespec="seconds"))
    result = last_week(now_ns)
    assert result.until_ns <= now_ns < result.until_ns + 7 * DAY_NS
    assert result.week is not None
    assert week(result.week) == result
    assert datetime.fromtimestamp(result.since_ns // 10**9, UTC).weekday() == 0


def test_other_periods() -> None:
    now = ns("2026-11-28T14:00")
    assert period(None, now - DAY_NS, None, now) == Period(now - DAY_NS, now)
    assert period(None, None, now - DAY_NS, now) == Period(now - 8 * DAY_NS, now - DAY_NS)
    assert Period(now - DAY_NS, now).days == Period(now - DAY_NS, now).title == "2026-11-27 14:00 to 2026-11-28 14:00 UTC"
    assert week("2027-W01").before == Period(week("2026-W53").since_ns, week("2026-W53").until_ns)
    for wrong in ((now, now), (now, now - 1), (-1, now)):
        with pytest.raises(UsageError, match="--until is not after --since"):
            period(None, *wrong, now)
    assert period(week("2026-W48"), None, None, now) == week("2026-W48")
    for future in ((week("2026-W49"), None, None), (None, now, now + DAY_NS)):
        with pytest.raises(UsageError, match="is in the future; give one that has begun"):
            period(*future, now)
    with pytest.raises(UsageError, match="--week excludes"):
        period(week("2026-W48"), now, None, now)
