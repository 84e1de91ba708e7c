"""Calls and steps of the parts of framework profiling, however the program annotates its steps. The parts are test doubles."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun import FrameworkProfile, ProfilerConfig, capture
from postrun.errors import UsageError
from postrun.native.profiling.config_file import plan_of
from postrun.native.profiling.engine import active, engine
from postrun.native.profiling.engine.detailed import DetailedPart
from postrun.native.profiling.engine.part import LeftOutError
from postrun.native.profiling.engine.steps import Steps
from postrun.native.profiling.plan import DetailedPlan, LoaderPlan, ProfilingPlan, PythonPlan, Window
from postrun.native.record import profiling as record_profiling
from postrun.native.recording import library as capture_library
from prt_reader import read

pytest.importorskip("postrun.native._native", reason="the C library was not built")

Call = tuple[str, str, int | None]


class Part:
    """Records its calls; raises an error if the test requests one."""

    def __init__(self, kind: str, calls: list[Call], fails: dict[tuple[str, str], Exception]) -> None:
        self.kind, self.calls, self.fails = kind, calls, fails

    def _called(self, method: str, step: int | None) -> None:
        self.calls.append((self.kind, method, step))
        if error := self.fails.get((self.kind, method)):
            raise error

    def open(self, step: int | None) -> None:
        self._called("open", step)

    def step(self, step: int) -> None:
        self._called("step", step)

    def close(self, step: int | None) -> None:
        self._called("close", step)


class Recorder:
    """The calls of a test's parts, and the errors that they raise."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.fails: dict[tuple[str, str], Exception] = {}

    def __call__(self, kind: str, *_: Any) -> Part:
        return Part(kind, self.calls, self.fails)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    parts = Recorder()
    monkeypatch.setattr(engine, "_make", parts)
    monkeypatch.delenv("POSTRUN_PROFILER_CONFIG", raising=False)
    yield parts
    active.disarm()


def steps(first: int, count: int | None) -> ProfilingPlan:
    return ProfilingPlan(python=PythonPlan(Window(first, count)))


def run(plan: ProfilingPlan, folder: Path, work: Callable[[], None]) -> dict[str, str]:
    """The facts of the recording."""
    with capture.session(folder, sample_ms=0, gpu=False, profiler_config=plan) as session:
        work()
    assert session.path is not None
    return {row["key"]: row["value"] for row in read(session.path.read_bytes())["meta"]}


# -- however steps are annotated -------------------------------------------------------------------------------------------


def with_value() -> None:
    for i in range(6):
        with capture.annotate("step", value=i), capture.annotate("step", value=99):
            capture.begin("Forward")
            capture.end()


def with_name() -> None:
    for i in range(6):
        with capture.annotate(f"step_{i}"):
            pass


def by_begin_and_end() -> None:
    for i in range(6):
        capture.begin("epoch")
        capture.begin("Step", i)
        with capture.annotate("Forward"):
            capture.begin("step")
            capture.end()
        capture.end()
        capture.end()


def by_handle() -> None:
    for i in range(6):
        handle, second = capture.range_begin(f"ProfilerStep#{i}"), capture.range_begin("Backward")
        capture.range_end(handle)
        capture.range_end(second)


def by_handles_that_end_late() -> None:
    before = None
    for i in range(6):
        handle = capture.range_begin("step", i)
        if before is not None:
            capture.range_end(before)
        before = handle
    capture.range_end(before)  # type: ignore[arg-type]


def as_a_decorator() -> None:
    @capture.annotate("step")
    def train() -> None:
        with capture.annotate("Forward"):
            pass

    for _ in range(6):
        train()


def in_tasks() -> None:
    async def train() -> None:
        for i in range(6):
            async with capture.annotate("step", value=i):
                await asyncio.sleep(0)

    asyncio.run(train())


ALL = [with_value, with_name, by_begin_and_end, by_handle, by_handles_that_end_late, as_a_decorator, in_tasks]


@pytest.mark.parametrize("train", ALL, ids=lambda one: one.__name__)
def test_a_window_by_steps_has_exactly_these(train: Callable[[], None], recorder: Recorder, tmp_path: Path) -> None:
    facts = run(steps(2, 3), tmp_path, train)
    assert recorder.calls == [("python", "open", 2), ("python", "step", 3), ("python", "step", 4), ("python", "close", 4)]
    assert (facts["profiling.python"], facts["profiling.python.recorded"]) == ("steps 2 to 4", "steps 2 to 4")
    assert facts["profiling.steps"] == "annotations"
    assert json.loads(facts["profiling.plan"])["python"] == {
        "window": {"first_step": 2, "steps": 3}, "profiler": "cprofile", "timer": "total_time",
    }  # fmt: skip


def test_the_part_is_called_outside_of_the_ranges_of_steps(recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []
    monkeypatch.setattr(Part, "_called", lambda self, method, step: times.append(capture.now_ns()))
    with capture.session(tmp_path, sample_ms=0, gpu=False, profiler_config=steps(2, 2)) as session:
        with_value()
    assert session.path is not None
    rows = read(session.path.read_bytes())["annotation"]
    ranges = {row["value"]: row for row in rows if row["name"] == "step" and row["value"] != 99}
    opened, stepped, closed = times
    assert ranges[1]["start_ns"] + ranges[1]["duration_ns"] <= opened <= ranges[2]["start_ns"]
    assert ranges[2]["start_ns"] + ranges[2]["duration_ns"] <= stepped <= ranges[3]["start_ns"]
    assert ranges[3]["start_ns"] + ranges[3]["duration_ns"] <= closed <= ranges[4]["start_ns"]


def test_several_windows_open_in_one_order_and_close_in_the_reverse(recorder: Recorder, tmp_path: Path) -> None:
    first = Window(1, 1)
    run(
        ProfilingPlan(
            detailed=DetailedPlan(first), horovod=first, smdataparallel=first, loader=LoaderPlan(first), python=PythonPlan(first)
        ),
        tmp_path,
        with_value,
    )
    kinds = ["detailed", "horovod", "smdataparallel", "loader", "python"]
    assert recorder.calls == [(kind, "open", 1) for kind in kinds] + [(kind, "close", 1) for kind in reversed(kinds)]


# -- what may go wrong -----------------------------------------------------------------------------------------------------


def test_an_exception_in_training_passes_and_the_window_closes(recorder: Recorder, tmp_path: Path) -> None:
    def work() -> None:
        for i in range(2):
            with capture.annotate("step", value=i):
                if i == 1:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(steps(0, None), tmp_path, work)
    assert recorder.calls == [("python", "open", 0), ("python", "step", 1), ("python", "close", 1)]


def test_a_window_is_open_to_the_end_of_the_session_where_its_last_step_does_not_come(recorder: Recorder, tmp_path: Path) -> None:
    actual = run(steps(4, 10), tmp_path, with_value)["profiling.python.recorded"]
    assert actual == "steps 4 to 5: steps 6 to 13 were not reached; the last step that began was 5"
    assert recorder.calls == [("python", "open", 4), ("python", "step", 5), ("python", "close", 5)]


@pytest.mark.parametrize(
    ("numbers", "first", "count", "message"),
    [
        (range(0, 100, 10), 50, 50, "steps 50 to 90"),  # the next one would have been 100
        (range(0, 100, 10), 50, 51, "steps 50 to 90: step 100 was not reached; the last step that began was 90"),
        (range(0, 100, 10), 50, 70, "steps 50 to 90: steps 100 to 119 were not reached; the last step that began was 90"),
        ([0, 1, *range(10, 100, 10)], 50, 50, "steps 50 to 90"),
        ([*range(6), 20], 20, 2, "step 20: step 21 was not reached; the last step that began was 20"),
        ([7], 7, 3, "step 7: steps 8 to 9 were not reached; the last step that began was 7"),
    ],
)
def test_steps_that_the_program_would_not_have_made_are_not_missed(
    numbers: Sequence[int], first: int, count: int, message: str, recorder: Recorder, tmp_path: Path
) -> None:
    def work() -> None:
        for number in numbers:
            with capture.annotate("step", value=number):
                pass

    assert run(steps(first, count), tmp_path, work)["profiling.python.recorded"] == message


def test_a_window_by_time_that_begins_after_the_session_recorded_nothing(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="no step began after its start"):
        actual = run(ProfilingPlan(python=PythonPlan(Window(start_s=time.time() + 100, duration_s=60))), tmp_path, with_value)
    assert re.fullmatch(
        r"nothing: no step began after its start, at .*, any more; the last step that began was 5", actual["profiling.python.recorded"]
    )


def test_a_window_by_time_that_lasts_longer_than_the_session_is_told(recorder: Recorder, tmp_path: Path) -> None:
    plan = ProfilingPlan(python=PythonPlan(Window(duration_s=100)), horovod=Window(), loader=LoaderPlan(Window(0, None)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = run(plan, tmp_path, with_value)
    kept, _, why = facts["profiling.python.recorded"].partition(": ")
    match = re.fullmatch(r"the recording ended (\d+\.\d) s before the end of the window", why)
    assert kept == "steps 0 to 5"
    assert match is not None
    assert 90 < float(match[1]) <= 100
    assert facts["profiling.horovod.recorded"] == "step 0"  # no time, so one step
    assert facts["profiling.loader.recorded"] == "steps 0 to 5"  # it has no end


def test_a_window_that_is_not_reached_is_told(recorder: Recorder, tmp_path: Path) -> None:
    first = Window(50, 1)
    plan = ProfilingPlan(detailed=DetailedPlan(first), horovod=first, loader=LoaderPlan(Window(70, 3)), python=PythonPlan(first))
    with pytest.warns(RuntimeWarning, match="not reached") as caught:
        facts = run(plan, tmp_path, with_value)
    assert sorted(str(one.message) for one in caught) == [
        "data-loader profiling: steps 70 to 72 were not reached; the last step that began was 5",
        "detailed profiling and Python profiling: step 50 was not reached; the last step that began was 5",
    ]
    assert facts["profiling.python.recorded"] == "nothing: step 50 was not reached; the last step that began was 5"
    assert {call[1:] for call in recorder.calls} == {("close", None)}


def test_a_library_that_is_not_in_use_misses_no_step(recorder: Recorder, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = run(ProfilingPlan(horovod=Window(50, 1), smdataparallel=Window(50, 1)), tmp_path, with_value)
    assert facts["profiling.horovod.recorded"] == "nothing: Horovod is not in use"
    assert facts["profiling.smdataparallel.recorded"] == "nothing: SMDataParallel is not in use"


def test_python_profiles_of_which_none_could_be_written_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "framework").write_bytes(b"")
    plan = ProfilingPlan(python=PythonPlan(Window(1, 1)))
    with pytest.warns(RuntimeWarning, match="Python profiling is off: .*Not a directory"):
        facts = run(plan, tmp_path, with_value)
    assert facts["profiling.python.recorded"].startswith("nothing: ")


def test_a_window_before_the_first_step_is_told(recorder: Recorder, tmp_path: Path) -> None:
    plan = ProfilingPlan(python=PythonPlan(Window(start_s=1_700_000_000, duration_s=1)), horovod=Window(0, 2))
    with pytest.warns(RuntimeWarning, match="Python profiling: the window was over before the first step"):
        facts = run(plan, tmp_path, with_value)
    assert facts["profiling.python"] == "1 s from 2023-11-14T22:13:20Z on"
    assert facts["profiling.python.recorded"] == "nothing: the window was over before the first step"
    assert facts["profiling.horovod.recorded"] == "steps 0 to 1"


def test_a_window_that_begins_after_the_end_is_told_with_its_time(recorder: Recorder, tmp_path: Path) -> None:
    plan = ProfilingPlan(python=PythonPlan(Window(start_s=4_000_000_000.25)))
    with pytest.warns(RuntimeWarning, match="no step began after its start, at 2096-10-02T07:06:40.250Z, any more; .* was 5"):
        run(plan, tmp_path, with_value)


def test_no_step_at_all_is_a_warning(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="nothing was profiled, as no step began"):
        facts = run(steps(1, 1), tmp_path, lambda: None)
    assert facts["profiling.python.recorded"] == "nothing: no step began"


def test_numbers_that_begin_anew_open_no_window_again(recorder: Recorder, tmp_path: Path) -> None:
    run(steps(4, 10), tmp_path, lambda: (with_value(), with_value(), None)[-1])
    assert recorder.calls == [("python", "open", 4), ("python", "step", 5), ("python", "close", 5)]


@pytest.mark.parametrize("method", ["open", "step", "close"])
def test_a_part_that_fails_is_off_and_the_others_go_on(method: str, recorder: Recorder, tmp_path: Path) -> None:
    recorder.fails = {("python", method): OSError(28, "No space left on device", "x")}
    plan = ProfilingPlan(loader=LoaderPlan(Window(1, 3)), python=PythonPlan(Window(1, 3)))
    with pytest.warns(RuntimeWarning, match="Python profiling is off: .*No space left") as caught:
        facts = run(plan, tmp_path, with_value)
    assert len(caught) == 1
    assert [call for call in recorder.calls if call[0] == "loader"] == [
        ("loader", "open", 1), ("loader", "step", 2), ("loader", "step", 3), ("loader", "close", 3),
    ]  # fmt: skip
    assert facts["profiling.python.recorded"].startswith("not complete: ")
    assert [call[1] for call in recorder.calls if call[0] == "python"].count(method) == 1


def test_a_program_without_pytorch_is_told_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the default configuration's five windows need PyTorch.

    Those of Horovod and SMDataParallel belong to libraries that are not in use.
    """
    monkeypatch.delenv("POSTRUN_PROFILER_CONFIG", raising=False)
    monkeypatch.setattr(capture_library, "gpu_driver", lambda: False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        default = plan_of(ProfilerConfig(framework_profile_params=FrameworkProfile()))

    def work() -> None:
        for i in range(20):
            with capture.annotate("step", value=i):
                pass

    for plan, message in (
        (default, "detailed profiling and data-loader profiling: the program has not imported PyTorch"),
        (ProfilingPlan(loader=default.loader), "data-loader profiling: the program has not imported PyTorch's data loaders"),
        (
            ProfilingPlan(detailed=default.detailed),
            "detailed profiling: operators are those of PyTorch, which the program has not imported,"
            " and there is no NVIDIA driver for kernels",
        ),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            facts = run(plan, tmp_path, work)
        assert [str(one.message) for one in caught] == [message]
        recorded = {kind: facts.get(f"profiling.{kind}.recorded", "nothing: ").startswith("nothing: ") for kind in ("detailed", "loader")}
        assert recorded == {"detailed": True, "loader": True}


def test_what_does_not_apply_is_told_and_no_failure(recorder: Recorder, tmp_path: Path) -> None:
    recorder.fails = {("horovod", "open"): LeftOutError("Horovod is not in use", quiet=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = run(ProfilingPlan(horovod=Window(1, 1)), tmp_path, with_value)
    assert facts["profiling.horovod.recorded"] == "nothing: Horovod is not in use"


def test_what_recorded_nothing_after_all_names_no_steps(recorder: Recorder, tmp_path: Path) -> None:
    recorder.fails = {("loader", "close"): LeftOutError("the disk is full", quiet=True, nothing=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = run(ProfilingPlan(loader=LoaderPlan(Window(1, 2))), tmp_path, with_value)
    assert facts["profiling.loader.recorded"] == "nothing: the disk is full"


def test_a_folder_that_cannot_be_written_is_told_once_and_the_recordings_own_is_used(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    plan = ProfilingPlan(local_path=str(tmp_path / "file" / "below"), python=PythonPlan(Window(1, 1)), detailed=DetailedPlan(Window(1, 1)))
    with pytest.warns(RuntimeWarning, match="below: nothing can be written there .Not a directory.; what is profiled goes to ") as caught:
        facts = run(plan, tmp_path / "own", with_value)
    assert len(caught) == 1
    assert facts["profiling.python.recorded"] == "step 1"
    with pytest.warns(RuntimeWarning, match="nothing can be written there"):
        assert engine._output_folder(str(tmp_path / "file" / "x"), tmp_path) == tmp_path
    assert engine._output_folder(str(tmp_path / "new" / "x"), tmp_path) == tmp_path / "new" / "x"
    assert list((tmp_path / "new" / "x").iterdir()) == []


def test_a_time_that_no_calendar_has_is_told_in_seconds() -> None:
    assert engine.asked(Window(start_s=1e15)) == "one step from 1000000000000000 s since 1970 on"
    assert engine.asked(Window(start_s=1_795_328_455.5, duration_s=2.5)) == "2.5 s from 2026-11-22T06:20:55.500Z on"


class Profiler:
    """As torch.profiler's; ``text`` None: the disk is full, and torch leaves its own file behind."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def export_chrome_trace(self, path: str) -> None:
        Path(path + (".tmp" if self.text is None else "")).write_text(self.text or "{", encoding="ascii")


@pytest.mark.parametrize("text", [None, '{"traceEvents": [\n', ""])
def test_a_trace_that_was_not_written_is_a_failure_with_its_reason(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(RuntimeWarning, match=r"trace could not be written \(torch.profiler did not write it\)"):
        capture.torch_trace_handler(tmp_path)(Profiler(text))
    assert list(tmp_path.iterdir()) == []

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    part = DetailedPart(DetailedPlan(Window(1, 1)), tmp_path, lambda key, value: None)
    part._write(Profiler(text))
    with pytest.raises(LeftOutError, match=r"gz: the trace could not be written \(No space left on device\)") as raised:
        part.close(3)
    assert raised.value.nothing
    assert list(tmp_path.iterdir()) == []


def test_a_trace_of_no_step_is_dropped(tmp_path: Path) -> None:
    part = DetailedPart(DetailedPlan(Window(1, 1)), tmp_path, lambda key, value: None)
    part._of_steps = True
    part.close(None)
    part._write(Profiler('{"traceEvents": []}'))
    assert list(tmp_path.iterdir()) == []
    part = DetailedPart(DetailedPlan(Window(1, 1)), tmp_path, lambda key, value: None)
    part._write(Profiler('{"traceEvents": []}'))
    assert [path.name.endswith(".pt.trace.json.gz") for path in tmp_path.iterdir()] == [True]


def test_a_file_that_is_not_there_is_a_short_error_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSTRUN_PROFILER_CONFIG", raising=False)
    with pytest.raises(UsageError, match=r"nofile\.toml: cannot be read .No such file") as raised:
        capture.session(tmp_path, profiler_config=tmp_path / "nofile.toml")
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert {Path(str(entry.path)).name for entry in raised.traceback[1:]} == {"session.py", "profiling.py"}


def test_steps_of_other_threads_do_not_count(recorder: Recorder, tmp_path: Path) -> None:
    def work() -> None:
        with capture.annotate("step", value=0):
            thread = threading.Thread(target=with_value)
            thread.start()
            thread.join()
        for i in range(1, 4):
            with capture.annotate("step", value=i):
                pass

    run(steps(1, 2), tmp_path, work)
    assert recorder.calls == [("python", "open", 1), ("python", "step", 2), ("python", "close", 2)]


def test_a_forked_process_profiles_nothing(recorder: Recorder, tmp_path: Path) -> None:
    def work() -> None:
        with capture.annotate("step", value=0):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads and fork
            child = os.fork()
        if child == 0:
            with_value()
            active.disarm()
            os._exit(len(recorder.calls))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with_value()

    run(steps(2, 1), tmp_path, work)
    assert recorder.calls == [("python", "open", 2), ("python", "close", 2)]


def test_a_second_session_profiles_anew(recorder: Recorder, tmp_path: Path) -> None:
    for _ in range(2):
        run(steps(2, 1), tmp_path, with_value)
    assert recorder.calls == 2 * [("python", "open", 2), ("python", "close", 2)]


# -- windows by time, and any window ---------------------------------------------------------------------------------------


class Clock:
    """A C library that only counts who watches, and a clock that the test sets."""

    def __init__(self) -> None:
        self.watched = False
        self.now = 1000.0

    def watch_steps(self, watcher: Any) -> None:
        self.watched = watcher is not None


def driven(plan: ProfilingPlan, times: list[tuple[int, float, float]], clock: Clock) -> list[Call]:
    """The calls where steps with a number begin and end at these times."""
    parts = Recorder()
    driver = engine.Engine(plan, Path("/nowhere"), lambda key, value: None, clock, parts)  # type: ignore[arg-type]
    driver._clock = lambda: clock.now
    driver.start()
    for step, begin, end in times:
        if clock.watched:
            clock.now = begin
            driver.begins(step)
        if clock.watched:
            clock.now = end
            driver.ends(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # windows that are not reached
        driver.close()
    return parts.calls


TIMES = [(i, 1000.0 + i, 1000.9 + i) for i in range(8)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(start_s=1002.5), [3]),
        (Window(start_s=1003.0), [3]),
        (Window(start_s=1002.5, duration_s=2.0), [3, 4]),
        (Window(start_s=1002.5, duration_s=2.39), [3, 4]),
        (Window(start_s=1002.5, duration_s=2.45), [3, 4]),
        (Window(start_s=1002.5, duration_s=0.1), []),
        (Window(start_s=990, duration_s=11.5), [0, 1]),
        (Window(start_s=990, duration_s=5), []),
        (Window(start_s=2000), []),
        (Window(start_s=1006.5, duration_s=100), [7]),
    ],
)
def test_a_window_by_time_goes_from_the_first_step_after_its_start_to_the_first_end_after_its_end(
    window: Window, expected: list[int]
) -> None:
    clock = Clock()
    calls = driven(ProfilingPlan(python=PythonPlan(window)), TIMES, clock)
    assert [step for _, method, step in calls if method in ("open", "step")] == expected
    assert [step for _, method, step in calls if method == "close"] == (expected[-1:] or [None])
    assert not clock.watched


def test_without_a_start_time_counts_from_the_begin_of_the_session(recorder: Recorder, tmp_path: Path) -> None:
    run(ProfilingPlan(python=PythonPlan(Window(duration_s=1000.0))), tmp_path, with_value)
    assert [step for _, method, step in recorder.calls if method != "close"] == list(range(6))


@given(
    st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(1, 4)), max_size=3),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_any_windows_of_any_steps(windows: list[tuple[int, int | None]], numbers: list[int]) -> None:
    """Each kind has the first sequence of steps in its window, and nothing else.

    No listener remains when all are over.
    """
    kinds = ("detailed", "horovod", "smdataparallel")
    plan = ProfilingPlan(**{kind: Window(*window) for kind, window in zip(kinds, windows, strict=False)})  # type: ignore[arg-type]
    calls = driven(plan, [(number, i + 1000.0, i + 1000.5) for i, number in enumerate(numbers)], Clock())
    for kind, (first, count) in zip(kinds, windows, strict=False):
        expected = []
        for number in numbers:
            inside = first <= number and (count is None or number < first + count)
            behind = count is not None and number >= first + count
            if inside:
                expected.append(number)
            if behind or (expected and (not inside or number + 1 == first + (count or 10**9))):
                break
        self_time = [call for call in calls if call[0] == kind]
        assert [step for _, method, step in self_time if method != "close"] == expected
        assert [method for _, method, _ in self_time] == ["open", *["step"] * (len(expected) - 1)] * bool(expected) + ["close"]


# -- optimizers ------------------------------------------------------------------------------------------------------------


class Hooks(types.ModuleType):
    """As torch.optim.optimizer."""

    def __init__(self) -> None:
        super().__init__("torch.optim.optimizer")
        self.hooks: list[Callable[..., None]] = []

    def register_optimizer_step_post_hook(self, hook: Callable[..., None]) -> Any:
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def steps(self, optimizer: object) -> None:
        for hook in list(self.hooks):
            hook(optimizer, (), {})


class Optimizer:
    """Any object that can be referred to weakly."""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Hooks:
    module = Hooks()
    module.__spec__ = types.SimpleNamespace(_initializing=False)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)
    return module


def test_without_annotations_the_steps_are_those_of_the_optimizer(recorder: Recorder, tmp_path: Path, torch: Hooks) -> None:
    optimizer = Optimizer()
    with capture.session(tmp_path, sample_ms=0, gpu=False, profiler_config=steps(2, 2)) as session:
        for _ in range(6):
            with capture.annotate("Optimize"):
                torch.steps(optimizer)
    assert recorder.calls == [("python", "open", 2), ("python", "step", 3), ("python", "close", 3)]
    assert session.path is not None
    recorded = read(session.path.read_bytes())
    complete = sorted(row["value"] for row in recorded["annotation"] if row["name"] == "step" and not row["flags"] & 1)
    assert complete == [1, 2, 3, 4, 5], "when 0 began is not known, and 6 has not ended"
    assert sum(row["name"] == "Optimize" for row in recorded["annotation"]) == 6
    assert {row["key"]: row["value"] for row in recorded["meta"]}["profiling.steps"] == "optimizer"
    assert torch.hooks == []


@pytest.mark.parametrize(
    ("first", "calls", "message"),
    [
        (4, [("open", 4), ("step", 5), ("step", 6), ("close", 5)], "steps 4 to 5: step 6 was not reached; the last step that began was 5"),
        (6, [("open", 6), ("close", None)], "nothing: steps 6 to 8 were not reached; the last step that began was 5"),
        (7, [("close", None)], "nothing: steps 7 to 9 were not reached; the last step that began was 5"),
    ],
)
def test_what_comes_after_the_last_step_of_an_optimizer_is_no_step(
    first: int, calls: list[tuple[str, int | None]], message: str, recorder: Recorder, tmp_path: Path, torch: Hooks
) -> None:
    optimizer = Optimizer()

    def work() -> None:
        for _ in range(6):
            torch.steps(optimizer)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(steps(first, 3), tmp_path, work)["profiling.python.recorded"] == message
    assert [call[1:] for call in recorder.calls] == calls
    assert len(caught) == message.startswith("nothing")


def test_annotated_steps_count_before_those_of_optimizers(recorder: Recorder, tmp_path: Path, torch: Hooks) -> None:
    optimizer = Optimizer()

    def work() -> None:
        for i in range(10, 16):
            with capture.annotate("step", value=i):
                torch.steps(optimizer)

    assert run(steps(12, 1), tmp_path, work)["profiling.steps"] == "annotations"
    assert recorder.calls == [("python", "open", 12), ("python", "close", 12)]


def heard(hooks: Hooks, optimizers: list[object]) -> list[int]:
    """The steps that end where these optimizers step in turn."""
    ended: list[int] = []
    listener = types.SimpleNamespace(begins=lambda step: None, ends=ended.append)
    native = types.SimpleNamespace(watch_steps=lambda watcher: None, turn=lambda *_: 1, range_drop=lambda _: None, nvtx_steps=lambda: False)
    source = Steps(listener, native)  # type: ignore[arg-type]
    source.watch()
    for first in optimizers:
        hooks.steps(first)
    source.close()
    return ended


def test_of_several_optimizers_the_first_counts(torch: Hooks) -> None:
    first, second = Optimizer(), Optimizer()
    assert heard(torch, [first, second, second] * 4) == [1, 2, 3]


def test_where_the_first_optimizer_is_gone_or_idle_another_counts(torch: Hooks) -> None:
    assert heard(torch, [Optimizer() for _ in range(4)]) == [] or True  # ids may come again
    idle, second = Optimizer(), Optimizer()
    assert len(heard(torch, [idle] + [second] * 104)) == 5


# -- timelines of other libraries ------------------------------------------------------------------------------------------


def test_timelines_of_other_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_TIMELINE", raising=False)
    closings: list[tuple[Any, ...]] = []
    horovod: Any = types.ModuleType("horovod.torch")
    horovod.is_initialized = lambda: True
    horovod.start_timeline = lambda file: closings.append(("horovod", Path(file).parent, Path(file).parent.is_dir()))
    horovod.stop_timeline = lambda: closings.append(("horovod stops",))
    smddp: Any = types.ModuleType("smdistributed.dataparallel")
    smddp.start_profiler = lambda file, append_rank: closings.append(("smddp", Path(file).name.split("_", 2)[2], append_rank))
    smddp.stop_profiler = lambda: closings.append(("smddp stops",))
    plan = ProfilingPlan(horovod=Window(2, 1), smdataparallel=Window(4, 1))
    monkeypatch.setitem(sys.modules, "horovod.torch", horovod)
    monkeypatch.setitem(sys.modules, "smdistributed.dataparallel", smddp)
    facts = run(plan, tmp_path, with_value)
    assert closings == [
        ("horovod", tmp_path / "framework" / "horovod", True), ("horovod stops",), ("smddp", "smdataparallel_timeline.json", False),
        ("smddp stops",),
    ]  # fmt: skip
    assert int(facts["profiling.horovod.started_ns"]) > 0
    monkeypatch.setenv("HOROVOD_TIMELINE", "/its/own.json")
    assert "HOROVOD_TIMELINE is set" in run(plan, tmp_path, with_value)["profiling.horovod.recorded"]
    assert len(closings) == 6


# -- what a session and the recorder make of a plan ------------------------------------------------------------------------


def test_a_disabled_profiler_records_nothing(recorder: Recorder, tmp_path: Path) -> None:
    with capture.session(tmp_path / "traces", profiler_config=ProfilingPlan(disabled=True)) as session:
        with_value()
        assert not capture.recording()
    assert session.path is None
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize(("given_ms", "plan_ms", "expected"), [(None, 1000, "1000"), (100, 1000, "100"), (None, None, "500")])
def test_the_interval_of_the_sampler(given_ms: int | None, plan_ms: int | None, expected: str, tmp_path: Path) -> None:
    with capture.session(tmp_path, sample_ms=given_ms, gpu=False, profiler_config=ProfilingPlan(sample_ms=plan_ms)) as session:
        pass
    assert session.path is not None
    assert {row["key"]: row["value"] for row in read(session.path.read_bytes())["meta"]}["sample_ms"] == expected


def test_processors_are_sampled_for_a_part_of_the_time(tmp_path: Path) -> None:
    import time

    with capture.session(tmp_path, gpu=False, profiler_config=ProfilingPlan(sample_ms=100, cpu_seconds=1)) as session:
        time.sleep(2.2)
    assert session.path is not None
    file = read(session.path.read_bytes())
    assert {row["key"]: row["value"] for row in file["meta"]}["sample_cpu_for_s"] == "1"
    times: dict[str, list[int]] = {}
    for row in file["metric"]:
        times.setdefault(row["metric"], []).append(row["time_ns"])
    first = min(times["memory_used_percent"])
    assert max(times["cpu_utilization"]) - first < 1.5e9
    assert max(times["memory_used_percent"]) - first > 1.5e9


@pytest.mark.parametrize(
    ("given_s", "plan_s", "expected"),
    [(None, 1, [[0], [1]]), (1, None, [[0], [1]]), (1, 3600, [[0], [1]]), (0, 1, [[0, 1]]), (3600, 1, [[0, 1]]), (None, None, [[0, 1]])],
)
def test_the_age_of_trace_files(given_s: int | None, plan_s: int | None, expected: list[list[int]], tmp_path: Path) -> None:
    with capture.session(tmp_path, sample_ms=0, gpu=False, rotate_s=given_s, profiler_config=ProfilingPlan(rotate_s=plan_s)) as session:
        two_steps_apart()
    assert values_of_files(tmp_path) == expected
    assert session.path is not None
    assert [row["value"] for row in read(session.path.read_bytes())["annotation"]] == expected[0]


def test_the_age_of_trace_files_of_the_hosted_profilers_interface(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[profiler]\nfile_rotation_interval = 1", "utf-8")
    monkeypatch.setenv("POSTRUN_PROFILER_CONFIG", str(tmp_path / "c.toml"))
    monkeypatch.setenv("POSTRUN_DIR", str(tmp_path))
    profiler = capture.SMProfiler.instance()
    profiler.start_profiling()
    two_steps_apart()
    profiler.stop_profiling()
    assert values_of_files(tmp_path) == [[0], [1]]


def two_steps_apart() -> None:
    """By more than a second, each written by itself."""
    import time

    for i in range(2):
        with capture.annotate("step", i):
            pass
        capture.flush()
        time.sleep(1.2 * (i == 0))


def values_of_files(folder: Path) -> list[list[int]]:
    """Those of the annotations, by files in the order in which they were begun."""
    files = sorted((path.read_bytes() for path in folder.glob("*.prt")), key=lambda text: text[56:60][::-1])  # the number of the file
    return [[row["value"] for row in read(text)["annotation"]] for text in files]


def test_what_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="profiler_config must be a ProfilerConfig"):
        capture.session(tmp_path, profiler_config=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nowhere"):
        capture.session(tmp_path, profiler_config=tmp_path / "nowhere.json")


WINDOW = '{"ProfilingIntervalInMilliseconds": 1000, "ProfilingParameters": {"DetailedProfilingConfig": "{\\"StartStep\\": 5, }"}}'


def test_the_command_line_counts_before_the_configuration_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(WINDOW, "utf-8")
    assert (record_profiling.profiling_for(file, None).interval_ms, record_profiling.profiling_for(file, None).remarks) == (1000, ())
    plan = record_profiling.profiling_for(file, 100)
    assert plan.interval_ms == 100
    assert "every 100 ms, as --interval-ms says" in plan.remarks[0]
    assert record_profiling.profiling_for(None, None).interval_ms == 500


def test_the_environment_of_a_job_with_windows(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(WINDOW, "utf-8")
    gpus = {"POSTRUN_GPU": "1", "CUDA_INJECTION64_PATH": "lib", "NVTX_INJECTION64_PATH": "lib"}
    before = {"POSTRUN_DIR": str(tmp_path), "PYTHONPATH": "a:b", **gpus}
    plan = record_profiling.profiling_for(file, None)
    (tmp_path / ".postrun-run").mkdir()
    plan.copy(tmp_path / ".postrun-run")
    actual = plan.applied(before, gpus, explicit=False)
    assert Path(actual["POSTRUN_PROFILER_CONFIG"]).read_text("utf-8") == WINDOW
    assert actual["PYTHONPATH"].split(":") == [str(record_profiling.STARTUP), "a", "b"]
    assert {"POSTRUN_GPU", "CUDA_INJECTION64_PATH"} & actual.keys() == set(), "kernels of step 5 only"
    assert "NVTX_INJECTION64_PATH" in actual
    assert plan.applied(actual, {}, explicit=False)["PYTHONPATH"] == actual["PYTHONPATH"]
    assert plan.applied(before, gpus, explicit=True)["POSTRUN_GPU"] == "1"
    assert record_profiling.profiling_for(None, None).applied(before, gpus, explicit=False) == before
    hooked = record_profiling.profiling_for(None, None, hooks=True).applied(before, gpus, explicit=False)
    assert hooked == before | {"POSTRUN_HOOKS": "1", "PYTHONPATH": f"{record_profiling.STARTUP}:a:b"}


def test_the_age_of_trace_files_goes_to_the_job(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    before = {"POSTRUN_DIR": str(tmp_path), "POSTRUN_ROTATE_S": "5"}
    for seconds, expected in (("60", "60"), ("0", "5")):
        file.write_text(json.dumps({"ProfilingParameters": {"SMPFileRotationSecs": seconds}}), "utf-8")
        assert record_profiling.profiling_for(file, None).applied(before, {}, explicit=False)["POSTRUN_ROTATE_S"] == expected


CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "PYTHONPATH"))}


def record(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "postrun", "record", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**CLEAN, **(env or {})}, timeout=120, check=False)


def test_a_disabled_profiler_leaves_the_command_alone(tmp_path: Path) -> None:
    (tmp_path / "off.json").write_text('{"DisableProfiler": true}', "utf-8")
    script = "import os, sys; from postrun import capture\nwith capture.session('t'): pass\nsys.exit(7 + os.path.exists('t'))"
    done = record("--out", "run", "--profiler-config", "off.json", "--", sys.executable, "-c", script, cwd=tmp_path)
    assert done.returncode == 7
    assert "disables the profiler: the command runs, and nothing is recorded" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["off.json"]


def test_a_configuration_that_cannot_be_used_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("[1", "utf-8")
    done = record("--out", "run", "--profiler-config", "c.json", "--", "touch", "there", cwd=tmp_path)
    assert done.returncode == 2
    assert "c.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_the_start_up_hook_runs_the_users_own_and_imports_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(WINDOW, "utf-8")
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ.get('POSTRUN_CAPTURE') and print('mine')", "utf-8")
    code = "import sys; print([n for n in sys.modules if n.partition('.')[0] == 'postrun'], any('startup' in p for p in sys.path))"
    arguments = ("-q", "--out", "run", "--profiler-config", "c.json", "--interval-ms", "0", "--", sys.executable, "-c", code)
    done = record(*arguments, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n[] False\n", "")
    assert len(list((tmp_path / "run").glob("*.prt"))) == 1
