"""The criteria of the acceptance suite, on rows made by hand: each of them accepts right rows and finds wrong ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import prt_reader
import pytest
from acceptance import checks, traces

Row = dict[str, Any]


def kernel(start: int, duration: int = 10, name: str = "postrun_alpha", **more: Any) -> Row:
    shape = {"grid_x": 1, "grid_y": 1, "grid_z": 1, "block_x": 32, "block_y": 1, "block_z": 1, "shared_memory": 0}
    return {"name": name, "start_ns": start, "duration_ns": duration, "correlation": start, "graph_node": 0} | shape | more


def call(start: int, correlation: int, name: str = "cudaLaunchKernel", kind: int = 0, tid: int = 5) -> Row:
    return {"name": name, "start_ns": start, "duration_ns": 1, "correlation": correlation, "kind": kind, "tid": tid}


def tables(facts: dict[str, str] | None = None, **rows: list[Row]) -> traces.Tables:
    empty: traces.Tables = {name: [] for name in traces.TABLES}
    return empty | rows | {"meta": [{"key": key, "value": value} for key, value in (facts or {}).items()]}


S = 1_000_000_000  # ns


def test_counts_name_what_is_missing_and_what_is_too_much() -> None:
    assert checks.counts_equal(["a", "a", "b"], {"a": 2, "b": 1}, "kernels") == []
    assert checks.counts_equal(["a", "c"], {"a": 2}, "kernels") == ["kernels a: 1 instead of 2", "kernels c: 1 instead of 0"]


def test_windows_and_what_lies_in_them() -> None:
    facts = {"gpu.window.1": f"{5 * S} {6 * S}", "gpu.window.0": f"{S} {2 * S}", "gpu.window.2": f"{9 * S}", "gpu.window.0.closed": "time"}
    windows = checks.windows_of(facts)
    assert windows == [(S, 2 * S), (5 * S, 6 * S), (9 * S, 0)]
    assert checks.inside_window([kernel(S), kernel(2 * S - 10), kernel(99 * S)], windows) == []
    (problem,) = checks.inside_window([kernel(3 * S)], windows)
    assert "outside of every window" in problem


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call(90, 100)], []),
        ([], ["postrun_alpha: correlation 100 has 0 launch calls "]),
        ([call(90, 100), call(91, 100)], ["postrun_alpha: correlation 100 has 2 launch calls cudaLaunchKernel"]),
        ([call(90, 100), call(91, 100, "cudaGetDevice", kind=2)], []),
        ([call(107, 100)], ["postrun_alpha: starts 7 ns before its launch call"]),
    ],
)
def test_each_kernel_has_one_launch_before_it(calls: list[Row], expected: list[str]) -> None:
    assert checks.one_launch_each(tables(kernel=[kernel(100)], api=calls)) == expected


def test_shapes() -> None:
    wanted = {"postrun_alpha": (1, 1, 1, 32, 1, 1, 0)}
    assert checks.shapes([kernel(1)], wanted) == []
    assert checks.shapes([kernel(1), kernel(2, shared_memory=48)], wanted) == [
        "postrun_alpha: shape (1, 1, 1, 32, 1, 1, 48) instead of (1, 1, 1, 32, 1, 1, 0)"
    ]


def spin(start: int, duration: int) -> Row:
    return kernel(start, duration, "postrun_spin")


def test_spins_lie_between_host_times_and_are_as_long_as_events_say() -> None:
    ms = checks.MS
    assert checks.spins([spin(ms, 10 * ms)], [(0, 12 * ms, 10.05)]) == []
    assert checks.spins([], [(0, 12 * ms, 10.0)]) == ["0 spin kernels instead of 1"]
    assert "1000000 ns before" in checks.spins([spin(ms, 10 * ms)], [(2 * ms, 12 * ms, 10.0)])[0]
    assert "2000000 ns after" in checks.spins([spin(ms, 10 * ms)], [(0, 9 * ms, 10.0)])[0]
    assert checks.spins([spin(ms, 10 * ms)], [(0, 12 * ms, 10.2)]) == ["kernel 0: 10000000 ns, 10200000 ns by events"]


def test_windows_that_miss_a_kernel_or_have_one_too_many() -> None:
    windows = [(S, 2 * S), (5 * S, 6 * S)]
    right = [kernel(S + 5), kernel(5 * S + 5)]
    assert checks.kernels_per_window(tables(kernel=right), windows, 1) == []
    assert checks.kernels_per_window(tables(kernel=right[:1]), windows, 1) == [
        "kernels in window 1: 0 instead of 1",
        "kernels in all windows: 1 instead of 2",
    ]
    between = [*right, kernel(3 * S, name="postrun_gamma"), kernel(4 * S)]
    assert checks.kernels_per_window(tables(kernel=between), windows, 1) == [
        "kernels that were launched between windows: 1 instead of 0",
        "kernels in all windows: 3 instead of 2",
    ]


PHASE = {"begin": 10 * S, "end": 11 * S, "launched": 2, "window": 1}
ANOTHER_PROFILER = {"capability.gpu": "another profiler uses CUPTI"}
MISSING = ["phase 0: 1 kernels are missing and no reason is recorded"]
GOES_ON = ["phase 0: 1 kernels are missing and the window goes on"]


@pytest.mark.parametrize(
    ("kernels", "facts", "expected"),
    [
        ([10.1, 10.2], {"gpu.window.0": f"{9 * S} {12 * S}"}, []),
        ([10.1], {"gpu.window.0": f"{9 * S} {12 * S}"}, MISSING),
        ([10.1], ANOTHER_PROFILER | {"gpu.window.0": f"{9 * S} {12 * S}"}, GOES_ON),
        ([10.1], ANOTHER_PROFILER | {"gpu.window.0": f"{9 * S}"}, GOES_ON),
        ([10.1], ANOTHER_PROFILER | {"gpu.window.0": f"{9 * S} {10 * S}"}, []),
        ([10.1], ANOTHER_PROFILER, []),
        ([10.1, 10.2, 10.3], ANOTHER_PROFILER, ["phase 0: 3 kernels recorded of 2"]),
    ],
)
def test_kernels_that_another_client_took_are_reported(kernels: list[float], facts: dict[str, str], expected: list[str]) -> None:
    rows = [kernel(int(at * S)) for at in kernels]
    problems, figures = checks.missing_is_reported([PHASE], tables(facts, kernel=rows), S, "postrun_alpha")
    assert problems == expected
    assert figures == [{"launched": 2, "recorded": len(kernels)}]


def test_kernels_outside_of_the_window_are_found() -> None:
    problems, _ = checks.missing_is_reported([PHASE | {"window": 0}], tables(kernel=[kernel(int(10.5 * S))]), S, "")
    assert problems == ["phase 0: kernels outside of the window: 1 instead of 0"]


REPLAYS = {"replays": 2, "kernels": 2, "copies": 0, "memsets": 0}
LAUNCHES = [call(100, 1, "cudaGraphLaunch"), call(200, 2, "cudaGraphLaunch")]


def node(start: int, correlation: int) -> Row:
    return kernel(start, correlation=correlation, graph_node=7)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([(110, 1), (120, 1), (210, 2), (220, 2)], []),
        ([(110, 1), (120, 1), (210, 2)], ["kernels of graphs: 3 instead of 4", "replay 1: 1 kernels have its correlation"]),
        ([(110, 1), (220, 1), (120, 2), (210, 2)], ["kernels of another replay have its correlation"] * 2),
        ([(110, 0), (120, 0), (210, 1), (220, 1)], ["replay 0: kernels of another", "replay 1: 0 kernels have its correlation"]),
    ],
)
def test_replays_have_their_own_kernels(nodes: list[tuple[int, int]], expected: list[str]) -> None:
    rows = tables(kernel=[node(*at) for at in nodes], api=LAUNCHES)
    actual = checks.graph_replays(rows, REPLAYS) + checks.replay_correlations(rows, REPLAYS)
    assert len(actual) == len(expected)
    assert all(text in problem for text, problem in zip(expected, actual, strict=True)), actual


def test_launches_of_threads() -> None:
    rows = [kernel(1), kernel(2), kernel(3)]
    calls = [call(0, 1, tid=5), call(0, 2, tid=5), call(0, 3, tid=6)]
    assert checks.launches_by_thread(tables(kernel=rows, api=calls[:2]), [5], 2) == []
    assert checks.launches_by_thread(tables(kernel=rows, api=calls), [5], 2) == ["launches of thread 6: 1 instead of 0"]


def test_overlaps() -> None:
    assert checks.overlaps([kernel(0), kernel(10), kernel(15)]) == 1


def test_kernels_against_another_profiler() -> None:
    same = {"a": [1000] * 10, "b": [50_000] * 4}
    assert checks.same_kernels(same, same) == []
    assert checks.same_kernels(same | {"a": [1290] * 10}, same) == []  # within 300 ns
    (problem,) = checks.same_kernels(same | {"a": [1310] * 10}, same)
    assert problem == "a: median 1310 ns instead of 1000 ns"
    assert checks.same_kernels(same | {"b": [53_000] * 4}, same)[0].startswith("kernel time: ")
    assert checks.same_kernels(same | {"b": [50_000] * 3}, same)[0] == "kernels b: 3 instead of 4"


def test_losses_and_odd_records() -> None:
    lost = tables(loss=[{"reason": 6, "count": 3}, {"reason": 5, "count": 1}])
    assert checks.nothing_lost(lost) == ["lost 3 records, reason 6", "lost 1 records, reason 5"]
    assert checks.untimed(lost) == ["3 device records without times"]
    assert checks.untimed(tables(loss=[{"reason": 5, "count": 1}])) == []
    assert checks.clean_records({"cupti.unknown_records": "4"}) == ["cupti.unknown_records is 4"]
    facts = {"capability.gpu.memcpy": "no", "capability.gpu": "no", "capability.gpu.power": "no", "capability.cpu": "no"}
    assert checks.capability(facts) == ["capability.gpu: no", "capability.gpu.memcpy: no"]


def test_many_problems_of_a_kind_are_counted() -> None:
    assert checks.listed([str(number) for number in range(9)]) == ["0", "1", "2", "3", "4", "... 9 of the kind"]


def test_a_table_without_rows_is_not_decoded(monkeypatch: pytest.MonkeyPatch, project_root: Path) -> None:
    """Without pyarrow, a recording of a million kernels is asked only for its losses."""
    native = pytest.importorskip("postrun.native", reason="postrun is not installed")
    if not native.available():
        pytest.skip("the C library was not built")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(prt_reader, "read", lambda data: pytest.fail("all rows were decoded"))
    file = project_root / "tests" / "native" / "golden" / "v1.prt"
    assert traces.read([file], ("external",)) == {"external": []}
