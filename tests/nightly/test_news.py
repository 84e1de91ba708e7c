"""A regression alarms once per episode, in whatever run it begins, by whichever night writes the index."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.cli import main
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import done_markers, history, places, table
from postrun.nightly.history import Settings
from postrun.nightly.index import Book
from postrun.nightly.metrics import with_limits
from postrun.nightly.model import Row
from postrun.nightly.news import Turn

DAY = 86_400 * 10**9
START = 1_795_243_200 * 10**9
A, B, C = ("a" * 32, "b" * 32, "c" * 32)


def run(day: int, step: int, night: str | None = A, **more: Any) -> Row:
    at = START + day * DAY
    plain: dict[str, Any] = {
        "id": f"job/{day:03}", "state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1,
        "name": "job", "started_ns": at, "duration_ns": DAY // 24, "reported_at_ns": at + DAY, "ranks": 8, "gpus": 8,
        "gpu_name": "H100", "step_median_ns": step, "night": night,
    }  # fmt: skip
    return Row(**plain | more)


def put(out: Objects, *rows: Row) -> None:
    for row in rows:
        out.write(places.done(row.id), done_markers.marker(row))


def new(out: Objects, *mine: str, others: Sequence[str] = (), limits: Settings | None = None) -> list[str]:
    """Write the index as these nights, and return the runs with new regressions."""
    book = Book(limits or Settings())
    index = book.write(out, book.known(out), Turn(frozenset(mine), lambda: frozenset(others)))
    listed = {(one.id, one.metric) for one in index.regressions}
    assert {(one.id, one.metric) for one in index.new} <= listed
    return [one.id for one in index.new]


def known(out: Objects) -> Objects:
    """Write the index of an earlier night, which had a run of another family."""
    put(out, run(0, 100, None, id="other", name="other"))
    assert new(out) == []
    return out


@pytest.fixture
def out(tmp_path: Path) -> Objects:
    return known(open_objects(tmp_path / "out"))


SET_UP = START + 12 * DAY


def older(night: str, slow: Sequence[int] = (4, 9), at_ns: int = SET_UP) -> list[Row]:
    """Runs of ten days, with reports that one night makes after them."""
    return [run(day, 130 if day in slow else 100, night, reported_at_ns=at_ns) for day in range(10)]


def named(name: str, rows: Sequence[Row]) -> list[Row]:
    return [replace(row, id=f"{name}/{row.id[-3:]}", name=name) for row in rows]


def test_the_first_night_announces_no_history(tmp_path: Path) -> None:
    """Of each series the newest run counts, and the runs of the last 36 hours do."""
    out = open_objects(tmp_path / "out")
    put(out, *older(A), *named("fresh", [*older(A, slow=(4,)), run(11, 130, A), run(12, 100, A)]))
    assert new(out, A) == ["fresh/011", "job/009"]
    put(out, run(13, 150, B))
    assert new(out, B) == ["job/013"]


def test_history_that_the_first_night_left_is_no_news(tmp_path: Path) -> None:
    """As with a first night of --since: the next one reads ten older runs."""
    out = open_objects(tmp_path / "out")
    put(out, *(run(day, 100, reported_at_ns=SET_UP) for day in (10, 11)))
    assert new(out, A) == []
    put(out, *older(B, at_ns=SET_UP + DAY), *named("rare", older(B, at_ns=SET_UP + DAY)))
    assert new(out, B) == ["rare/009"]  # the newest of its series, as in a first night
    put(out, run(12, 130, C), run(13, 100, C))
    assert new(out, C) == ["job/012"]


def test_the_newest_run_is_the_newest_of_the_nights_that_have_ended(tmp_path: Path) -> None:
    """Another night has reported a newer run, and still works."""
    out = open_objects(tmp_path / "out")
    put(out, run(0, 100, A, id="other", name="other", reported_at_ns=SET_UP))
    assert new(out, A) == []
    put(out, *older(B), run(10, 100, C, reported_at_ns=SET_UP))
    assert new(out, B, others=[C]) == ["job/009"]
    assert new(out, C) == []


def test_an_archive_is_history_whatever_else_the_night_reads(out: Objects) -> None:
    put(out, run(0, 100), run(300, 100, A))
    assert new(out, A) == []
    put(out, *named("archive", [replace(row, started_ns=(row.started_ns or 0) - 100 * DAY) for row in older(B)]))
    assert new(out, B) == []  # its newest run is not of the last 30 days


def test_reports_that_are_made_again_or_forgotten_turn_nothing_into_history(out: Objects) -> None:
    put(out, *(run(day, 100) for day in (0, 1, 2, 4, 5, 6, 7, 8)))
    assert new(out, A) == []
    put(out, *(run(day, 100, B, options="other", reported_at_ns=START + 50 * DAY) for day in (0, 1, 2, 4, 5, 6, 7, 8)))
    out.delete(places.done("other"))
    assert new(out, B) == []
    put(out, run(3, 130, C, reported_at_ns=START + 51 * DAY))
    assert new(out, C) == ["job/003"]


def test_a_regression_in_an_older_run_of_a_backlog_is_new_once(out: Objects) -> None:
    """The newest run is as fast as the others, and the regression is 40 days old."""
    put(out, *(run(day, 130 if day == 4 else 100) for day in range(8)), run(45, 100))
    assert new(out, A) == ["job/004"]
    assert new(out, B) == []
    put(out, run(46, 140, B), replace(run(4, 130), options="other", night=B))
    assert new(out, B) == ["job/046"]  # the other report was made again


def test_an_older_run_that_new_ones_before_it_make_a_regression_is_new(out: Objects) -> None:
    put(out, run(9, 130, A))
    assert new(out, A) == []
    put(out, *(run(day, 100, B) for day in range(5)))
    assert new(out, B) == ["job/009"]
    assert new(out, C) == []


def test_other_settings_and_runs_that_are_gone_are_no_news(out: Objects) -> None:
    put(out, *(run(day, 108 if day == 6 else 100) for day in range(8)))
    assert new(out, A) == []
    assert new(out, B, limits=Settings(metrics=with_limits((), 5.0))) == []
    for day in (0, 1, 2, 3):
        out.delete(places.done(f"job/{day:03}"))
    assert new(out, B, limits=Settings(metrics=with_limits((), 5.0))) == []


def test_a_lost_index_repeats_nothing(out: Objects) -> None:
    put(out, *(run(day, 130 if day == 4 else 100) for day in range(8)))
    assert new(out, A) == ["job/004"]
    out.delete("index.parquet")
    put(out, run(10, 140, B))
    assert new(out, B) == ["job/010"]
    out.write("index.parquet", b"PAR1 and nothing else")
    put(out, run(11, 160, C))
    assert new(out, C) == ["job/011"]


def test_a_night_that_still_works_announces_its_runs_itself(out: Objects) -> None:
    """An index of another call in between neither takes nor repeats them."""
    put(out, *(run(day, 130 if day == 4 else 100, A) for day in range(8)))
    assert new(out, others=[A]) == []  # --index-only
    assert new(out, B, others=[A]) == []
    assert new(out, A, others=[B]) == ["job/004"]
    assert new(out, B, others=[A]) == []  # A still sends its tickets
    put(out, run(9, 140, B))
    assert new(out, B, others=[A]) == ["job/009"]


def test_the_parts_of_a_backlog_are_compared_by_the_part_that_ends_last(out: Objects) -> None:
    """Both parts have reported their runs before either of them writes the index."""
    put(out, *(run(day, 100, A) for day in range(5)), run(9, 130, B))
    assert new(out, A, others=[B]) == []
    assert new(out, B, others=[A]) == ["job/009"]
    assert new(out, C) == []


def test_the_news_of_a_night_that_was_killed_are_those_of_the_next(out: Objects) -> None:
    put(out, run(9, 130, A))
    assert new(out, A) == []
    put(out, *(run(day, 100, B) for day in range(5)))
    assert new(out, B) == ["job/009"]  # killed before it announced this
    assert new(out, others=[B]) == []
    assert new(out, C, B) == ["job/009"]
    assert new(out, C) == []


def test_a_night_that_is_overtaken_keeps_its_news(out: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    put(out, *(run(day, 130 if day == 4 else 100) for day in range(8)))
    still, answers = table.is_still, [False]

    def overtaken(*arguments: Any) -> bool:
        if answers and not answers.pop():
            Book().write(out, Book().known(out))
            return False
        return still(*arguments)

    monkeypatch.setattr(table, "is_still", overtaken)
    assert new(out, A) == ["job/004"]


@settings(max_examples=examples(15))
@given(
    steps=st.lists(st.integers(90, 140), min_size=1, max_size=16),
    order=st.randoms(use_true_random=False),
    parts=st.integers(1, 6),
)
def test_every_regression_is_announced_once_or_follows_another_in_whatever_order_runs_come(
    steps: list[int], order: Any, parts: int
) -> None:
    out = known(open_objects(f"memory://news-{order.random()}"))
    rows = [run(day, step) for day, step in enumerate(steps)]
    order.shuffle(rows)
    before, announced, present = set[str](), list[str](), list[str]()
    for number in range(parts):
        some = [replace(row, night=f"{number:032x}") for row in rows[number::parts]]
        put(out, *some)
        present = sorted([*present, *(row.id for row in some)])
        alarms = new(out, f"{number:032x}")
        now = marked(out)
        assert set(alarms) <= now - before
        for silent in now - before - set(alarms) - set(announced):
            position = present.index(silent)
            assert now.intersection(present[max(0, position - 3) : position])
        announced += alarms
        before = now
    assert len(announced) == len(set(announced))


def marked(out: Objects) -> set[str]:
    """Return the marked runs of the index."""
    frame = pl.read_parquet(io.BytesIO(out.read("index.parquet")))
    return set(frame.filter(pl.col("step_mark") == "regression")["id"].to_list())


def test_a_quiet_night_names_every_regression(tmp_path: Path) -> None:
    names = [f"job-{letter}" for letter in "abcdefg"]
    rows = [run(day, 140 if day == 9 else 100, reported_at_ns=SET_UP) for day in range(10)]
    put(open_objects(tmp_path / "out"), *(row for name in names for row in named(name, rows)))
    (tmp_path / "source").mkdir()
    words = ["nightly", str(tmp_path / "source"), "--out", str(tmp_path / "out"), "--index-only", "--quiet"]
    done = CliRunner().invoke(main, [*words, "--fail-on", "regression"])
    assert done.exit_code == 3
    assert sorted(re.findall(r"in (job-\w)/009", done.stderr)) == names
    assert "job-" not in CliRunner().invoke(main, words).stderr


def test_regressions_of_all_ages_are_those_with_a_mark(out: Objects) -> None:
    rows = [run(day, 130 if day in (4, 9) else 100) for day in range(60)]
    put(out, *rows)
    new(out, A)
    frame = table.frame(rows, family=pl.Series(["job"] * len(rows)))
    assert {one.id for one in history.regressions(frame, Settings())} == marked(out) == {"job/004", "job/009"}


# -- episodes: one alarm each ----------------------------------------------------------------------------------------------


@pytest.fixture
def steady(out: Objects) -> Objects:
    """Have eight runs that are alike."""
    put(out, *(run(day, 100) for day in range(8)))
    assert new(out, A) == []
    return out


def alarms(out: Objects, *steps: int, first: int = 8, limits: Settings | None = None) -> list[int]:
    """Report a run per night, and return the days that alarm."""
    days = []
    for day, step in enumerate(steps, first):
        put(out, run(day, step, f"{day:032x}"))
        if ids := new(out, f"{day:032x}", limits=limits):
            assert ids == [f"job/{day:03}"]
            days.append(day)
    return days


def test_a_figure_around_its_limit_alarms_once_until_three_runs_are_as_fast_as_before(steady: Objects) -> None:
    assert alarms(steady, 112, 108, 112, 108, 108, 112, 100, 100, 100, 150) == [8, 17]


def test_a_run_that_is_worse_than_the_alarm_by_the_limit_alarms_again(out: Objects) -> None:
    """Small steps add up: each is compared with the alarm, not with the run before."""
    baseline = Settings(baseline="job/000")
    assert alarms(out, 100, 112, 118, 124, 130, 135, 111, first=0, limits=baseline) == [1, 3, 5]


def test_the_runs_of_a_baseline_that_stay_slow_alarm_once(out: Objects) -> None:
    assert alarms(out, 100, *[115] * 10, first=0, limits=Settings(baseline="job/000")) == [1]


def test_the_number_of_runs_that_end_an_episode_is_that_of_new_issues(steady: Objects) -> None:
    assert alarms(steady, 112, 108, 112, limits=Settings(fine_runs=1)) == [8, 10]


def test_a_regression_that_nobody_announced_silences_none(steady: Objects) -> None:
    """Lower limits alone make no news; the next run does."""
    assert alarms(steady, 108) == []
    assert alarms(steady, 108, first=9, limits=Settings(metrics=with_limits((), 5.0))) == [9]


def test_history_silences_no_alarm(tmp_path: Path) -> None:
    out = open_objects(tmp_path / "out")
    put(out, *older(A, slow=(8,)))
    assert new(out, A) == []
    put(out, run(10, 130, B))
    assert new(out, B) == ["job/010"]


def test_an_episode_whose_night_was_killed_is_announced_by_the_next(steady: Objects) -> None:
    put(steady, run(8, 130, B))
    assert new(steady, B) == ["job/008"]  # killed before it announced this
    put(steady, run(9, 130, C))
    assert new(steady, C, B) == ["job/008"]
    put(steady, run(10, 130, A))
    assert new(steady, A) == []


def test_a_run_that_other_runs_before_it_make_slow_twice_alarms_once(out: Objects) -> None:
    put(out, *(run(day, 100) for day in range(0, 16, 4)), run(20, 130, A))
    assert new(out, A) == ["job/020"]
    put(out, *(run(day, 130, B) for day in (13, 14, 15, 17, 18)))
    new(out, B)
    assert "job/020" not in marked(out)
    put(out, *(run(day, 100, C) for day in (1, 2, 3, 19)), *(run(day, 100, C, reported_at_ns=START + 40 * DAY) for day in (13, 14, 15)))
    assert "job/020" not in new(out, C)
    assert "job/020" in marked(out)


def test_a_run_whose_files_were_replaced_alarms_again(steady: Objects) -> None:
    assert alarms(steady, 130) == [8]
    put(steady, run(8, 100, B, fingerprint="g"))
    assert new(steady, B) == []
    put(steady, run(8, 130, C, fingerprint="h"))
    assert new(steady, C) == ["job/008"]


@pytest.mark.parametrize("text", ["", "[", "7", "[[1]]", '[["job/008", "step", "x", ""]]', "[" * 100_000])
def test_an_episode_alarms_once_more_if_the_index_lost_it(text: str, steady: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as lost:
        lost.setattr("postrun.nightly.episodes.encoded", lambda episodes: text)
        assert alarms(steady, 130) == [8]
    assert alarms(steady, 130, 130, first=9) == [9]
