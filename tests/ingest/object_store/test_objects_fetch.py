"""Tests that report and ingest read a run from an object store as from a folder, also after errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from postrun.errors import InputError, UsageError
from postrun.ingest import fetch, ingest
from postrun.ingest.object_store import remote as object_stores
from postrun.ingest.object_store.objects import ChangedError, ObjectInfo, Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from prt_writer import golden
from swift_server import SwiftServer, clean_environment, swift_server


def trace(rank: int = 0, events: int = 3) -> bytes:
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"gemm_{number}", "pid": 0, "tid": 7, "ts": 100.0 * number, "dur": 50.0,
         "args": {"device": 0, "stream": 7, "correlation": number}}
        for number in range(events)
    ]  # fmt: skip
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": kernels}).encode()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder; it is empty again at the end of every test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def objects() -> Objects:
    return open_objects(f"memory://bucket-{time.monotonic_ns()}/runs/job 7")


def tables(source: str | Path | list[str]) -> dict[str, list[object]]:
    """Return the contents of a run store without paths."""
    wanted = ("run", "process", "device", "device_event", "step", "name", "ingest_note")
    with ingest(source) as store:
        tables = {name: store.frame(f"SELECT * FROM {name} ORDER BY ALL").rows() for name in wanted}
        tables["source"] = store.frame("SELECT parse_filename(path), format, bytes, sha256, events FROM source ORDER BY ALL").rows()
    return tables


def sources(url: str) -> list[str]:
    with ingest(url) as store:
        return [row[0] for row in store.frame("SELECT path FROM source ORDER BY path").rows()]


def test_a_run_is_the_same_from_a_folder_and_from_a_store(tmp_path: Path, objects: Objects) -> None:
    files = {
        "rank0.pt.trace.json": trace(0),
        "deep/er/rank1.pt.trace.json": trace(1),
        "deep/copy.json": trace(1),
        "job.json": b'{"name": "seven", "labels": {"team": "vision"}}',
        "notes.txt": b"hello",
        "checkpoint.pt": b"\x80\x02" + b"x" * 3_000_000,
        ".hidden": b"x",
        "cut.json": trace(0, 400)[:-500],
    }
    folder = tmp_path / "job 7"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        objects.write(name, data)
    assert tables(objects.url) == tables(str(folder))
    assert tables(objects.url + "/") == tables(folder)
    assert sources(objects.url) == sorted(f"{objects.url}/{name}" for name in files if not name.startswith("."))


def test_a_recording(tmp_path: Path, objects: Objects) -> None:
    (tmp_path / "a.prt").write_bytes(golden())
    objects.write("a.prt", golden())
    fetched, local = tables(f"{objects.url}/a.prt"), tables(tmp_path / "a.prt")
    for name in ("run", "process", "source", "ingest_note"):
        assert fetched[name] == local[name] != []
    assert len(fetched["device_event"]) == len(local["device_event"]) > 0


def test_one_object_and_several_places(tmp_path: Path, objects: Objects) -> None:
    objects.write("a/rank0.json", trace(0))
    objects.write("a/rank1.json", trace(1))
    local = tmp_path / "rank1.json"
    local.write_bytes(trace(1))
    assert sources(f"{objects.url}/a/rank0.json") == [f"{objects.url}/a/rank0.json"]
    with ingest([f"{objects.url}/a/rank0.json", local, local.as_uri()]) as store:
        assert store.frame("SELECT path FROM source ORDER BY path").to_series().to_list() == [str(local), f"{objects.url}/a/rank0.json"]
        assert store.frame("SELECT count(*) FROM device_event").item() == 6
    with ingest([objects.url, f"{objects.url}/a/rank0.json"]) as store:
        assert store.frame("SELECT count(*) FROM device_event").item() == 6


def test_a_run_store(tmp_path: Path, objects: Objects, temporary: Path) -> None:
    objects.write("rank0.json", trace(0))
    ingest(objects.url, tmp_path / "run.duckdb").close()
    objects.write("stores/run.duckdb", tmp_path / "run.duckdb")
    with ingest(f"{objects.url}/stores/run.duckdb") as store:
        assert store.frame("SELECT path FROM source").item() == f"{objects.url}/rank0.json"
        assert list(temporary.iterdir()) != []
    with pytest.raises(UsageError, match=f"^{objects.url}/stores/run.duckdb is a run store already"):
        ingest(f"{objects.url}/stores/run.duckdb", tmp_path / "other.duckdb")


def test_large_unknown_objects_are_not_downloaded(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.write("rank0.json", trace(0))
    objects.write("model.bin", b"x" * 5_000_000)
    objects.write("big.json", b" " * 2_000_000 + trace(1))
    objects.write("profile.nsys-rep", b"x" * 2_000_000)
    downloaded: list[str] = []
    original = object_stores.Stored.download

    def download(self: object_stores.Stored, info: ObjectInfo, target: Path, **more: object) -> None:
        downloaded.append(info.path)
        original(self, info, target, **more)

    monkeypatch.setattr(object_stores.Stored, "download", download)
    with ingest(objects.url) as store:
        rows = store.frame("SELECT parse_filename(path), bytes, sha256 IS NULL FROM source ORDER BY ALL").rows()
    assert rows[1:] == [("model.bin", 5_000_000, True), ("profile.nsys-rep", 2_000_000, True), ("rank0.json", len(trace(0)), False)]
    assert set(downloaded) <= {"rank0.json", "big.json"}
    assert "rank0.json" in downloaded


def test_what_is_not_there_or_not_usable(objects: Objects, temporary: Path) -> None:
    with pytest.raises(InputError, match=f"^{objects.url}: there is no object of this name, and none below it"):
        ingest(objects.url)
    objects.write("x.bin", b"x")
    with pytest.raises(InputError, match=f"{objects.url}/x.bin: unknown format") as raised:
        ingest(objects.url)
    assert str(temporary) not in str(raised.value)
    objects.write("broken.json", b'{"traceEvents": [')
    with pytest.raises(InputError) as raised:
        ingest(f"{objects.url}/broken.json")
    assert str(temporary) not in str(raised.value)


def test_bounds(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        objects.write(f"{number}.json", trace(number))
    monkeypatch.setattr(fetch, "MOST_OBJECTS", 3)
    with pytest.raises(InputError, match="more than 3 objects, so not one run; give the place of one run"):
        ingest(objects.url)
    monkeypatch.undo()
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(InputError, match=r"4 objects with \d\.\d kB are to be downloaded, but .* has 1\.0 kB free; set TMPDIR"):
        ingest(objects.url)


def test_objects_that_change_or_go_while_they_are_fetched(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("goes.json", "grows.json", "stays.json"):
        objects.write(name, trace(0))
    original = object_stores.Stored.download
    changed: set[str] = set()

    def download(self: object_stores.Stored, info: ObjectInfo, target: Path, **more: object) -> None:
        if info.path not in changed:
            changed.add(info.path)
            if info.path == "goes.json":
                objects.delete(info.path)
            elif info.path == "grows.json":
                objects.write(info.path, trace(1, 5))
        original(self, info, target, **more)

    monkeypatch.setattr(object_stores.Stored, "download", download)
    with ingest(objects.url) as store:
        assert store.frame("SELECT count(*) FROM device_event").item() == 8
        notes = store.frame("SELECT file, severity, message FROM ingest_note").rows()
    assert (f"{objects.url}/goes.json", "warning", "The object was left out: removed since it was listed.") in notes

    def always(self: object_stores.Stored, info: ObjectInfo, target: Path, **more: object) -> None:
        objects.write(info.path, trace(1, 5))
        original(self, info, target, **more)

    monkeypatch.setattr(object_stores.Stored, "download", always)
    with pytest.raises(ChangedError, match="run again when it is written to no more"):
        ingest(objects.url)


def test_names_that_a_folder_cannot_hold_are_left_out_with_a_warning(objects: Objects) -> None:
    objects.write("rank0.json", trace(0))
    objects.write("both", b"an object")
    objects.write("both/rank1.json", trace(1))
    objects.write("x" * 300 + ".json", trace(1))
    with ingest(objects.url) as store:
        notes = store.frame("SELECT message FROM ingest_note WHERE severity = 'warning' ORDER BY message").to_series().to_list()
        assert store.frame("SELECT count(*) FROM device_event").item() == 6
    assert [note for note in notes if "left out" in note] == [
        "The object was left out: a part of the name is longer than 255 bytes.",
        "The object was left out: other objects have this name as their folder.",
    ]


# ------------------------------------------------------------------ the commands, against a real server


@pytest.fixture(scope="module")
def swift() -> Iterator[SwiftServer]:
    with swift_server() as server:
        server.make_bucket("bucket")
        yield server


def postrun(swift: SwiftServer, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-P", "-m", "postrun", *words]
    settings = env | swift.environment(**environment) | {"TMPDIR": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=settings, check=False, timeout=120)


def test_the_commands(swift: SwiftServer, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, swift.environment())
    swift.list_names("bucket", ["runs/7/../../../escaped", "runs/7//x", "runs/7/gone.json", "runs/7/new\nline.json", "runs/7/"])
    objects = open_objects("s3://bucket/runs/7")
    objects.write("rank0.json", trace(0))
    objects.write("ünder/rank 1+%20.json", trace(1))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    done = postrun(swift, temporary, "report", "s3://bucket/runs/7", "-o", str(tmp_path / "out"), "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert [one["path"] for one in report["run"]["sources"]] == [
        "s3://bucket/runs/7/rank0.json",
        "s3://bucket/runs/7/ünder/rank 1+%20.json",
    ]
    notes = json.dumps(report["data_quality"])
    assert "removed since it was listed" in notes
    assert "control character" in notes
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted([*before, "out", "report.json"])
    done = postrun(swift, temporary, "ingest", "s3://bucket/runs/7/rank0.json", "-o", str(tmp_path / "run.duckdb"))
    assert done.returncode == 0, done.stderr
    assert "3 device events" in done.stdout
    for words, environment, code, expected in (
        (["report", "s3://bucket/runs/7"], {"AWS_SECRET_ACCESS_KEY": "wrong"}, 4, "key or secret is wrong"),
        (["ingest", "s4://bucket/nothing"], {}, 2, "not a place that is read"),
    ):
        done = postrun(swift, temporary, *words, **environment)
        assert (done.returncode, done.stdout) == (code, "")
        assert expected in done.stderr
        assert "Traceback" not in done.stderr


def test_a_place_that_is_refused(swift: SwiftServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, swift.environment(AWS_ACCESS_KEY_ID="test:reader", AWS_SECRET_ACCESS_KEY="reading"))
    with pytest.raises(ObjectStoreError, match=r"^s3://bucket/runs/7: no permission"):
        ingest("s3://bucket/runs/7")
