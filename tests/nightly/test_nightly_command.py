"""`postrun nightly` as a user meets it: real small runs in folders, nights one after the other and at once, killed and resumed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import small_runs as small
from call_nightly import nightly, told
from postrun.errors import InputError
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.store.limits import size_in_bytes
from postrun.nightly import notify, outbox, summary
from postrun.nightly.model import Row
from postrun.nightly.options import moment, shard
from postrun.simulate import Problems, write_demo

ALL_RULES = ("--engine", "none", "--format", "json", "--settle", "0")
ONE_RULE = (*ALL_RULES, "--rules", "StepOutlier")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    write_demo(folder, steps=2, nodes=1, gpus_per_node=1, problems=Problems(straggler_rank=None))
    return next((folder / "kineto").iterdir())


@pytest.fixture
def source(trace: Path, tmp_path: Path) -> Path:
    """Three runs, and what is none."""
    folder = tmp_path / "source"
    for name in ("a", "b/rank0", "c"):
        (folder / name).mkdir(parents=True)
        shutil.copy(trace, folder / name / trace.name)
    (folder / "notes.json").write_text('{"not": "a trace"}')
    (folder / "README.md").write_text("what is here")
    return folder


def files(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_reports_of_nsight_systems_without_an_export_are_named_with_the_command(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in ("d/my report.nsys-rep", "a/report1.nsys-rep", ".hidden/x.nsys-rep", "checkpoints/y.nsys-rep"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"x")
    line = (
        "d/my report.nsys-rep: a report of Nsight Systems, of which only exports are read; next to it, run"
        " `nsys export --type sqlite --output 'my report.sqlite' 'my report.nsys-rep'`"
    )
    for done in (nightly(source, "--out", out, *ONE_RULE, "--dry-run"), nightly(source, "--out", out, *ONE_RULE)):
        assert [one for one in done.stderr.splitlines() if "Nsight" in one] == [f"note: left out: {line}"]  # a is a run by its trace
    assert told(source, "--out", out, *ONE_RULE)["left_out"] == [line]
    alone = nightly(source / "d", "--out", tmp_path / "other", *ONE_RULE)
    assert alone.exit_code == 4
    assert alone.stderr == f"postrun: {source / 'd'}: no run found. Left out:\n{line.removeprefix('d/')}\n"
    assert "Nsight" not in nightly(source, "--out", out, *ONE_RULE, "--since", "2099-01-01").stderr


@pytest.mark.slow
def test_nights_one_after_the_other(source: Path, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (source / "bad").mkdir()
    (source / "bad" / "trace.json").write_text("no trace at all")
    (source / "new\nline").mkdir()
    (source / "new\nline" / "x.json").write_text("{}")
    limited = nightly(source, "--out", out, *ONE_RULE, "--limit", "1", "--dry-run", "--timeout", "5")
    assert " would be reported, the 1 first that have waited longest (--limit); unchanged: 0" in limited.stdout
    assert "note: left out: new\\nline: a control character in the name" in limited.stderr
    assert "note: --timeout has no effect with --engine none" in limited.stderr
    shutil.rmtree(source / "new\nline")
    plan = told(source, "--out", out, *ONE_RULE, "--dry-run")
    assert [(run["id"], run["why"]) for run in plan["runs"]] == [(name, "new") for name in ("a", "b", "bad", "c")]
    assert not out.exists()

    first = told(source, "--out", out, *ONE_RULE)
    assert sorted(first["reported"]) == ["a", "b", "c"]
    assert [one["id"] for one in first["failed"]] == ["bad"]
    assert "bad" in first["failed"][0]["reason"]
    rows = {name: json.loads((out / "runs" / name / "done.json").read_text()) for name in ("a", "b", "bad", "c")}
    assert all((out / rows[name]["folder"] / file).is_file() for name in "abc" for file in rows[name]["written"])
    report = json.loads((out / rows["b"]["folder"] / "report.json").read_text())
    assert (rows["b"]["gpus"], rows["b"]["verdicts"]) == (1, {rule["rule"]: rule["verdict"] for rule in report["rules"]})
    assert (rows["bad"]["state"], rows["bad"]["attempts"], rows["bad"]["written"]) == ("failed", 2, ["postrun.log"])
    assert "Traceback" in (out / rows["bad"]["folder"] / "postrun.log").read_text()

    # Nothing has changed: nothing is done.
    before = {path: when for path, when in files(out).items() if path.startswith("runs/")}
    second = told(source, "--out", out, *ONE_RULE)
    assert (second["reported"], second["failed"], second["unchanged"]) == ([], [], 4)
    assert {path: when for path, when in files(out).items() if path.startswith("runs/")} == before

    # One has changed, one is new, one is gone.
    shutil.copy(trace, source / "b" / "rank0" / "trace2.json.gz")
    (source / "d").mkdir()
    shutil.copy(trace, source / "d")
    shutil.rmtree(source / "c")
    third = told(source, "--out", out, *ONE_RULE)
    assert (sorted(third["reported"]), third["unchanged"], third["gone"], third["runs"]) == (["b", "d"], 2, ["c"], 5)
    assert (out / rows["b"]["folder"] / "report.json").exists()  # a link to it still works
    changed = json.loads((out / "runs" / "b" / "done.json").read_text())
    assert changed["fingerprint"] != rows["b"]["fingerprint"]
    assert (out / changed["folder"] / "report.json").exists()
    assert (out / rows["c"]["folder"] / "report.json").exists()

    # --fail-on refers to the runs of this night, and to all of them with --index-only.
    assert nightly(source, "--out", out, *ONE_RULE, "--fail-on", "issues,error").exit_code == 0
    everything = nightly(source, "--out", out, "--index-only", "--fail-on", "error")
    assert everything.exit_code == 3
    assert "--fail-on: no report of bad" in everything.stderr

    # The index alone: it contains running runs, marks runs that are gone, and nothing is reported.
    (source / "e").mkdir()
    shutil.copy(trace, source / "e")
    assert told(source, "--out", out, "--index-only")["gone"] == ["c"]
    listed = {run["id"]: run for run in json.loads((out / "index.json").read_text())["runs"]}
    assert {name: run["state"] for name, run in listed.items()} == {
        "a": "reported", "b": "reported", "bad": "failed", "c": "reported", "d": "reported", "e": "running"
    }  # fmt: skip
    assert any("no longer at the source" in warning for warning in listed["c"]["warnings"])


def test_a_night_names_running_runs_and_those_that_are_read_in_parts(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "mm", "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    for name in ("large/rank0.pt.trace.json", "large/rank1.pt.trace.json", "now/rank0.pt.trace.json", "recorded/rank0.pt.trace.json"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(json.dumps({"traceEvents": [event] * 20}))
    for path in (tmp_path / "in" / "large").iterdir():
        os.utime(path, (1, 1))
    (tmp_path / "in/recorded/.postrun-run").mkdir()
    (tmp_path / "in/recorded/.postrun-run/job").touch()
    done = nightly(
        tmp_path / "in", "--out", tmp_path / "out", *ONE_RULE, "--engine", "none", "--settle", "10", "--split-above", "1KB", "--json"
    )
    reasons = {f"{begun}, and files were written less than --settle ago" for begun in ("no end marker", "`postrun record` has not ended")}
    assert {one["reason"] for one in json.loads(done.stdout)["open"]} == reasons
    for reason, name in zip(sorted(reasons), ("recorded", "now"), strict=True):
        assert f"note: 1 run left until the job ends ({reason}): {name}\n" in done.stderr
    assert "large: is read in 2 parts\n[1/1] large (" in done.stderr


@pytest.mark.slow
def test_reports_below_the_source_and_shards(source: Path) -> None:
    out = source / "reports"
    done = [told(source, "--out", out, *ONE_RULE, "--shard", f"{i}/2")["reported"] for i in range(2)]
    assert sorted(name for part in done for name in part) == ["a", "b", "c"]
    again = told(source, "--out", out, *ONE_RULE)
    assert (again["reported"], again["found"], again["runs"]) == ([], 3, 3)


def test_options_of_the_report_reach_it_from_the_file_and_the_environment(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "postrun.toml").write_text(
        f'[nightly]\nout = "{tmp_path}/out"\nengine = "none"\nformat = "json"\nsettle = 0\nlimit = 1\n[rules.StepOutlier]\nstddev = 4\n'
        "[rules.LowGPUUtilization]\nenabled = false\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTRUN_TOP", "3")
    (name,) = told(source, "--config", "postrun.toml", "--set", "CPUBottleneck_threshold=41")["reported"]
    row = json.loads((tmp_path / "out" / "runs" / name / "done.json").read_text())
    report = json.loads((tmp_path / "out" / row["folder"] / "report.json").read_text())
    assert report["options"]["top"] == 3
    rules = {rule["rule"]: rule for rule in report["rules"]}
    assert "LowGPUUtilization" not in rules
    assert rules["StepOutlier"]["parameters"]["stddev"] == 4
    assert rules["CPUBottleneck"]["parameters"]["threshold"] == 41
    monkeypatch.setenv("POSTRUN_SHARDS", "0/2")
    assert "did you mean POSTRUN_SHARD?" in nightly(source, "--dry-run").stderr


def test_a_first_night_without_a_run_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    first = nightly(tmp_path / "empty", "--out", tmp_path / "out", "--quiet")
    assert (first.exit_code, first.stdout) == (0, "")
    assert "empty: no run found; what is looked for: PyTorch profiler traces" in first.stderr
    assert json.loads((tmp_path / "out" / "index.json").read_text())["runs_total"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("SOURCE",), 2, "--out"),
        (("absent", "--out", "OUT"), 4, "absent: no such folder"),
        (("SOURCE/README.md", "--out", "OUT"), 4, "give the folder"),
        (("SOURCE", "--out", "SOURCE/README.md"), 4, "README.md"),
        (("SOURCE", "--out", "OUT", "--shard", "3/3"), 2, "0/3 to 2/3"),
        (("SOURCE", "--out", "OUT", "--shard", "one"), 2, "write it like 0/4"),
        (("SOURCE", "--out", "OUT", "--since", "yesterday"), 2, "2026-11-20"),
        (("SOURCE", "--out", "OUT", "--memory", "lots"), 2, "write it like 600MB"),
        (("SOURCE", "--out", "OUT", "--memory", "0MiB"), 2, "no report is made in 0MiB"),
        (("SOURCE", "--out", "OUT", "--regression", "gpu-busy=1e999"), 2, "'--regression': 'gpu-busy=1e999'"),
        (("SOURCE", "--out", "OUT", "--engine", "spark"), 2, "accepted: none, processes, dask"),
        (("SOURCE", "--out", "OUT", "--fail-on", "nothing"), 2, ", error, regression"),
        (("SOURCE", "--out", "OUT", "--rules", "NoSuchRule"), 2, "NoSuchRule"),
        (("SOURCE", "--out", "OUT", "--set", "StepOutlier_stddev=x"), 2, "StepOutlier"),
        (("SOURCE", "--out", "OUT", "--dry-run", "--index-only"), 2, "exclude each other"),
        (("SOURCE", "--out", "ftp://host/place"), 2, "ftp"),
    ],
)
def test_mistakes_are_answered_before_anything_is_done(
    source: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    words = {"SOURCE": str(source), "OUT": str(tmp_path / "out")}
    options = [words.get(one.split("/")[0], one.split("/")[0]) + one[len(one.split("/")[0]) :] for one in arguments]
    done = nightly(*options, "--engine", "none") if "--engine" not in options else nightly(*options)
    assert done.exit_code == code, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def last_success(file: Path) -> str:
    (line,) = (line for line in file.read_text().splitlines() if line.startswith("postrun_nightly_last_success_timestamp_seconds{"))
    return line.rpartition(" ")[2]


def test_the_index_alone_keeps_what_it_has_and_is_no_success(tmp_path: Path) -> None:
    source, out, metrics = tmp_path / "source", tmp_path / "out", tmp_path / "night.prom"
    for name in "ab":
        small.write_run(source / name, steps=1)
    words = (source, "--out", out, *ONE_RULE, "--metrics", metrics)
    assert "2 runs in the index" in nightly(*words, "--limit", "1").stdout
    assert last_success(metrics) == "0.000"  # one is left
    alone = nightly(*words, "--index-only")
    assert "1 waiting; 2 runs in the index" in alone.stdout
    log = tmp_path / "night.jsonl"
    assert told(*words, "--index-only", "--log", log)["runs"] == 2
    assert [line["runs"] for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "index_written"] == [2]
    assert last_success(metrics) == "0.000"
    assert json.loads((out / "index.json").read_text())["states"] == {"reported": 1, "waiting": 1}
    assert nightly(*words).exit_code == 0
    success = last_success(metrics)
    assert float(success) > 0

    shutil.rmtree(source)
    source.mkdir()
    emptied = nightly(*words, "--quiet")
    assert (emptied.exit_code, emptied.stdout) == (0, "")
    assert emptied.stderr.startswith(f"postrun: {source}: no run found, but the index has 2 runs of it; check the path, and that")
    assert last_success(metrics) == success


def test_failed_runs_without_a_marker_count_for_the_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next night repeats them."""
    source, out = tmp_path / "source", tmp_path / "out"
    small.write_run(source / "a", steps=1)

    def fails(task: object) -> None:
        raise ObjectStoreError("the store failed")

    monkeypatch.setattr("postrun.nightly.work.report_run", fails)
    assert nightly(source, "--out", out, *ONE_RULE, "--engine", "none").exit_code == 0
    assert not list(out.glob("runs/*/done.json"))
    alone = nightly(source, "--out", out, *ONE_RULE, "--index-only", "--fail-on", "error", "--quiet")
    assert (alone.exit_code, alone.stderr) == (3, "postrun: --fail-on: no report of a\nnote: a failed: the store failed\n")


def test_twenty_failed_runs_are_named() -> None:
    rows = [Row(f"r{number}", "failed", "traces", "f", "o", 1, 1, reason="bad") for number in range(22)]
    assert summary.matched(rows, [], ["error"]) == f"no report of {', '.join(f'r{number}' for number in range(20))} and 2 more"
    assert len(list(summary.alarm_notes(rows, [], ["error"]))) == 21


def test_a_dry_run_checks_the_rules_of_attach(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "x"\nverdict = "issue"\n')
    done = nightly(tmp_path / "source", "--out", tmp_path / "out", "--dry-run", "--attach", tmp_path / "rules.toml")
    assert done.exit_code == 2
    assert "rules.toml" in done.stderr


def test_texts_of_options() -> None:
    now = 1_795_243_200 * 10**9  # 2026-11-21T06:40:00Z
    day = 86_400 * 10**9
    assert moment("2d", now) == now - 2 * day
    assert moment("90m", now) == now - 5400 * 10**9
    assert moment("2026-11-21T06:40", now) == now
    assert moment("2026-11-21T08:40+02:00", now) == now
    assert moment("2026-11-21", now) == now - 24_000 * 10**9
    assert [size_in_bytes(text) for text in ("2GB", "1.5 GiB", "600mb", "3KiB")] == [2 * 10**9, 3 << 29, 600 * 10**6, 3 << 10]
    assert (shard("0/1"), shard(" 3 / 8 ")) == ((0, 1), (3, 8))


@pytest.mark.slow
def test_tickets_of_the_runs_of_this_night(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def send(action: Any, read_file: Any, *, link: str | None, alone: object) -> tuple[str, str]:
        assert json.loads(read_file(f"{action.row.folder}/report.json"))["rules"]
        sent.append((action.rule, action.message.key.split("/")[1], link))
        if len(sent) == 1:
            raise InputError("the ticket system does not answer")
        return "commented on 7", "github:owner/repo#7"

    monkeypatch.setattr(notify, "send", send)
    monkeypatch.setenv("POSTRUN_GITHUB_TOKEN", "no-token")
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "any"\nto = "github:owner/repo#7"\nverdicts = ["any"]\n')
    out = tmp_path / "out"
    arguments = (source, "--out", out, "--attach", tmp_path / "rules.toml")
    first = nightly(*arguments, *ALL_RULES)
    assert first.exit_code == 1, first.output
    assert sorted(run for _, run, _ in sent) == ["a", "b", "c"]
    assert all(Path(str(link)).name == "report.json" and Path(str(link)).is_file() for _, _, link in sent)
    assert re.search("--attach: any: github:owner/repo#7: .+: the ticket system does not answer", first.stderr)
    assert len(re.findall("ticket: any: github:owner/repo#7: .+: commented on 7", first.stderr)) == 2
    recorded = [json.loads((out / "runs" / run / "done.json").read_text())["tickets"] for run in "abc"]
    assert sorted(recorded) == [[], ["github:owner/repo#7"], ["github:owner/repo#7"]]
    assert nightly(source, "--out", out, *ALL_RULES).exit_code == 0
    assert len(sent) == 3
    assert nightly(*arguments, "--index-only").exit_code == 0
    assert len(sent) == 4
    (tmp_path / "rules.toml").write_text("[[rules]]\n")
    wrong = nightly(*arguments, *ALL_RULES)
    assert (wrong.exit_code, "rules.toml" in wrong.stderr) == (2, True)


@pytest.mark.slow
def test_a_night_that_is_killed_while_it_sends_leaves_its_exit_code_to_the_next(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> tuple[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setenv("POSTRUN_GITHUB_TOKEN", "no-token")
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "any"\nto = "github:owner/repo#7"\nverdicts = ["any"]\n')
    shutil.rmtree(source / "b")
    arguments = (source, "--out", tmp_path / "out", "--attach", tmp_path / "rules.toml", *ALL_RULES)
    monkeypatch.setattr(notify, "send", killed)
    assert "--fail-on: issues in a, c (" in nightly(*arguments, "--fail-on", "issues").stderr
    monkeypatch.setattr(notify, "send", lambda *_, **__: ("commented on 7", "github:owner/repo#7"))
    elsewhere = nightly(source, "--out", tmp_path / "out", *ALL_RULES)
    assert (elsewhere.exit_code, "waiting messages of other nights: 2;" in elsewhere.stderr) == (0, True)
    second = nightly(*arguments, "--json")
    assert second.exit_code == 3, second.output
    assert [text.partition(" (")[0] for text in json.loads(second.stdout)["fail_on"]] == ["issues in a, c"]
    assert "--fail-on, in a night that was ended while it sent messages: issues in a, c (" in second.stderr
    assert len(re.findall("ticket: any: github:owner/repo#7: .+: commented on 7", second.stderr)) == 2
    assert nightly(*arguments, "--fail-on", "issues").exit_code == 0


@pytest.mark.slow
def test_an_alarm_keeps_its_exit_code_when_waiting_messages_cannot_be_counted(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: object) -> int:
        raise ObjectStoreError("nights: no permission")

    monkeypatch.setattr(outbox, "waiting", unreadable)
    done = nightly(source, "--out", tmp_path / "out", *ALL_RULES, "--fail-on", "issues")
    assert (done.exit_code, done.stderr.count("nights: no permission")) == (3, 1)
    again = nightly(source, "--out", tmp_path / "out", *ALL_RULES)
    assert (again.exit_code, again.stderr.count("nights: no permission")) == (ObjectStoreError.exit_code, 1)


RULE = """
import postrun
from limits import LIMIT


class Found(postrun.Rule):
    name = "Found"
    parameters = (postrun.Parameter("limit", "", 1, 1, "positive", "a number"),)
    condition = "always"
    advice = "None."

    def evaluate(self, run, parameters):
        return postrun.Outcome("IssuesFound", triggered=1, datapoints=1, finding=f"{LIMIT} {parameters['limit']}", recommendation="None.")
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["none", "processes"])
def test_custom_rules_of_the_configuration_file_run(source: Path, tmp_path: Path, engine: str) -> None:
    """The rule imports a file next to it; another content makes runs due."""
    (tmp_path / "limits.py").write_text("LIMIT = 'beyond'\n")
    (tmp_path / "own.py").write_text(RULE)
    (tmp_path / "postrun.toml").write_text(f'custom_rule = ["{tmp_path}/own.py:Found?limit=7"]\n')
    arguments = (source, "--out", tmp_path / "out", *ONE_RULE, "--engine", engine, "--config", tmp_path / "postrun.toml")
    night = nightly(*arguments, "--fail-on", "Found")
    assert (night.exit_code, "(Found)" in night.stderr) == (3, True), night.stderr
    report = json.loads((tmp_path / "out" / "runs" / "a" / "latest" / "report.json").read_text())
    assert [rule["finding"] for rule in report["rules"] if rule["rule"] == "Found"] == ["beyond 7"]
    assert told(*arguments)["unchanged"] == 3
    (tmp_path / "own.py").write_text(RULE + "\n# another version\n")
    assert told(*arguments, "--dry-run")["runs"][0]["why"] == "other options"


@pytest.mark.slow
def test_a_custom_rule_that_fails_is_reported(source: Path, tmp_path: Path) -> None:
    (tmp_path / "limits.py").write_text("LIMIT = 1 / 0\n")
    (tmp_path / "own.py").write_text(RULE)
    (tmp_path / "postrun.toml").write_text('custom_rule = ["own.py:Found"]\n')  # relative to the file
    arguments = (source, "--out", tmp_path / "out", *ONE_RULE, "--config", tmp_path / "postrun.toml")
    night = nightly(*arguments, "--fail-on", "Found")
    assert night.exit_code == 0
    assert "Found failed in 3 runs, so it is not known whether they have an issue; --fail-on error" in night.stderr


def test_a_machine_without_the_file_of_a_rule_gets_its_content(tmp_path: Path) -> None:
    from postrun.nightly.work import _rule_file

    file = tmp_path / "own.py"
    assert _rule_file(b"A = 1", file, tmp_path / "first").read_bytes() == b"A = 1"
    file.write_bytes(b"A = 1")
    assert _rule_file(b"A = 1", file, tmp_path / "second") == file
    assert _rule_file(b"A = 2", file, tmp_path / "third").read_bytes() == b"A = 2"


# ------------------------------------------------------------------------------ processes of their own


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "postrun.cli", "nightly", *map(str, arguments), *ONE_RULE[2:]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def end(night: subprocess.Popen[str]) -> None:
    if night.poll() is None:
        os.killpg(night.pid, signal.SIGKILL)
    night.communicate()


def wait_for(out: Path, count: int, night: subprocess.Popen[str]) -> None:
    """Wait until ``count`` runs are finished."""
    until = time.monotonic() + 90
    while len(list(out.glob("runs/*/done.json"))) < count:
        assert time.monotonic() < until
        assert night.poll() is None
        time.sleep(0.02)


@pytest.mark.slow
def test_a_night_that_is_killed_one_that_is_ended_and_two_at_once(source: Path, trace: Path, tmp_path: Path) -> None:
    for name in "de":
        (source / name).mkdir()
        shutil.copy(trace, source / name)
    out = tmp_path / "out"
    killed = start(source, "--out", out, "--workers", "1")
    try:
        wait_for(out, 1, killed)
    finally:
        end(killed)
    # It may have been killed between a run's marker and giving back the claim, which then stays.
    left = set(out.rglob("*claim.json"))
    ended = start(source, "--out", out, "--workers", "1")
    try:
        wait_for(out, 2, ended)
        ended.terminate()  # as a job scheduler does
        errors = ended.communicate(timeout=60)[1]
    finally:
        end(ended)
    assert ended.returncode == 128 + signal.SIGTERM, errors
    assert set(out.glob("runs/**/*claim.json")) <= left
    assert len(list(out.glob("nights/*"))) == 2  # of both, whose runs the next night announces
    done = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/done.json")}
    assert 2 <= len(done) < 5

    processes = [start(source, "--out", out, "--workers", "1", "--json") for _ in range(2)]
    try:
        errors = [json.loads(night.communicate(timeout=120)[0]) for night in processes]
    finally:
        for night in processes:
            end(night)
    assert [night.returncode for night in processes] == [0, 0]
    reported = [name for one in errors for name in one["reported"]]
    # Each was reported by one of them; one that the other had just finished is told apart.
    assert sorted(reported) == sorted(set("abcde") - {path.parent.name for path in done})
    assert all(set(one["elsewhere"]) <= set(other["reported"]) for one, other in (errors, errors[::-1]))
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert {path.parent.name for path in out.glob("runs/*/done.json")} == set("abcde")
    assert set(out.rglob("*claim.json")) <= left
    for path in out.glob("runs/*/done.json"):
        row = json.loads(path.read_text())
        assert [one.name for one in (out / row["folder"]).iterdir()] == ["report.json"]


@pytest.mark.slow
def test_a_run_beyond_its_limits_is_named_and_the_night_goes_on(source: Path, tmp_path: Path) -> None:
    night = start(source, "--out", tmp_path / "out", "--memory", "30MB", "--workers", "2", "--json", "--limit", "2")
    try:
        out, _ = night.communicate(timeout=120)
    finally:
        end(night)
    failed = json.loads(out)["failed"]
    assert len(failed) == 2
    assert [one["reason"] for one in failed if "than is allowed (30 MB)" not in one["reason"]] == []
    assert night.returncode == 0
