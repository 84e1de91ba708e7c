"""postrun.capture records the behavior of a Python program in the documented words, and never gets in its way.

Every file is read back and compared with the program's known behavior.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun import capture, native
from postrun.ingest.prt.format import TraceFile
from postrun.ingest.store.identity import identify

needs_native = pytest.mark.skipif(not native.available(), reason="this installation has no C library")
CLOSED_BY_STOP, BY_HANDLE = 1, 2
Rows = list[dict[str, Any]]


def read(folder: Path) -> TraceFile:
    """The only file of ``folder``, without anything lost."""
    (file,) = folder.glob("*.prt")
    trace = TraceFile(file)
    trace.table("annotation").arrow()
    assert trace.problems() == []
    return trace


def ranges(folder: Path) -> Rows:
    """Annotations in the order in which they began."""
    return sorted(read(folder).table("annotation").arrow().to_pylist(), key=lambda row: (row["start_ns"], row["depth"]))


def names(folder: Path) -> list[str]:
    return [row["name"] for row in ranges(folder)]


def inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    """Up to the nanosecond that rounding takes."""
    return bool(
        outer["start_ns"] <= inner["start_ns"] and inner["start_ns"] + inner["duration_ns"] <= outer["start_ns"] + outer["duration_ns"] + 1
    )


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in a process of its own, with traces in ``folder``."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", script],
        env={**known, "POSTRUN_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where traces go; nothing records before or after the test."""
    assert not capture.recording()
    monkeypatch.setenv("POSTRUN_DIR", str(tmp_path))
    for variable in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(variable, raising=False)
    yield tmp_path
    if capture.recording():
        capture.SMProfiler.instance().stop_profiling()
    capture.SMProfiler.instance().configure(capture.Config())


@pytest.fixture
def quiet(folder: Path) -> Iterator[Path]:
    """A session without the sampler."""
    with capture.session(folder, sample_ms=0):
        yield folder


# ------------------------------------------------------------------ the documented interface

DOCUMENTED = """
try:
    import no_such_smprof as smprof
except ImportError:
    import postrun.capture as smprof
SMProf = smprof.SMProfiler.instance()
config = smprof.Config()
config.profiler = {"EnableCuda": "1"}
SMProf.configure(config)
SMProf.start_profiling()
for i in range(3):
    with smprof.annotate("step_" + str(i)):
        handle = smprof.annotation_begin("Forward")
        smprof.annotation_end(handle)
        with smprof.annotate("Backward"):
            pass
SMProf.stop_profiling()
"""


@needs_native
def test_the_documented_script_runs_unchanged(tmp_path: Path) -> None:
    done = run(DOCUMENTED, tmp_path)
    assert done.returncode == 0
    rows = ranges(tmp_path)
    assert [row["name"] for row in rows] == [name for i in range(3) for name in (f"step_{i}", "Forward", "Backward")]
    assert [row["flags"] for row in rows] == [0, BY_HANDLE, 0] * 3
    for step in range(0, 9, 3):
        assert inside(rows[step + 1], rows[step])
        assert inside(rows[step + 2], rows[step])
    metadata = read(tmp_path).metadata()
    assert metadata["config.EnableCuda"] == "1"
    reason = metadata.get("capability.gpu")
    warned = [line.partition("RuntimeWarning: ")[2] for line in done.stderr.splitlines() if "Warning" in line]
    assert warned == ([f"GPU activity is not recorded: {reason}"] if reason else []), "where there is a GPU, it is recorded"
    assert metadata["sample_ms"] == "500"


@needs_native
def test_a_callback_profiles_a_range_of_steps(folder: Path) -> None:
    profiler = capture.SMProfiler.instance()
    for step in range(6):
        if step == 2:
            profiler.start_profiling()
        if step == 4:
            profiler.stop_profiling()
        with capture.annotate(f"step_{step}"):
            pass
    assert names(folder) == ["step_2", "step_3"]


@needs_native
def test_configuration_values_become_texts_and_unknown_keys_are_kept(folder: Path) -> None:
    profiler = capture.SMProfiler.instance()
    profiler.configure(capture.Config({"EnableCuda": False, "BucketCount": 32, "Strange\0": "é\ud800", "EnableForkFollow": "0"}))
    assert dict(profiler.config) == {"EnableCuda": "0", "BucketCount": "32", "Strange\0": "é\ud800", "EnableForkFollow": "0"}
    profiler.start_profiling()
    profiler.stop_profiling()
    metadata = read(folder).metadata()
    assert (metadata["config.EnableCuda"], metadata["config.BucketCount"]) == ("0", "32")
    assert metadata["config.Strange "] == "é\\ud800"
    assert "capability.gpu" not in metadata


@pytest.mark.parametrize("profiler", [{"a": 1.5}, {"a": None}, {1.5: "a"}, "EnableCuda", None])
def test_a_configuration_that_is_no_dict_of_texts_is_refused(profiler: Any) -> None:
    config = capture.Config()
    config.profiler = profiler
    with pytest.raises(TypeError):
        capture.SMProfiler.instance().configure(config)


@needs_native
def test_configure_while_recording_is_an_error_and_changes_nothing(folder: Path) -> None:
    profiler = capture.SMProfiler.instance()
    profiler.start_profiling()
    with pytest.raises(RuntimeError, match="stop_profiling first"):
        profiler.configure(capture.Config({"BucketCount": 1}))
    assert dict(profiler.config) == {}


@needs_native
def test_start_twice_and_stop_twice_warn_and_do_nothing(folder: Path) -> None:
    profiler = capture.SMProfiler.instance()
    assert profiler is capture.SMProfiler.instance()
    with pytest.warns(RuntimeWarning, match="nothing was recording"):
        profiler.stop_profiling()
    profiler.start_profiling()
    file = capture.path()
    with pytest.warns(RuntimeWarning, match="recording already") as caught:
        profiler.start_profiling()
    assert caught[0].filename == __file__
    assert capture.path() == file
    profiler.stop_profiling()
    assert not capture.recording()
    assert capture.path() is None


@needs_native
def test_handles_end_in_any_order_once(quiet: Path) -> None:
    first, second = capture.annotation_begin("first", value=1), capture.annotation_begin("second")
    capture.annotation_end(first)
    capture.annotation_end(second)
    for wrong in (first, second, 0, 12345, None, "first"):
        with pytest.raises(ValueError, match="range"):
            capture.annotation_end(wrong)  # type: ignore[arg-type]
    capture.flush()
    (file,) = quiet.glob("*.prt")
    rows = TraceFile(file).table("annotation").arrow().to_pylist()
    assert [(row["name"], row["value"], row["flags"]) for row in rows] == [("first", 1, BY_HANDLE), ("second", None, BY_HANDLE)]


@needs_native
def test_what_is_open_at_stop_is_closed_there_and_may_be_ended_later(folder: Path) -> None:
    with capture.session(folder, sample_ms=0):
        handle = capture.annotation_begin("handle")
        capture.begin("stack")
        annotation = capture.annotate("with")
        annotation.__enter__()
    assert {row["name"]: row["flags"] for row in ranges(folder)} == {
        "handle": CLOSED_BY_STOP | BY_HANDLE, "stack": CLOSED_BY_STOP, "with": CLOSED_BY_STOP,
    }  # fmt: skip
    second = folder / "other"
    with capture.session(second, sample_ms=0), capture.annotate("outer"):
        capture.annotation_end(handle)
        annotation.__exit__(None, None, None)
    assert [(row["name"], row["flags"]) for row in ranges(second)] == [("outer", 0)]
    assert capture.statistics()["unbalanced"] == 0
    with pytest.raises(ValueError, match="before"):
        capture.annotation_end(handle)


def test_outside_a_session_nothing_is_written_and_handles_are_dummies(folder: Path) -> None:
    handle = capture.annotation_begin("x", 3)
    for _ in range(2):
        capture.annotation_end(handle)
    with capture.annotate("x") as first, capture.annotate("y", value=2):
        assert first is not None
    capture.begin("x")
    capture.end()
    capture.end()
    capture.counter("x", 1)
    capture.flush()
    assert capture.path() is None
    assert list(folder.iterdir()) == []
    with pytest.raises(ValueError):
        capture.annotation_end(7)  # type: ignore[arg-type]


# ------------------------------------------------------------------ annotations


@needs_native
def test_ranges_nest_and_keep_their_values(folder: Path) -> None:
    with capture.session(folder, sample_ms=0), capture.annotate("a", -5), capture.annotate("b", value=2**63 - 1):
        capture.begin("c")
        capture.begin(value=-(2**63) + 1, name="d")
        capture.end()
        capture.end()
    rows = ranges(folder)
    assert [(row["name"], row["depth"], row["value"]) for row in rows] == [
        ("a", 0, -5), ("b", 1, 2**63 - 1), ("c", 2, None), ("d", 3, -(2**63) + 1),
    ]  # fmt: skip
    for outer, inner in itertools.pairwise(rows):
        assert inside(inner, outer)


@needs_native
def test_an_annotation_lasts_as_long_as_its_body(folder: Path) -> None:
    with capture.session(folder, sample_ms=0):
        before = time.perf_counter_ns()
        with capture.annotate("wait"):
            begun = time.perf_counter_ns()
            time.sleep(0.02)
            ended = time.perf_counter_ns()
        after = time.perf_counter_ns()
    (row,) = ranges(folder)
    assert (ended - begun) * 0.999 - 1000 <= row["duration_ns"] <= (after - before) * 1.001 + 1000
    assert abs(row["start_ns"] - time.time_ns()) < 60e9


@needs_native
def test_exceptions_pass_through_and_end_the_range(folder: Path) -> None:
    with capture.session(folder, sample_ms=0):
        with pytest.raises(ZeroDivisionError), capture.annotate("outer"), capture.annotate("inner"):
            1 / 0  # noqa: B018
        with pytest.raises(KeyboardInterrupt), capture.annotate("interrupted"):
            raise KeyboardInterrupt
        with capture.annotate("after"):
            pass
    assert [(row["name"], row["depth"], row["flags"]) for row in ranges(folder)] == [
        ("outer", 0, 0), ("inner", 1, 0), ("interrupted", 0, 0), ("after", 0, 0),
    ]  # fmt: skip


@needs_native
def test_one_annotation_may_be_entered_again_and_again(folder: Path) -> None:
    annotation = capture.annotate("x")
    with annotation, capture.session(folder, sample_ms=0):  # entered before the session: never ends a range of it
        capture.begin("outer")
        with annotation, annotation:
            pass
        with annotation:
            pass
        annotation.__exit__(None, None, None)
        capture.end()
    assert [(row["name"], row["depth"]) for row in ranges(folder)] == [("outer", 0), ("x", 1), ("x", 2), ("x", 1)]
    assert repr(annotation) == "annotate('x')"
    assert repr(capture.annotate("x", 3)) == "annotate('x', 3)"


@needs_native
def test_a_session_that_ends_inside_an_annotation_leaves_the_next_one_alone(folder: Path) -> None:
    profiler = capture.SMProfiler.instance()
    profiler.start_profiling()
    with capture.annotate("across"):
        profiler.stop_profiling()
        (folder / "one").mkdir()
        for file in folder.glob("*.prt"):
            file.rename(folder / "one" / file.name)
        profiler.start_profiling()
        capture.begin("second")
    capture.end()
    profiler.stop_profiling()
    assert [(row["name"], row["flags"]) for row in ranges(folder / "one")] == [("across", CLOSED_BY_STOP)]
    assert [(row["name"], row["flags"]) for row in ranges(folder)] == [("second", 0)]


@needs_native
def test_functions_methods_and_recursion_are_decorated(folder: Path) -> None:
    @capture.annotate("factorial", value=1)
    def factorial(n: int) -> int:
        """n!"""
        return 1 if n < 2 else n * factorial(n - 1)

    class Model:
        @capture.annotate("method")
        def method(self, x: int) -> int:
            return x + 1

        @staticmethod
        @capture.annotate("static")
        def static(x: int, *, y: int) -> int:
            return x + y

        @classmethod
        @capture.annotate("class")
        def make(cls) -> Model:
            return cls()

    with capture.session(folder, sample_ms=0):
        assert factorial(3) == 6
        assert Model.make().method(1) == 2
        assert Model.static(1, y=2) == 3
    assert (factorial.__name__, factorial.__doc__) == ("factorial", "n!")
    assert [(row["name"], row["depth"], row["value"]) for row in ranges(folder)] == [
        ("factorial", 0, 1), ("factorial", 1, 1), ("factorial", 2, 1), ("class", 0, None), ("method", 0, None), ("static", 0, None),
    ]  # fmt: skip


def test_what_is_no_function_is_not_decorated() -> None:
    for wrong in (3, classmethod(print), dict):
        if native.available() or not callable(wrong):
            with pytest.raises(TypeError, match="annotate decorates functions"):
                capture.annotate("x")(wrong)  # type: ignore[type-var]


@needs_native
def test_tasks_that_take_turns_have_ranges_of_their_own(folder: Path) -> None:
    turns: list[str] = []

    async def work(name: str, first: asyncio.Event, then: asyncio.Event) -> str:
        async with capture.annotate(name, value=7) as nothing:
            assert nothing is None
            await first.wait()
            turns.append(name)
            then.set()
        return name

    @capture.annotate("decorated")
    async def decorated() -> list[str]:
        a, b, c = asyncio.Event(), asyncio.Event(), asyncio.Event()
        a.set()
        return await asyncio.gather(work("two", b, c), work("one", a, b))

    with capture.session(folder, sample_ms=0), capture.annotate("loop"):
        assert asyncio.run(decorated()) == ["two", "one"]
    assert turns == ["one", "two"]
    actual = {row["name"]: row for row in ranges(folder)}
    assert {name: row["flags"] for name, row in actual.items()} == {"loop": 0, "decorated": BY_HANDLE, "one": BY_HANDLE, "two": BY_HANDLE}
    first_range, second_range = actual["one"], actual["two"]
    assert (
        second_range["start_ns"]
        < first_range["start_ns"]
        < first_range["start_ns"] + first_range["duration_ns"]
        < second_range["start_ns"] + second_range["duration_ns"]
    )
    assert inside(second_range, actual["decorated"])
    assert capture.statistics()["unbalanced"] == 0


@needs_native
def test_an_annotation_serves_one_async_with_at_a_time(quiet: Path) -> None:
    annotation = capture.annotate("x")

    async def twice() -> None:
        async with annotation:
            with pytest.raises(RuntimeError, match="entered already"):
                async with annotation:
                    raise AssertionError
        with pytest.raises(ValueError, match="mine"):
            async with annotation:
                raise ValueError("mine")

    asyncio.run(twice())


@needs_native
def test_generators_have_a_range_from_first_to_last_step(folder: Path) -> None:
    @capture.annotate("loader")
    def loader(n: int) -> Iterator[Any]:
        for i in range(n):
            got = yield i
            assert got in (None, "sent")
        return "end"

    @capture.annotate("stream")
    async def stream() -> AsyncIterator[Any]:
        try:
            got = yield 1
            assert got == "sent"
            yield 2
        except KeyError:
            yield "caught"
        finally:
            closed.append(True)

    closed: list[bool] = []

    async def consume() -> None:
        source: Any = stream()
        assert await source.__anext__() == 1
        assert await source.asend("sent") == 2
        assert await source.athrow(KeyError("k")) == "caught"
        assert [item async for item in source] == []
        left: Any = stream()
        assert await left.__anext__() == 1
        await left.aclose()

    with capture.session(folder, sample_ms=0):
        for i in loader(2):
            with capture.annotate("step", i):
                pass
        second: Any = loader(3)
        assert (next(second), second.send("sent")) == (0, 1)
        second.close()
        asyncio.run(consume())
    assert closed == [True, True]
    rows = ranges(folder)
    assert [(row["name"], row["flags"]) for row in rows] == [
        ("loader", BY_HANDLE), ("step", 0), ("step", 0), ("loader", BY_HANDLE), ("stream", BY_HANDLE), ("stream", BY_HANDLE),
    ]  # fmt: skip
    assert inside(rows[2], rows[0])


@needs_native
def test_ends_without_a_begin_and_depth_beyond_the_limit_are_counted(folder: Path) -> None:
    with capture.session(folder, sample_ms=0):
        for _ in range(3):
            capture.end()
        for _ in range(70):
            capture.begin("deep")
        for _ in range(70):
            capture.end()
        capture.flush()
        assert capture.statistics()["unbalanced"] == 3 + 6
    assert sorted(row["depth"] for row in ranges(folder)) == list(range(64))


# ------------------------------------------------------------------ names and values


@needs_native
def test_names_of_every_kind_come_back(folder: Path) -> None:
    class Text(str):
        __slots__ = ()

    texts = ["", "a", "é", "步", "🙂", "a\0b", "x" * 254, "x" * 255, "x" * 256, "y" * 4095, *(f"step_{i}" for i in range(3000))]
    with capture.session(folder, sample_ms=0):
        for _ in range(2):
            for i, text in enumerate(texts):
                capture.begin("".join(list(text)), i)  # another object each time
                capture.end()
        with capture.annotate(Text("derived")):
            pass
        with capture.annotate("half \udc80"):
            pass
        with capture.annotate("z" * 5000):
            pass
    rows = ranges(folder)
    assert Counter((row["name"], row["value"]) for row in rows[:-3]) == {(text, i): 2 for i, text in enumerate(texts)}
    assert [row["name"] for row in rows[-3:]] == ["derived", "half \\udc80", "z" * 4095]


@needs_native
def test_names_in_use_are_kept_and_others_let_go(quiet: Path) -> None:
    kept = "".join(["kept", "name"])
    before = sys.getrefcount(kept)
    for _ in range(10):
        with capture.annotate(kept):
            pass
    assert sys.getrefcount(kept) == before + 1
    for i in range(20000):
        capture.begin(f"{i}")
        capture.end()
    gc.collect()
    assert sys.getrefcount(kept) == before + 1  # used more than once: not pushed out


@needs_native
@pytest.mark.parametrize("recorded", [False, True])
def test_wrong_arguments_are_refused_also_where_nothing_is_recorded(folder: Path, recorded: bool) -> None:
    functions: list[Callable[..., Any]] = [capture.begin, capture.annotate, capture.annotation_begin]
    if recorded:
        capture.SMProfiler.instance().start_profiling()
    for function in functions:
        for args, kwargs in (((), {}), ((1,), {}), ((b"x",), {}), ((None,), {}), (("x", "y"), {}), (("x", 1.5), {}), (("x", 1, 2), {}),
                             (("x",), {"name": "x"}), (("x", 1), {"value": 1}), (("x",), {"other": 1}), ((), {"value": 1})):  # fmt: skip
            with pytest.raises(TypeError):
                function(*args, **kwargs)
        for value in (2**63, -(2**63), 2**100):
            with pytest.raises(OverflowError):
                function("x", value)
        function("x", None)
        function("x", value=True)
    for args in ((), ("x",), (1, 1), ("x", "y"), ("x", None), ("x", 1, 2)):
        with pytest.raises(TypeError):
            capture.counter(*args)  # type: ignore[call-arg, arg-type]


@needs_native
def test_counters_and_metadata_come_back(folder: Path) -> None:
    capture.metadata("model", "resnet é \udc80")
    with capture.session(folder, sample_ms=0):
        capture.metadata("batch", 32)
        for i, value in enumerate([1, 2.5, float("inf"), -0.0]):
            capture.counter("loss" if i % 2 else "accuracy", value)
        with pytest.raises(ValueError):
            capture.metadata("", "x")
        with pytest.raises(ValueError):
            capture.metadata("x", "y" * 70000)
    rows = read(folder).table("counter").arrow().to_pylist()
    assert [(row["name"], row["value"]) for row in rows] == [("accuracy", 1.0), ("loss", 2.5), ("accuracy", float("inf")), ("loss", 0.0)]
    metadata = read(folder).metadata()
    assert (metadata["model"], metadata["batch"]) == ("resnet é \\udc80", "32")


# ------------------------------------------------------------------ sessions


@needs_native
def test_a_session_inside_a_session_is_part_of_it(folder: Path) -> None:
    with capture.session(folder, sample_ms=0) as outer:
        inner = capture.session(folder / "inner")
        with pytest.warns(RuntimeWarning, match="part of it"):
            inner.__enter__()
        with capture.annotate("x"):
            inner.__exit__(None, None, None)
        assert inner.path == outer.path
        assert capture.recording()
    assert names(folder) == ["x"]
    assert not (folder / "inner").exists()


@needs_native
def test_a_session_ends_with_an_exception_and_can_be_used_again(folder: Path) -> None:
    session = capture.session(folder, sample_ms=0)
    for i in range(2):
        with pytest.raises(ZeroDivisionError), session, capture.annotate("x", i):
            1 / 0  # noqa: B018
        assert not capture.recording()
    assert len(list(folder.glob("*.prt"))) == 2


@needs_native
def test_wrong_options_and_folders_are_told(folder: Path) -> None:
    for options in ({"sample_ms": 7}, {"sample_ms": -1}, {"ring_records": 100}, {"rotate_bytes": 1}, {"rotate_s": -1},
                    {"zstd_level": 99}, {"directory": ""}):  # fmt: skip
        with pytest.raises(ValueError, match="out of range"):
            capture.session(**options).__enter__()  # type: ignore[arg-type]
    file = folder / "file"
    file.touch()
    with pytest.raises(OSError, match="no trace file can be written") as caught:
        capture.session(file / "below").__enter__()
    assert caught.value.filename == str(file / "below")
    assert not capture.recording()


@needs_native
def test_gpu_activity_that_cannot_be_recorded_is_told_once_in_all_files_of_a_session(folder: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with capture.session(folder, sample_ms=0, gpu="windows", rotate_s=1):
            for i in range(2):
                with capture.gpu_window(), capture.annotate("step", i):
                    pass
                capture.flush()
                time.sleep(1.2 * (i == 0))
            with capture.gpu_window():  # when the second file is being written
                pass
    assert len(list(folder.glob("*.prt"))) == 2
    assert len(caught) == 1 or (native.gpu_driver() and not caught)


@needs_native
def test_start_and_stop_many_times(folder: Path) -> None:
    for i in range(30):
        with capture.session(folder / str(i), sample_ms=0), capture.annotate("step", i):
            pass
    assert [ranges(folder / str(i))[0]["value"] for i in range(30)] == list(range(30))


@needs_native
def test_the_sampler_runs_beside(folder: Path) -> None:
    with capture.session(folder, sample_ms=100):
        time.sleep(0.35)
    metrics = read(folder).table("metric").arrow().to_pylist()
    assert {row["metric"] for row in metrics} & {"memory_used_percent", "host_memory_used_percent", "cpu_utilization"}


@needs_native
def test_threads_nest_for_themselves(folder: Path) -> None:
    def work(number: int) -> None:
        for i in range(300):
            with shared, capture.annotate(f"thread {number}", i):
                handles[number].append(capture.annotation_begin("handed over", number))
                if len(handles[number]) == 3:
                    for handle in handles[number]:
                        capture.annotation_end(handle)
                    handles[number].clear()

    shared = capture.annotate("shared")
    handles: list[list[capture.Range]] = [[] for _ in range(4)]
    with capture.session(folder, sample_ms=0):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = capture.annotation_begin("left")
        other_thread = threading.Thread(target=capture.annotation_end, args=(left,))
        other_thread.start()
        other_thread.join()
    rows = ranges(folder)
    assert Counter(row["name"] for row in rows) == {
        "shared": 1200, "handed over": 1200, "left": 1, **{f"thread {number}": 300 for number in range(4)},
    }  # fmt: skip
    by_source = {number: {row["source"] for row in rows if row["name"] == f"thread {number}"} for number in range(4)}
    assert len(set.union(*by_source.values())) == 4
    for number, (source,) in by_source.items():
        ours = [row for row in rows if row["source"] == source]
        assert sorted(row["value"] for row in ours if row["name"] == f"thread {number}") == list(range(300))
        assert {(row["name"], row["depth"]) for row in ours if not row["flags"]} == {("shared", 0), (f"thread {number}", 1)}
    assert capture.statistics()["unbalanced"] == 0


@pytest.mark.slow
@needs_native
def test_start_and_stop_beside_threads_that_record(folder: Path) -> None:
    def work() -> None:
        while not over.is_set():
            with capture.annotate("a"), capture.annotate("b"):
                capture.annotation_end(capture.annotation_begin("c"))

    over = threading.Event()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(5):
        with capture.session(folder / str(i), sample_ms=0):
            time.sleep(0.001)
        assert capture.statistics()["unbalanced"] == 0
    over.set()
    for thread in threads:
        thread.join()
    for i in range(5):
        for row in ranges(folder / str(i)):
            assert row["name"] in "abc"


# ------------------------------------------------------------------ processes

FORK = """
import os
from postrun import capture
capture.SMProfiler.instance().configure(capture.Config({"EnableForkFollow": %r}))
capture.SMProfiler.instance().start_profiling()
annotation = capture.annotate("parent")
with annotation:
    handle = capture.annotation_begin("handle")
    child = os.fork()
    if child == 0:
        capture.begin("child")
        capture.annotation_end(handle)
        annotation.__exit__(None, None, None)
        capture.end()
        with capture.annotate("child only"):
            pass
        unbalanced = capture.statistics()["unbalanced"]
        if capture.recording():
            capture.SMProfiler.instance().stop_profiling()
        os._exit(unbalanced)
    capture.annotation_end(handle)
assert os.waitpid(child, 0)[1] == 0
capture.SMProfiler.instance().stop_profiling()
"""


@needs_native
@pytest.mark.parametrize("follow", ["0", "1"])
def test_a_forked_child_records_only_if_asked(tmp_path: Path, follow: str) -> None:
    done = run(FORK % follow, tmp_path)
    assert done.returncode == 0, done.stderr
    files = [TraceFile(file) for file in sorted(tmp_path.glob("*.prt"))]
    actual = sorted(sorted(row["name"] for row in file.table("annotation").arrow().to_pylist()) for file in files)
    assert actual == ([["child", "child only"]] if follow == "1" else []) + [["handle", "parent"]]
    assert [file.problems() for file in files] == [[]] * len(files)
    if follow == "1":
        assert len({file.header["session"] for file in files}) == 1
        assert len({file.header["pid"] for file in files}) == 2


EXITS = """
import os, sys, time
from postrun import capture
capture.SMProfiler.instance().start_profiling()
for i in range(100):
    with capture.annotate("step", value=i):
        pass
capture.begin("open")
%s
"""


@needs_native
@pytest.mark.parametrize(
    ("leave", "code", "clean"),
    [("pass", 0, True), ("sys.exit(3)", 3, True), ("1 / 0", 1, True), ("time.sleep(0.5); os._exit(4)", 4, False),
     ("capture.flush(); os.kill(os.getpid(), 9)", -9, False)],
)  # fmt: skip
def test_however_a_program_ends_its_ranges_are_there(tmp_path: Path, leave: str, code: int, clean: bool) -> None:
    assert run(EXITS % leave, tmp_path).returncode == code
    (file,) = tmp_path.glob("*.prt")
    trace = TraceFile(file)
    rows = trace.table("annotation").arrow().to_pylist()
    assert sorted(row["value"] for row in rows if row["name"] == "step") == list(range(100))
    assert [row["flags"] for row in rows if row["name"] == "open"] == ([CLOSED_BY_STOP] if clean else [])
    assert [problem.code for problem in trace.problems()] == ([] if clean else ["no_end"])


INTERRUPTED = """
import atexit, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
from postrun import capture
atexit.register(lambda: (capture.begin("late"), capture.end()))
%s
for i in range(100):
    with capture.annotate("step", value=i):
        pass
os.kill(os.getpid(), signal.SIGINT)
time.sleep(30)
"""


@needs_native
@pytest.mark.parametrize("how", ["program", "environment", "recorder"])
def test_an_interrupted_program_stops_properly(tmp_path: Path, how: str) -> None:
    """Ctrl-C that nobody catches ends Python by the signal after its handlers.

    The handlers of C do not run.
    """
    start = "" if how != "program" else "capture.SMProfiler.instance().start_profiling()"
    known = {} if how == "program" else {"POSTRUN_CAPTURE": "1"} | ({"POSTRUN_RECORDER": "host:1"} if how == "recorder" else {})
    assert run(INTERRUPTED % start, tmp_path, **known).returncode == -signal.SIGINT
    (file,) = tmp_path.glob("*.prt")
    trace = TraceFile(file)
    assert trace.problems() == []
    rows = trace.table("annotation").arrow().to_pylist()
    assert sorted(row["value"] for row in rows if row["name"] == "step") == list(range(100))
    assert [row["flags"] for row in rows if row["name"] == "late"] == [0]


@needs_native
def test_the_environment_starts_a_session_for_the_whole_program(tmp_path: Path) -> None:
    done = run(DOCUMENTED.replace("SMProf.stop_profiling()", ""), tmp_path, POSTRUN_CAPTURE="1")
    assert done.returncode == 0
    assert done.stderr.count("Warning") == ("capability.gpu" in read(tmp_path).metadata())
    assert len(ranges(tmp_path)) == 9
    assert read(tmp_path).metadata()["config.EnableCuda"] == "1"


@needs_native
def test_subinterpreters_have_modules_of_their_own(tmp_path: Path) -> None:
    """Each interpreter has its own names and types; the session is the process's."""
    script = """
from postrun import capture
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
try:
    one = interpreters.create(isolated=False)
except TypeError:
    one = interpreters.create("legacy")
with capture.session(sample_ms=0):
    with capture.annotate("main"):
        failed = interpreters.run_string(one, "from postrun import capture\\nwith capture.annotate('other'): pass")
        assert failed is None, failed
    interpreters.destroy(one)
    with capture.annotate("main"):
        pass
"""
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == ["main", "other", "main"]


ABSENT = """
import sys
sys.modules["postrun.native._native"] = None
"""


def test_without_the_c_library_scripts_run_and_are_told_once(tmp_path: Path) -> None:
    done = run(ABSENT + DOCUMENTED + DOCUMENTED + "\nwith smprof.session(): smprof.metadata('a', 1); smprof.counter('b', 2)", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
    assert "no C library" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_c_library_everything_documented_is_there(tmp_path: Path) -> None:
    script = """
import asyncio
from postrun import capture
for name in capture.__all__:
    getattr(capture, name)
@capture.annotate("x")
def f(): return 3
assert f() == 3
async def g():
    async with capture.annotate("x", value=1) as nothing:
        assert nothing is None
asyncio.run(g())
capture.annotation_end(capture.annotation_begin("x"))
for wrong, error in ((lambda: capture.annotate(3), TypeError), (lambda: capture.begin("x", 2**63), OverflowError),
                     (lambda: capture.annotation_end(3), ValueError), (lambda: capture.annotate("x")(3), TypeError)):
    try:
        wrong()
    except error:
        continue
    raise AssertionError
assert capture.recording() is False and capture.path() is None and capture.statistics()["recorded"] == 0
"""
    done = run(ABSENT + script, tmp_path)
    assert done.returncode == 0, done.stderr


def test_importing_loads_none_of_the_large_packages(tmp_path: Path) -> None:
    done = run(
        "import sys, postrun.capture; print(*{'torch', 'numpy', 'polars', 'duckdb', 'pyarrow', 'asyncio'} & {*sys.modules})", tmp_path
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


# ------------------------------------------------------------------ traces of torch.profiler


class Profiler:
    """The part of torch.profiler.profile that the handler uses."""

    def __init__(self, fail: bool = False) -> None:
        self.fail = fail

    def export_chrome_trace(self, path: str) -> None:
        with Path(path).open("w") as file:
            file.write('{"traceEvents": [')
            if self.fail:
                raise OSError(28, "No space left on device")
            file.write("]}")


def test_traces_of_torch_are_written_where_the_report_reads_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = capture.torch_trace_handler(folder / "new" / "traces")
    handler(Profiler())
    monkeypatch.setenv("RANK", "12")
    handler(Profiler())
    actual = {file.parent.name: file for file in folder.rglob("*") if file.is_file()}
    assert actual.keys() == {"traces", "rank12"}
    for name, rank in (("traces", None), ("rank12", 12)):
        assert json.loads(gzip.decompress(actual[name].read_bytes())) == {"traceEvents": []}
        known = identify({}, actual[name], os.getpid())
        assert (known.hostname, known.pid, known.rank) == (os.uname().nodename, os.getpid(), rank)


def test_a_trace_that_cannot_be_written_is_a_warning_and_leaves_nothing(folder: Path) -> None:
    with pytest.warns(RuntimeWarning, match="No space left"):
        capture.torch_trace_handler(folder / "a")(Profiler(fail=True))
    assert list((folder / "a").iterdir()) == []
    (folder / "file").touch()
    with pytest.warns(RuntimeWarning, match="could not be written"):
        capture.torch_trace_handler(folder / "file" / "x")(Profiler())


def test_the_rank_is_the_one_torch_distributed_knows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Distributed:
        is_available = is_initialized = staticmethod(lambda: True)
        get_rank = staticmethod(lambda: 5)

    monkeypatch.setenv("RANK", "12")
    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        capture.torch_trace_handler(folder)(Profiler())
    assert [file.name for file in folder.iterdir()] == ["rank5"]
