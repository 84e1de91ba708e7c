"""Do two tracers of one process get one clock where their epochs differ, and keep their own where they recorded different work?"""

from __future__ import annotations

import random

import pytest
from made_tracers import BASE, MS, Kernels, Made, work
from postrun.ingest.format_names import NSIGHT, TRACE
from postrun.ingest.store import Store


@pytest.mark.parametrize("shift", [35_255_823_190, -36 * 10**9, 5 * MS, 37_000, -3_600 * 10**9])
def test_the_same_work_at_another_time_is_moved_and_counts_once(shift: int) -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        kernels = work(1, 120)
        made.source(NSIGHT, {process: kernels}, shift=shift)
        made.source(TRACE, {process: kernels[40:80]})
        before = store.frame("SELECT max(rowid) FROM sample").item()
        assert before is None
        joining = made.settle()
        assert joining.clocks[0].offset_ns == -shift
        assert 1 not in joining.clocks
        assert store.frame("SELECT start_ns, duration_ns FROM device_event ORDER BY 1").rows() == kernels
        assert made.count("annotation") == made.count("host_event", "kind = 'launch'") == 120
        assert joining.results[0].first_ns == kernels[0][0]
        (text,) = made.told("clock_shifted")
        assert "both have the same device work of the same process" in text
        # 38 chains of three in a row are in the 40 kernels.
        assert "38 kernels in a row have the same durations" in text
        severity = store.frame("SELECT severity::VARCHAR FROM ingest_note WHERE code = 'clock_shifted'").item()
        assert severity == ("warning" if abs(shift) >= 10**9 else "info")


@pytest.mark.parametrize(("host", "rank"), [("unknown host", 0), ("3f2a1bc4d5e6", 0), ("3f2a1bc4d5e6", 1)])
def test_a_process_of_a_container_is_found_at_another_time(host: str, rank: int) -> None:
    with Store.create(None) as store:
        made = Made(store)
        made.source(NSIGHT, {made.process("node7", 4242, rank=0): work(1), made.process("node7", 4243): work(2)}, shift=5 * MS)
        made.source(TRACE, {made.process(host, 17, rank=rank): work(1)[10:50]})
        made.settle()
        if rank:  # another one than the export's
            assert made.told("clock_shifted") == made.told("process_joined") == []
            assert made.count("device_event") == 160
            return
        assert made.processes() == [("node7", 4242, 0), ("node7", 4243, None)]
        assert made.count("device_event") == made.count("annotation") == 120
        (text,) = made.told("clock_shifted")
        assert "The clocks of file0 and file1 are 5 ms apart: both have the same device work of a process." in text
        assert store.frame("SELECT min(start_ns) FROM device_event").item() == min(start for start, _ in work(1) + work(2))


def test_work_of_two_processes_moves_nothing() -> None:
    """Two processes of an export did what the trace has: which of them it is cannot be told."""
    with Store.create(None) as store:
        made = Made(store)
        made.source(NSIGHT, {made.process("node7", 4242): work(1), made.process("node7", 4243): work(1)}, shift=5 * MS)
        made.source(TRACE, {made.process("unknown host", 17): work(1)})
        made.settle()
        assert made.told("clock_shifted") == made.told("process_joined") == []


def test_samples_of_a_file_move_with_it() -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        made.source(TRACE, {process: work(1)})
        store.insert("sample", {"node": 0, "metric": "gpu_sm_active", "unit": 0, "time_ns": BASE, "value": 1.0})
        made.source(NSIGHT, {process: work(1)}, shift=7 * 10**9)
        store.insert("sample", {"node": 0, "metric": "gpu_sm_active", "unit": 0, "time_ns": BASE + 7 * 10**9 + 5, "value": 2.0})
        made.sources[1].rows = {**made.sources[1].rows, "sample": (1, 2)}
        made.settle()
        assert store.frame("SELECT time_ns, value FROM sample ORDER BY value").rows() == [(BASE, 1.0), (BASE + 5, 2.0)]


@pytest.mark.parametrize("stretched", [False, True])
def test_work_whose_distance_changes_is_not_the_same(stretched: bool) -> None:
    """The same durations at times half as far again from each other: a replay, and no other clock."""
    kernels = work(1)
    late = [(BASE + (start - BASE) * 3 // 2 if stretched else start, duration) for start, duration in kernels]
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        made.source(NSIGHT, {process: late}, shift=10**9)
        made.source(TRACE, {process: kernels})
        made.settle()
        assert bool(made.told("clock_shifted")) is not stretched


def test_clocks_that_agree_are_left_alone() -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        made.source(NSIGHT, {process: work(1)})
        made.source(TRACE, {process: work(1)}, shift=800)
        joining = made.settle()
        assert joining.clocks == {}
        assert made.told("clock_shifted") == []


def steps(dice: random.Random | None, begin: int) -> Kernels:
    """8 steps of 20 kernels that take the same time in every step, but for up to 64 ns, as a clock's resolution is."""
    return [
        (begin + (step * 20 + place) * MS, 100_000 + 32 * (place * 97 % 50) + (32 * dice.randrange(3) if dice else 0))
        for step in range(8)
        for place in range(20)
    ]


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_other_steps_of_the_same_training_are_other_work(seed: int | None) -> None:
    """An export of the first steps and a trace of later ones: alike, and not the same; even where all steps are alike to the nanosecond."""
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        dice = random.Random(seed) if seed is not None else None
        made.source(NSIGHT, {process: steps(dice, BASE)})
        made.source(TRACE, {process: steps(dice, BASE + 10**9)})
        made.settle()
        assert made.told("clock_shifted") == []
        assert made.count("device_event") == 320


def test_two_files_of_one_profiler_are_never_moved() -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        made.source(TRACE, {process: work(1)})
        made.source(TRACE, {process: work(1)}, shift=36 * 10**9)
        made.settle()
        assert made.told("clock_shifted") == []
        assert made.count("device_event") == 120


def whole_microseconds(kernels: Kernels) -> Kernels:
    """As profilers before 2023 wrote them."""
    return [(start // 1000 * 1000, duration // 1000 * 1000) for start, duration in kernels]


def test_a_trace_in_whole_microseconds_is_moved_by_names_and_durations() -> None:
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        kernels = work(1)
        made.source(NSIGHT, {process: kernels}, shift=5 * MS)
        made.source(TRACE, {process: whole_microseconds(kernels)})
        joining = made.settle()
        # Starts are up to 1 us apart after rounding down; their median tells the shift.
        assert joining.clocks[0].offset_ns == pytest.approx(-5 * MS, abs=1000)
        # What counts twice is at most the one at the edge of the time that both have, by less than 1 us.
        assert made.count("device_event") in (60, 61)


def test_a_trace_in_whole_microseconds_is_not_told_to_be_of_another_process() -> None:
    """What the nanoseconds do not bear out after the shift would be moved and still count twice."""
    with Store.create(None) as store:
        made = Made(store)
        made.source(NSIGHT, {made.process("node7", 4242): work(1)}, shift=5 * MS)
        made.source(TRACE, {made.process("unknown host", 17): whole_microseconds(work(1))})
        joining = made.settle()
        assert not joining.clocks
        assert made.told("clock_shifted") == []


@pytest.mark.parametrize(("own", "moved"), [(37, True), (38, False)])
def test_half_of_the_kernels_in_the_time_of_both_have_to_be_the_same(own: int, moved: bool) -> None:
    """40 kernels, 38 chains of three, are in both; each has as many of its own after them, of which one ends after the other's last."""
    with Store.create(None) as store:
        made = Made(store)
        process = made.process("node7", 4242)
        common = work(1, 40)
        later = BASE + 40 * MS
        made.source(NSIGHT, {process: common + work(2, own, later)}, shift=5 * MS)
        made.source(TRACE, {process: common + work(3, own, later)})
        made.settle()
        assert bool(made.told("clock_shifted")) == moved
