"""The iterations, starts and worker fetches of PyTorch's data loaders are recorded in their window, and only there.

The files are read in plain Python. The tests do not depend on torch, because it is large.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun import capture, native
from postrun.ingest import ingest
from postrun.native.profiling.engine import dataloader
from postrun.native.profiling.engine.dataloader import LoaderPart
from postrun.native.profiling.engine.part import FileLimits, LeftOutError
from postrun.native.profiling.plan import LoaderPlan, ProfilingPlan, Window
from postrun.native.recording.when_imported import when_imported

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch)")

ITEM_S = 0.004


@pytest.fixture(scope="module")
def data() -> Any:
    """Import torch.utils.data only for the tests that need it."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch.utils.data


def numbers(data: Any, length: int, fails_at: int | None = None, within: Callable[[int], None] = lambda i: None) -> Any:
    class Numbers(data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return length

        def __getitem__(self, i: int) -> int:
            time.sleep(ITEM_S)
            if i == fails_at:
                raise LookupError(i)
            within(i)
            return i

    return Numbers()


def endless(data: Any) -> Any:
    class Endless(data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            for i in range(1000):
                time.sleep(ITEM_S)
                yield i

    return Endless()


def recorded(folder: Path) -> list[dict[str, Any]]:
    """Return events by start: phase, name, start and end in µs, members of args."""
    results = []
    for path in (folder / "framework" / "pevents").glob("[!.]*/*_pythontimeline.json"):
        phases: dict[int, str] = {}
        base = 0
        for record in json.loads(path.read_text(encoding="utf-8")):
            if record["ph"] == "M" and record["name"] == "process_name":
                base = record["args"].get("start_time_since_epoch_in_micros", base)
                phases[record["pid"]] = record["args"].get("name", "")
            elif record["ph"] == "X":
                start = base + record["ts"]
                results.append(
                    {"phase": phases[record["pid"]], "name": record["name"], "start": start, "end": start + record["dur"], **record["args"]}
                )
    return sorted(results, key=lambda event: event["start"])


def hidden(folder: Path) -> list[Path]:
    return list((folder / "framework").rglob(".*"))


def count(events: list[dict[str, Any]]) -> Counter[str]:
    return Counter(event["phase"] for event in events)


def untouched(data: Any) -> bool:
    module = data.dataloader
    ours = (
        module._BaseDataLoaderIter.__next__,
        module._MultiProcessingDataLoaderIter.__init__,
        module._SingleProcessDataLoaderIter.__init__,
    )
    return not any("postrun" in repr(getattr(one, "__code__", one)) or hasattr(one, "__wrapped__") for one in ours) and (
        type(data._utils.worker._worker_loop).__name__ == "function"
    )


def loader_part(folder: Path, first: int | None = 3, steps: int = 2, regex: str = ".*") -> LoaderPart:
    window = Window(first_step=first, steps=steps) if first is not None else Window(duration_s=1.0)
    return LoaderPart(LoaderPlan(window, regex), folder, FileLimits())


def asked_between(loader: Any, part: LoaderPart, first: int, last: int, length_s: float = 0.002) -> list[tuple[int, int]]:
    """Run steps that begin when their batch exists; return their µs.

    As in ``for i, batch in enumerate(loader): with annotate("step", i)``.
    """
    spans = []
    for i, _ in enumerate(loader):
        begun = time.time_ns() // 1000
        if i == first:
            part.open(i)
        elif first < i <= last:
            part.step(i)
        time.sleep(length_s)
        if i == last:
            part.close(i)
        spans.append((begun, time.time_ns() // 1000))
    return spans


@needs_torch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_window_has_one_iteration_for_each_of_its_steps(tmp_path: Path, data: Any, workers: int) -> None:
    part = loader_part(tmp_path)
    context = "fork" if workers else None
    loader = data.DataLoader(numbers(data, 20), batch_size=2, num_workers=workers, multiprocessing_context=context)
    spans = asked_between(loader, part, 3, 4)
    assert untouched(data)
    assert hidden(tmp_path) == []
    events = recorded(tmp_path)
    iterations = [event for event in events if event["phase"] == "DataLoaderIter"]
    assert len(iterations) == 2
    for step, event in zip((3, 4), iterations, strict=True):  # between the steps before and its own
        assert spans[step - 1][1] - 1 <= event["start"] <= event["end"] <= spans[step][0] + 1
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        assert event["name"] == f"{kind}::GetNext"
        assert (event["num_workers"], event["pin_memory"], event["pid"]) == (workers, False, os.getpid())
        assert event.get("prefetch_factor") == (2 if workers else None)
        assert "worker_id" not in event
        if not workers:
            assert event["end"] - event["start"] >= 2 * ITEM_S * 1e6
    fetches = [event for event in events if event["phase"] == "DataLoaderWorker"]
    assert len(iterations) + len(fetches) == len(events)
    if not workers:
        assert fetches == []
        return
    window = iterations[0]["start"], spans[4][1]
    assert fetches
    for event in fetches:
        assert event["name"] == "DataLoaderWorker"
        assert event["worker_id"] in (0, 1)
        assert event["pid"] != os.getpid()
        assert event["end"] - event["start"] >= 2 * ITEM_S * 1e6
        assert event["start"] <= window[1] + 1000
        assert event["end"] >= window[0]


@needs_torch
def test_what_a_step_asks_for_inside_of_itself_is_its_own(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path)
    batches = iter(data.DataLoader(numbers(data, 8), batch_size=1))
    spans = []
    for i in range(7):
        begun = time.time_ns() // 1000
        if i == 3:
            part.open(3)
        elif i == 4:
            part.step(4)
        next(batches)
        if i == 4:
            part.close(4)
        spans.append((begun, time.time_ns() // 1000))
    events = recorded(tmp_path)
    assert count(events) == {"DataLoaderIter": 2}
    for step, event in zip((3, 4), events, strict=True):
        assert spans[step][0] - 1 <= event["start"] <= event["end"] <= spans[step][1] + 1


@needs_torch
def test_the_first_step_has_the_beginning_of_its_loader_and_of_its_epoch_alone(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path, first=4, steps=1)
    loader = data.DataLoader(numbers(data, 4), batch_size=1)
    checked = data.DataLoader(numbers(data, 3), batch_size=1)
    step = 0
    for _ in range(2):
        for _ in loader:
            if step == 4:
                part.open(4)
                part.close(4)
            step += 1
        list(checked)
    events = recorded(tmp_path)
    assert [(event["phase"], event["name"]) for event in events] == [
        ("DataLoaderIterInitialize", "_SingleProcessDataLoaderIter.__init__"),
        ("DataLoaderIter", "_SingleProcessDataLoaderIter::GetNext"),
    ]
    assert events[0]["end"] <= events[1]["start"] + 1


@needs_torch
def test_two_loaders_of_a_step_have_an_iteration_each(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path, first=2, steps=2)
    loader_a, loader_b = (data.DataLoader(numbers(data, 10), batch_size=1) for _ in range(2))
    asked_between(zip(loader_a, loader_b, strict=True), part, 2, 3)
    assert count(recorded(tmp_path)) == {"DataLoaderIter": 4}


@needs_torch
def test_a_window_that_never_opens_leaves_nothing(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path)
    list(data.DataLoader(numbers(data, 2), num_workers=1, multiprocessing_context="fork"))
    part.close(None)
    assert untouched(data)
    assert list(tmp_path.iterdir()) == []


@needs_torch
def test_a_window_by_time_has_what_begins_in_it(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path, first=None)
    loader = data.DataLoader(numbers(data, 10), batch_size=1)
    list(loader)
    part.open(None)
    opened = time.time_ns() // 1000
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    part.close(None)
    list(batches)
    events = recorded(tmp_path)
    assert count(events) == {"DataLoaderIterInitialize": 1, "DataLoaderIter": 4}
    assert events[0]["start"] >= opened - 1
    assert (events[0]["num_workers"], events[0]["pin_memory"]) == (0, False)


@needs_torch
@pytest.mark.parametrize(
    ("regex", "phases"),
    [
        ("DataLoaderWorker", {"DataLoaderWorker"}),
        ("GetNext", {"DataLoaderIter"}),
        ("^DataLoaderIterInitialize$", {"DataLoaderIterInitialize"}),
        ("_MultiProcessingDataLoaderIter", {"DataLoaderIter", "DataLoaderIterInitialize"}),
        ("dataset::iterator", set()),
    ],
)
def test_only_metrics_that_match_are_recorded(tmp_path: Path, data: Any, regex: str, phases: set[str]) -> None:
    part = loader_part(tmp_path, first=None, regex=regex)
    part.open(None)
    list(data.DataLoader(numbers(data, 3), num_workers=1, multiprocessing_context="fork"))
    with contextlib.nullcontext() if phases else pytest.raises(LeftOutError, match="no event matches metrics_regex"):
        part.close(None)
    assert set(count(recorded(tmp_path))) == phases
    assert hidden(tmp_path) == []


def test_a_wrong_expression_is_told(tmp_path: Path) -> None:
    with pytest.raises(LeftOutError, match=re.escape("'(' is not a regular expression")):
        loader_part(tmp_path, regex="(")


@needs_torch
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_data_set_comes_through_and_its_time_is_recorded(tmp_path: Path, data: Any, workers: int) -> None:
    part = loader_part(tmp_path, first=None)
    part.open(None)
    context = "fork" if workers else None
    batches = iter(data.DataLoader(numbers(data, 4, fails_at=1), num_workers=workers, multiprocessing_context=context))
    next(batches)
    with pytest.raises(LookupError):
        next(batches)
    del batches
    part.close(None)
    actual = count(recorded(tmp_path))
    assert actual["DataLoaderIter"] == 2
    assert actual["DataLoaderWorker"] >= 2 * workers


@needs_torch
def test_workers_that_persist_record_their_window_alone(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path, first=8, steps=4)
    loader = data.DataLoader(
        endless(data), batch_size=None, num_workers=2, multiprocessing_context="fork", persistent_workers=True, prefetch_factor=1
    )
    step = 0
    for _ in range(3):
        for i, _ in enumerate(loader):
            if step == 8:
                part.open(step)
            elif 8 < step < 12:
                part.step(step)
            if step == 11:
                part.close(step)
            step += 1
            if i == 5:
                break
    deadline = time.monotonic() + 5
    while hidden(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    del loader
    events = recorded(tmp_path)
    iterations = [event for event in events if event["phase"] == "DataLoaderIter"]
    assert len(iterations) == 4
    fetches = [event for event in events if event["phase"] == "DataLoaderWorker"]
    assert 1 <= len(fetches) <= 8
    assert len({event["pid"] for event in fetches}) <= 2


@needs_torch
def test_a_loader_inside_of_a_data_set_is_recorded_in_its_worker(tmp_path: Path, data: Any) -> None:
    inner = data.DataLoader(range(2), batch_size=1)
    part = loader_part(tmp_path, first=None)
    part.open(None)
    list(data.DataLoader(numbers(data, 2, within=lambda i: list(inner) and None), num_workers=1, multiprocessing_context="fork"))
    part.close(None)
    events = recorded(tmp_path)
    inside = [event for event in events if event["name"].startswith("_Single")]
    assert count(inside) == {"DataLoaderIter": 4, "DataLoaderIterInitialize": 2}
    assert {event["worker_id"] for event in inside} == {0}
    fetches = [event for event in events if event["phase"] == "DataLoaderWorker"]
    assert len(fetches) == 2
    assert all(any(of["start"] <= one["start"] and one["end"] <= of["end"] for of in fetches) for one in inside)


@needs_torch
def test_a_worker_that_is_killed_leaves_what_it_had_recorded(tmp_path: Path, data: Any) -> None:
    part = loader_part(tmp_path, first=None)
    part.open(None)

    def die(i: int) -> None:
        if i == 3:
            os.kill(os.getpid(), 9)

    batches = iter(data.DataLoader(numbers(data, 8, within=die), num_workers=1, multiprocessing_context="fork"))
    with pytest.raises(RuntimeError, match=r"killed|exited"):
        list(batches)
    part.close(None)
    assert count(recorded(tmp_path))["DataLoaderWorker"] == 3
    assert hidden(tmp_path) == []


@needs_torch
def test_a_spawned_worker_knows_the_window(tmp_path: Path, data: Any) -> None:
    torch = sys.modules["torch"]
    part = loader_part(tmp_path, first=1, steps=3)
    loader = data.DataLoader(
        data.TensorDataset(torch.arange(60_000)), batch_size=10_000, num_workers=1, multiprocessing_context="spawn", prefetch_factor=1
    )
    asked_between(loader, part, 1, 3)
    events = recorded(tmp_path)
    fetches = [event for event in events if event["phase"] == "DataLoaderWorker"]
    assert 2 <= len(fetches) <= 5  # of six
    assert {event["pid"] for event in fetches}.isdisjoint({os.getpid()})
    assert count(events)["DataLoaderIter"] == 3


@needs_torch
def test_what_somebody_else_has_wrapped_since_stays_and_works(tmp_path: Path, data: Any) -> None:
    base = data.dataloader._BaseDataLoaderIter
    original = base.__next__
    part = loader_part(tmp_path, first=None)
    ours = base.__next__
    calls = []

    def theirs(iterator: Any) -> Any:
        calls.append(1)
        return ours(iterator)

    base.__next__ = theirs
    try:
        part.open(None)
        with pytest.raises(LeftOutError, match="no data loader was iterated"):
            part.close(None)
        assert base.__next__ is theirs
        assert len(list(data.DataLoader(range(3)))) == 3
        assert len(calls) == 4
        assert recorded(tmp_path) == []
    finally:
        base.__next__ = original


def test_no_torch_means_no_files_and_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataloader, "_MODULE", "no_such_module_of_torch")
    finders = list(sys.meta_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        part = loader_part(tmp_path)
        part.open(3)
        part.step(4)
        with pytest.raises(LeftOutError, match="not imported") as why:
            part.close(4)
    assert not why.value.quiet
    assert list(tmp_path.iterdir()) == []
    assert sys.meta_path == finders


def test_a_module_is_acted_on_when_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    (tmp_path / "imported_never.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders, seen = list(sys.meta_path), []
    when_imported("imported_late", lambda module: seen.append(module.value))
    call_off = when_imported("imported_never", lambda module: seen.append("never"))
    assert seen == []
    module = __import__("imported_late")
    assert seen == [1]
    call_off()
    __import__("imported_never")
    assert seen == [1]
    assert sys.meta_path == finders
    when_imported("imported_late", lambda module: seen.append(2))
    importlib.reload(module)
    assert seen == [1, 2]
    with pytest.warns(RuntimeWarning, match="imported_late is not profiled"):
        when_imported("imported_late", lambda module: module.missing)
    for name in ("imported_late", "imported_never"):
        monkeypatch.delitem(sys.modules, name)


@needs_torch
def test_workers_record_nothing_where_the_time_is_over_before_the_window_opens(tmp_path: Path, data: Any) -> None:
    """A fetch is under way when the window closes, which has never been open."""
    past = LoaderPlan(Window(start_s=time.time() - 10, duration_s=1))
    for plan in (past, LoaderPlan(Window(first_step=0, steps=1))):
        part = LoaderPart(plan, tmp_path, FileLimits())
        loader = data.DataLoader(numbers(data, 16), batch_size=2, num_workers=2, multiprocessing_context="fork")
        for i, _ in enumerate(loader):
            if i == 2:
                part.close(None)
        assert recorded(tmp_path) == []
        assert hidden(tmp_path) == []


@needs_torch
def test_workers_heed_the_end_of_the_time_within_a_step(tmp_path: Path, data: Any) -> None:
    end = time.time() + 1.5  # time enough for two processes to begin
    part = LoaderPart(LoaderPlan(Window(start_s=end - 1, duration_s=1)), tmp_path, FileLimits())
    loader = data.DataLoader(numbers(data, 2000), batch_size=1, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)
    part.open(0)
    while time.time() < end + 0.1:
        next(batches)
    part.close(0)
    del batches
    events = recorded(tmp_path)
    fetches = [event["start"] for event in events if event["phase"] == "DataLoaderWorker"]
    assert fetches
    assert max(fetches) < end * 1e6 < max(event["start"] for event in events)


def full() -> None:
    raise OSError(28, "No space left on device")


@needs_torch
def test_a_window_without_events_says_so(tmp_path: Path, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = data.DataLoader(numbers(data, 2), batch_size=1)

    def closed(work: Callable[[], object], regex: str = ".*") -> LeftOutError:
        part = loader_part(tmp_path, regex=regex)
        part.open(3)
        work()
        with pytest.raises(LeftOutError) as raised:
            part.close(3)
        assert raised.value.nothing
        return raised.value

    for work, regex, why in (
        (lambda: None, ".*", "no data loader was iterated"),
        (lambda: list(loader), "Worker", "no event matches metrics_regex"),
    ):
        caught = closed(work, regex)
        assert str(caught) == why
        assert not caught.quiet, "the user asked for this window, and nothing else says that it has nothing"
    monkeypatch.setattr("postrun.native.profiling.engine.timeline_writer._OpenFile", lambda *_: full())
    with pytest.warns(RuntimeWarning, match="No space left"):
        caught = closed(lambda: list(loader))
    assert str(caught) == "3 events could not be written (No space left on device)"
    assert caught.quiet, "the writer has said it"


@needs_torch
@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_done_of_a_window_that_is_longer_than_the_training_is_in_whole_files(tmp_path: Path, data: Any, workers: int) -> None:
    plan = ProfilingPlan(loader=LoaderPlan(Window(first_step=2, steps=50)))
    loader = data.DataLoader(numbers(data, 40), batch_size=2, num_workers=workers)
    with capture.session(tmp_path, sample_ms=0, gpu=False, profiler_config=plan):
        batches = iter(loader)
        for step in range(7):
            with capture.annotate("step", value=step):
                next(batches)
    del batches
    events = recorded(tmp_path)  # every file is a whole array
    assert count(events)["DataLoaderIter"] == 5  # steps 2 to 6
    assert bool(count(events)["DataLoaderWorker"]) == bool(workers)
    assert hidden(tmp_path) == []
    assert untouched(data)
    with ingest([tmp_path]) as store:
        notes = store.frame("SELECT severity, message FROM ingest_note WHERE code = 'profiling_left_out'").rows()
    why = "steps 7 to 51 were not reached; the last step that began was 6"
    assert notes == [("info", f"Data-loader profiling is not complete: {why}.")]
