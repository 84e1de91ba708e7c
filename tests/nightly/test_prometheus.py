"""Figures of a night for Prometheus, and its events, against hand-worked values; the parser of the text format is independent."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import click
import pytest
from call_nightly import nightly
from postrun.errors import InputError, PostrunError, UsageError
from postrun.nightly import prometheus
from postrun.nightly.event_log import EventLog, night_log
from postrun.nightly.hard_limit import reason
from postrun.nightly.history import Finding
from postrun.nightly.model import FoundRun, ReportOptions, Row, Task
from postrun.nightly.night import Decision, Night
from postrun.nightly.prometheus import Ended, checked, write
from postrun.nightly.run_night import Result
from postrun.nightly.worker_process import WorkerDied

NO_SPACE = "night.prom: No space left on device; check --metrics"


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parsed(text: str) -> tuple[dict[str, str], list[Sample]]:
    """Return types by name, and samples; fail for what format 0.0.4 forbids."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    helped: set[str] = set()
    samples: list[Sample] = []
    for line in text[:-1].split("\n"):
        if comment := re.fullmatch(rf"# (HELP|TYPE) ({_NAME}) (.+)", line):
            kind, name, rest = comment.groups()
            known = helped if kind == "HELP" else types
            assert name not in known, "twice"
            assert not any(sample.name.startswith(name + "{") for sample in samples), "after its samples"
            if kind == "HELP":
                helped.add(name)
            else:
                assert rest in ("counter", "gauge", "histogram", "summary", "untyped")
                types[name] = rest
            continue
        sample = re.fullmatch(rf"({_NAME})\{{(.*)\}} (\S+)", line)
        assert sample, line
        labels = {name: re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value) for name, value in _LABELS.findall(sample[2])}
        assert _LABELS.sub("", sample[2]) == "", line
        samples.append(Sample(sample[1], labels, float(sample[3])))
    for name, _, _ in samples:
        family = name if name in types else re.sub("_(sum|count)$", "", name)
        assert family in helped
        assert types[family] != "summary" or name != family
    identities = Counter((one.name, tuple(sorted(one.labels.items()))) for one in samples)
    assert max(identities.values()) == 1
    return types, samples


def row(name: str, **more: Any) -> Row:
    base = {"state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1000, "files": 1, "seconds": 2.5}
    return Row(**{"id": name, **base, **more})


class Index:
    states = MappingProxyType({"reported": 7, "failed": 2, "waiting": 1})
    findings = (
        Finding("regression", "a", "gpt", "12% slower", 3),
        Finding("new_issue", "b", "gpt", "an issue", 3),
        Finding("new_issue", "a", "gpt", "an issue", 3),
        Finding("regression", "of an earlier night", "gpt", "slower", 3),  # which this one announces
    )


def ended(**more: Any) -> Ended:
    night = Night(rows=[row("a"), row("b", seconds=4), row("bad", state="failed", seconds=None, bytes=24)], faults={"bad": "timeout"})
    night.decisions = [Decision(FoundRun(name, "traces", (), True, "f"), b"", "unchanged", row(name), 1, 1, 0) for name in "cd"]
    night.elsewhere = [row("e"), row("f")]
    result = Result(night, {}, Index(), None, taken_over=(row("c"), row("e")))  # type: ignore[arg-type]
    return replace(Ended(result, night.rows, (Index.findings[0], Index.findings[3]), 0, 61.25, 1_795_243_200.5), **more)


def values(path: Path) -> dict[tuple[str, ...], float]:
    _, samples = parsed(path.read_text(encoding="utf-8"))
    short = [(one.name.removeprefix("postrun_nightly_"), {k: v for k, v in one.labels.items() if k != "out"}, one.value) for one in samples]
    return {(name, *labels.values()): value for name, labels, value in short}


def test_figures_of_a_night(tmp_path: Path) -> None:
    path = tmp_path / "night.prom"
    write(path, ended(), "/data")
    types, samples = parsed(path.read_text())
    assert {types[name] for name in types} == {"gauge", "summary", "counter"}
    assert {one.labels["out"] for one in samples} == {"/data"}
    actual = values(path)
    expected = {
        ("runs", "reported"): 7, ("runs", "failed"): 2, ("runs", "running"): 0, ("runs", "waiting"): 1,
        ("night_runs", "reported"): 2, ("night_runs", "failed"): 1, ("night_runs", "unchanged"): 1, ("night_runs", "elsewhere"): 1,
        ("night_runs", "taken_over"): 2,  # each run counts once
        ("night_failures", "timeout"): 1, ("night_failures", "input"): 0, ("night_failures", "machine"): 0,
        ("night_findings", "regression"): 2, ("night_findings", "new_issue"): 2, ("night_findings", "improvement"): 0,
        ("run_duration_seconds_sum",): 6.5, ("run_duration_seconds_count",): 2, ("night_read_bytes",): 2024,
        ("night_duration_seconds",): 61.25, ("night_exit_code",): 0, ("last_run_timestamp_seconds",): 1_795_243_200.5,
        ("last_success_timestamp_seconds",): 1_795_243_200.5,
    }  # fmt: skip
    assert {name: actual[name] for name in expected} == expected
    assert sum(value for name, value in actual.items() if name[0] == "night_failures") == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["night.prom"]


def test_the_last_success_outlives_nights_that_fail(tmp_path: Path) -> None:
    path = tmp_path / "night.prom"
    write(path, ended(exit_code=1, at_s=50.0), "o")
    assert values(path)["last_success_timestamp_seconds",] == 0
    for code, at_s, success in ((3, 100.0, 100), (1, 200.0, 100), (1, 300.0, 100), (0, 400.0, 400)):
        write(path, ended(exit_code=code, at_s=at_s), "o")
        actual = values(path)
        assert (actual["last_success_timestamp_seconds",], actual["last_run_timestamp_seconds",]) == (success, at_s)
    stopped = ended(exit_code=3, at_s=500.0)
    stopped.result.night.stopped = "more than 1 runs failed (--max-failures)"
    write(path, stopped, "o")
    assert values(path)["last_success_timestamp_seconds",] == 400


def test_the_index_alone_keeps_the_figures_of_the_last_night(tmp_path: Path) -> None:
    """Alerts on the findings of a night neither end nor begin."""
    path, alone = tmp_path / "night.prom", ended(exit_code=3, at_s=1_795_250_000.0, seconds=1.0, is_night=False, waiting=2)
    write(path, alone, "/data")
    assert {name[0] for name in values(path)} == {"runs", "waiting_messages", "given_up_messages_total", "info"}
    write(path, ended(waiting=5), "/data")
    before = values(path)
    alone.result.index.states = {"reported": 8}  # type: ignore[misc]
    write(path, alone, "/data")
    actual = values(path)
    assert before.keys() == actual.keys()
    assert {name for name in actual if actual[name] != before[name]} == {
        ("runs", "reported"), ("runs", "failed"), ("runs", "waiting"), ("waiting_messages",),
    }  # fmt: skip
    write(path, alone, "/another")
    assert ("night_exit_code",) not in values(path)


def test_messages_that_are_given_up_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "night.prom"
    for given_up, total in ((0, 0), (2, 2), (0, 2), (1, 3)):
        write(path, ended(given_up=given_up, waiting=7), "o")
        assert (values(path)["given_up_messages_total",], values(path)["waiting_messages",]) == (total, 7)


@pytest.mark.parametrize("out", ['a"b', "a\\nb", "a\nb", 'x"} 1\npostrun_nightly_runs{out="', "é\udcff", ""])
def test_labels_are_escaped(tmp_path: Path, out: str) -> None:
    path = tmp_path / "night.prom"
    for code in (0, 1):  # the second call reads the file of the first
        write(path, ended(exit_code=code), out)
        _, samples = parsed(path.read_text(encoding="utf-8"))
        assert {one.labels["out"] for one in samples} == {out.replace("\udcff", "?")}
    assert values(path)["last_success_timestamp_seconds",] == 1_795_243_200.5


def test_a_file_that_no_collector_reads(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.prom"):
        checked(tmp_path / "night.txt")
    with pytest.raises(UsageError, match="no such folder"):
        checked(tmp_path / "absent" / "night.prom")
    (tmp_path / "night.prom").mkdir()
    with pytest.raises(PostrunError, match="--metrics"):
        write(tmp_path / "night.prom", ended(), "o")


# ------------------------------------------------------------------------------ events


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_lines_of_json_and_appended(tmp_path: Path) -> None:
    path = tmp_path / "night.jsonl"
    for _ in range(2):
        with night_log(path) as log:
            log.start("/data/runs", "/data/reports")
            log.run(row("a\nb\udcff", seconds=2.50049))
            log.run(row("bad", state="failed", reason="no trace\nat all", seconds=None, attempts=2))
            log.ticket({"rule": "any", "to": "jira:PERF", "run": "a", "outcome": "opened 7"})
            log.ticket({"rule": "any", "to": "jira:PERF", "run": "b", "error": "no answer"})
    first, second = lines(path)[:6], lines(path)[6:]
    assert [one["event"] for one in first] == ["night_started", "run_reported", "run_failed", "ticket", "ticket_failed", "night_ended"]
    assert (first[1]["run"], first[1]["seconds"], first[1]["bytes"]) == ("a\nb\udcff", 2.5, 1000)
    assert (first[2]["reason"], first[2]["attempts"], "seconds" in first[2]) == ("no trace\nat all", 2, False)
    assert first[-1]["exit_code"] == 0
    for event in first + second:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"])
        assert abs(datetime.fromisoformat(event["time"]).timestamp() - path.stat().st_mtime) < 60
    assert len({one["night"] for one in first}) == 1
    assert first[0]["night"] != second[0]["night"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SystemExit(3), 3),
        (InputError("x"), 4),
        (click.UsageError("x"), 2),
        (KeyboardInterrupt(), 130),
        (ValueError(), 1),
        (SystemExit("x"), 1),
    ],
)
def test_the_end_has_the_exit_code(tmp_path: Path, error: BaseException, code: int) -> None:
    with pytest.raises(type(error)), night_log(tmp_path / "log"):
        raise error
    assert lines(tmp_path / "log")[-1]["exit_code"] == code


def test_a_line_is_one_write_at_the_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logs of one file take turns, and no line overwrites another."""
    path = tmp_path / "log"
    writes: list[bytes] = []
    logs = [EventLog(path), EventLog(path)]
    real = __import__("os").write
    monkeypatch.setattr("os.write", lambda file, data: writes.append(data) or real(file, data))
    for number in range(10):
        logs[number % 2].write("x", number=number, text="y" * 5000)
    assert [one["number"] for one in lines(path)] == list(range(10))
    assert len(writes) == 10
    assert all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in writes)


def test_a_log_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--log"):
        EventLog(tmp_path / "absent" / "log")
    full = EventLog(Path("/dev/full"))
    full.write("a")
    full.write("b")
    assert capsys.readouterr().err == "postrun: --log: /dev/full: No space left on device; events are missing\n"


# ------------------------------------------------------------------------------ the command


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source" / "bad").mkdir(parents=True)
    (tmp_path / "source" / "bad" / "trace.json").write_text("no trace at all")
    return tmp_path / "source"


def test_a_night_writes_both(source: Path, tmp_path: Path) -> None:
    out, prom, log = tmp_path / "out", tmp_path / "night.prom", tmp_path / "night.jsonl"
    arguments = (source, "--out", out, "--engine", "none", "--format", "json", "--settle", "0", "--metrics", prom, "--log", log)
    assert nightly(*arguments, "--dry-run").exit_code == 0
    assert not prom.exists()
    assert not log.exists()
    assert nightly(*arguments, "--fail-on", "error").exit_code == 3
    actual = values(prom)
    assert (actual["runs", "failed"], actual["night_runs", "failed"], actual["night_failures", "input"]) == (1, 1, 1)
    assert (actual["night_exit_code",], actual["night_read_bytes",]) == (3, len("no trace at all"))
    assert actual["last_success_timestamp_seconds",] == actual["last_run_timestamp_seconds",] > 0
    assert actual["run_duration_seconds_count",] == 1
    assert "bad" not in prom.read_text()
    events = lines(log)
    assert [one["event"] for one in events] == ["night_started", "run_failed", "index_written", "night_ended"]
    assert (events[0]["source"], events[0]["out"]) == (str(source), str(out))
    assert (events[1]["run"], events[2]["index"], events[2]["runs"], events[3]["exit_code"]) == ("bad", str(out / "index.html"), 1, 3)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600

    assert nightly(*arguments, "--index-only").exit_code == 0
    assert values(prom) == actual
    events = lines(log)

    assert nightly(*arguments, "--redact", "paths").exit_code == 0
    _, samples = parsed(prom.read_text())
    assert {one.labels["out"] for one in samples} == {"out"}
    assert str(tmp_path) not in "".join(log.read_text().splitlines()[len(events) :])
    assert nightly(tmp_path / "absent", *arguments[1:]).exit_code == 4
    assert (lines(log)[-1]["event"], lines(log)[-1]["exit_code"]) == ("night_ended", 4)


def test_a_file_that_cannot_be_written_hides_no_alarm(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is not reported again, so this night alone can report it."""

    def full(*_: object) -> None:
        raise PostrunError(NO_SPACE)

    monkeypatch.setattr(prometheus, "write", full)
    arguments = (source, "--out", tmp_path / "out", "--engine", "none", "--settle", "0", "--metrics", tmp_path / "night.prom", "--quiet")
    done = nightly(*arguments, "--fail-on", "error")
    assert done.exit_code == 3
    first, reason, last = done.stderr.splitlines()
    assert (first, last) == ("postrun: --fail-on: no report of bad", f"postrun: {NO_SPACE}")
    assert reason.startswith("note: bad failed: ")
    assert nightly(*arguments, "--fail-on", "error").exit_code == 1


def test_a_quiet_night_that_stops_early_names_the_reason(source: Path, tmp_path: Path) -> None:
    """Cron mails only what is printed."""
    (source / "bad2").mkdir()
    (source / "bad2" / "trace.json").write_text("no trace at all")
    arguments = (source, "--out", tmp_path / "out", "--engine", "none", "--settle", "0", "--max-failures", "0", "--quiet")
    done = nightly(*arguments)
    assert done.exit_code == 1
    assert done.stderr == "postrun: the night ended early: more than 0 runs failed (--max-failures)\n"


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        (WorkerDied("it took longer", "time"), "timeout"),
        (WorkerDied(reason(30), "memory"), "memory"),
        (WorkerDied("the worker was ended by SIGSEGV", "signal"), "crash"),
        (WorkerDied("no process", "start"), "machine"),
        ("/tmp: No space left on device", "machine"),
    ],
)
def test_the_night_knows_why_a_run_failed(source: Path, tmp_path: Path, problem: Any, fault: str) -> None:
    from postrun.ingest.object_store.open import open_objects
    from postrun.nightly import night as nights
    from postrun.nightly.claims import Claims

    def work(task: Task) -> Row:
        if isinstance(problem, str):
            return row(task.run.id, state="failed", reason=problem, of_machine=True)
        raise problem

    (source / "bad" / "trace.json").write_bytes(b'{"traceEvents": []}')
    out = open_objects(tmp_path / "out")
    wanted = nights.Wanted(str(source), out.url, ReportOptions(), now_ns=2**62, settle_ns=0)
    night = nights.plan(open_objects(source), out, wanted, {})
    with Claims(out) as claims, ThreadPoolExecutor(1) as executor:
        nights.report(night, out, wanted, executor, work, claims)
    assert night.faults == {"bad": fault}


def test_faults_by_the_row_of_a_worker() -> None:
    from postrun.nightly.night import _fault

    reasons = ["x.json: not a trace", reason(10**9, 2 * 10**9), "internal error: KeyError: x", None]
    assert [_fault(row("a", state="failed", reason=text)) for text in reasons] == ["input", "memory", "internal", "input"]
