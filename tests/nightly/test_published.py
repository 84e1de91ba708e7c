"""Publication of a night: nothing that ``--redact`` removes, and a note if a folder keeps the readers of ``--mode`` out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import postrun.analysis
import pytest
from call_nightly import nightly, told
from postrun.ingest.store.conceal import redacted_text
from postrun.nightly import reasons

OPTIONS = ("--format", "html,json", "--engine", "none", "--settle", "0", "--rules", "StepOutlier")
REDACTED = ("--redact", "hosts,users,paths,command")
HOST = "gpu-host-77"
TRACE = {
    "schemaVersion": 1,
    "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1_700_000_000_000_000, "dur": 5}],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A run that fails in a folder of a user, and one that can be reported."""
    folder = tmp_path / "home" / "with blank" / "runs"
    for run in ("good", "bad"):
        (folder / run).mkdir(parents=True)
    (folder / "good" / "trace.json").write_text(json.dumps(TRACE))
    (folder / "bad" / f"{HOST}_12.1700000000000.pt.trace.json").write_text("no trace at all")
    return folder


def everything(folder: Path) -> str:
    texts = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".parquet":
            texts.append(str(pl.read_parquet(path).to_dicts()))
        elif path.is_file():
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def test_redacted_failures_contain_no_folder_or_host(source: Path, tmp_path: Path) -> None:
    data = told(source, "-o", tmp_path / "reports", *OPTIONS, *REDACTED)
    assert [one["id"] for one in data["failed"]] == ["bad"]
    written = everything(tmp_path / "reports")
    assert "<title>reports: postrun nightly reports</title>" in written
    assert data["failed"][0]["reason"].startswith("nothing usable found")
    assert "What is read" not in data["failed"][0]["reason"]  # the same for all runs
    for secret in (str(tmp_path), "with blank", tmp_path.name, HOST):
        assert secret not in written, secret
        assert secret not in data["failed"][0]["reason"]


@pytest.mark.slow
def test_a_redacted_traceback_contains_no_folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError(f"in {source}/good/trace.json and /home/erika/secret/place/x.py of erika")

    monkeypatch.setattr(postrun.analysis, "analyze", fails)
    told(source, "-o", tmp_path / "reports", *OPTIONS, *REDACTED)
    logs = [path.read_text() for path in (tmp_path / "reports").rglob("postrun.log")]
    assert any("Traceback" in log and "in good/trace.json and x.py of user-1" in log for log in logs)
    written = everything(tmp_path / "reports")
    for secret in (str(tmp_path), str(Path(postrun.analysis.__file__).parent), "erika", "secret/place", "with blank"):
        assert secret not in written, secret


@pytest.mark.slow
def test_without_redaction_reasons_are_relative_to_the_source(source: Path, tmp_path: Path) -> None:
    data = told(source, "-o", tmp_path / "reports", *OPTIONS)
    assert str(source) not in data["failed"][0]["reason"]
    assert data["failed"][0]["reason"].startswith("nothing usable found")
    assert f"<title>{tmp_path / 'reports'}: postrun nightly reports</title>" in (tmp_path / "reports/index.html").read_text()


def test_only_whole_paths_are_made_relative() -> None:
    assert reasons.relative("/d/a: /d/a/x, /d/ab/x, /e/d/a/x, '/d/a/y'", "/d/a") == "/d/a: x, /d/ab/x, /e/d/a/x, 'y'"
    assert reasons.relative("s3://b/a/x", "s3://b/a") == "s3://b/a/x"
    assert reasons.relative("/x", "/") == "/x"
    assert redacted_text("/home/me/a/b on h.x and h, me", ("hosts", "users"), ("",)) == "/home/user-1/a/b on h.x and h, user-1"
    assert redacted_text("at gpu1.example and gpu1", ("hosts",), ("gpu1.example", "gpu2")) == "at node-1 and node-1"


@pytest.mark.parametrize(
    ("reason", "run_id", "source", "expected"),
    [
        ("a/b: cut off", "a/b", "/d", "cut off"),
        ("s3://bucket/runs/a/b: a/b: cut off", "a/b", "s3://bucket/runs/", "a/b: cut off"),
        ("/d: cut off", ".", "/d", "cut off"),
        ("d: cut off", ".", "/x/d", "cut off"),  # with --redact
        ("a/b/x.json: cut off", "a/b", "/d", "a/b/x.json: cut off"),
        ("ca/b: cut off", "a/b", "/d", "ca/b: cut off"),
        ("cut off", "a/b", "/d", "cut off"),
    ],
)
def test_a_reason_does_not_repeat_its_run(reason: str, run_id: str, source: str, expected: str) -> None:
    assert reasons.without_run(reason, run_id, source) == expected


@pytest.mark.parametrize(
    ("mode", "told_by", "who", "words"),
    [
        ("0644", 0o700, "other users", "u=rwX,g=rX,o=rX"),
        ("0640", 0o700, "its group", "u=rwX,g=rX"),
        ("0640", 0o750, None, ""),
        (None, 0o700, None, ""),
    ],
)
def test_a_private_folder_is_noted_if_the_mode_is_wider(
    source: Path, tmp_path: Path, mode: str | None, told_by: int, who: str | None, words: str
) -> None:
    out = tmp_path / "reports"
    out.mkdir()
    out.chmod(told_by)
    done = nightly(source, "-o", out, "--index-only", *(("--mode", mode) if mode else ()))
    assert done.exit_code == 0, done.output
    notes = [line for line in done.stderr.splitlines() if line.startswith(f"note: {out} has mode")]
    note = f"note: {out} has mode {told_by:04o}, so {who} cannot read the reports; run `chmod -R {words} {out}`"
    assert notes == ([note] if who else [])
    if who:
        os.chmod(out, 0o755)  # noqa: PTH101
        tmp_path.chmod(0o700)
        again = nightly(source, "-o", out, "--index-only", "--mode", mode or "")
        added = "go" if mode == "0644" else "g"
        assert f"note: {tmp_path} has mode 0700, so {who} cannot read the reports; run `chmod {added}+x {tmp_path}`" in again.stderr
        assert f"note: {out} has mode" not in again.stderr


def test_a_digest_that_readers_of_the_index_cannot_read_is_noted(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "reports"
    assert nightly(source, "-o", out, *OPTIONS, "--format", "json", "--mode", "0644").exit_code == 0
    done = nightly("digest", out)
    assert done.stderr == "note: digest.html has mode 0600, and index.html next to it 0644; --mode 0644 publishes both\n"
    assert "digest.html has mode" not in nightly("digest", out, "--mode", "0644").stderr
