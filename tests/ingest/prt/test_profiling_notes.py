"""Tests for notes on configured windows that recorded nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest
from postrun import capture, native
from postrun.ingest import ingest
from postrun.ingest.prt.notes import Missing
from postrun.ingest.prt.profiling_notes import note_elsewhere, note_profiling, note_sampled
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import PYTHON_STATS, PYTHON_TREE, TIMELINE, TRACE
from postrun.native.profiling.plan import ProfilingPlan, PythonPlan, Window

NOT_REACHED = "steps 100 to 104 were not reached; the last step that began was 19"


class Notes:
    """As a store, of notes alone."""

    def __init__(self, code: str = "profiling_left_out") -> None:
        self.code = code
        self.notes: list[tuple[str, str, int]] = []

    def note(self, severity: str, code: str, text: str, *, count: int, **_: Any) -> None:
        assert code == self.code
        self.notes.append((severity, text, count))


def noted(*processes: dict[str, str]) -> list[tuple[str, str, int]]:
    store = Notes()
    facts = [{f"profiling.{kind}.recorded": value for kind, value in one.items()} for one in processes]
    missing = [Missing(i, f"{i}.prt", "h", i, 100 + i, one, False) for i, one in enumerate(facts)]
    note_profiling(cast(Store, store), [*missing, *missing])  # each process has two files
    return store.notes


def test_a_window_that_was_not_reached_is_one_warning() -> None:
    same = f"nothing: {NOT_REACHED}"
    everything = {"python": same, "detailed": same, "horovod": same, "loader": same}
    text = f"Detailed profiling, data-loader profiling and Python profiling recorded nothing: {NOT_REACHED}."
    assert noted(everything, {}) == [("warning", text, 1)]
    combined = noted(everything, everything, {"python": "step 3"})
    assert combined == [("warning", text.replace("nothing:", "nothing in 2 of 3 processes:"), 2)]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("python", "steps 3 to 4", None),
        ("python", "step 3", None),
        ("horovod", "nothing: Horovod is not in use", None),
        ("python", "steps 3 to 4: another one is active", ("warning", "Python profiling is not complete: another one is active.")),
        (
            "loader", "steps 3 to 4: steps 5 to 9 were not reached; the last step that began was 4",
            ("info", "Data-loader profiling is not complete: steps 5 to 9 were not reached; the last step that began was 4."),
        ),
        (
            "loader", "steps 3 to 4: the recording ended 2.5 s before the end of the window",
            ("info", "Data-loader profiling is not complete: the recording ended 2.5 s before the end of the window."),
        ),
        ("python", "not complete: No space left", ("warning", "Python profiling is not complete: No space left.")),
        ("horovod", "nothing: step 9 was not reached", ("warning", "Horovod profiling recorded nothing: step 9 was not reached.")),
        (
            "loader", "nothing: the program has not imported PyTorch's data loaders",
            ("info", "Data-loader profiling recorded nothing: the program has not imported PyTorch's data loaders."),
        ),
        ("detailed", "nothing: no step began", ("warning", "Detailed profiling recorded nothing: no step began.")),
        ("detailed", "gibberish", None),
    ],
)  # fmt: skip
def test_each_outcome(kind: str, value: str, expected: tuple[str, str] | None) -> None:
    assert noted({kind: value}) == ([] if expected is None else [(*expected, 1)])


def test_a_process_without_steps_beside_one_with_steps_is_no_news() -> None:
    assert noted({"python": "nothing: no step began"}, {"python": "steps 1 to 2"}) == []


def test_notes_are_few_however_many_processes_say_something_else() -> None:
    assert len(noted(*({"python": f"nothing: {i}"} for i in range(100)))) == 12


# ------------------------------------------------------------------ files in another folder


def told_elsewhere(formats: set[str], *processes: dict[str, str], devices: bool = False) -> list[tuple[str, str, int]]:
    store = Notes("profiling_elsewhere")
    facts = [{f"profiling.{kind}": value for kind, value in one.items()} for one in processes]
    note_elsewhere(cast(Store, store), [Missing(i, f"{i}.prt", "h", i, i, one, devices) for i, one in enumerate(facts)], formats)
    return store.notes


@pytest.mark.parametrize(
    ("formats", "kinds", "says"),
    [
        (set(), {"python": "steps 1 to 2"}, True),
        ({PYTHON_STATS}, {"python": "steps 1 to 2"}, False),
        ({PYTHON_TREE}, {"python": "step 1"}, False),
        ({TIMELINE, TRACE}, {"python": "step 1"}, True),
        ({PYTHON_STATS}, {"python": "step 1", "loader": "steps 3 to 4: step 5 was not reached; the last step that began was 4"}, True),
        ({PYTHON_STATS, TIMELINE}, {"python": "step 1", "loader": "step 3", "horovod": "step 3"}, False),
        (set(), {"python": "nothing: no step began", "loader": "not complete: No space left"}, False),
        (set(), {"detailed": "step 5"}, True),
        ({TRACE}, {"detailed": "step 5"}, False),
    ],
)
def test_files_that_are_in_another_folder_and_not_given_are_told_of(formats: set[str], kinds: dict[str, str], says: bool) -> None:
    recorded = {f"{kind}.recorded": value for kind, value in kinds.items()}
    text = "Framework profiling was written to /data/my runs; give it beside the recording: postrun report RECORDING '/data/my runs'."
    facts = {**recorded, "place": "/data/my runs"}
    assert told_elsewhere(formats, facts, facts) == ([("warning", text, 2)] if says else [])
    assert told_elsewhere(formats, recorded) == []


def test_kernels_that_the_recording_has_itself_are_in_no_other_folder() -> None:
    facts = {"place": "/data", "detailed.recorded": "step 5"}
    assert told_elsewhere(set(), facts, devices=True) == []
    # Some files of a recording have kernels, and the last one has their number; another process has none.
    store = Notes("profiling_elsewhere")
    told_of = {f"profiling.{kind}": value for kind, value in facts.items()}
    cut = [Missing(i, f"{i}.prt", "h", 7, 7, {} if i == 0 else told_of, i == 0) for i in range(3)]
    note_elsewhere(cast(Store, store), iter(cut), set())
    assert store.notes == []
    note_elsewhere(cast(Store, store), [*cut, Missing(3, "3.prt", "h", 8, 8, told_of, False)], set())
    text = "Framework profiling was written to /data; give it beside the recording: postrun report RECORDING /data."
    assert store.notes == [("warning", text, 1)]


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_recording_says_where_its_profiles_are_until_they_are_given(tmp_path: Path) -> None:
    first, second = tmp_path / "own", tmp_path / "other"
    plan = ProfilingPlan(local_path=str(second), python=PythonPlan(Window(1, 2)))
    with capture.session(first, sample_ms=0, gpu=False, profiler_config=plan):
        for step in range(4):
            with capture.annotate("step", value=step):
                sum(range(10))
    query = "SELECT severity, message FROM ingest_note WHERE code = 'profiling_elsewhere'"
    with ingest([first]) as store:
        text = f"Framework profiling was written to {second}; give it beside the recording: postrun report RECORDING {second}."
        assert store.frame(query).rows() == [("warning", text)]
    with ingest([first, second]) as store:
        assert store.frame(query).rows() == []
        assert store.frame("SELECT count(*) FROM python_window").item() == 2


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_the_recordings_own_folder_by_another_name_is_no_other_place(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    plan = ProfilingPlan(local_path=str(tmp_path / "link"), python=PythonPlan(Window(0, 1)))
    with capture.session(tmp_path, sample_ms=0, gpu=False, profiler_config=plan), capture.annotate("step", value=0):
        sum(range(10))
    with ingest([tmp_path]) as store:
        assert "profiling.place" not in (store.frame("SELECT any_value(metadata) FROM run").item() or "")


# ------------------------------------------------------------------ processors that were sampled for a part


def told_sampled(*machines: tuple[str, str, float]) -> list[tuple[str, str, int]]:
    """Machines have the seconds that recordings state, and the seconds of samples."""
    store = Notes("processors_sampled_in_part")
    missing = [Missing(i, f"{i}.prt", name, i, i, {"sample_cpu_for_s": said}, False) for i, (name, said, _) in enumerate(machines)]
    spans = {i: (10**18, 10**18 + int(seconds * 1e9)) for i, (_, _, seconds) in enumerate(machines)}
    note_sampled(cast(Store, store), [*missing, *missing], spans)
    return store.notes


PARTLY = "(cpu_profiling_duration); what is said of processors is of that time."


def test_that_processors_were_sampled_for_a_part_is_told() -> None:
    assert told_sampled(("a", "60", 300.4)) == [("info", f"Processors were sampled for the first 60 s of 300 s {PARTLY}", 1)]
    assert told_sampled(("a", "60", 300.4), ("b", "60", 299.6)) == [
        ("info", f"Processors were sampled for the first 60 s of 300 s on 2 machines {PARTLY}", 2)
    ]
    for step in ("60", "61"):  # to the end
        assert told_sampled(("a", step, 60.5)) == []
    for odd in ("", "no", "-5", "0", "9" * 40):
        assert told_sampled(("a", odd, 300.0)) == []


@pytest.mark.slow
@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_recording_says_for_how_long_processors_were_sampled(tmp_path: Path) -> None:
    with capture.session(tmp_path, sample_ms=100, gpu=False, profiler_config=ProfilingPlan(cpu_seconds=1)):
        time.sleep(3.2)
    with ingest([tmp_path]) as store:
        (actual,) = store.frame("SELECT message FROM ingest_note WHERE code = 'processors_sampled_in_part'").rows()
        used = store.frame("SELECT (max(time_ns) - min(time_ns)) / 1e9 FROM sample WHERE starts_with(metric, 'cpu')").item()
        seconds = store.frame("SELECT (max(time_ns) - min(time_ns)) / 1e9 FROM sample").item()
    assert actual == (f"Processors were sampled for the first 1 s of {seconds:.0f} s {PARTLY}",)
    assert used < 1.2 < seconds


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_recording_says_it(tmp_path: Path) -> None:
    with capture.session(tmp_path, sample_ms=0, gpu=False):
        with capture.annotate("step", value=0):
            pass
        capture.metadata("profiling.python.recorded", f"nothing: {NOT_REACHED}")
    with ingest([tmp_path]) as store:
        actual = store.frame("SELECT severity, message FROM ingest_note WHERE code = 'profiling_left_out'").rows()
    assert actual == [("warning", f"Python profiling recorded nothing: {NOT_REACHED}.")]
