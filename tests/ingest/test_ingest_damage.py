"""Tests that damaged and hostile input gives a store with notes or one clear message, never a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.limits import cut_text

US = 1_700_000_000_000_000


def _trace(count: int = 400) -> bytes:
    events: list[dict[str, Any]] = []
    for i in range(count):
        args = {"device": 0, "stream": 7, "correlation": i, "grid": [1, 1, 1]}
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": US + 10 * i, "dur": 3, "args": args}
        )
        events.append(
            {"ph": "X", "cat": "kernel", "name": f"kernel_{i % 9}", "pid": 0, "tid": 7, "ts": US + 10 * i + 4, "dur": 5.25, "args": args}
        )
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 7, "tid": 7, "ts": US + 10 * i, "dur": 9})
    return json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "traceEvents": events}).encode()


COMPLETE = _trace()
PACKED = gzip.compress(COMPLETE, mtime=0)


def attempt(path: Path) -> Store | None:
    """Check and return a store; None if the input is refused with a message."""
    try:
        store = ingest([path])
    except InputError as error:
        assert path.name in str(error)  # noqa: PT017 - both outcomes are right
        return None
    stored = {table: store.frame(f"SELECT count(*) FROM {table}").item() for table in ("device_event", "host_event", "annotation")}
    assert sum(stored.values()) == store.frame("SELECT sum(events)::BIGINT FROM source").item() > 0
    for table in stored:
        assert store.frame(f"SELECT count(*) FROM {table} WHERE start_ns IS NULL OR duration_ns IS NULL OR duration_ns < 0").item() == 0
        assert store.frame(f"SELECT count(*) FROM {table} WHERE name NOT IN (SELECT id FROM name)").item() == 0
    return store


@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_gzip_cut_anywhere_gives_what_comes_before_and_says_so(tmp_path: Path, tenth: int) -> None:
    path = tmp_path / "cut.json.gz"
    path.write_bytes(PACKED[: len(PACKED) * tenth // 10])
    store = attempt(path)
    assert store is not None
    assert store.frame("SELECT status FROM run").item() == "partial"
    codes = set(store.frame("SELECT code FROM ingest_note WHERE severity = 'warning'").to_series())
    assert {"cut_stream", "truncated"} <= codes
    actual = store.frame("SELECT count(*), max(start_ns) FROM device_event").row(0)
    assert 0 < actual[0] < 400
    assert actual[1] == (US + 10 * (actual[0] - 1) + 4) * 1000  # a prefix without holes


def test_a_gzip_cut_in_its_header_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    path.write_bytes(PACKED[:5])
    with pytest.raises(InputError, match=r"cut\.json\.gz"):
        ingest([path])


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, len(COMPLETE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes_of_text(tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(COMPLETE)
    for position, value in flips:
        damaged[position] = value
    path = tmp_path_factory.mktemp("flip") / "flipped.json"
    path.write_bytes(damaged)
    attempt(path)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, len(PACKED) - 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_flipped_bytes_of_gzip(tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(PACKED)
    for position, value in flips:
        damaged[position] = value
    path = tmp_path_factory.mktemp("flip") / "flipped.json.gz"
    path.write_bytes(damaged)
    attempt(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]),
            JSON
            | st.sampled_from(["X", "B", "E", "kernel", "gpu_memcpy", "cpu_op", "user_annotation", "cuda_runtime", 0, -1, 2**63, 1e300]),
        ),
        max_size=8,
    ),
    st.dictionaries(
        st.sampled_from(["distributedInfo", "deviceProperties", "baseTimeNanoseconds", "host_name", "INFO", "schemaVersion", "x"]),
        JSON
        | st.sampled_from([{"rank": -1}, {"rank": 2**40}, [{"id": 0}, {"id": 0, "name": 5}], 2**80, "", {"rank": "0", "world_size": []}]),
    ),
)
def test_any_json_in_any_place(tmp_path_factory: pytest.TempPathFactory, events: list[Any], members: dict[str, Any]) -> None:
    good = {"ph": "X", "cat": "cpu_op", "name": "good", "pid": 7, "tid": 7, "ts": US, "dur": 1}
    path = tmp_path_factory.mktemp("any") / "any.json"
    path.write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": [*events, good]}), encoding="utf-8")
    assert attempt(path) is not None


def test_hostile_names_and_control_characters(tmp_path: Path) -> None:
    names = [
        "<script>alert(1)</script>",
        "a'; DROP TABLE name; --",
        "\x00\x01\x1b[31m",
        "𝔘\u202e\ufeff",
        "",
        " ",
        "x" * 100_000,
        "%s{0}\\n",
    ]
    events = [{"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": US + i, "dur": 1} for i, name in enumerate(names)]
    events += [{"ph": "X", "cat": name, "name": "x", "pid": name, "tid": name, "ts": US, "dur": 1} for name in names]
    path = tmp_path / "<b> ' \" $(x) \x1b.json"
    path.write_text(json.dumps({"traceEvents": events, "host_name": names[0], names[1]: names[2]}), encoding="utf-8")
    store = ingest([path])
    kernels = store.frame("SELECT n.text FROM device_event d JOIN name n ON n.id = d.name ORDER BY start_ns").to_series().to_list()
    assert kernels == [cut_text(name) for name in names]
    assert store.frame("SELECT hostname FROM node").item() == names[0]


def test_raw_control_characters_and_bad_utf8_in_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(COMPLETE.replace(b"kernel_3", b"ker\x01nel\xff_3").replace(b"kernel_4", b'ker"nel_4'))
    store = attempt(path)
    assert store is not None
    assert store.frame("SELECT count(*) FROM device_event").item() == 400
    codes = set(store.frame("SELECT code FROM ingest_note").to_series())
    assert {"control_character", "invalid_utf8", "bare_quote"} <= codes


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n" + bytes(5000), b"{}", b"[]", b"null", b"{" * 100_000, b"[" * 100_000, bytes(100_000)]
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("a.json", "a.pt.trace.json", "a.json.gz", "job.json"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError):
            ingest([tmp_path / name])
    with pytest.raises(InputError):
        ingest([tmp_path])


def test_a_damaged_file_beside_good_ones_does_not_hide_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(COMPLETE)
    (tmp_path / "b.json.gz").write_bytes(PACKED[: len(PACKED) // 2])
    (tmp_path / "c.json.gz").write_bytes(b"\x1f\x8b" + b"x" * 100)
    (tmp_path / "d.trace.json").write_bytes(b"{not json")
    store = ingest([tmp_path])
    assert store.frame("SELECT events FROM source ORDER BY path").to_series().to_list()[0] == 1200
    assert store.frame("SELECT count(DISTINCT file) FROM ingest_note WHERE severity <> 'info'").item() >= 2


@pytest.mark.parametrize("missing", [1, 40, 5_000])
def test_a_cut_trace_without_compression_makes_the_run_partial(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(COMPLETE[: len(COMPLETE) - missing])
    store = attempt(path)
    assert store is not None
    assert store.frame("SELECT status FROM run").item() == "partial"
    assert "truncated" in set(store.frame("SELECT code FROM ingest_note WHERE severity = 'warning'").to_series())
