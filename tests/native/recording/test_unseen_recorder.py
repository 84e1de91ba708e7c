"""The profile of a recorded program equals plain cProfile, except for one function of the recorder.

A clock that only the program and the recorder advance makes times exact.
"""

from __future__ import annotations

import cProfile
import functools
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun import capture, native
from postrun.native.profiling.engine.one_function import RECORDING, with_one_function
from postrun.native.profiling.engine.python_profile import _CProfile
from postrun.native.profiling.plan import ProfilingPlan, PythonPlan, Window
from postrun.native.recording import exclude_self as unseen_of
from postrun.native.recording.exclude_self import around, unseen

Stats = dict[Any, Any]


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    """Disable garbage collection, which would call and count Hypothesis's hook."""
    gc.disable()
    yield
    gc.enable()


class Clock:
    now = 0


def profile_of(timer: Callable[[], int] = lambda: Clock.now) -> _CProfile:
    profile = _CProfile("total_time")
    profile.profiler = cProfile.Profile(timer, 1.0)
    profile.resume = profile.profiler.enable
    return profile


def stats_of(profile: Any) -> Stats:
    profile.create_stats()
    return {name: of for name, of in profile.stats.items() if "_lsprof.Profiler" not in name[2]}


def plain(program: Callable[[], object]) -> Stats:
    profiler = cProfile.Profile(lambda: Clock.now, 1.0)
    profiler.enable()
    program()
    profiler.disable()
    return stats_of(profiler)


def recorded(program: Callable[[], object]) -> Stats:
    profile = profile_of()
    profile.start()
    program()
    profile.stop()
    return with_one_function(stats_of(profile.profiler))


def figures(stats: Stats) -> dict[str, tuple[int, int, float, dict[str, tuple[int, int, float]]]]:
    """Return calls, primitive calls and own time of the program's functions.

    The same figures follow by caller.
    """
    return {
        name[2]: (calls, primitive, own, {caller[2]: of[:3] for caller, of in callers.items()})
        for name, (primitive, calls, own, _, callers) in stats.items()
        if name != RECORDING
    }


# ------------------------------------------------------------------ a program, and a recorder that does the same things


def leaf() -> None:
    Clock.now += 3
    json.dumps([1])


def record(*arguments: object) -> int:
    Clock.now += 100
    json.dumps({"a": time.time_ns()})
    leaf()
    return 7


def raising(step: int) -> int:
    Clock.now += 5
    leaf()
    if step % 2:
        raise LookupError
    return step


def after(handle: int, failed: BaseException | None, *arguments: object) -> None:
    assert handle == 7
    assert (failed is None) == (arguments[0] in (0, 2))  # type: ignore[comparison-overlap]
    record()


def nothing(*arguments: object) -> None:
    pass


def program(hook: Callable[..., object], function: Callable[[int], int]) -> list[int]:
    def steps() -> Iterator[int]:
        for step in range(4):
            Clock.now += 1
            json.dumps(step)
            hook(step)
            time.time_ns()
            yield step

    def deeper(depth: int) -> None:
        Clock.now += 1
        hook(depth)
        if depth:
            deeper(depth - 1)
        leaf()

    results = []
    for step in steps():
        try:
            results.append(function(step))
        except LookupError:
            deeper(3)
        json.dumps(step)
    return results


def nothing_at_all(*arguments: object) -> None:
    """Not called in the recorded program: the recorder's hook is there instead."""


def test_the_programs_functions_are_those_of_plain_cprofile() -> None:
    hook, function = unseen(record), around(raising, record, after)
    without = plain(lambda: program(nothing_at_all, raising))
    actual = recorded(lambda: program(hook, function))
    expected = figures(without)
    del expected["nothing_at_all"]
    assert figures(actual) == expected
    # 4 steps and 2 times 4 depths; before and after each of the 4 calls; what the recorder spends is 100 and its leaf's 3
    calls, _, self_time, total_time, callers = actual[RECORDING]
    assert (calls, self_time, total_time) == (4 + 8 + 8, 20 * 103, 20 * 103)
    assert {caller[2]: of[0] for caller, of in callers.items()} == {"steps": 4, "deeper": 8, "program": 8}
    for name, (_, _, _, total_time, _) in actual.items():  # as in plain cProfile, and what the recorder spent below it
        if name[2] == "program":
            assert total_time == next(of[3] for other, of in without.items() if other == name) + 20 * 103


def test_what_the_recorder_does_inside_of_its_work_is_unseen_too() -> None:
    inner, further = around(raising, record), unseen(record)

    @unseen
    def outer() -> None:
        record()
        inner(2)  # nobody's but the recorder's
        further()

    actual = recorded(lambda: (leaf(), outer(), leaf()))
    without = plain(lambda: (leaf(), leaf()))
    assert figures(actual) == figures(without)
    assert actual[RECORDING][:3] == (1, 1, 3 * 103 + 5 + 3)


def test_a_profile_that_is_opened_and_one_that_is_closed_by_the_recorder_have_what_is_between() -> None:
    first, second = profile_of(), profile_of()

    @unseen
    def opens() -> None:
        first.start()
        record()

    @unseen
    def changes() -> None:
        record()
        first.stop()
        record()
        second.start()
        record()

    @unseen
    def closes() -> None:
        record()
        second.stop()
        record()

    leaf()
    opens()
    leaf()
    leaf()
    changes()
    raising(2)
    closes()
    leaf()
    assert sys.getprofile() is None
    stats = stats_of(first.profiler), stats_of(second.profiler)
    ours, theirs = (figures(with_one_function(one)) for one in stats)
    assert {name: of[0] for name, of in ours.items() if name in ("leaf", "raising", "record")} == {"leaf": 2}
    assert {name: of[0] for name, of in theirs.items() if name in ("leaf", "raising", "record")} == {"leaf": 1, "raising": 1}
    assert ours.keys() | theirs.keys() <= figures(plain(lambda: raising(2))).keys()


def test_other_threads_are_not_paused_and_pause_nothing() -> None:
    done: list[int] = []

    def record_and_raise() -> None:
        unseen(record)()
        done.append(around(raising, record, lambda told, failed, step: None)(2))

    def with_thread() -> None:
        thread = threading.Thread(target=record_and_raise)
        thread.start()
        thread.join()
        leaf()

    actual = figures(recorded(with_thread))
    assert done == [2]
    assert actual["leaf"][0] == 1
    assert "raising" not in actual


@pytest.mark.skipif(unseen_of.MONITORED, reason="two cProfiles cannot run at once from Python 3.12 on")
def test_a_profiler_that_the_program_starts_meanwhile_is_not_paused() -> None:
    profile, second_profile = profile_of(), cProfile.Profile()
    profile.start()
    second_profile.enable()
    unseen(nothing)()
    leaf()
    second_profile.disable()
    profile.stop()
    assert figures(stats_of(second_profile))["leaf"][0] == 1


def test_without_a_profile_the_functions_do_what_they_do() -> None:
    assert unseen(record)(1, 2) == 7
    assert around(raising, record)(2) == 2
    with pytest.raises(LookupError):
        around(raising, record, after)(1)
    assert around(raising, record).__name__ == "raising"
    assert unseen(record).__wrapped__ is record  # type: ignore[attr-defined]


def test_what_is_decorated_is_called_by_who_calls_it() -> None:
    @capture.annotate("one")
    @capture.annotate("inner")
    def one(step: int) -> None:
        leaf()

    @capture.annotate("other")
    def other(step: int) -> int:
        return raising(step)

    def deeper(step: int) -> None:
        one(step)
        other(0)

    def run(first: Callable[[int], None], second: Callable[[int], int]) -> None:
        first(1)
        second(2)
        deeper(1)

    actual = figures(recorded(lambda: run(one, other)))
    assert actual["one"][3] == {"run": (1, 1, 0), "deeper": (1, 1, 0)}
    assert actual["other"][3] == {"run": (1, 1, 0), "deeper": (1, 1, 0)}
    assert actual["raising"][0] == 2
    assert not [name for name in actual if "annotated" in name or "postrun" in name]
    assert other.__name__ == "other"
    assert capture.annotate("partial")(functools.partial(raising, 2))() == 2


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_session_that_ends_in_the_window_leaves_none_of_its_functions(tmp_path: Path) -> None:
    def work() -> None:
        with capture.annotate("Forward"):
            leaf()
        capture.begin("Backward")
        leaf()
        capture.end()
        capture.metadata("key", "value")
        json.dumps([2])
        Path("/a").joinpath("b")

    plan = ProfilingPlan(python=PythonPlan(Window(first_step=1)))
    with capture.session(tmp_path, sample_ms=0, gpu=False, profiler_config=plan):
        for step in range(3):
            with capture.annotate("step", value=step):
                work()
    expected = plain(work)
    files = {capture.__file__, sys.modules[capture.metadata.__module__].__file__}
    ours = {name for name in expected if "postrun." in name[2] or name[0] in files}
    ours |= {name for name, of in expected.items() if of[4] and of[4].keys() <= ours}
    assert {name[2] for name in ours} >= {"metadata", "<built-in method postrun.native._native.begin>"}
    places = sorted(tmp_path.rglob("python_stats"))
    assert len(places) == 2  # steps 1 and 2
    for path in places:
        import pstats

        actual = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
        assert {name: of[1] for name, of in actual.items() if name != RECORDING} == {
            name: of[1] for name, of in expected.items() if name not in ours
        }
