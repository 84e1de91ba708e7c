"""Does a report say which configured windows recorded nothing, and why?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from postrun import capture, native
from postrun.ingest import ingest
from postrun.ingest.capture_notes import Missing
from postrun.ingest.profiling_notes import note_profiling
from postrun.ingest.store import Store

NOT_REACHED = "steps 100 to 104 were not reached; the last step that began was 19"


class Notes:
    """As a store, of notes alone."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, int]] = []

    def note(self, severity: str, code: str, text: str, *, count: int, **_: Any) -> None:
        assert code == "profiling_left_out"
        self.notes.append((severity, text, count))


def told(*processes: dict[str, str]) -> list[tuple[str, str, int]]:
    store = Notes()
    facts = [{f"profiling.{kind}.recorded": value for kind, value in one.items()} for one in processes]
    given = [Missing(i, f"{i}.prt", "h", i, 100 + i, one, False) for i, one in enumerate(facts)]
    note_profiling(cast(Store, store), [*given, *given])  # each process has two files
    return store.notes


def test_a_window_that_was_not_reached_is_one_warning() -> None:
    same = f"nothing: {NOT_REACHED}"
    everything = {"python": same, "detailed": same, "horovod": same, "loader": same}
    text = f"Detailed profiling, data-loader profiling and Python profiling recorded nothing: {NOT_REACHED}."
    assert told(everything, {}) == [("warning", text, 1)]
    both = told(everything, everything, {"python": "step 3"})
    assert both == [("warning", text.replace("nothing:", "nothing in 2 of 3 processes:"), 2)]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("python", "steps 3 to 4", None),
        ("python", "step 3", None),
        ("horovod", "nothing: Horovod is not in use", None),
        ("python", "steps 3 to 4: another one is active", ("warning", "Python profiling is not complete: another one is active.")),
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
    assert told({kind: value}) == ([] if expected is None else [(*expected, 1)])


def test_a_process_without_steps_beside_one_with_steps_is_no_news() -> None:
    assert told({"python": "nothing: no step began"}, {"python": "steps 1 to 2"}) == []


def test_notes_are_few_however_many_processes_say_something_else() -> None:
    assert len(told(*({"python": f"nothing: {i}"} for i in range(100)))) == 12


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_recording_says_it(tmp_path: Path) -> None:
    with capture.session(tmp_path, sample_ms=0, gpu=False):
        with capture.annotate("step", value=0):
            pass
        capture.metadata("profiling.python.recorded", f"nothing: {NOT_REACHED}")
    with ingest([tmp_path]) as store:
        found = store.frame("SELECT severity, message FROM ingest_note WHERE code = 'profiling_left_out'").rows()
    assert found == [("warning", f"Python profiling recorded nothing: {NOT_REACHED}.")]
