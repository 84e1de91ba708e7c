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
from postrun.nightly import night as nights
from postrun.nightly import places
from postrun.nightly.model import ReportOptions, Row
from postrun.nightly.night import Wanted


def plan(source: Path, out: Objects) -> dict[str, str]:
    wanted = Wanted(str(source), out.url, ReportOptions(), now_ns=2**62, settle_ns=0)
    rows = [nights.row_of(json.loads(out.read(file.path))) for file in out.list("runs/")]
    night = nights.plan(open_objects(source), out, wanted, {row.id: row for row in rows})
    return {one.run.id: one.why for one in night.decisions}


def report(source: Path, out: Objects) -> None:
    wanted = Wanted(str(source), out.url, ReportOptions(), now_ns=2**62, settle_ns=0)
    digest = places.options_digest(wanted.options)
    for decision in nights.plan(open_objects(source), out, wanted, {}).decisions:
        run = decision.run
        out.write(places.done(run.id), nights.marker(Row(run.id, "reported", run.kind, run.fingerprint, digest, 1, 1)))


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
        row = nights.read_row(out, name)
        assert row is not None
        out.write(places.done(name), nights.marker(replace(row, fingerprint=hashlib.sha256(text.encode()).hexdigest())))
    assert plan(source, out) == {"a": "unchanged", "b": "changed"}
