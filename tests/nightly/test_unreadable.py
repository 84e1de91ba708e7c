"""A damaged JSON file that hides a run is named with its reason; files of other programs are not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from call_nightly import nightly
from hypothesis import given
from hypothesis import strategies as st
from postrun.nightly.unreadable import reason

VALUE = {"a": [1, 2.5, True, None, "text ä"], "b": {"c": {}}}
TEXT = json.dumps(VALUE, ensure_ascii=False).encode()
PACKED = {"x.json": TEXT, "x.json.gz": gzip.compress(TEXT, mtime=0), "x.json.zst": zstandard.compress(TEXT)}


@pytest.mark.parametrize("name", PACKED)
def test_complete_files_have_no_reason_and_cut_ones_have(name: str) -> None:
    data = PACKED[name]
    assert reason(name, data, True) is None
    assert reason(name, b"", True) == "an empty file"
    for size in range(4, len(data)):
        assert reason(name, data[:size], False) is None, size
        actual = reason(name, data[:size], True)
        assert "ends too early" in (actual or ""), size


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x.json.gz", TEXT, "not compressed by gzip, although its name ends in .gz"),
        ("x.json.zst", TEXT, "not compressed by zstd, although its name ends in .zst"),
        ("x.json.gz", PACKED["x.json.gz"][:10] + b"\xff" * 40, "damaged gzip data"),
        ("x.json.zst", PACKED["x.json.zst"][:6] + b"\xff" * 40, "damaged zstd data"),
        ("x.json", b"\x80\x81\x82 not a text", "not a text in UTF-8"),
        ("x.json", b'{"a": tr', "JSON that ends too early"),
        ("x.json", b'{"a": "tex', "JSON that ends too early"),
        ("x.json.gz", gzip.compress(b'{"a": [1, 2', mtime=0), "JSON that ends too early"),
        # Others' files: lines of JSON, comments, other values, other endings.
        ("log.json", b'{"a": 1}\n{"b": 2', None),
        ("config.json", b"{\n  // a comment\n}", None),
        ("x.json", b"12", None),
        ("x.json", b"[" * 100_000, None),
        ("x.csv", b"", None),
    ],
)
def test_reasons(name: str, data: bytes, expected: str | None) -> None:
    assert reason(name, data, True) == expected


@given(st.binary(max_size=300), st.booleans(), st.sampled_from(["x.json", "x.json.gz", "x.json.zst"]))
def test_any_bytes_have_an_answer(data: bytes, complete: bool, name: str) -> None:
    assert isinstance(reason(name, data, complete), str | None)


def test_a_night_names_damaged_files_that_are_alone_in_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    files = {"cut/x.json": TEXT[:20], "gz/x.json.gz": b"no gzip", "empty/x.json": b"", "other/x.json": TEXT}
    for path, data in files.items():
        (source / path).parent.mkdir(parents=True)
        (source / path).write_bytes(data)
    done = nightly(source, "--out", tmp_path / "out", "--engine", "none", "--settle", "0", "--dry-run")
    assert done.exit_code == 4
    assert done.stderr.splitlines()[1:] == [
        "cut/x.json: JSON that ends too early",
        "empty/x.json: an empty file",
        "gz/x.json.gz: not compressed by gzip, although its name ends in .gz",
    ]
    fresh = nightly(source, "--out", tmp_path / "out", "--engine", "none", "--dry-run")  # files that are being written
    assert (fresh.exit_code, "ends too early" in fresh.stderr) == (0, False)
