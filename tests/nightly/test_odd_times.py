"""Alarms with wrong clocks, with runs without times, after a first night with a limit, and after the index was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest.object_store.objects import ObjectInfo, Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import done_markers, places
from postrun.nightly.discover import found_runs
from postrun.nightly.history import Settings
from postrun.nightly.index import Book
from postrun.nightly.model import Row
from postrun.nightly.news import Turn

pytestmark = pytest.mark.slow

DAY = 86_400 * 10**9
START = 1_795_243_200 * 10**9
A, B, C = ("a" * 32, "b" * 32, "c" * 32)


def run(day: int, step: int, night: str = A, **more: Any) -> Row:
    at = START + day * DAY
    plain: dict[str, Any] = {
        "id": f"job/{day:03}", "state": "reported", "kind": "traces", "fingerprint": f"{day}", "options": "o", "bytes": 1, "files": 1,
        "name": "job", "started_ns": at, "duration_ns": DAY // 24, "reported_at_ns": at + DAY // 2, "ranks": 8, "step_median_ns": step,
        "night": night,
    }  # fmt: skip
    return Row(**plain | more)


def new(out: Objects, *rows: Row) -> list[str]:
    """Report runs in a night, and return those that alarm."""
    for row in rows:
        out.write(places.done(row.id), done_markers.marker(row))
    book = Book(Settings())
    return [one.id for one in book.write(out, book.known(out), Turn(frozenset({rows[-1].night or ""}))).new]


@pytest.fixture
def out(tmp_path: Path) -> Objects:
    """Eight nights of alike runs, each reported on its day."""
    out = open_objects(tmp_path / "out")
    assert new(out, *(run(day, 100) for day in range(8))) == []
    return out


@pytest.mark.parametrize("wrong_days", [400, 3, -3, -40])
def test_a_run_whose_clock_is_wrong_alarms_once_and_hides_no_other(out: Objects, wrong_days: int) -> None:
    """Unless it began before all that it could be compared with."""
    slow = run(8, 150, B)
    slow = replace(slow, started_ns=(slow.started_ns or 0) + wrong_days * DAY)
    assert new(out, slow) == ([] if wrong_days == -40 else ["job/008"])
    assert new(out, run(9, 100, C)) == []
    assert new(out, run(10, 100, A), run(11, 100, A), run(12, 160, A)) == ["job/012"]


def test_files_from_the_future_are_running_until_then() -> None:
    now = START
    listing = [ObjectInfo("a/trace.json", 5, '"x"', now + 3 * DAY)]
    for settle, at, complete in ((DAY // 144, now, False), (DAY // 144, now + 4 * DAY, True), (0, now, True)):
        (only,) = found_runs(listing, now_ns=at, settle_ns=settle)
        assert only.complete == complete


def test_runs_without_times_are_in_the_order_of_their_reports(tmp_path: Path) -> None:
    out = open_objects(tmp_path / "out")
    rows = [replace(run(day, 150 if day == 2 else 100), started_ns=None, duration_ns=None) for day in range(8)]
    assert new(out, *rows) == []
    assert new(out, replace(run(8, 150, B), started_ns=None, duration_ns=None)) == ["job/008"]
    assert new(out, *(replace(run(day, 100, A), started_ns=None, duration_ns=None) for day in range(9, 14))) == []
    # A report that is made again is a later one, which the runs before it show to be slow.
    assert new(out, replace(rows[2], reported_at_ns=START + 20 * DAY, night=C)) == ["job/002"]


def test_a_first_night_with_a_limit_alarms_about_the_newest_runs_that_it_reads(tmp_path: Path) -> None:
    """They are old: the runs that have waited longest are first."""
    out = open_objects(tmp_path / "out")
    at = START + 100 * DAY
    assert new(out, *(run(day, 150 if day == 7 else 100, reported_at_ns=at) for day in range(8))) == ["job/007"]
    assert new(out, *(run(day, 150 if day == 12 else 100, B, reported_at_ns=at + DAY) for day in range(8, 16))) == []
    assert new(out, *(run(day, 100, C, reported_at_ns=at + 2 * DAY) for day in range(16, 20)), run(100, 150, C)) == ["job/100"]


def test_force_with_a_lost_index_is_a_first_night(out: Objects) -> None:
    assert new(out, run(8, 150, B)) == ["job/008"]
    out.delete("index.parquet")
    again = [run(day, 150 if day in (4, 8) else 100, C, reported_at_ns=START + 9 * DAY) for day in range(9)]
    assert new(out, *again) == ["job/008"]
    assert new(out, run(9, 100, A)) == []
