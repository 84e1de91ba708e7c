"""Tests for the start and end of a recorded job, gaps in its recordings, and missing ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.toolkit.wording import duration as report_duration
from postrun.ingest import ingest
from postrun.ingest.store.durations import duration
from postrun.native import _native
from prt_writer import PrtWriter

START = 1_700_000_000_000_000_000
SECOND = 10**9
MS = 10**6


class Session(PrtWriter):
    """A session of process ``pid`` from ``first`` to ``last``, in seconds after START; ticks are nanoseconds since START."""

    def __init__(
        self, first: float, last: float, *, pid: int = 50, parent: int = 42, began: float = 0.0, command: str = "python t.py",
        rank: int = -1, **facts: str,
    ) -> None:  # fmt: skip
        super().__init__()
        session = f"{pid:08}{int(first * 10):08}".encode()
        self.parts = [_native.write_trace_header(session, pid, parent, 1, START + round(first * SECOND))]
        anchors = [round(at * SECOND) for at in (first, (first + last) / 2, last)]
        self.prelude(["step"], [(at, at, START + at) for at in anchors])
        if facts:
            self.add("meta", {1: [key.replace("__", ".") for key in facts], 2: list(facts.values())})
        began_ns = START + round(began * SECOND)
        self.add("process", {1: [pid], 2: [parent], 3: [began_ns], 4: [command], 5: ["h1"], 6: [rank], 7: [rank], 8: [-1]})
        self.add("thread", {1: [1], 2: [pid], 3: ["MainThread"]})

    def steps(self, first: float, count: int, length: float = 0.1, number: int = 0) -> Session:
        starts = [round((first + i * length) * SECOND) for i in range(count)]
        columns: dict[int, Any] = {
            1: [1] * count, 2: starts, 3: [round(length * SECOND)] * count, 4: list(range(number, number + count)),
            5: [0] * count, 6: [0] * count,
        }  # fmt: skip
        self.add("annotation", columns, source=1, first_time=starts[0])
        return self


def recorder(first: float, last: float | None, *, pid: int = 50, **facts: str) -> PrtWriter:
    """The recorder of a job that ran from ``first`` to ``last``, without samples."""
    ended = {} if last is None else {"job__ended_ns": str(START + round(last * SECOND)), "job__exit_code": "0"}
    metadata = {
        "job__command": "python t.py",
        "job__started_ns": str(START + round(first * SECOND)),
        "job__pid": str(pid),
        **ended,
        **facts,
    }
    return Session(first, last if last is not None else first + 1, pid=7, parent=6, **metadata).end()


def report(folder: Path, **files: PrtWriter) -> Report:
    for name, written in files.items():
        (folder / f"{name}.prt").write_bytes(written.data())
    with ingest([folder]) as store:
        return analyze(store, Options(generated_at_ns=0))


def notes(actual: Report) -> dict[str, str]:
    return {note.code: note.message for note in actual.data_quality}


def rule(actual: Report, name: str) -> Any:
    return next(one for one in actual.rules if one.rule == name)


def test_the_jobs_times_are_those_of_its_recorder(tmp_path: Path) -> None:
    # 12 s: 5 s, 20 steps of 0.1 s, 5 s. Nothing was sampled.
    actual = report(tmp_path, r=recorder(0, 12), t=Session(0.5, 11.9, parent=7).steps(5, 20).end())
    job = actual.job_statistics
    assert (job.duration_ns, job.initialization_ns, job.loop_ns, job.finalization_ns) == (12 * SECOND, 5 * SECOND, 2 * SECOND, 5 * SECOND)
    assert (actual.run.started_at_ns, actual.run.ended_at_ns) == (START, START + 12 * SECOND)
    assert actual.summary.subtitle == "1 node · 12.0 s · completed · data: complete"
    assert not job.captured_only
    assert "5.00 s after the start of the job" in rule(actual, "MaxInitializationTime").finding
    assert notes(actual).keys() & {"stopped_early", "recording_gap"} == set()


def test_of_several_recorders_the_earliest_start_and_the_latest_end(tmp_path: Path) -> None:
    metadata = {"job__started_ns": str(START + SECOND), "job__ended_ns": str(START + 9 * SECOND), "job__exit_code": "0", "job__pid": "51"}
    second = Session(1, 9, pid=8, parent=6, rank=1, job__command="t", **metadata).end()
    actual = report(tmp_path, a=recorder(0, 8), b=second)
    assert (actual.run.started_at_ns, actual.run.ended_at_ns) == (START, START + 9 * SECOND)


def test_a_session_alone_does_not_tell_when_the_job_began(tmp_path: Path) -> None:
    actual = report(tmp_path, t=Session(3, 6, began=0).steps(3, 20).end())
    job = actual.job_statistics
    assert job.captured_only
    assert (job.duration_ns, job.initialization_ns, job.finalization_ns) == (3 * SECOND, 0, SECOND)
    judged = rule(actual, "MaxInitializationTime")
    assert (judged.verdict, judged.reason) == (
        "NotEvaluated",
        "the recording began 3.00 s after the program: what came before it is not known",
    )


def test_a_session_that_begins_with_its_process_tells_of_its_start(tmp_path: Path) -> None:
    actual = report(tmp_path, t=Session(0.2, 9, began=0).steps(3, 20).end())
    assert rule(actual, "MaxInitializationTime").verdict == "NoIssuesFound"


def test_time_between_two_sessions_is_not_outside_of_the_steps(tmp_path: Path) -> None:
    # Steps 10 to 19 and 60 to 69 fill two windows of a second; 3 s lie between them.
    actual = report(tmp_path, a=Session(1, 2).steps(1, 10, number=10).end(), b=Session(5, 6).steps(5, 10, number=60).end())
    assert {phase.name: round(phase.percent, 6) for phase in actual.framework.phases} == {"step": 100.0, "other": 0.0}
    text = rule(actual, "OverallFrameworkMetrics").finding
    assert "without the 3.00 s in which nothing was recorded, the steps took 100%" in text
    assert notes(actual)["recording_gap"] == "Process 50 recorded in 2 parts; what it did in the 3.00 s between them is not known."
    assert actual.job_statistics.absent == "In 3.00 s of it nothing was recorded."
    assert rule(actual, "MaxInitializationTime").verdict == "NotEvaluated"


@pytest.mark.parametrize(("pid", "marked"), [(50, False), (51, True)])
def test_a_process_that_stopped_to_record_does_not_tell_when_training_ended(tmp_path: Path, pid: int, *, marked: bool) -> None:
    mark = {"recording__stopped": "by the program"} if marked else {}
    actual = report(tmp_path, r=recorder(0, 10), t=Session(0.5, 4, pid=pid, parent=7, **mark).steps(1, 30).end())
    job = actual.job_statistics
    assert (job.initialization_ns, job.loop_ns, job.loop_ended_at_ns, job.finalization_ns, job.finalization_percent) == (
        SECOND,
        *[None] * 4,
    )
    assert "stopped 6.00 s before the job ended" in (job.absent or "")
    assert notes(actual)["stopped_early"].startswith(f"Process {pid} stopped recording 6.00 s before")


def test_a_child_that_ended_before_the_job_did_recorded_to_its_end(tmp_path: Path) -> None:
    actual = report(tmp_path, r=recorder(0, 10), t=Session(0.5, 4, pid=51, parent=50).steps(1, 30).end())
    assert actual.job_statistics.finalization_ns == 6 * SECOND


def test_a_job_of_which_nothing_was_recorded_but_its_facts(tmp_path: Path) -> None:
    actual = report(tmp_path, r=recorder(0, 3))
    assert (actual.run.status, actual.job_statistics.duration_ns) == ("completed", 3 * SECOND)
    assert notes(actual)["only_system"].startswith("Only the job's facts were recorded")
    assert "traced" not in actual.summary.headline


def test_the_first_page_of_a_recording_has_no_figures_of_gpus(tmp_path: Path) -> None:
    actual = report(tmp_path, r=recorder(0, 5), t=Session(0.5, 4.9, parent=7).steps(1, 3).end())
    assert [tile.key for tile in actual.summary.tiles] == ["step_time"]
    assert actual.summary.headline.startswith("No GPU activity was recorded; 1 process was traced.")


def test_the_headline_of_a_file_that_was_cut_off_names_the_longest_step(tmp_path: Path) -> None:
    actual = report(tmp_path, t=Session(0.5, 4.9).steps(1, 12, length=0.01).steps(2, 1, length=0.5, number=20))
    assert actual.summary.headline.startswith("No GPU activity in what could be read: the trace was cut off. A step took 10.0 ms")
    assert "The longest, step 20, took 500 ms, 50.0 times as long." in actual.summary.headline


def test_metadata_of_every_process_that_no_other_contradicts(tmp_path: Path) -> None:
    actual = report(
        tmp_path,
        r=recorder(0, 5, capability__perf="no counter", seed="0"),
        t=Session(0.5, 4.9, parent=7, model="tiny", seed="1", capability__psi="no kernel support").steps(1, 3).end(),
        w=Session(0.6, 4.9, pid=51, parent=50).end(),
    )
    assert actual.run.metadata["model"] == "tiny"
    assert "seed" not in actual.run.metadata
    [note] = [note for note in actual.data_quality if note.code == "not_captured"]
    assert (note.message, note.count) == ("Not captured: perf (no counter); psi (no kernel support).", 2)


SPAWN = "python -c from multiprocessing.spawn import spawn_main; spawn_main()"


@pytest.mark.parametrize(
    ("parent", "command", "rank", "cut"),
    [(50, SPAWN, -1, False), (50, "python helper.py", -1, False), (999, SPAWN.replace("spawn", "forkserver"), -1, False),
     (999, "python other.py", -1, True), (50, SPAWN, 3, True)],
)  # fmt: skip
def test_a_worker_without_an_end_does_not_cut_the_run_off(tmp_path: Path, parent: int, command: str, rank: int, *, cut: bool) -> None:
    worker = Session(1, 3, pid=60, parent=parent, command=command, rank=rank).steps(1, 2)  # its file is read first
    actual = report(tmp_path, a=worker, r=recorder(0, 5), t=Session(0.5, 4.9, parent=7).steps(1, 3).end())
    [note] = [note for note in actual.data_quality if note.code == "no_end"]
    assert (actual.run.status, note.severity) == (("partial", "warning") if cut else ("completed", "info"))
    assert ("cut off" in actual.summary.headline) == cut


def test_a_worker_of_a_parent_without_an_end_is_cut_off_with_it(tmp_path: Path) -> None:
    actual = report(tmp_path, a=Session(1, 3, pid=60, parent=50, command=SPAWN).steps(1, 2), t=Session(0.5, 4).steps(1, 3))
    assert actual.run.status == "partial"
    assert [note.severity for note in actual.data_quality if note.code == "no_end"] == ["warning"] * 2


def test_durations_in_notes_are_written_as_in_the_report() -> None:
    edges = [0, 999, 1000, 999_499, 999_500, 59_949_999_999, 59_950_000_000, 3_599_499_999_999, 3_599_500_000_000, 172_770 * SECOND]
    for ns in [*edges, *(round(1.37**i) for i in range(120))]:
        assert duration(ns) == report_duration(ns)
    assert duration(5_190_000) == "5.19 ms"


def test_facts_of_the_program_stay_though_they_begin_like_ours(tmp_path: Path) -> None:
    custom = {"host_batch": "8", "clock_speed": "fast", "commander": "me", "forked_from_checkpoint": "v3"}
    ours = {"host": "h1", "command": "python t.py", "clock": "tsc", "clock__ticks_per_second": "1000000000", "forked_from": "7"}
    actual = report(tmp_path, t=Session(0, 3, **custom, **ours).steps(0.5, 5).end())
    assert {key: actual.run.metadata.get(key) for key in custom} == custom
    assert not set(actual.run.metadata) & {key.replace("__", ".") for key in ours}


def test_an_empty_file_beside_others_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "e.prt").write_bytes(b"")
    actual = report(tmp_path, t=Session(0, 3).steps(0.5, 5).end())
    assert any("e.prt" in note.message + str(note.file) and "empty" in note.message for note in actual.data_quality)
