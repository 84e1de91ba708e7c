"""A copy of the source or of the output makes no run due; a change does."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import done_markers, places
from postrun.nightly import night as nights
from postrun.nightly.model import ReportOptions, Row, row_of
from postrun.nightly.night import Wanted
from small_s3 import small_s3
from swift_server import clean_environment


def plan(source: Path | str, out: Objects) -> dict[str, str]:
    wanted = Wanted(str(source), out.url, ReportOptions(), now_ns=2**62, settle_ns=0)
    rows = [row_of(json.loads(out.read(file.path))) for file in out.list("runs/")]
    night = nights.plan(open_objects(source), out, wanted, {row.id: row for row in rows})
    return {one.run.id: one.why for one in night.decisions}


def report(source: Path | str, out: Objects) -> None:
    wanted = Wanted(str(source), out.url, ReportOptions(), now_ns=2**62, settle_ns=0)
    digest = places.options_digest(wanted.options)
    for decision in nights.plan(open_objects(source), out, wanted, {}).decisions:
        run = decision.run
        out.write(places.done(run.id), done_markers.marker(Row(run.id, "reported", run.kind, run.fingerprint, digest, 1, 1)))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "x.pt.trace.json").write_text('{"traceEvents": []}')
    return tmp_path / "source"


def test_a_copy_of_the_source_and_of_the_output(source: Path, tmp_path: Path) -> None:
    report(source, open_objects(tmp_path / "out"))
    shutil.copytree(source, tmp_path / "moved" / "source")  # keeps times of writing, as cp -a
    shutil.copytree(tmp_path / "out", tmp_path / "elsewhere", copy_function=shutil.copyfile)
    out = open_objects(tmp_path / "elsewhere")
    assert plan(tmp_path / "moved" / "source", out) == {"a": "unchanged", "b": "unchanged"}
    file = tmp_path / "moved" / "source" / "b" / "x.pt.trace.json"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert plan(tmp_path / "moved" / "source", out) == {"a": "unchanged", "b": "changed"}


def test_a_report_of_an_earlier_version_is_that_of_its_run(source: Path, tmp_path: Path) -> None:
    """Earlier fingerprints also have the inode, from a formula of its own here."""
    out = open_objects(tmp_path / "out")
    report(source, out)
    for name in ("a", "b"):
        at = (source / name / "x.pt.trace.json").stat()
        version = f'"{at.st_ino + (name == "b"):x}-{at.st_size:x}-{at.st_mtime_ns:x}"'
        text = f"{name}/x.pt.trace.json\0{at.st_size}\0{version}\n"
        row = done_markers.read_row(out, name)
        assert row is not None
        out.write(places.done(name), done_markers.marker(replace(row, fingerprint=hashlib.sha256(text.encode()).hexdigest())))
    assert plan(source, out) == {"a": "unchanged", "b": "changed"}


def test_an_object_that_is_replaced_with_one_of_its_size_and_time_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ETags of the listing show it; all objects have one time of writing."""
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    with small_s3("runs") as server:
        clean_environment(monkeypatch, {**keys, "AWS_ENDPOINT_URL": server.endpoint})
        server.buckets["runs"] = {f"{name}/x.pt.trace.json": b'{"traceEvents": []}' for name in "ab"}
        out = open_objects(tmp_path / "out")
        report("s3://runs", out)
        assert plan("s3://runs", out) == {"a": "unchanged", "b": "unchanged"}
        server.buckets["runs"]["b/x.pt.trace.json"] = b'{"traceEvents": {}}'
        assert plan("s3://runs", out) == {"a": "unchanged", "b": "changed"}


def test_a_local_file_that_is_replaced_with_one_of_its_size_and_time_is_not_noticed(source: Path, tmp_path: Path) -> None:
    """As after a copy, from which nothing distinguishes it."""
    out = open_objects(tmp_path / "out")
    report(source, out)
    file = source / "b" / "x.pt.trace.json"
    before = file.stat()
    file.write_text('{"traceEvents": {}}')
    os.utime(file, ns=(0, before.st_mtime_ns))
    assert plan(source, out) == {"a": "unchanged", "b": "unchanged"}
