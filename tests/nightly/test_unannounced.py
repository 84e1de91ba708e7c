"""The runs of a night that was killed before its alarms and tickets are announced by the next night, once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from call_nightly import nightly, told
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import summary
from postrun.nightly.claims import Claims
from postrun.nightly.index import Book
from postrun.nightly.model import FoundRun, Row
from postrun.nightly.night import Decision, Night
from postrun.nightly.run_night import Result
from postrun.nightly.unannounced import announcing, of_ended_nights, rows_of

OPTIONS = ("--engine", "none", "--format", "json", "--settle", "0", "--fail-on", "error")


@pytest.fixture
def out(tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "out")


def test_a_night_that_announces_leaves_nothing(out: Objects) -> None:
    with Claims(out) as first, announcing(first, True), Claims(out) as second, of_ended_nights(out, second) as ended:
        assert ended == frozenset()  # the first one lives
    assert list(out.list()) == []
    with Claims(out) as idle, announcing(idle, False):
        assert list(out.list()) == []


def test_an_ended_night_is_taken_over_once(out: Objects) -> None:
    with pytest.raises(KeyboardInterrupt), Claims(out) as killed, announcing(killed, True):
        raise KeyboardInterrupt
    with Claims(out) as second, suppress(KeyboardInterrupt), of_ended_nights(out, second) as ended:
        assert ended == {killed.night}
        with Claims(out) as third, of_ended_nights(out, third) as nothing:
            assert nothing == frozenset()
        raise KeyboardInterrupt  # the second one is also killed
    for expected in ({killed.night}, set()):
        with Claims(out) as fourth, of_ended_nights(out, fourth) as ended:
            assert ended == expected


def test_a_night_that_ends_meanwhile_is_not_taken_over(out: Objects) -> None:
    with Claims(out) as night:
        assert not night.take_over("nights/x.claim.json")
        assert list(out.list()) == []


def test_other_files_are_left_alone(out: Objects) -> None:
    out.write("nights/notes.txt", b"x")
    out.write("nights/x.claim.json", b"{}")
    with Claims(out) as night, of_ended_nights(out, night) as ended:
        assert ended == frozenset()
    assert sorted(file.path for file in out.list()) == ["nights/notes.txt", "nights/x.claim.json"]


def test_only_runs_with_an_outcome_are_announced() -> None:
    rows = [
        Row(id=state, state=state, kind="traces", fingerprint="f", options="o", bytes=1, files=1, night=night)  # type: ignore[arg-type]
        for night in ("a", "b", None)
        for state in ("reported", "failed", "running", "waiting")
    ]
    assert [(row.night, row.id) for row in rows_of(rows, frozenset("a"))] == [("a", "reported"), ("a", "failed")]


def test_the_runs_of_a_killed_night_are_announced_by_the_next(tmp_path: Path, out: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = tmp_path / "source", tmp_path / "out"
    (source / "bad").mkdir(parents=True)
    (source / "bad" / "x.pt.trace.json").write_text('{"traceEvents": [')
    event = {"ph": "X", "cat": "kernel", "name": "mm", "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    (source / "good").mkdir()
    (source / "good" / "x.pt.trace.json").write_text(json.dumps({"traceEvents": [event]}))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(summary, "matched", killed)
        assert nightly(source, "--out", folder, *OPTIONS).exit_code == 130
    assert list(out.list("nights/"))
    done = nightly(source, "--out", folder, *OPTIONS, "--json")
    assert (done.exit_code, json.loads(done.stdout)["failed"], json.loads(done.stdout)["taken_over"]) == (3, [], ["bad", "good"])
    assert "postrun: --fail-on: no report of bad\n" in done.stderr
    assert "an interrupted night reported 2 runs; --fail-on and --attach include them now: bad, good" in done.stderr
    assert told(source, "--out", folder, *OPTIONS)["taken_over"] == []
    assert not list(out.list("nights/"))


def test_the_summary_counts_runs_of_an_interrupted_night(out: Objects) -> None:
    row = Row(id="a", state="reported", kind="traces", fingerprint="f", options="o", bytes=1, files=1)
    with Claims(out) as claims:
        night = Night([Decision(FoundRun("a", "traces", (), True, "f"), b"", "unchanged", row, 1, 1, 0)])
        result = Result(night, {"a": row}, Book().write(out, {"a": row}), claims, taken_over=(row,))
    line = next(summary.lines(result, out))
    assert line == "0 reported, 0 failed, 0 unchanged, 1 of an interrupted night; 1 run in the index"
    assert "an interrupted night reported 1 run; --fail-on and --attach include it now: a" in summary.notes(result)


def test_the_claim_of_a_night_that_was_killed_expires(out: Objects) -> None:
    with Claims(out, lease_s=2) as killed, announcing(killed, True):
        (file,) = out.list("nights/")
        content = json.loads(out.read(file.path))
        killed_id = "0" * 32
        out.write(f"nights/{killed_id}.claim.json", json.dumps({**content, "night": killed_id, "host": "gone"}).encode())
        with Claims(out, lease_s=2) as night, of_ended_nights(out, night) as ended:
            assert ended == frozenset()
        out.write(f"nights/{killed_id}.claim.json", json.dumps({**content, "night": killed_id, "host": "gone", "expires_ns": 1}).encode())
        with Claims(out, lease_s=2) as night, of_ended_nights(out, night) as ended:
            assert ended == {killed_id}
