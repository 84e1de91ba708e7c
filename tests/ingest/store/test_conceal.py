"""Tests that a run store and its reports do not contain concealed secrets, hosts, users, paths and commands."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zlib
from base64 import b64decode
from pathlib import Path
from re import findall

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.ingest import ingest
from postrun.ingest.store import Store

HOST, USER, FOLDER, COMMAND = "uniqhost77", "uniqalice", "uniqfolder", "uniqcommand"
PLANTED = (HOST, USER, FOLDER, COMMAND)
SECRETS = ("PLANTEDA", "PLANTEDB", "PLANTEDC", "PLANTEDD")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a PyTorch trace with private data below a folder of the user's."""
    folder = tmp_path / FOLDER / "run"
    folder.mkdir(parents=True)
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm",
            "pid": 0,
            "tid": 7,
            "ts": 1000.0 + 20 * i,
            "dur": 10.0,
            "args": {"device": 0, "stream": 7},
        }
        for i in range(20)
    ]
    frame = f"/home/{USER}/{FOLDER}/train.py(12): forward"
    events += [
        {"ph": "X", "cat": "python_function", "name": frame, "pid": 5, "tid": 5, "ts": 1000.0, "dur": 300.0},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 5, "tid": 5, "ts": 1000.0, "dur": 300.0},
    ]
    trace = {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 1}], "traceEvents": events,
        "distributedInfo": {"rank": 0, "world_size": 1}, "api_key": "PLANTEDC",
    }  # fmt: skip
    (folder / f"{HOST}.example.org_5.1700000000000000000.pt.trace.json").write_text(json.dumps(trace), encoding="utf-8")
    job = {
        "hyperparameters": {
            "lr": 0.1, "max_tokens": 512, "hf_token": "PLANTEDA",
            "command": f"train --{COMMAND} --password PLANTEDB", "password": "PLANTEDC",
            "data": f"https://user:PLANTEDD@host/x /scratch/{USER}/{FOLDER}/data.bin",
        },
        "labels": {"user": USER, "host": f"{HOST}.example.org", "team": "nlp"},
        "resources": [f"{HOST}.example.org"],
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    return folder


def everything(folder: Path) -> bytes:
    """Return all bytes of a folder with file names and decompressed contents."""
    actual = []
    for path in sorted(folder.rglob("*") if folder.is_dir() else [folder]):
        actual.append(path.name.encode())
        if path.is_file():
            data = path.read_bytes()
            actual.append(data)
            for stream in findall(rb"(?s)stream\r?\n(.*?)endstream", data) if path.suffix == ".pdf" else ():
                unpacked = zlib.decompressobj()
                try:
                    actual.append(unpacked.decompress(stream))
                except zlib.error:
                    continue
            for text in findall(rb"[A-Za-z0-9+/]{200,}={0,2}", data) if path.suffix == ".html" else ():
                raw = b64decode(text + b"=" * (-len(text) % 4))
                actual.append(raw)
                for bits in (15, 31, -15):
                    try:
                        actual.append(zlib.decompress(raw, bits))
                    except zlib.error:
                        continue
    return b"\n".join(actual)


def call(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


def test_secrets_are_masked_and_the_notes_say_what(run: Path) -> None:
    with ingest([run]) as store:
        values = json.loads(store.frame("SELECT hyperparameters FROM run").item())
        (message,) = store.frame("SELECT message FROM ingest_note WHERE code = 'values_masked'")["message"]
    assert (values["lr"], values["max_tokens"], values["hf_token"], values["password"]) == (0.1, 512, "***", "***")
    assert values["command"] == f"train --{COMMAND} --password ***"
    assert values["data"].startswith("https://user:***@host/x ")
    assert message == "5 values masked: --password, URL user info, api_key, hf_token, password."


@pytest.mark.slow
@pytest.mark.parametrize("members", [('{"a":', "}"), ("[", "]")])
def test_deeply_nested_job_information_does_not_end_the_report(run: Path, tmp_path: Path, members: tuple[str, str]) -> None:
    deep = members[0] * 900 + "1" + members[1] * 900
    job = f'{{"hyperparameters": {{"deep": {deep}, "hf_token": "PLANTEDA"}}, "labels": {{"x": {deep}}}, "resources": [{deep}]}}'
    (run / "job.json").write_text(job, encoding="utf-8")
    call("report", str(run), "-o", str(tmp_path / "out"), "--format", "json", "--redact", "hosts,users,paths,command")
    with ingest([run]) as store:
        values = json.loads(store.frame("SELECT hyperparameters FROM run").item())
    assert "nested too deeply" in json.dumps(values["deep"])
    assert values["hf_token"] == "***"
    assert "PLANTEDA" not in everything(tmp_path / "out").decode("utf-8", "replace")


def test_a_run_without_secrets_has_no_note(run: Path) -> None:
    (run / "job.json").write_text('{"hyperparameters": {"max_tokens": 5}}', encoding="utf-8")
    (trace,) = run.glob("*.pt.trace.json")
    trace.write_text(trace.read_text(encoding="utf-8").replace("api_key", "max_tokens"), encoding="utf-8")
    with ingest([run]) as store:
        assert store.frame("SELECT 1 FROM ingest_note WHERE code = 'values_masked'").is_empty()


def test_no_output_contains_a_secret(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("report", str(run), "-o", str(out / "report"), "--format", "html,json,md,junit,rule-json")
    call("ingest", str(run), "-o", str(out / "run.duckdb"))
    for kind in ("chrome", "csv"):
        call("export", str(run), "-f", kind, "-o", str(out / kind))
    data = everything(out)
    assert [secret for secret in SECRETS if secret.encode() in data] == []
    assert HOST.encode() in data  # only secrets are left out unasked
    appendix = (out / "report/report.html").read_text(encoding="utf-8").partition('id="appendix"')[2]
    assert "masked" in appendix
    assert "URL user info" in appendix


@pytest.mark.slow
def test_redacted_outputs_contain_no_host_user_path_or_command(run: Path, tmp_path: Path) -> None:
    out, redact = tmp_path / "out", ("--redact", "hosts,users,paths,command")
    call("report", str(run), "-o", str(out / "report"), "--format", "html,pdf,json,md,junit,rule-json", *redact)
    call("ingest", str(run), "-o", str(out / "run.duckdb"), *redact)
    for kind in ("perfetto", "chrome", "parquet", "csv"):
        call("export", str(run), "-f", kind, "-o", str(out / kind), *redact)
    data = everything(out)
    assert [text for text in PLANTED if text.encode() in data] == []
    report = json.loads((out / "report/report.json").read_text(encoding="utf-8"))
    assert report["run"]["labels"] == {"user": "user-1", "host": "node-1", "team": "nlp"}
    assert report["run"]["hyperparameters"]["data"].endswith(" data.bin")
    assert "train.py(12): forward" in data.decode("utf-8", "replace")


def test_each_word_redacts_only_its_own(run: Path) -> None:
    kept = {
        "hosts": {USER, FOLDER, COMMAND}, "users": {HOST, FOLDER, COMMAND}, "paths": {HOST, USER, COMMAND}, "command": {HOST, USER, FOLDER},
    }  # fmt: skip
    for word, others in kept.items():
        with ingest([run], redact=[word]) as store:
            texts = " ".join(str(store.frame(f"FROM {table}").rows()) for table in ("run", "node", "name", "source", "ingest_note"))
        assert {text for text in PLANTED if text in texts} == others, word


def test_a_run_store_made_before_is_masked_and_redacted_when_it_is_reported(run: Path, tmp_path: Path) -> None:
    with ingest([run], tmp_path / "old.duckdb") as store:
        store.connection.execute("UPDATE run SET metadata = ?", [json.dumps({"job.command": "x --password PLANTEDA"})])
    with ingest([tmp_path / "old.duckdb"], redact=["hosts"]) as store:
        assert store.frame("SELECT metadata FROM run").item() == '{"job.command": "x --password ***"}'
        assert store.frame("SELECT hostname FROM node").item() == "node-1"
        assert store.frame("SELECT count(*) FROM device_event WHERE kind = 'kernel'").item() == 20
    with Store.open(tmp_path / "old.duckdb") as store:  # the file itself is not changed
        assert "PLANTEDA" in store.frame("SELECT metadata FROM run").item()


@pytest.mark.slow
def test_a_comparison_contains_neither(run: Path, tmp_path: Path) -> None:
    call("compare", str(run), str(run), "-o", str(tmp_path / "out"), "--format", "html,json", "--redact", "hosts,users,paths,command")
    data = everything(tmp_path / "out")
    assert [text for text in (*SECRETS, *PLANTED) if text.encode() in data] == []


def test_a_wrong_word_is_refused() -> None:
    done = CliRunner().invoke(main, ["report", "x", "--redact", "host"])
    assert done.exit_code == 2
    assert "host cannot be redacted (did you mean hosts?); choose from hosts,users,paths,command" in done.output


def modes(folder: Path) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in [folder, *folder.rglob("*")]}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "file", "expected"), [(None, 0o600, 0o700), ("0640", 0o640, 0o750)])
def test_files_have_their_mode_whatever_the_umask(run: Path, tmp_path: Path, mode: str | None, file: int, expected: int) -> None:
    out, options = tmp_path / "out", ["--mode", mode] if mode else []
    (tmp_path / "kept").mkdir(mode=0o755)
    (tmp_path / "kept").chmod(0o755)
    before = os.umask(0o000 if mode is None else 0o077)
    try:
        call("report", str(run), "-o", str(out / "report"), "--format", "html,json,md,junit,rule-json", *options)
        call("report", str(run), "-o", str(tmp_path / "kept"), "--format", "json", *options)
        call("ingest", str(run), "-o", str(out / "run.duckdb"), *options)
        call("export", str(run), "-f", "csv", "-o", str(out / "csv"), *options)
        call("nightly", str(run.parent), "--out", str(out / "night"), "--format", "json", "--engine", "none", "--settle", "0", *options)
        assert os.umask(0) == (0o000 if mode is None else 0o077)  # as it was before the commands
    finally:
        os.umask(before)
    assert modes(out) == {(False, file), (True, expected)}
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o755


def test_a_wrong_mode_is_refused() -> None:
    for wrong in ("0777", "u+r", "0044", "12345"):
        done = CliRunner().invoke(main, ["report", "x", "--mode", wrong])
        assert done.exit_code == 2
        assert "is not a file mode; write it like 0640" in done.output


def test_a_recording_is_private_masked_and_redacted_and_leaves_the_umask_of_the_job(tmp_path: Path) -> None:
    script = "umask; exec true"
    command = [sys.executable, "-P", "-m", "postrun", "record", "-q", "--interval-ms", "0", "--out", "run", "--param", "hf_token=PLANTEDA",
               "--param", f"data=/home/{USER}/{FOLDER}/x.bin", "--redact", "users,paths,command", "--",
               "sh", "-c", script, COMMAND, "--password", "PLANTEDB"]  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, umask=0o002, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "0002"), done.stderr
    assert modes(tmp_path / "run") == {(False, 0o600), (True, 0o700)}
    data = everything(tmp_path / "run")
    assert [text for text in (*SECRETS, USER, FOLDER, COMMAND) if text.encode() in data] == []
