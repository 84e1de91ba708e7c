"""Run stores below SOURCE are left out unless ``--run-stores`` is given, and give nothing away with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from call_nightly import nightly, told
from postrun.ingest import ingest
from postrun.ingest.store import Store

SECRET = "PLANTED_SECRET_77"
TRACE = {
    "schemaVersion": 1,
    "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1_700_000_000_000_000, "dur": 5}],
}
OPTIONS = ("--engine", "none", "--format", "html,json", "--settle", "0", "--rules", "StepOutlier")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a trace, its store next to it, an honest store, and a hostile one.

    The hostile one has a view over a file and the environment.
    """
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    (tmp_path / "secret").write_text(SECRET)
    folder = tmp_path / "in"
    for run in ("traced", "stored", "hostile"):
        (folder / run).mkdir(parents=True)
    (folder / "traced" / "trace.json").write_text(json.dumps(TRACE))
    ingest([folder / "traced"], folder / "stored" / "run.duckdb").close()
    for run in ("traced", "hostile"):
        shutil.copy(folder / "stored" / "run.duckdb", folder / run)
    with duckdb.connect(folder / "hostile" / "run.duckdb") as connection:
        texts = [f"content AS {column}" for column in ("message", "code", "file")]
        rest = "0 AS source, 'info' AS severity, 1 AS count, 0 AS first_ns, 0 AS last_ns"
        files = f"['/proc/self/environ', '{tmp_path}/secret']"
        connection.execute(f"DROP TABLE ingest_note; CREATE VIEW ingest_note AS SELECT {', '.join(texts)}, {rest} FROM read_text({files})")
    return folder


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.slow
def test_stores_are_left_out_and_named(source: Path, tmp_path: Path) -> None:
    (source / "logged").mkdir()
    (source / "logged" / "run.duckdb").write_bytes((source / "hostile" / "run.duckdb").read_bytes())
    (source / "logged" / "nvidia-smi.csv").write_text("timestamp, index, utilization.gpu [%]\n2023/11/14 22:13:20.000, 0, 50 %\n")
    done = nightly(source, "-o", tmp_path / "out", *OPTIONS)
    assert done.exit_code == 0, done.output
    for run in ("hostile", "stored"):
        assert f"note: left out: {run}/run.duckdb: a run store; use --run-stores to report it" in done.stderr
    assert "traced/run.duckdb" not in done.output
    answer = told(source, "-o", tmp_path / "again", *OPTIONS)
    assert sorted(answer["reported"]) == ["logged", "traced"]  # a store does not hide the files next to it
    assert sorted(line.split(":")[0] for line in answer["left_out"]) == ["hostile/run.duckdb", "stored/run.duckdb"]
    assert SECRET.encode() not in everything(tmp_path / "out") + everything(tmp_path / "again") + done.output.encode()


def test_nothing_but_stores_is_an_error_that_names_the_option(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "traced")
    done = nightly(source, "-o", tmp_path / "out", *OPTIONS)
    assert done.exit_code == 4
    assert "no run found. Left out:\nhostile/run.duckdb: a run store; use --run-stores to report it" in done.stderr
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.slow
def test_with_the_option_honest_stores_are_reported_and_others_fail(source: Path, tmp_path: Path) -> None:
    (source / "linked").mkdir()
    (source / "linked" / "run.duckdb").symlink_to(source / "hostile" / "run.duckdb")
    answer = told(source, "-o", tmp_path / "out", "--run-stores", *OPTIONS)
    assert sorted(answer["reported"]) == ["stored/run.duckdb", "traced"]
    failed = {one["id"]: one["reason"] for one in answer["failed"]}
    assert "hostile/run.duckdb" in failed
    assert all("contains something that no run store of postrun contains: view ingest_note" in reason for reason in failed.values())
    assert SECRET.encode() not in everything(tmp_path / "out") + json.dumps(answer).encode()
    # Without the option the report of the store is kept, and the store does not count as gone.
    later = told(source, "-o", tmp_path / "out", *OPTIONS)
    assert later["gone"] == []
    notes = nightly(source, "-o", tmp_path / "out", *OPTIONS).stderr.splitlines()
    assert len([line for line in notes if "hostile/run.duckdb" in line]) == 1  # left out, not also failed
    assert (tmp_path / "out" / "runs" / "stored" / "run.duckdb" / "done.json").exists()


@pytest.mark.slow
def test_a_folder_that_becomes_a_link_before_the_store_is_read_gives_nothing_away(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swap the run's folder for a link to another store while it is opened."""
    private = tmp_path / "private"
    shutil.copytree(source / "stored", private)
    with duckdb.connect(private / "run.duckdb") as connection:
        connection.execute(f"UPDATE run SET name = '{SECRET}'")
    folder, aside = source / "stored", source / ".aside"
    original = Store.open

    def swapped(path: Path, **options: Any) -> Store:
        folder.rename(aside)
        folder.symlink_to(private)
        try:
            return original(path, **options)
        finally:
            folder.unlink()
            aside.rename(folder)

    monkeypatch.setattr(Store, "open", swapped)
    answer = told(source, "-o", tmp_path / "out", "--run-stores", *OPTIONS)
    assert sorted(answer["reported"]) == ["stored/run.duckdb", "traced"]
    assert SECRET.encode() not in everything(tmp_path / "out") + json.dumps(answer).encode()


def test_a_store_with_a_log_next_to_it_fails_alone(source: Path, tmp_path: Path) -> None:
    (source / "stored" / "run.duckdb.wal").write_bytes(b"x")
    answer = told(source, "-o", tmp_path / "out", "--run-stores", *OPTIONS)
    reasons = {one["id"]: one["reason"] for one in answer["failed"]}
    assert reasons["stored/run.duckdb"].startswith("has a write-ahead log next to it (run.duckdb.wal)")
    assert answer["reported"] == ["traced"]
