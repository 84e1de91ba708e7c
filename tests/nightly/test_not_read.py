"""Files that a night leaves out are in the index, also without output, until they are read or gone."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from call_nightly import nightly
from hypothesis import given
from hypothesis import strategies as st
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import not_read
from postrun.nightly.index import Book
from postrun.nightly.not_read import Seen

TRACE = json.dumps({
    "schemaVersion": 1,
    "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1_700_000_000_000_000, "dur": 5}],
}).encode()  # fmt: skip
PACKED = gzip.compress(TRACE, mtime=0)
OPTIONS = ("--engine", "none", "--format", "json", "--settle", "0", "--rules", "StepOutlier", "--fail-on", "regression,error", "--quiet")
LINE = "cut/host_1.json.gz: gzip data that ends too early"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for path, data in {"good/trace.json": TRACE, "cut/host_1.json.gz": PACKED[:12]}.items():
        file = tmp_path / "source" / path
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
    return tmp_path / "source"


def quiet_night(source: Path, *more: str) -> list[str]:
    """Run a night as the crontab does, and return the lines of its index."""
    out = source.parent / "out"
    done = nightly(source, "--out", out, *OPTIONS, *more)
    assert (done.exit_code, done.output) == (0, "")
    left_out: list[str] = json.loads((out / "index.json").read_text())["left_out"]
    page = (out / "index.html").read_text()
    assert ('id="left-out"' in page) == bool(left_out)
    assert re.findall(r"Files that are not read \((\d+)\)", page) == [str(len(left_out))] * bool(left_out)
    return left_out


@pytest.mark.parametrize("repaired", [True, False])
def test_a_quiet_night_lists_a_damaged_file_until_it_is_repaired_or_gone(source: Path, repaired: bool) -> None:
    assert quiet_night(source) == [LINE]
    assert "cut/host_1.json.gz</bdi>" in (source.parent / "out" / "index.html").read_text()
    assert quiet_night(source, "--index-only") == [LINE]
    assert quiet_night(source, "--since", "2d") == [LINE]
    if repaired:
        (source / "cut" / "host_1.json.gz").write_bytes(PACKED)
    else:
        shutil.rmtree(source / "cut")
    assert quiet_night(source, "--shard", "0/2") == [LINE]  # a part does not see the other files
    assert quiet_night(source) == []
    assert quiet_night(source, "--index-only") == []


def test_an_unmounted_source_removes_no_line(source: Path) -> None:
    assert quiet_night(source) == [LINE]
    for folder in list(source.iterdir()):
        shutil.rmtree(folder)
    nightly(source, "--out", source.parent / "out", "--engine", "none", "--quiet")
    assert json.loads((source.parent / "out" / "index.json").read_text())["left_out"] == [LINE]


def test_lines_are_redacted_as_reasons_are(source: Path) -> None:
    link = source / "cut" / "gpu-node-17_1234.1700000000000.pt.trace.json"
    link.symlink_to("host_1.json.gz")
    assert any("gpu-node-17" in line for line in quiet_night(source))
    lines = quiet_night(source, "--redact", "hosts")
    assert [line.partition(": ")[0] for line in lines] == ["cut/host_1.json.gz", "cut/node-2_1234.1700000000000.pt.trace.json"]
    assert "gpu-node-17" not in pl.read_parquet_metadata(source.parent / "out" / "index.parquet")["postrun.left_out"]


def test_a_line_that_only_parts_listed_goes_after_seven_days() -> None:
    assert not_read.merged({"a: x": 1, "b: x": 5}, Seen(("c: x",)), 10, 1) == {"b: x": 5, "c: x": 10}
    assert not_read.merged({"a: x": 99}, Seen(), 10, 1) == {"a: x": 10}  # a clock that was ahead keeps no line for ever
    assert not_read.merged({"a: x": 5}, Seen(("a: x",)), 10, 1) == {"a: x": 10}
    assert not_read.merged({"a: x": 5}, Seen((), everything=True), 10, 1) == {}
    listed_lines = Seen(tuple(f"{number:06}: {'x' * 5000}" for number in range(20_000)))
    lines = not_read.merged({}, listed_lines, 10, 1)
    assert (len(lines), max(map(len, lines))) == (10_000, 1000)
    assert not_read.decoded(not_read.encoded(lines)) == lines


@pytest.mark.parametrize(
    "text",
    ["", "null", "{", "[1]", '[["a"]]', '[["a", 1, 2]]', '[["a", true]]', '[["a", 1.5]]', '[["a", null]]', "[[1, 1]]", "[[[], 1]]",
     "[" * 100_000, json.dumps([["x" * 1001, 1]]), json.dumps([[f"{number}", 1] for number in range(10_001)]), f'[["a", {"9" * 5000}]]'],
)  # fmt: skip
def test_lines_that_no_night_wrote_count_as_none(text: str) -> None:
    assert not_read.decoded(text) == {}


@given(st.dictionaries(st.text(max_size=20), st.integers(0, 2**63), max_size=5))
def test_lines_are_read_as_they_were_written(lines: dict[str, int]) -> None:
    assert not_read.decoded(not_read.encoded(lines)) == lines


def test_the_page_shows_texts_of_others_as_texts(tmp_path: Path) -> None:
    out, book = open_objects(tmp_path), Book()
    lines = tuple(sorted(["<script>alert(1)</script>: <b>\udc80", *(f"file{number}: cut" for number in range(7))]))
    book.write(out, book.known(out), seen=Seen(lines))
    page = (tmp_path / "index.html").read_text()
    assert "<script>alert(1)" not in page
    assert "3 more; all are in" in page
    assert len(json.loads((tmp_path / "index.json").read_text())["left_out"]) == 8


@pytest.mark.parametrize("content", [b"", b"PAR1 not a table PAR1"])
def test_a_damaged_index_is_named_and_replaced(source: Path, content: bytes) -> None:
    out = source.parent / "out"
    assert quiet_night(source) == [LINE]
    (out / "index.parquet").write_bytes(content)
    note = f"note: {out}/index.parquet: not as this version of postrun nightly writes it, so the next index replaces it unread"
    done = nightly(source, "--out", out, "--engine", "none", "--index-only")
    assert done.stderr.splitlines().count(note) == 1
    assert nightly(source, "--out", out, "--engine", "none", "--index-only").stderr.count("index.parquet: not as") == 0
