"""The profiles contain the functions of exactly the profiled steps, with the computed calls and times."""

from __future__ import annotations

import cProfile
import importlib.util
import json
import os
import pstats
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from postrun import capture, native
from postrun.ingest.python_profiles.pyinstrument_tree import read_tree
from postrun.ingest.python_profiles.window import timer_of, window_of
from postrun.native.profiling.engine.dataloader import LoaderPart
from postrun.native.profiling.engine.one_function import RECORDING, stack_with_one_function, with_one_function
from postrun.native.profiling.engine.part import FileLimits, LeftOutError
from postrun.native.profiling.engine.python_profile import PythonPart
from postrun.native.profiling.plan import LoaderPlan, ProfilingPlan, PythonPlan, Timer, Window
from postrun.native.recording import exclude_self
from postrun.native.recording.exclude_self import around, unseen

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch)")
needs_pyinstrument = pytest.mark.skipif(
    importlib.util.find_spec("pyinstrument") is None, reason="pyinstrument is not installed (pip install pyinstrument)"
)

RECORDER = str(Path(native.__file__).parent)
POINT = r"(train|eval|predict|global)-(\d+|\*)-(start|stepstart|forwardpassend|stepend|end)-(\d+\.\d+)"


@dataclass
class Profile:
    mode: str
    step: str
    phases: tuple[str, str]
    start_us: float
    end_us: float
    timer: str
    functions: dict[str, tuple[int, float, float]]
    """Calls, own and cumulative seconds by name, of functions of this file."""
    everything: dict[Any, Any]


def profiles(folder: Path, profiler: str = "cprofile") -> list[Profile]:
    root = folder / "framework" / "pytorch" / profiler
    results = []
    assert not list(root.rglob(".*"))
    for location in sorted(root.glob("*/*"), key=lambda place: float(place.name.split("_")[0].rsplit("-", 1)[1])):
        assert re.fullmatch(rf"{os.getpid()}-[^_]+", location.parent.name)
        match = re.fullmatch(f"{POINT}_{POINT}", location.name)
        assert match is not None, location.name
        mode, step, phase, start, end_mode, end_step, end_phase, end = match.groups()
        assert (mode, step) == (end_mode, end_step)
        facts = json.loads((location / "postrun.json").read_text())
        assert facts == {"profiler": profiler, "timer": facts["timer"], "rank": None}
        stats: dict[Any, Any] = {}
        if profiler == "cprofile":
            assert sorted(path.name for path in location.iterdir()) == ["postrun.json", "python_stats"]
            stats = pstats.Stats(str(location / "python_stats")).stats  # type: ignore[attr-defined]
        here = {
            name: (calls, own, whole) for (file, _, name), (_, calls, own, whole, _) in stats.items() if file == __file__ and name[0] != "<"
        }
        results.append(Profile(mode, step, (phase, end_phase), float(start), float(end), facts["timer"], here, stats))
    return results


def part_of(folder: Path, timer: Timer = "total_time", profiler: Literal["cprofile", "pyinstrument"] = "cprofile") -> PythonPart:
    return PythonPart(PythonPlan(Window(first_step=9, steps=3), profiler, timer), folder)


def run(part: PythonPart, work: Callable[[int], object], first: int = 9, last: int = 11, total: int = 14) -> None:
    """Run steps; the window contains ``first`` to ``last``."""
    for step in range(total):
        if step == first:
            part.open(step)
        elif first < step <= last:
            part.step(step)
        work(step)
        if step == last:
            part.close(step)


def leaf() -> None:
    pass


def tenfold(step: int) -> None:
    for _ in range(step * 10):
        leaf()


def asleep() -> None:
    time.sleep(0.05)


def busy() -> None:
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        sum(range(500))


def both(step: int) -> None:
    asleep()
    busy()


@capture.annotate("decorated")
def with_decoration() -> None:
    asleep()


def test_each_step_of_the_window_has_a_profile_with_its_calls_and_no_other_step(tmp_path: Path) -> None:
    before = time.time_ns() / 1000
    part = part_of(tmp_path)
    run(part, tenfold)
    after = time.time_ns() / 1000
    assert sys.getprofile() is None
    found_profiles = profiles(tmp_path)
    assert [(one.mode, one.step, one.phases) for one in found_profiles] == [
        ("global", str(step), ("stepstart", "stepend")) for step in (9, 10, 11)
    ]
    for step, first in zip((9, 10, 11), found_profiles, strict=True):
        assert {name: calls for name, (calls, _, _) in first.functions.items()} == {"tenfold": 1, "leaf": step * 10}
        assert before < first.start_us < first.end_us < after
        assert first.functions["tenfold"][2] <= (first.end_us - first.start_us) / 1e6
    assert found_profiles[0].end_us < found_profiles[1].start_us


def test_nothing_of_this_package_and_of_the_end_of_a_profile_is_in_it(tmp_path: Path) -> None:
    run(part_of(tmp_path), tenfold)
    for profile in profiles(tmp_path):
        assert not [name for name in profile.everything if name[0].startswith(RECORDER) or "_lsprof" in name[2]]
        assert not [name for of in profile.everything.values() for name in of[4] if name[0].startswith(RECORDER)]
        assert {name[2] for name in profile.everything if name[0] == "~"} == set()


def test_timers_follow_each_other_a_step_each(tmp_path: Path) -> None:
    run(part_of(tmp_path, "default"), both)
    wall, processor, off = profiles(tmp_path)
    assert [one.timer for one in (wall, processor, off)] == ["total_time", "cpu_time", "off_cpu_time"]
    assert wall.functions["asleep"][2] >= 0.05
    assert wall.functions["busy"][2] >= 0.05
    assert processor.functions["asleep"][2] < 0.01
    assert processor.functions["busy"][2] >= 0.049
    assert off.functions["asleep"][2] >= 0.045
    busy_s = (off.end_us - off.start_us) / 1e6
    assert 0 <= off.functions["busy"][2] <= busy_s - 0.05 - 0.045  # what is left of the step: only where others took the processor
    assert all(figure >= 0 for one in (wall, processor, off) for of in one.everything.values() for figure in of[:4])


@pytest.mark.parametrize("timer", ["total_time", "cpu_time", "off_cpu_time"])
def test_a_timer_that_is_asked_for_is_that_of_every_step(tmp_path: Path, timer: Timer) -> None:
    run(part_of(tmp_path, timer), tenfold)
    assert [one.timer for one in profiles(tmp_path)] == [timer] * 3


def test_processor_time_is_that_of_the_thread(tmp_path: Path) -> None:
    done = threading.Event()

    def other() -> None:
        while not done.is_set():
            sum(range(500))

    thread = threading.Thread(target=other)
    thread.start()
    try:
        run(part_of(tmp_path, "cpu_time"), lambda step: asleep(), first=0, last=0, total=1)
    finally:
        done.set()
        thread.join()
    (profile,) = profiles(tmp_path)
    assert profile.functions["asleep"][2] < 0.02
    assert not {"other", "is_set"} & {name for _, _, name in profile.everything}  # cProfile of Python 3.12 mixes threads


def test_the_reader_knows_step_phase_time_and_timer(tmp_path: Path) -> None:
    run(part_of(tmp_path, "off_cpu_time"), tenfold, first=10, last=10)
    (path,) = tmp_path.rglob("python_stats")
    (profile,) = profiles(tmp_path)
    window = window_of(path)
    assert (window.number, window.steps, window.start_mode) == (os.getpid(), (10, 10), "global")
    assert (window.start_phase, window.end_phase) == ("stepstart", "stepend")
    assert window.start_ns is not None
    assert abs(window.start_ns - profile.start_us * 1000) < 1000
    assert timer_of(path) == "off_cpu_time"


def test_where_no_step_is_known_it_is_one_profile(tmp_path: Path) -> None:
    part = PythonPart(PythonPlan(Window(duration_s=1)), tmp_path)
    part.open(None)
    tenfold(1)
    part.close(None)
    (profile,) = profiles(tmp_path)
    assert (profile.mode, profile.step, profile.phases) == ("global", "*", ("start", "end"))
    assert profile.functions["leaf"][0] == 10
    (path,) = tmp_path.rglob("python_stats")
    assert window_of(path).steps == (None, None)


def test_a_window_that_never_opened_leaves_nothing(tmp_path: Path) -> None:
    part_of(tmp_path).close(None)
    assert list(tmp_path.iterdir()) == []


def test_another_profiler_is_left_alone(tmp_path: Path) -> None:
    second, part = cProfile.Profile(), part_of(tmp_path)
    second.enable()
    try:
        with pytest.raises(LeftOutError, match="another profiler is active"):
            part.open(9)
        tenfold(9)
    finally:
        second.disable()
    calls = {name[2]: of[1] for name, of in pstats.Stats(second).stats.items()}  # type: ignore[attr-defined]
    assert calls["leaf"] == 90
    assert list(tmp_path.iterdir()) == []


def test_a_tracer_is_told_of(tmp_path: Path) -> None:
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: None)
    try:
        with pytest.warns(RuntimeWarning, match="traces this thread") as caught:
            run(part_of(tmp_path), tenfold)
    finally:
        sys.settrace(before)
    assert len(caught) == 1
    assert len(profiles(tmp_path)) == 3


def test_a_forked_process_does_not_go_on_with_a_profile(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    part.open(9)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, repr(sys.getprofile()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"None"
    leaf()
    part.close(9)
    (profile,) = profiles(tmp_path)
    assert profile.functions["leaf"][0] == 1


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "framework").write_text("in the way")
    part = part_of(tmp_path)
    part.open(9)
    with pytest.raises(OSError, match="framework/pytorch/cprofile"):
        part.step(10)
    assert sys.getprofile() is None


def test_a_missing_pyinstrument_is_told_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    with pytest.raises(LeftOutError, match=re.escape("(pip install pyinstrument)")):
        part_of(tmp_path, profiler="pyinstrument")


@needs_pyinstrument
def test_pyinstrument_writes_a_tree_and_a_page_for_each_step(tmp_path: Path) -> None:
    run(part_of(tmp_path, "default", "pyinstrument"), lambda step: asleep())
    found_profiles = profiles(tmp_path, "pyinstrument")
    assert [(one.step, one.phases, one.timer) for one in found_profiles] == [
        (str(step), ("stepstart", "stepend"), "total_time") for step in (9, 10, 11)
    ]
    pages = list(tmp_path.rglob("python_stats.html"))
    assert len(pages) == 3
    assert all(page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html") for page in pages)
    for path in tmp_path.rglob("python_stats.json"):
        session = json.loads(path.read_text(encoding="utf-8"))
        assert 0.045 <= session["duration"] < 5
        assert '"asleep"' in path.read_text(encoding="utf-8")


@pytest.mark.slow
@needs_pyinstrument
def test_in_pyinstrument_what_the_recorder_does_is_one_function_too(tmp_path: Path) -> None:
    @unseen
    def record(*arguments: object) -> None:
        both(9)

    loaded = around(asleep, record)

    def work(step: int) -> None:
        record()
        loaded()
        with_decoration()

    run(part_of(tmp_path, profiler="pyinstrument"), work, last=9)
    (path,) = tmp_path.rglob("python_stats.json")
    tree = read_tree(path.read_bytes())
    totals: dict[str, float] = {}
    callers: dict[str, set[str]] = {}
    for function, parent, total in zip(tree.frames, tree.parents, tree.total, strict=True):
        file, _, name = tree.functions[function]
        assert file is None or not file.startswith(RECORDER)
        totals[name] = totals.get(name, 0.0) + total
        callers.setdefault(name, set()).add(tree.functions[tree.frames[parent]][2])
    assert totals["{postrun's own recording}"] >= 0.19  # 4 times 50 ms
    assert callers["{postrun's own recording}"] == {"work"}
    assert totals["asleep"] >= 0.09
    assert callers["asleep"] == {"work", "with_decoration"}
    assert callers["with_decoration"] == {"work"}
    assert "both" not in totals
    assert "busy" not in totals


# ------------------------------------------------------------------ with torch


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch")
    module.set_num_threads(1)
    return module


def after_forward() -> None:
    pass


@needs_torch
def test_a_step_is_split_where_its_forward_ends(tmp_path: Path, torch: Any) -> None:
    class Inner(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            leaf()
            return x * 2

    class Outer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([Inner(), Inner(), Inner()])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    model = Outer()
    x = torch.ones(2, requires_grad=True)

    def work(step: int) -> None:
        model.train(step != 11)
        loss = model(x).sum()
        loss = torch.nn.Identity()(loss)  # another outermost module: the forward has ended
        after_forward()
        loss.backward()

    run(part_of(tmp_path), work)
    found_profiles = profiles(tmp_path)
    assert [(one.mode, one.step, one.phases) for one in found_profiles] == [
        (mode, step, phases)
        for mode, step in (("train", "9"), ("train", "10"), ("eval", "11"))
        for phases in (("stepstart", "forwardpassend"), ("forwardpassend", "stepend"))
    ]
    for forward, rest in zip(found_profiles[::2], found_profiles[1::2], strict=True):
        assert forward.functions["leaf"][0] == 3
        assert "after_forward" not in forward.functions
        assert rest.functions["after_forward"][0] == 1
        assert "leaf" not in rest.functions
        assert [name[2] for name in rest.everything if name[2] == "backward"]
        assert forward.end_us <= rest.start_us < forward.end_us + 0.1 * 1e6
    module = sys.modules["torch.nn.modules.module"]
    assert not module._global_forward_hooks  # type: ignore[attr-defined]
    assert not module._global_forward_pre_hooks  # type: ignore[attr-defined]


@needs_torch
def test_the_mode_is_that_of_the_step_not_of_its_first_forward(tmp_path: Path, torch: Any) -> None:
    model, loss = torch.nn.Linear(2, 1), torch.nn.L1Loss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.ones(2, 2), torch.ones(2, 1)

    def evaluation() -> None:
        model.eval()
        with torch.no_grad():
            loss(model(x), y)  # a loss has no mode, and reports training
        model.train()

    def work(step: int) -> None:
        if step != 10:  # also where an evaluation is the first
            evaluation()
        if step == 10:
            loss(model(x), y).backward()
        if step == 11:
            optimizer.step()
        if step == 12:
            loss(model(x), y).backward()

    run(part_of(tmp_path), work, last=12)
    assert {one.step: one.mode for one in profiles(tmp_path)} == {"9": "eval", "10": "train", "11": "train", "12": "train"}
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks  # type: ignore[attr-defined]


@needs_torch
def test_the_recorders_time_is_one_function_below_its_callers(tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(step: Any, module: Any) -> None:
        time.sleep(0.02)

    monkeypatch.setattr("postrun.native.profiling.engine.python_profile._tell_mode", slow)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))

    def train_one(step: int) -> None:
        model(torch.ones(2))

    run(part_of(tmp_path), train_one, first=9, last=9)
    profile = profiles(tmp_path)[0]
    ((_, calls, self_time, total_time, callers),) = [
        of for name, of in profile.everything.items() if name[2] == "<postrun's own recording>"
    ]
    assert "slow" not in profile.functions
    assert self_time == pytest.approx(total_time)
    assert self_time > 0.02
    assert calls == 4  # before and after both modules
    every = profile.everything
    assert profile.functions["train_one"][2] == pytest.approx(sum(of[2] for of in every.values()), rel=1e-3)
    for name, (_, _, self_time, total_time, _) in every.items():  # a function's time is its own or that of its callees
        if name[2] in ("train_one", "slow"):
            below = sum(of[4][name][3] for of in every.values() if name in of[4])
            assert total_time == pytest.approx(self_time + below, rel=1e-6)
    assert callers


def test_the_recorders_functions_on_paper() -> None:
    """Compute a recorder's functions by hand.

    main (10 s, own 0.25) calls model (4 s, own 1), len (0.25 s), metadata of the recorder (3 s) and a decorated function (2.5 s, own 0.5,
    the program's function 2 s); model calls metadata (1 s) and end (2 s). len took 1 s of metadata's 4 s.
    """
    capture_file = capture.__file__
    main, model, decorated = ("/a.py", 1, "main"), ("/a.py", 9, "model"), ("/a.py", 20, "decorated")
    metadata, wrapper = (capture_file, 3, "metadata"), (capture_file, 7, "annotated decorated 1")
    length, ordered = ("~", 0, "<built-in method len>"), ("~", 0, "<built-in method sorted>")
    actual = with_one_function({
        main: (1, 1, 0.25, 10.0, {}),
        model: (1, 1, 1.0, 4.0, {main: (1, 1, 1.0, 4.0)}),
        metadata: (2, 2, 3.0, 4.0, {main: (1, 1, 2.25, 3.0), model: (1, 1, 0.75, 1.0)}),
        length: (3, 3, 1.25, 1.25, {metadata: (2, 2, 1.0, 1.0), main: (1, 1, 0.25, 0.25)}),
        ("~", 0, "<built-in method postrun.native._native.end>"): (2, 2, 2.0, 2.0, {model: (2, 2, 2.0, 2.0)}),
        wrapper: (1, 1, 0.5, 2.5, {main: (1, 1, 0.5, 2.5)}),
        decorated: (1, 1, 1.5, 2.0, {wrapper: (1, 1, 1.5, 2.0)}),
        ordered: (1, 1, 0.5, 0.5, {decorated: (1, 1, 0.5, 0.5)}),
    })  # fmt: skip
    assert actual == {
        main: (1, 1, 0.25, 10.0, {}),
        model: (1, 1, 1.0, 4.0, {main: (1, 1, 1.0, 4.0)}),
        length: (1, 1, 0.25, 0.25, {main: (1, 1, 0.25, 0.25)}),
        decorated: (1, 1, 1.5, 2.0, {main: (1, 1, 1.5, 2.0)}),
        ordered: (1, 1, 0.5, 0.5, {decorated: (1, 1, 0.5, 0.5)}),
        RECORDING: (5, 5, 6.5, 6.5, {main: (2, 2, 3.5, 3.5), model: (3, 3, 3.0, 3.0)}),
    }
    assert sum(of[2] for of in actual.values()) == 10.0


def test_decorators_in_decorators_and_with_several_callers_on_paper() -> None:
    """Compute nested decorators by hand.

    one calls it once (6 s) and two twice (3 s): the outer decorator (own 3 s) calls the inner (1.5 s), which calls it (4.5 s).
    """
    first, two, function = ("/a.py", 1, "one"), ("/a.py", 2, "two"), ("/a.py", 3, "function")
    inner, outer = (capture.__file__, 7, "annotated function 1"), (capture.__file__, 7, "annotated function 2")
    actual = with_one_function({
        first: (1, 1, 0.0, 6.0, {}),
        two: (1, 1, 0.0, 3.0, {}),
        inner: (3, 3, 1.5, 6.0, {outer: (3, 3, 1.5, 6.0)}),
        outer: (3, 3, 3.0, 9.0, {first: (1, 1, 2.0, 6.0), two: (2, 2, 1.0, 3.0)}),
        function: (3, 3, 4.5, 4.5, {inner: (3, 3, 4.5, 4.5)}),
    })  # fmt: skip
    assert actual == {
        first: (1, 1, 0.0, 6.0, {}),
        two: (1, 1, 0.0, 3.0, {}),
        function: (3, 3, 4.5, 4.5, {first: (1, 1, 3.0, 3.0), two: (2, 2, 1.5, 1.5)}),
        RECORDING: (6, 6, 4.5, 4.5, {first: (2, 2, 3.0, 3.0), two: (4, 4, 1.5, 1.5)}),
    }


def test_a_step_without_a_call_has_a_profile_that_can_be_read(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    part.open(9)
    part.step(10)
    part.close(9)
    (profile,) = profiles(tmp_path)
    assert profile.everything == {RECORDING: (1, 1, 0, 0, {})}


def test_the_recorders_stacks_on_paper() -> None:
    unseen, here = Path(exclude_self.__file__), capture.__file__

    def frame(name: str, file: object = "/a.py") -> str:
        return f"{name}\0{file}\x007\1l9"

    recording, called, wrapper = frame("recording", unseen), frame("called", unseen), frame("annotated leaf 1", here)
    main, ours, written = frame("main"), "{postrun's own recording}\0<built-in>\x000", frame("dumps", "/lib/json.py")
    before = frame("_begins", Path(sys.modules[PythonPart.__module__].__file__ or "").with_name("dataloader.py"))
    for stack, output in (
        ([main, frame("leaf")], [main, frame("leaf")]),
        ([main, recording], [main, ours]),
        ([main, recording, written], [main, ours]),
        ([main, recording, called], [main, ours]),
        ([main, recording, called, before, written], [main, ours]),
        ([main, recording, called, written], [main, written]),
        ([main, recording, called, recording], [main, ours]),
        ([main, wrapper, frame("leaf"), wrapper, written], [main, frame("leaf"), written]),
        ([main, wrapper], [main, ours]),
        ([main, frame("metadata", here), written], [main, ours]),
        ([], []),
    ):
        assert stack_with_one_function(stack) == output


@needs_torch
def test_loaders_that_are_recorded_meanwhile_are_the_programs_and_their_recording_is_not(tmp_path: Path, torch: Any) -> None:
    loaders = LoaderPart(LoaderPlan(Window(first_step=0)), tmp_path, FileLimits())
    loader = torch.utils.data.DataLoader(range(5))
    part = part_of(tmp_path)
    loaders.open(0)
    part.open(0)

    def train() -> int:
        return sum(1 for _ in loader)

    assert train() == 5
    part.close(0)
    loaders.close(0)
    assert len(list(tmp_path.rglob("*_pythontimeline.json"))) == 1
    (profile,) = profiles(tmp_path)
    for name, _, function in profile.everything:
        assert not name.startswith(RECORDER)
        assert not re.search(r"json|pathlib", name), name
        assert function not in ("<built-in method posix.pwrite>", "<built-in method posix.stat>", "<built-in method time.time_ns>")
    (following,) = [of for (file, _, name), of in profile.everything.items() if name == "__next__" and file.endswith("dataloader.py")]
    assert following[1] == 6  # the last finds the end
    assert {caller[2] for caller in following[4]} == {"<genexpr>"}


@needs_torch
@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_recorded_training_has_the_calls_of_plain_cprofile(tmp_path: Path, torch: Any) -> None:
    class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Any:
            json.dumps(index)
            return torch.full((2,), float(index))

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train_one(step: int, batches: Any) -> None:
        for _ in range(2):
            batch = next(batches)
            json.dumps(step)
            Path("/a").joinpath(str(time.time_ns()))
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        asleep()

    def batches() -> Any:
        return iter(torch.utils.data.DataLoader(Numbers(), batch_size=2))

    # If there are hooks, torch takes another path, and calls them.
    hook = sys.modules["torch.nn.modules.module"].register_module_forward_hook(lambda module, given, output: None)  # type: ignore[attr-defined]
    try:
        loaded, plain = batches(), cProfile.Profile()
        train_one(0, loaded)
        plain.enable()
        train_one(1, loaded)
        plain.disable()
        loaded = batches()
        plan = ProfilingPlan(python=PythonPlan(Window(1, 2)), loader=LoaderPlan(Window(1, 2)))
        with capture.session(tmp_path, sample_ms=0, gpu=False, profiler_config=plan):
            for step in range(3):
                with capture.annotate("step", value=step):
                    train_one(step, loaded)
    finally:
        hook.remove()
    assert len(list(tmp_path.rglob("*_pythontimeline.json"))) == 1
    ahead, rest, last_ahead, last_rest = [one.everything for one in profiles(tmp_path)]

    def calls(*actual: Any) -> dict[str, int]:
        """Return the calls of the program's functions and of those in both programs."""
        total: dict[str, int] = {}
        for (file, _, name), of in [one for stats in actual for one in stats.items()]:
            if file == __file__ or re.search(r"json|pathlib|torch.utils.data|_next|time_ns|posix|isinstance", f"{file} {name}"):
                total[name] = total.get(name, 0) + of[1]
        return total

    plain.create_stats()
    expected = calls(plain.stats)  # type: ignore[attr-defined]
    assert (expected["__getitem__"], expected["__next__"]) == (4, 2)
    assert expected["dumps"] == 6
    for first, second in ((ahead, rest), (last_ahead, last_rest)):
        assert calls(first, second) == expected
        assert calls(first)["dumps"] == 3  # the forward comes after the first loading
        (following,) = [of for (file, _, name), of in first.items() if name == "__next__" and file.endswith("dataloader.py")]
        assert {caller[2]: of[0] for caller, of in following[4].items()} == {"<built-in method builtins.next>": 1}
        for stats in (first, second):
            assert RECORDING in stats
            assert not [name for name in stats if name[0].startswith(RECORDER) or "postrun." in name[2]]


@needs_torch
def test_a_forward_that_fails_ends_there(tmp_path: Path, torch: Any) -> None:
    class Failing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            raise LookupError

    part = part_of(tmp_path)
    part.open(9)
    with pytest.raises(LookupError):
        torch.nn.Sequential(Failing())(torch.ones(1))
    part.step(10)
    torch.nn.Identity()(torch.ones(1))
    part.close(10)
    phases = [(one.step, one.phases[1]) for one in profiles(tmp_path)]
    assert phases == [("9", "forwardpassend"), ("9", "stepend"), ("10", "forwardpassend"), ("10", "stepend")]


@needs_torch
def test_a_compiled_model_is_not_compiled_anew(tmp_path: Path, torch: Any) -> None:
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    class Deep(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    model = torch.compile(Deep(), backend=backend)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="(?s).*global hooks", category=UserWarning)  # not those in the compiler itself
        run(part_of(tmp_path), lambda step: (model(torch.ones(2)), after_forward()))
    assert not [entry for entry in warnings.filters if "global hooks" in str(entry[1])]
    assert len(compiled) == 1
    assert [(one.step, one.phases[0], "after_forward" in one.functions) for one in profiles(tmp_path)] == [
        (str(step), phase, phase == "forwardpassend") for step in (9, 10, 11) for phase in ("stepstart", "forwardpassend")
    ]


def test_a_step_that_did_not_end_is_dropped(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    part.open(9)
    tenfold(1)
    part.step(10)
    tenfold(2)
    part.close(9)
    assert [one.step for one in profiles(tmp_path)] == ["9"]
    other_part = part_of(tmp_path / "none")
    other_part.open(9)
    other_part.close(None)
    assert not list((tmp_path / "none").rglob("python_stats*"))
