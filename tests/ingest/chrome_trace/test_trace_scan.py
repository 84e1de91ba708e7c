"""Tests of the trace scanners: every layout exactly, repairs, damage, limits, and agreement with the oracle on any text."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.chrome_trace import batches as trace_batches
from postrun.ingest.chrome_trace import scan as trace_scan
from postrun.ingest.chrome_trace.defect import Defect
from postrun.ingest.chrome_trace.scan import Arg, Batch, Scanner, TraceScan, have_native, text_id
from postrun.ingest.chrome_trace.scan_python import PythonScanner
from postrun.ingest.chrome_trace.values import decode_value
from postrun.ingest.kineto import reader as kineto
from postrun.ingest.store.limits import LEFT_OUT, cut_text
from trace_scan_oracle import OracleScanner, scaled_int
from trace_scan_oracle import decode_value as oracle_value

ARGS = {
    "correlation": Arg("correlation", "int"),
    "External id": Arg("external_id", "int"),
    "external id": Arg("external_id", "int"),
}
SPARSE_ARGS = {"label": Arg("label", "text"), "cell": Arg("cell", "int3")}
WIDE_ARGS = {"grid": Arg("grid", "int3"), "kind": Arg("kind", "text")}
PARTS = ("sizes", "stack")

needs_native = pytest.mark.skipif(not have_native(), reason="installed without the C extension")
all_scanners = pytest.mark.parametrize(
    "scanner",
    [pytest.param(None, id="C", marks=needs_native), pytest.param(OracleScanner, id="oracle"), pytest.param(PythonScanner, id="Python")],
)
repairing_scanners = pytest.mark.parametrize(
    "scanner", [pytest.param(None, id="C", marks=needs_native), pytest.param(OracleScanner, id="oracle")]
)
MakeScanner = Callable[..., Scanner] | None


@dataclass
class Read:
    """Return the results of a scan, with texts instead of string ids."""

    rows: list[dict[str, Any]]
    strings: list[str]
    metadata: list[tuple[int, Any]]
    members: dict[str, Any]
    counts: dict[tuple[str, str], int]
    defects: list[Defect]
    tables: tuple[pa.Table, pa.Table]
    combinations: list[tuple[str | None, ...]]

    @property
    def codes(self) -> dict[str, int]:
        return {d.code: d.count for d in self.defects}

    def same(self, right: Read) -> bool:
        parts = ("strings", "counts", "defects", "combinations")
        return (
            all(getattr(self, part) == getattr(right, part) for part in parts)
            and repr((self.metadata, self.members)) == repr((right.metadata, right.members))  # repr: NaN is not NaN
            and all(a.equals(b) for a, b in zip(self.tables, right.tables, strict=True))
        )


def read(text: bytes | str, *, scanner: MakeScanner = None, cuts: Iterator[int] | None = None, **options: Any) -> Read:
    data = text.encode() if isinstance(text, str) else text
    scan = TraceScan(
        args=ARGS, sparse_args=SPARSE_ARGS, wide_args=WIDE_ARGS, wide_categories={"kernel"}, parts=PARTS, scanner=scanner, **options
    )
    batches = []
    at = 0
    while at < len(data):
        size = next(cuts) if cuts else len(data)
        scan.feed(data[at : at + size])
        at += size
        if size > 50:
            batches.append(scan.take())
    scan.finish()
    batches.append(scan.take())
    events = pa.concat_tables([with_sparse(b) for b in batches]).combine_chunks()
    wide = pa.Table.from_batches([b.wide for b in batches]).combine_chunks()
    strings = [s for b in batches for s in b.strings]
    combinations = [c for b in batches for c in b.combinations]
    rows = sorted(events.to_pylist() + wide.to_pylist(), key=lambda row: row["ordinal"])
    for row in rows:
        row["phase"] = chr(row["phase"])
        for column in ("category", "name", "label", "kind"):
            if row.get(column) is not None:
                row[column] = strings[row[column]]
        for column in ("pid", "tid"):
            if row[column] is not None and text_id(row[column]) is not None:
                row[column] = strings[text_id(row[column]) or 0]
    metadata = [m for b in batches for m in b.metadata]
    defects = [d for d in scan.defects if d.code != "no_extension"]
    assert (len(defects) < len(scan.defects)) == (scanner is PythonScanner or (scanner is None and not have_native()))
    return Read(rows, strings, metadata, scan.members, scan.event_counts, defects, (events, wide), combinations)


def with_sparse(batch: Batch) -> pa.Table:
    """Return the events with their sparse arguments, and whether they have such."""
    places = {row: i for i, row in enumerate(batch.sparse["row"].to_pylist())}
    at = pa.array([places.get(row) for row in range(batch.events.num_rows)], pa.int64())
    table = pa.Table.from_batches([batch.events])
    for name in batch.sparse.schema.names[1:]:
        table = table.append_column(name, batch.sparse[name].take(at))
    return table.append_column("sparse", at.is_valid())


def random_cuts(seed: int, largest: int = 60) -> Iterator[int]:
    source = random.Random(seed)
    while True:
        yield source.randint(1, largest)


def event(**changes: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10, "dur": 5, "args": {}} | changes


def number_text(text: str) -> Any:
    """Stands for a number in json.dumps, to be written as this very text by `written`."""
    return f"\x01{text}\x01"


def written(document: Any, **layout: Any) -> str:
    return json.dumps(document, **layout).replace('"\\u0001', "").replace('\\u0001"', "")


def native_layout(events: list[Any]) -> str:
    body = ",\n".join("  " + written(e).replace('"args": {', '\n    "args": {\n      ') for e in events)
    return '\n{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + body + '\n  ],\n  "traceName": "a]b.json"\n}\n'


LAYOUTS: dict[str, Callable[[list[Any]], str]] = {
    "native": native_layout,
    "one line": lambda events: written({"traceEvents": events, "displayTimeUnit": "ms"}),
    "no white space": lambda events: written({"a": 1, "traceEvents": events}, separators=(",", ":")),
    "indent": lambda events: written({"a": {"traceEvents": None}, "traceEvents": events, "z": [1, "]"]}, indent=2),
    "array": lambda events: written(events),
    "array without end": lambda events: written(events, indent=1)[:-1].rstrip() + (",\n" if events else ""),
    "byte order mark": lambda events: "\ufeff" + written({"traceEvents": events}),
    "not ASCII": lambda events: written({"traceEvents": events}, ensure_ascii=False),
}


# ------------------------------------------------------------------------------------------------ exact values


@all_scanners
@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1712195495519689.047", 1712195495519689047),
        ("1712195495519689.0479", 1712195495519689047),
        ("1712195495519689", 1712195495519689000),
        ("-0.0019", -1),
        ("-1.9999", -1999),
        ("0.0009", 0),
        ("1.5e3", 1500000),
        ("15E-1", 1500),
        ("1e15", 10**18),
        ("9223372036854775.807", 2**63 - 1),
        ("-9223372036854775.807", -(2**63) + 1),
        ("123456789012345678901234567890e-20", 1234567890123),
        ("0e99999999999999999999", 0),
        ("1e-99999999999999999999", 0),
        ('"1712195495519689.047"', 1712195495519689047),
        ('" 12.5 "', 12500),
    ],
)
def test_timestamps_are_exact_to_the_nanosecond(ts: str, expected: int, scanner: MakeScanner) -> None:
    got = read(f'[{{"ph":"X","ts":{ts},"dur":{ts}}}]', scanner=scanner)
    assert [(r["start_ns"], r["duration_ns"]) for r in got.rows] == [(expected, expected)]
    assert got.defects == []


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None), st.sampled_from(["{}", "{:f}", "{:E}"]))
def test_numbers_agree_with_decimal(number: Decimal, layout: str) -> None:
    text = layout.format(number)
    if len(text) > 400:
        return
    exact = int(Decimal(text).scaleb(3)) if Decimal(text).adjusted() < 30 else 10**30
    expected = exact if -(2**63) < exact < 2**63 else None
    assert scaled_int(text, 3) == expected
    rows = read(f'[{{"ph":"X","ts":0,"dur":{text}}}]').rows
    assert rows[0]["duration_ns"] == expected


@all_scanners
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7), ("-7.9", -7), ("7.9", 7), ("true", 1), ("false", 0), ("null", None), ('"12"', 12), ('" 12 "', 12), ('"0x1F"', 31),
        ('"twelve"', None), ('""', None), ("[1]", None), ("{}", None), ("1e3", 1000), ("9223372036854775807", 2**63 - 1),
        ('"0x7fffffffffffffff"', 2**63 - 1),
    ],
)  # fmt: skip
def test_integer_arguments(value: str, expected: int | None, scanner: MakeScanner) -> None:
    got = read(f'[{{"ph":"X","ts":0,"args":{{"correlation":{value}}}}}]', scanner=scanner)
    assert got.rows[0]["correlation"] == expected
    assert got.defects == []


@all_scanners
@pytest.mark.parametrize(
    ("value", "expected"),
    [("7.50", "7.50"), ("true", "true"), ("null", None), ('"a\\u00e9\\n"', "aé\n"), ('[1, "é"]', '[1, "é"]'), ('{"a": 1}', '{"a": 1}')],
)
def test_text_arguments(value: str, expected: str | None, scanner: MakeScanner) -> None:
    got = read(f'[{{"ph":"X","ts":0,"args":{{"label":{value}}}}}]', scanner=scanner)
    assert got.rows[0]["label"] == expected


@all_scanners
@pytest.mark.parametrize(
    ("value", "expected"),
    [("[1,2,3]", (1, 2, 3)), ("[1]", (1, None, None)), ('["4", [9, 9], 5, 6]', (4, None, 5)), ("7", (None,) * 3), ("[]", (None,) * 3)],
)
def test_triple_arguments(value: str, expected: tuple[int | None, ...], scanner: MakeScanner) -> None:
    got = read(f'[{{"ph":"X","cat":"kernel","ts":0,"args":{{"grid":{value}}}}}]', scanner=scanner)
    assert tuple(got.rows[0][f"grid_{axis}"] for axis in "xyz") == expected


@all_scanners
def test_keys_may_share_a_column_and_the_last_counts(scanner: MakeScanner) -> None:
    got = read('[{"ph":"X","ts":1,"args":{"External id":1,"external id":2}},{"ts":2,"ph":"B","args":{"external id":3}}]',
               scanner=scanner)  # fmt: skip
    assert [r["external_id"] for r in got.rows] == [2, 3]


@all_scanners
def test_processes_and_threads_may_be_texts(scanner: MakeScanner) -> None:
    names = ["Spans", "", "stream 7", "12", "0x10", 5, None, 1.0, "99999999999999999999"]
    got = read(written([event(pid=name, tid=name) for name in names]), scanner=scanner)
    assert [r["pid"] for r in got.rows] == ["Spans", "", "stream 7", 12, 16, 5, None, 1, "99999999999999999999"]
    assert [r["pid"] for r in got.rows] == [r["tid"] for r in got.rows]
    assert got.defects == []


@all_scanners
def test_wide_events_stand_apart_with_their_place_in_the_file(scanner: MakeScanner) -> None:
    events = [event(), event(cat="kernel", args={"grid": [4, 5, 6], "correlation": 9}), event(ph="B"), event(ph="i"), event(ph="E")]
    got = read(written(events), scanner=scanner)
    plain, wide = got.tables
    assert plain["ordinal"].to_pylist() == [0, 2, 3]
    assert wide["ordinal"].to_pylist() == [1]
    columns = [name for name in plain.column_names if name not in ("sparse", "combination")]
    assert wide.column_names == [*columns, "grid_x", "grid_y", "grid_z", "kind", "combination"]
    assert got.rows[1]["grid_y"] == 5
    assert got.rows[1]["correlation"] == 9
    assert got.counts == {("X", "cpu_op"): 1, ("X", "kernel"): 1, ("B", "cpu_op"): 1, ("i", "cpu_op"): 1, ("E", "cpu_op"): 1}


@all_scanners
def test_instants_of_wide_categories_are_read_and_of_others_not(scanner: MakeScanner) -> None:
    events = [
        event(ph="i", cat="kernel", name="here", args={"kind": "k", "correlation": 3}), event(ph="i", cat="kernel", ts=None),
        event(ph="i"), event(ph="I", cat="kernel"), event(ph="i", cat=None), event(),
    ]  # fmt: skip
    got = read(written(events), scanner=scanner)
    plain, wide = got.tables
    assert (wide["phase"].to_pylist(), wide["ordinal"].to_pylist(), wide["correlation"].to_pylist()) == ([ord("i")], [0], [3])
    assert (plain["ordinal"].to_pylist(), got.defects) == ([1], [])


@all_scanners
def test_metadata_events_know_how_many_events_came_before(scanner: MakeScanner) -> None:
    base = {"ph": "M", "name": "process_name", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1594662605425850}}
    got = read(written([base, event(), event(ph="C"), base | {"pid": 1}]), scanner=scanner)
    assert got.metadata == [(0, base), (1, base | {"pid": 1})]


@all_scanners
def test_members_before_and_after_the_events(scanner: MakeScanner) -> None:
    document = {
        "distributedInfo": {"rank": 3, "pg_config": [{"ranks": list(range(300))}] * 10},
        "traceEvents": [event()],
        "baseTimeNanoseconds": 1727712360000000001,
        "INFO": ["Out-of-range = 4 ]}"],
        "x": 1.5,
    }
    got = read(written(document), scanner=scanner)
    assert got.members == {k: v for k, v in document.items() if k != "traceEvents"}
    assert len(got.rows) == 1


def test_string_ids_run_on_over_batches() -> None:
    events = [event(name=f"op {i % 7}", cat="é" * (i % 3)) for i in range(400)]
    got = read(written(events), cuts=random_cuts(1, 3000))
    assert [r["name"] for r in got.rows] == [e["name"] for e in events]
    assert [r["category"] for r in got.rows] == [e["cat"] for e in events]
    assert len(got.strings) == len(set(got.strings))


@all_scanners
def test_sparse_arguments_have_the_row_of_their_event(scanner: MakeScanner) -> None:
    scan = TraceScan(args=ARGS, sparse_args=SPARSE_ARGS, wide_args=WIDE_ARGS, wide_categories={"kernel"}, scanner=scanner)
    arguments = ({"label": "a"}, {"correlation": 1}, {"cell": [1, 2], "correlation": 2}, {}, {"label": None})
    scan.feed(written([event(args=args, cat=category) for args in arguments for category in ("kernel", "cpu_op")]).encode())
    scan.finish()
    batch = scan.take()
    assert batch.events["ordinal"].to_pylist() == [1, 3, 5, 7, 9]
    assert batch.wide["ordinal"].to_pylist() == [0, 2, 4, 6, 8]
    assert batch.sparse.drop_columns(["label"]).to_pylist() == [
        {"row": 0, "cell_x": None, "cell_y": None, "cell_z": None},
        {"row": 2, "cell_x": 1, "cell_y": 2, "cell_z": None},
        {"row": 4, "cell_x": None, "cell_y": None, "cell_z": None},
    ]
    assert [label if label is None else batch.strings[label] for label in batch.sparse["label"].to_pylist()] == ["a", None, None]


@all_scanners
def test_texts_of_parts_together_have_one_id(scanner: MakeScanner) -> None:
    """Equal parts are one combination in every batch.

    Parts do not count as strings, and no event becomes sparse because of them."""
    arguments = (
        {"sizes": [[2, 3], []], "stack": "a.py(1): f"}, {"stack": "a.py(1): f", "sizes": [[2, 3], []]}, {"sizes": [[2, 3], []]},
        {"stack": ""}, {"sizes": None, "stack": None}, {}, {"sizes": 4, "stack": True}, {"sizes": "\u00e9\n", "stack": ["\u00e9"]},
    )  # fmt: skip
    got = read(written([event(args=args, cat=cat) for args in arguments for cat in ("kernel", "cpu_op")]), scanner=scanner)
    texts = [None if row["combination"] is None else got.combinations[row["combination"]] for row in got.rows]
    first = json.dumps(arguments[0]["sizes"])
    assert texts[::2] == texts[1::2]
    assert texts[::2] == [
        (first, "a.py(1): f"), (first, "a.py(1): f"), (first, None), (None, ""), None, None, ("4", "true"), ("é\n", json.dumps(["é"])),
    ]  # fmt: skip
    assert len(set(got.combinations)) == len(got.combinations) == 5
    assert not {text for parts in got.combinations for text in parts} & set(got.strings)
    assert {row["sparse"] for row in got.rows if row["category"] == "cpu_op"} == {False}


@all_scanners
def test_combinations_beyond_the_limit_have_no_id(scanner: MakeScanner) -> None:
    events = [event(name="n", args={"sizes": [i % 5], "stack": "s" * 9}) for i in range(10)]
    for limits in ({"string_limit": 3}, {"total_limit": 3 * (2 * 4 + 3 + 9)}):
        got = read(json.dumps(events), scanner=scanner, **limits)
        assert [row["combination"] for row in got.rows] == [0, 1, 2, None, None] * 2
        assert got.codes["combination_left_out"] == 4
    got = read(json.dumps([event(args={"stack": "é" * 200})] * 2), scanner=scanner, text_limit=128)
    assert got.combinations == [(None, cut_text("é" * 200, 128))]
    assert got.codes == {"text_cut": 2}


# ------------------------------------------------------------------------------------------------ layouts


characters = st.characters(exclude_characters="\x01", exclude_categories=["Cs"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(characters, max_size=12) | st.floats(-1e6, 1e6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(characters, max_size=6), inner, max_size=3),
    max_leaves=6,
)
times = st.decimals(-(10**15), 10**15, places=3).map(str)
events_strategy = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "B", "E", "i", "M", "s"]), "ts": times.map(number_text)},
        optional={
            "cat": st.sampled_from(["kernel", "cpu_op"]),
            "name": st.text(characters, max_size=20),
            "pid": st.integers(0, 2**40) | st.sampled_from(["Spans", "3"]),
            "tid": st.integers(0, 9),
            "dur": times.map(number_text),
            "other": json_values,
            "args": st.dictionaries(
                st.sampled_from(["correlation", "External id", "label", "cell", "grid", "ü", *PARTS]), json_values, max_size=5
            ),
        },
    ),
    max_size=6,
)


@needs_native
@given(events_strategy, st.sampled_from(sorted(LAYOUTS)), st.integers(0, 2**32))
def test_every_layout_gives_what_json_gives(events: list[Any], layout: str, seed: int) -> None:
    text = LAYOUTS[layout](events)
    complete = read(text)
    assert complete.defects == []
    expected = [e for e in events if e["ph"] in ("X", "B", "E") or (e["ph"] == "i" and e.get("cat") == "kernel")]
    assert [r["start_ns"] for r in complete.rows] == [int(Decimal(e["ts"].strip("\x01")).scaleb(3)) for e in expected]
    assert [r["name"] for r in complete.rows] == [e.get("name") for e in expected]
    assert sum(complete.counts.values()) == len(events)
    assert read(text, cuts=random_cuts(seed)).same(complete)
    assert read(text, scanner=OracleScanner).same(complete)
    assert read(text, scanner=OracleScanner, cuts=random_cuts(seed, 200)).same(complete)
    assert read(text, scanner=PythonScanner).same(complete)
    assert read(text, scanner=PythonScanner, cuts=random_cuts(seed, 200)).same(complete)


@all_scanners
def test_long_nested_arguments(scanner: MakeScanner) -> None:
    deep = [[1, 2], [3]] * 3000
    text = written({"traceEvents": [event(args={"Input Dims": deep, "correlation": 1, "label": "]}{["}), event()]})
    got = read(text, scanner=scanner)
    assert [r["correlation"] for r in got.rows] == [1, None]
    assert got.rows[0]["label"] == "]}{["
    assert got.defects == []


@repairing_scanners
@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", {"empty": 1}),
        (" \n", {"empty": 1}),
        ("\ufeff", {"empty": 1}),
        ("this is no trace", {"not_json": 1}),
        ("[2026-01-01 INFO] started", {"not_json": 1}),
        ("\x00" * 400, {"not_json": 1}),
        ("{}", {}),
        ("[]", {}),
        ('{"traceEvents": []}', {}),
        ('{"traceEvents": [null, 1, "x", [2], {}, {"name": "a"}, {"ph": 1}]}', {"not_an_event": 4, "no_phase": 3}),
        ('{"traceEvents": [{"ph":"X","ts":null},{"ph":"X"},{"ph":"E","ts":"soon"}]}', {"no_timestamp": 3}),
        ('{"traceEvents": [{"ph":"X","ts":1e30}]}', {"no_timestamp": 1, "number_out_of_range": 1}),
        ('{"traceEvents": null}', {"broken_member": 1}),
        ('{"a": 1', {"truncated": 1, "lost_bytes": 6, "broken_member": 1}),
        ('{"a": 1} and more', {"trailing_garbage": 8}),
    ],
)
def test_texts_without_a_row(text: str, codes: dict[str, int], scanner: MakeScanner) -> None:
    got = read(text, scanner=scanner)
    assert got.rows == []
    assert got.codes == codes


# ------------------------------------------------------------------------------------------------ repairs

GOOD = '{"ph":"X","ts":1,"name":"good"}'


@repairing_scanners
@pytest.mark.parametrize(
    ("name", "expected", "code"),
    [
        ('"a\nb\x07"', "a\nb\x07", {"control_character": 2}),
        (r'"C:\Users\x"', r"C:\Users\x", {"invalid_escape": 2}),
        ('"C:\\dir\\"', "C:\\dir\\", {"invalid_escape": 2}),
        (r'"\u12"', r"\u12", {"invalid_escape": 1}),
        (b'"a\xff\xe2\x82b"', "a\ufffd\ufffdb", {"invalid_utf8": 2}),
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd", {"invalid_utf8": 3}),
        (r'"\ud83dx\ude00"', "\ufffdx\ufffd", {"lone_surrogate": 2}),
        (r'"\ud83d\ude00"', "😀", {}),
        ("N/A", None, {"bare_word": 1}),
        ("NaN", None, {"bare_word": 1}),
        ("Infinity", None, {"bare_word": 1}),
        ("nan", None, {"bare_word": 1}),
        ("", None, {"empty_value": 1}),
        ('"say "hi" to"', 'say "hi" to', {"bare_quote": 2}),
        ('"f({"a": 1}, "b")"', 'f({"a": 1}, "b")', {"bare_quote": 4}),
        ('"x["y"]z"', 'x["y"]z', {"bare_quote": 2}),
    ],
)
def test_repaired_values(name: str | bytes, expected: str | None, code: dict[str, int], scanner: MakeScanner) -> None:
    raw = name.encode() if isinstance(name, str) else name
    text = b'[{"ph":"X","ts":1,"args":{"label":' + raw + b', "correlation":8},"name":' + raw + b',"tid":4},' + GOOD.encode() + b"]"
    got = read(text, scanner=scanner)
    assert [(r["name"], r["label"], r["correlation"], r["tid"]) for r in got.rows] == [
        (expected, expected, 8, 4),
        ("good", None, None, None),
    ]
    assert got.codes == {k: 2 * v for k, v in code.items()}
    for seed in range(20):
        assert read(text, scanner=scanner, cuts=random_cuts(seed, 20)).same(got)


@repairing_scanners
@pytest.mark.parametrize(
    ("text", "rows", "codes"),
    [
        (f"[{GOOD},{GOOD},]", 2, {"trailing_comma": 1}),
        (f"[{GOOD},,{GOOD}]", 2, {"trailing_comma": 1}),
        ('[{"ph":"X","ts":1,},{"ph":"X","ts":2,"args":{"grid":[1,2,],"label":"a",},}]', 2, {"trailing_comma": 4}),
        (f"[{GOOD} {GOOD}{GOOD}]", 3, {"missing_comma": 2}),
        (f"[{GOOD},{GOOD[:-9]}", 1, {"truncated": 1, "lost_bytes": len(GOOD) - 9}),
        (f'{{"traceEvents":[{GOOD},{GOOD}', 2, {"truncated": 1}),
        (f'{{"traceEvents":[{GOOD},{GOOD}]', 2, {"truncated": 1}),
        (f'[{GOOD},{{"ph":"X" "ts":5}},{GOOD}]', 2, {"lost_event": 1, "lost_bytes": 18}),
        (f'[{GOOD},x"ph":"X","ts":5}},{GOOD}]', 2, {"lost_event": 1, "lost_bytes": 18}),
        (f'[{GOOD},{{"ph":"X","ts":5,{GOOD}]', 2, {"lost_event": 1, "lost_bytes": 17}),
        (f'[{GOOD},{{"ph":"X","ts":5,"name":"open}},{GOOD}]', 2, {"lost_event": 1, "lost_bytes": 31}),
        (f"~{GOOD},{GOOD}]", 2, {"lost_event": 1, "lost_bytes": 1}),
        (f"[{GOOD}] {GOOD}]", 2, {"trailing_garbage": 1}),
        (f'{{"a": {{"b": 1 2}}, "traceEvents": [{GOOD}]}}', 1, {"broken_member": 1, "lost_bytes": 17}),
        (f'{{"traceEv\xffnts": [{GOOD},{GOOD}], "a": 1}}', 2, {"broken_member": 1}),
        (f'{{"a": tru\x00, "c": 3, "traceEvents": [{GOOD}], "d": 4}}', 1, {"broken_member": 1, "lost_bytes": 19}),
    ],
)
def test_repaired_structure(text: str, rows: int, codes: dict[str, int], scanner: MakeScanner) -> None:
    got = read(text, scanner=scanner)
    assert len(got.rows) == rows
    assert got.codes == codes
    for seed in range(20):
        assert read(text, scanner=scanner, cuts=random_cuts(seed, 20)).same(got)


@repairing_scanners
def test_a_defect_says_where_and_what(scanner: MakeScanner) -> None:
    text = f'[{GOOD}, {{"ph": "X", "ts": 1, "dur": N/A}}, {{\'ph\': 1}}, {GOOD}]'
    got = read(text, scanner=scanner)
    assert got.defects == [
        Defect("bare_word", 1, text.index("N/A"), "N/A}"),
        Defect("lost_bytes", len("{'ph': 1}, "), text.index("{'"), "{"),
        Defect("lost_event", 1, text.index("{'"), "{"),
    ]


@repairing_scanners
def test_broken_members_keep_their_text(scanner: MakeScanner) -> None:
    got = read(f'{{"good": {{"path": "C:\\Users"}}, "bad": {{"a": 1 "b": 2}}, "traceEvents": [{GOOD}], "x": [1,]}}', scanner=scanner)
    assert got.members == {"good": {"path": "C:\\Users"}, "bad": '{"a": 1 ', "x": [1]}
    assert len(got.rows) == 1


@repairing_scanners
def test_too_long_and_too_deep_events_are_lost_alone(scanner: MakeScanner) -> None:
    long = event(args={"x": "y" * 3000})
    text = written([event(), long, event(), event(args={"x": json.loads("[" * 300 + "]" * 300)}), event()])
    got = read(text, scanner=scanner, event_limit=2000)
    assert len(got.rows) == 3
    assert got.codes["too_long"] == 1
    assert got.codes["too_deep"] == 1
    assert got.codes["lost_event"] == 2


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"a": NaN, "b": 1.5, "c": 12, "d": true}', {"a": None, "b": 1.5, "c": 12, "d": True}),
        (b'{"a": "x\ny\\q", "b": [1,2,]}', {"a": "x\ny\\q", "b": [1, 2]}),
        (b'"\\ud800"', "\ufffd"),
        (b"9" * 5000, "9" * 5000),
        (b"no value at all", "no value at all"),
        (b"[" * 100000, "[" * 100000),
    ],
)
def test_members_are_decoded_tolerantly(raw: bytes, expected: Any) -> None:
    assert decode_value(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"args": {"name": "Mat_"ph":"M"_0"}}', {"args": {"name": 'Mat_"ph":"M"_0'}}),
        (b'[{"name":"NVIDIA "H100", SXM","numSms":132}]', [{"name": 'NVIDIA "H100", SXM', "numSms": 132}]),
        (b'{"a": {"b": "x"} y"}}', {"a": {"b": 'x"} y'}}),
        (b"[1,,2]", [1, None, 2]),
        (b"[01, 1., .5, +1, nan]", [1, 1.0, 0.5, 1, None]),
    ],
)
def test_damaged_members_are_repaired(raw: bytes, expected: Any) -> None:
    assert decode_value(raw) == expected
    assert oracle_value(raw) == expected


PIECES = (b'"', b"name", *rb'\ , { } [ ] : a "name": 1 .5 \ud83d\ude00 \udc00 "ph":"X" nan'.split(), b"\xff", b" ")


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=20).map(b"".join))
def test_any_member_is_decoded_as_by_the_oracle(raw: bytes) -> None:
    assert repr(decode_value(raw)) == repr(oracle_value(raw))


# ------------------------------------------------------------------------------------------------ any damage

STRUCTURE = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\n",
    b"\xff",
    b"N/A",
    b'\\"',
    b'{"ph":',
    b'"traceEvents": [',
    b"1e400",
    b"\\ud83d",
]


def damaged(text: bytes, source: random.Random, places: int) -> bytes:
    data = bytearray(text)
    for _ in range(places):
        at = source.randrange(len(data))
        match source.randrange(4):
            case 0:
                data[at] = source.randrange(256)
            case 1:
                data[at : at + 1] = source.choice(STRUCTURE)
            case 2:
                del data[at : at + source.choice((1, 1, 3, 40))]
            case _:
                data[at:at] = source.choice(STRUCTURE)
    return bytes(data)


@needs_native
@given(events_strategy.filter(bool), st.sampled_from(sorted(LAYOUTS)), st.integers(0, 2**32), st.integers(1, 6))
def test_both_scanners_agree_on_damaged_text(events: list[Any], layout: str, seed: int, places: int) -> None:
    text = damaged(LAYOUTS[layout](events).encode(), random.Random(seed), places)
    limit = random.Random(seed).choice([200, 16 << 20])
    complete = read(text, event_limit=limit)
    assert read(text, scanner=OracleScanner, event_limit=limit).same(complete)
    assert read(text, cuts=random_cuts(seed), event_limit=limit).same(complete)


@needs_native
@given(st.binary(max_size=300) | st.text('{}[]",:\\ntrue0e-"phtsX \n', max_size=120).map(str.encode), st.integers(0, 2**32))
def test_both_scanners_agree_on_any_bytes(text: bytes, seed: int) -> None:
    complete = read(text)
    assert read(text, scanner=OracleScanner).same(complete)
    assert read(text, cuts=random_cuts(seed, 10)).same(complete)


@needs_native
@given(
    st.lists(st.integers(0, 5), min_size=4, max_size=40),
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(0, 2**32),
    st.integers(0, 6),
)
def test_both_scanners_agree_on_repeated_layouts(order: list[int], layout: str, seed: int, places: int) -> None:
    kinds = [
        event(args={"External id": 12345678, "Ev Idx": 0, "correlation": 7}),
        event(ph="s", id=4, cat="ac2g", args={}),
        event(cat="kernel", args={"grid": [4, 106, 1], "correlation": 99, "kind": "K", "label": "l"}),
        event(name='"quoted", "tid": 3, ', tid="stream 7", args={"label": "a", "cell": [1, 2, 3]}),
        {"name": "last", "cat": "cpu_op", "ts": 1712195495519689.047, "ph": "B", "tid": -1, "args": {"correlation": 1e3, "label": [1]}},
        {"ph": "M", "name": "process_name", "args": {"name": "python", "correlation": 1}},
    ]
    events = [kinds[number] | {"dur": i * 1.5} for i, number in enumerate(order)]
    text = damaged(LAYOUTS[layout](events).encode(), random.Random(seed), places)
    complete = read(text)
    assert read(text, scanner=OracleScanner).same(complete)
    assert read(text, cuts=random_cuts(seed)).same(complete)


# ------------------------------------------------------------------------------------------------ without the extension


def refused_or_same(text: bytes, **options: Any) -> None:
    """Assert that the fallback scanner refuses damaged text or else reads all of it."""
    with suppress(InputError):
        assert read(text, scanner=PythonScanner, **options).same(read(text, scanner=OracleScanner, **options))


@given(events_strategy.filter(bool), st.sampled_from(sorted(LAYOUTS)), st.integers(0, 2**32), st.integers(1, 6))
def test_damage_is_refused_without_the_extension(events: list[Any], layout: str, seed: int, places: int) -> None:
    refused_or_same(damaged(LAYOUTS[layout](events).encode(), random.Random(seed), places))


@given(st.binary(max_size=300) | st.text('{}[]",:\\ntrue0e-"phtsX \n', max_size=120).map(str.encode))
def test_any_bytes_are_refused_or_read_without_the_extension(text: bytes) -> None:
    refused_or_same(text)


@pytest.mark.parametrize(
    "text",
    [
        "this is no trace",
        '{"traceEvents": null}',
        '{"a": 1',
        '{"a": 1} and more',
        f"[{GOOD} {GOOD}]",
        f"[{GOOD},]",
        f'{{"traceEvents":[{GOOD}',
        f'{{"events":[{GOOD}]}}',
        '[{"ph":"X","ts":1,"name":"a\nb"}]',
        '[{"ph":"X","ts":NaN}]',
        r'[{"ph":"X","ts":1,"name":"\ud83d"}]',
        '[{"ph":"X","ts":1,"name":"' + "x" * 3000 + '"}]',
        "[" * 100_000,
    ],
)
def test_what_only_the_extension_repairs_is_refused_without_it(text: str) -> None:
    with pytest.raises(InputError, match=r"damaged .* at byte [\d,]+,.*lacks the compiled extension.*reinstall postrun with a C compiler"):
        read(text, scanner=PythonScanner, event_limit=2000)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (" \n", {"empty": 1}),
        ("{}", {}),
        ("[]", {}),
        ('{"traceEvents": [null, 1, "x", [2], {}, {"name": "a"}, {"ph": 1}]}', {"not_an_event": 4, "no_phase": 3}),
        ('{"traceEvents": [{"ph":"X","ts":null},{"ph":"X"},{"ph":"E","ts":"soon"}]}', {"no_timestamp": 3}),
        ('{"traceEvents": [{"ph":"X","ts":1e30}]}', {"no_timestamp": 1, "number_out_of_range": 1}),
        (GOOD, {}),
        (f"{GOOD},{GOOD},", {}),
    ],
)
def test_events_that_give_no_row_are_noted_without_the_extension(text: str, codes: dict[str, int]) -> None:
    got = read(text, scanner=PythonScanner)
    assert got.codes == codes
    assert got.same(read(text, scanner=OracleScanner))


def test_an_installation_without_the_extension_reads_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event(ts=10 * i, dur=5) for i in range(50)]
    (tmp_path / "good.pt.trace.json").write_text(native_layout(events), encoding="utf-8")
    (tmp_path / "bad.pt.trace.json").write_text(native_layout(events)[:-40].replace("aten::mm", "aten::bad"), encoding="utf-8")
    monkeypatch.setattr(trace_scan, "_NativeScanner", None)
    monkeypatch.setattr(kineto, "FLUSH_ROWS", 10)
    monkeypatch.setattr(trace_batches, "BATCH_BYTES", 1)
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT DISTINCT n.text FROM host_event AS e JOIN name AS n ON n.id = e.name").rows() == [("aten::mm",)]
        notes = dict(store.frame("SELECT file || ' ' || code, message FROM ingest_note").rows())
    assert "takes many times as long" in notes["good.pt.trace.json no_extension"]
    assert re.search("cannot be read: its text is damaged .*reinstall postrun with", notes["bad.pt.trace.json not_readable"])


@pytest.mark.parametrize("layout", ["native", "one line", "indent", "array"])
def test_events_away_from_the_damage_are_all_read(layout: str) -> None:
    events = [event(name=f"op {i}", ts=i, args={"correlation": i, "label": "x"}) for i in range(60)]
    text = LAYOUTS[layout](events).encode()
    starts = [text.index(f'"op {i}"'.encode()) for i in range(60)]
    for seed in range(300):
        source = random.Random(seed)
        offset = source.randrange(len(text) - 1)
        broken = text[:offset] + source.choice([bytes([source.randrange(256)]), b"", b'"', b"\n"]) + text[offset + 1 :]
        near = sum(start <= offset for start in starts)
        names = {r["name"] for r in read(broken).rows}
        missing = {f"op {i}" for i in range(60) if not near - 3 <= i <= near + 1} - names
        assert not missing, (seed, offset, text[offset : offset + 1])


@needs_native
@pytest.mark.parametrize(
    "unit",
    [
        '{"ph":[',
        '{"ph":"',
        '{"ph":{',
        '"',
        "\\",
        "{",
        "[",
        '{"ph" ',
        ' "traceEvents"',
        '{"ph":"X","name":"\\"',
        '"a": "b',
        '\\",',
        "\\ud83d",
    ],
)
@pytest.mark.parametrize("start", ["", "[", '{"traceEvents":[', '[{"ph":"X","name":"', '{"m":"', '{"m":['])
def test_work_is_linear_on_hostile_text(start: str, unit: str) -> None:
    data = (start + unit * (4_000_000 // len(unit))).encode()
    before = time.process_time()
    for size in (1 << 16, len(data)):
        scan = TraceScan(args=ARGS)
        for i in range(0, len(data), size):
            scan.feed(data[i : i + size])
        scan.finish()
    assert time.process_time() - before < 2.0  # some milliseconds if it is linear, hours if not


@all_scanners
def test_long_texts_are_cut_and_counted(scanner: MakeScanner) -> None:
    names = ["é" * 200, "é" * 200 + "x", "e" * 128]
    result = read(json.dumps([event(name=name, pid=names[0]) for name in names]), scanner=scanner, text_limit=128)
    assert [row["name"] for row in result.rows] == [cut_text(name, 128) for name in names]
    assert result.rows[0]["name"] != result.rows[1]["name"]
    assert {row["pid"] for row in result.rows} == {cut_text(names[0], 128)}
    assert result.codes == {"text_cut": 5}


@all_scanners
@pytest.mark.parametrize("limits", [{"string_limit": 4}, {"total_limit": 24}])
def test_texts_beyond_the_limit_become_one_text(limits: dict[str, int], scanner: MakeScanner) -> None:
    result = read(json.dumps([event(name=f"name{i % 6}") for i in range(12)]), scanner=scanner, **limits)
    kept = 3
    assert [row["name"] for row in result.rows] == [f"name{i % 6}" if i % 6 < kept else LEFT_OUT for i in range(12)]
    assert result.codes == {"text_left_out": 12 - 2 * kept}


@all_scanners
def test_pairs_of_phase_and_category_beyond_the_limit_are_counted_by_phase(scanner: MakeScanner) -> None:
    events = [event(cat=f"c{i}") for i in range(5)] + [event(ph="C", cat="x"), event(ph="ab", cat="x")]
    result = read(json.dumps(events), scanner=scanner, string_limit=3)
    assert result.counts == {("X", "c0"): 1, ("X", "c1"): 1, ("X", "c2"): 1, ("X", ""): 2, ("C", ""): 1, ("", ""): 1}


@all_scanners
def test_metadata_events_beyond_the_limit_are_left_out(scanner: MakeScanner) -> None:
    events = [{"ph": "M", "name": "process_name", "pid": i} for i in range(20)] + [event()]
    result = read(json.dumps(events), scanner=scanner, member_limit=1000)
    size = len(json.dumps(events[0])) + 64
    assert [e["pid"] for _, e in result.metadata] == list(range(1000 // size))
    assert result.codes == {"metadata_left_out": 20 - 1000 // size}
    assert len(result.rows) == 1


@needs_native
@given(events_strategy, st.sampled_from(sorted(LAYOUTS)), st.integers(0, 2**32), st.tuples(*[st.integers(1, 200)] * 2))
def test_both_scanners_agree_at_the_limits(events: list[Any], layout: str, seed: int, bounds: tuple[int, int]) -> None:
    parts, total = bounds[0] % 9 + 1, bounds[1]
    text = 70 + seed % 20
    written_text = LAYOUTS[layout]([{**e, "name": str(e.get("name")) * 40} if isinstance(e, dict) else e for e in events])
    options = {"text_limit": text, "string_limit": parts, "total_limit": total, "member_limit": 10_000}
    native = read(written_text, cuts=random_cuts(seed), **options)
    assert native.same(read(written_text, scanner=OracleScanner, **options))
    assert native.same(read(written_text, scanner=PythonScanner, **options))


def test_calls_in_the_wrong_order_and_bad_columns_are_refused() -> None:
    scan = TraceScan(args=ARGS)
    scan.finish()
    scan.finish()
    with pytest.raises(ValueError, match="after finish"):
        scan.feed(b"[")
    with pytest.raises(ValueError, match="two kinds"):
        TraceScan(args={"a": Arg("x", "int"), "b": Arg("x", "text")})
    with pytest.raises(ValueError, match="must differ"):
        TraceScan(args={"a": Arg("name", "int")})
    with pytest.raises(ValueError, match="given once"):
        TraceScan(args={"a": Arg("x", "int")}, wide_args={"a": Arg("y", "int")})


# ------------------------------------------------------------------------------------------------ real traces


def load(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    "name",
    [
        "quirks/alexnet_no_steps.json.gz",
        "quirks/event_sync_trace.json.gz",
        "quirks/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "quirks/rank_non_gpu.json.gz",
        "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
        "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
        "sampled_2_ranks/sampled_rank-0.json.gz",
    ],
)
@all_scanners
def test_real_traces_are_read_as_json_reads_them(shared_data: Path, name: str, scanner: MakeScanner) -> None:
    text = load(shared_data / "kineto" / name)
    document = json.loads(text, strict=False, parse_float=Decimal)
    got = read(text, scanner=scanner, cuts=iter([1 << 16] * 10_000))
    expected = [e for e in document["traceEvents"] if e.get("ph") in ("X", "B", "E")]
    assert got.defects == []
    assert list(got.members) == [k for k in document if k != "traceEvents"]
    assert len(got.rows) == len(expected)
    for row, e in zip(got.rows, expected, strict=True):
        args = e.get("args") or {}
        assert row["start_ns"] == int(Decimal(e["ts"]).scaleb(3))
        assert row["duration_ns"] == (int(Decimal(e["dur"]).scaleb(3)) if "dur" in e else None)
        assert (row["name"], row["category"], str(row["pid"]), str(row["tid"])) == (e["name"], e.get("cat"), str(e["pid"]), str(e["tid"]))
        assert row["correlation"] == args.get("correlation")
        if e.get("cat") == "kernel":
            assert [row[f"grid_{axis}"] for axis in "xyz"] == args.get("grid", [None] * 3)
