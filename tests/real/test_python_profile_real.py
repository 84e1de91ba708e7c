"""Tests of the hosted profiler's three real Python profiles: rows as pstats reads them, and the figures of the report from them."""

from __future__ import annotations

import pstats
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.python_profile.profile import PHASE_ROWS, STEP_ROWS, python_profile
from postrun.analysis.report import FlameGraph, PythonProfile
from postrun.ingest import ingest
from postrun.ingest.store import Store

EXPECTED = [(2722, 179_844, 9.7286), (293, 1299, 1.0448), (230, 1129, 0.0048)]
Entries = dict[Any, Any]


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    folder = shared_data / "smdebug/tfprofiler_timeline_traces/framework/tensorflow/cProfile"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


@pytest.fixture(scope="module")
def files(folder: Path) -> list[Entries]:
    """By pstats itself: these files are known to be good."""
    return [pstats.Stats(str(path)).stats for path in sorted(folder.glob("*/python_stats"))]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    with ingest([folder]) as store:
        yield store


@pytest.fixture(scope="module")
def profile(store: Store) -> PythonProfile:
    return python_profile(store)


def test_functions_calls_and_seconds_are_the_published_ones(store: Store) -> None:
    actual = store.frame("SELECT functions, calls, total_s FROM python_window ORDER BY start_ns").rows()
    assert [(functions, calls, round(seconds, 4)) for functions, calls, seconds in actual] == EXPECTED
    assert store.frame("SELECT count(*) AS n FROM ingest_note").item() == 0
    assert store.frame("SELECT hostname, pid FROM process AS p JOIN node AS n ON n.id = p.node").rows() == [("algo-1", 151)]


def test_windows_are_those_that_the_older_folders_name(store: Store) -> None:
    actual = store.frame(
        "SELECT start_mode, start_step, end_step, start_ns, duration_ns, timer FROM python_window ORDER BY start_ns"
    ).rows()
    assert actual == [
        ("prestepzero", None, None, 1596585363775342000, 9_729_447_000, None),
        (None, 2, 2, 1596585374963238000, 1_044_923_000, None),
        (None, 3, 3, 1596585376012363800, 4_882_700, None),
    ]


def test_every_function_and_every_call_is_that_of_pstats(store: Store, files: list[Entries]) -> None:
    for window, entries in enumerate(files):
        rows = store.frame(
            f'SELECT function, primitive_calls, calls, total_s, cumulative_s FROM python_profile WHERE "window" = {window}'
        ).rows()
        assert sorted(rows) == sorted((pstats.func_std_string(key), *entry[:4]) for key, entry in entries.items())  # type: ignore[attr-defined]
        edges = store.frame(f"""
            SELECT a.function, b.function, c.calls, c.primitive_calls, c.total_s, c.cumulative_s FROM python_call AS c
            JOIN python_profile AS a ON a."window" = c."window" AND a.id = c.caller
            JOIN python_profile AS b ON b."window" = c."window" AND b.id = c.callee WHERE c."window" = {window}
        """).rows()
        name = pstats.func_std_string  # type: ignore[attr-defined]
        assert sorted(edges) == sorted((name(k), name(key), *edge) for key, entry in entries.items() for k, edge in entry[4].items())


def test_rows_of_the_report_are_the_functions_with_most_own_time(profile: PythonProfile, files: list[Entries]) -> None:
    for label, entries in zip(("before the first step", "step 2", "step 3"), files, strict=True):
        rows = [row for row in profile.rows if row.label == label]
        assert len(rows) == min(STEP_ROWS, len(entries))
        times = sorted((entry[2] for entry in entries.values()), reverse=True)
        assert [row.total_s for row in rows] == pytest.approx(times[: len(rows)], abs=1e-9)
        by_name = {pstats.func_std_string(key): entry for key, entry in entries.items()}  # type: ignore[attr-defined]
        for row in rows:
            entry = by_name[row.function]
            assert (row.primitive_calls, row.calls) == entry[:2]
            assert row.cumulative_s == pytest.approx(entry[3], abs=1e-9)
        assert len({row.short for row in rows}) == len(rows)


def test_the_training_loop_is_both_steps_together(profile: PythonProfile, files: list[Entries]) -> None:
    (loop,) = (one for one in profile.groups if (one.by, one.label) == ("job phase", "training loop"))
    own_times: dict[str, float] = {}
    calls: dict[str, int] = {}
    for entries in files[1:]:
        for key, entry in entries.items():
            name = pstats.func_std_string(key)  # type: ignore[attr-defined]
            own_times[name] = own_times.get(name, 0.0) + entry[2]
            calls[name] = calls.get(name, 0) + entry[1]
    assert (loop.windows, loop.calls, loop.functions) == (2, sum(calls.values()), len(own_times))
    assert loop.total_s == pytest.approx(sum(own_times.values()))
    assert [row.total_s for row in loop.rows] == pytest.approx(sorted(own_times.values(), reverse=True)[:PHASE_ROWS], abs=1e-9)
    assert all(row.calls == calls[row.function] for row in loop.rows)


def flame(profile: PythonProfile, label: str) -> FlameGraph:
    return next(one for one in profile.flames if one.label == label)


def test_the_call_tree_holds_all_time_and_starts_where_pstats_has_no_caller(profile: PythonProfile, files: list[Entries]) -> None:
    graph = flame(profile, "initialization")
    assert not graph.exact
    assert (graph.frames[0].function, graph.frames[0].depth) == ("tf_keras_fit_eager.py:46(main)", 0)
    assert graph.total_s == pytest.approx(sum(entry[2] for entry in files[0].values()), rel=1e-3)
    for number, frame in enumerate(graph.frames):
        below = []
        for later in graph.frames[number + 1 :]:
            if later.depth <= frame.depth:
                break
            if later.depth == frame.depth + 1:
                below.append(later)
        assert sum(one.total_s for one in below) + frame.own_s <= frame.total_s + 1e-6
        assert all(
            frame.start_s - 1e-6 <= one.start_s and one.start_s + one.total_s <= frame.start_s + frame.total_s + 1e-6 for one in below
        )


def test_no_function_has_more_time_in_the_tree_than_in_its_file(profile: PythonProfile, files: list[Entries]) -> None:
    """A frame is not longer than its function; outside of circles their sum is not."""
    total = {pstats.func_std_string(key): entry for key, entry in files[0].items()}  # type: ignore[attr-defined]
    together: dict[str, float] = {}
    for frame in flame(profile, "initialization").frames:
        if frame.kind not in ("other", "recursion"):
            assert frame.total_s <= total[frame.function][3] + 1e-6
            together[frame.function] = together.get(frame.function, 0.0) + frame.total_s
    straight = [name for name in together if total[name][0] == total[name][1] and not re.search(r"base\.py|variables\.py", name)]
    assert len(straight) > 60
    assert all(together[name] <= total[name][3] * 1.001 + 1e-6 for name in straight)
    # The function with the longest own time is there with nearly all of it.
    built_in = "{built-in method tensorflow.python._pywrap_tfe.TFE_NewContext}"
    assert together[built_in] == pytest.approx(total[built_in][2], rel=0.06)
