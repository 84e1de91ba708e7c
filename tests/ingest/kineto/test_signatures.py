"""Tests of signatures of operators: members of events of a Kineto trace -> table ``signature``, and columns that refer to it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import ingest
from postrun.ingest.chrome_trace import scan as trace_scan
from postrun.ingest.store import Store
from postrun.ingest.store import signatures as store_signatures

DIMS, TYPES, STRIDES = [[8, 16], [16, 4], []], ["float", "c10::Half", "Scalar"], [[16, 1], [4, 1], []]
CONCRETE = ["", "", "1.5"]
STACK, MODULES = "/home/alice/job/train.py(12): step;/opt/lib/python3.11/site-packages/torch/nn/x.py(3): f", "TOP(Net)::forward.fc"
INPUTS = {"Input Dims": DIMS, "Input type": TYPES, "Input Strides": STRIDES, "Concrete Inputs": CONCRETE}
QUERY = """SELECT n.text AS name, h.sequence, h.forward_thread, h.signature, s.* EXCLUDE (id)
    FROM host_event AS h JOIN name AS n ON n.id = h.name LEFT JOIN signature AS s ON s.id = h.signature ORDER BY h.start_ns"""


def operator(number: int, args: Any = None, **changes: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cpu_op", "name": f"op{number}", "pid": 5, "tid": 5, "ts": 1000.0 + 10 * number, "dur": 5.0}
    return event | ({} if args is None else {"args": args}) | changes


def trace(path: Path, events: list[Any], **members: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": events}), encoding="utf-8")
    return path


def rows(store: Store) -> list[dict[str, Any]]:
    return store.frame(QUERY).to_dicts()


def notes(store: Store, code: str) -> int:
    return int(store.frame("SELECT coalesce(sum(count), 0)::BIGINT FROM ingest_note WHERE code = ?", [code]).item())


@pytest.fixture(params=["C", "Python"])
def scanner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Python":
        monkeypatch.setattr(trace_scan, "_NativeScanner", None)
    return str(request.param)


def test_members_of_operators(tmp_path: Path, scanner: str) -> None:
    events = [
        operator(1, INPUTS | {"Sequence number": 7, "Fwd thread id": 0, "Call stack": STACK, "Module Hierarchy": MODULES}),
        operator(2, INPUTS | {"Sequence number": 7, "Fwd thread id": 3}),
        operator(3, INPUTS),
        operator(4, {"kernel_file": "/tmp/inductor/ab.py", "kernel_flop": 4096, "Call stack": "", "Module Hierarchy": ""}),
        operator(5, {"External id": 5}),
        operator(6),
        operator(7, INPUTS | {"Input Dims": [[1]]}, cat="user_annotation"),
        operator(8, {"Python id": 3}, cat="python_function", name="train.py(3): f"),
    ]
    store = ingest([trace(tmp_path / "a.json", events)])
    first, second, third, triton, bare, empty, python = rows(store)
    texts = {"input_dims": json.dumps(DIMS), "input_types": json.dumps(TYPES), "input_strides": json.dumps(STRIDES)}
    texts |= {"concrete_inputs": json.dumps(CONCRETE)}
    none = dict.fromkeys(store_signatures.COLUMNS)
    assert {key: first[key] for key in none} == none | texts | {"call_stack": STACK, "module_hierarchy": MODULES}
    assert {key: second[key] for key in none} == none | texts
    assert {key: triton[key] for key in none} == none | {"kernel_file": "/tmp/inductor/ab.py", "kernel_flop": 4096.0}
    assert [(row["sequence"], row["forward_thread"]) for row in (first, second, third)] == [(7, 0), (7, 3), (None, None)]
    assert second["signature"] == third["signature"] != first["signature"]
    assert (bare["signature"], empty["signature"], python["signature"]) == (None, None, None)
    assert store.frame("SELECT id FROM signature ORDER BY id")["id"].to_list() == [0, 1, 2]


def test_arrays_over_several_lines_are_one_signature(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([operator(1, INPUTS)], indent=2)[:-1] + "," + json.dumps(operator(2, INPUTS), separators=(",", ":")) + "]")
    indented, compact = rows(ingest([path]))
    assert indented["signature"] == compact["signature"]
    assert json.loads(indented["input_dims"]) == DIMS


def test_begin_and_end_events(tmp_path: Path, scanner: str) -> None:
    begin = operator(1, INPUTS | {"Sequence number": 9, "Fwd thread id": 1}, ph="B")
    end = {"ph": "E", "pid": 5, "tid": 5, "ts": 1030.0, "args": {}}
    [row] = rows(ingest([trace(tmp_path / "a.json", [begin, end])]))
    assert (row["sequence"], row["forward_thread"], json.loads(row["input_dims"])) == (9, 1, DIMS)


@pytest.mark.parametrize(
    ("member", "value", "column", "stored"),
    [
        ("Input Dims", "no list", "input_dims", "no list"),
        ("Input Dims", 1e30, "input_dims", "1e+30"),
        ("Input Dims", None, "signature", None),
        ("Input Dims", [[-5, 10**40]], "input_dims", f"[[-5, {10**40}]]"),
        ("Call stack", ["a", "é"], "call_stack", '["a", "\\u00e9"]'),
        ("kernel_flop", "many", "signature", None),
        ("kernel_flop", -4, "signature", None),
        ("kernel_flop", 1e308, "kernel_flop", 1e308),
        ("Sequence number", -1, "sequence", None),
        ("Sequence number", 1e30, "sequence", None),
        ("Sequence number", [3], "sequence", None),
        ("Fwd thread id", -2, "forward_thread", None),
        ("Fwd thread id", "4", "forward_thread", 4),
    ],
)
def test_odd_values(tmp_path: Path, scanner: str, member: str, value: Any, column: str, stored: Any) -> None:
    store = ingest([trace(tmp_path / "a.json", [operator(1, {member: value}), operator(2, INPUTS)])])
    odd, intact = rows(store)
    assert odd[column] == stored
    assert json.loads(intact["input_dims"]) == DIMS


def test_damaged_members(tmp_path: Path) -> None:
    """A member that is damaged costs itself, or its event if the text cannot be read."""
    texts = [
        '{"Input Dims": [[NaN, 3]]}',
        '{"Input Dims": [[1, 2}',
        f'{{"Input Dims": {"[" * 300}{"]" * 300}}}',
        '{"Call stack": "C:\\Users\\x"}',
    ]
    texts += [f'{{"Call stack": "{"x" * 70_000}"}}', '{"Input Dims": Infinity}']
    events = [json.dumps(operator(n))[:-1] + f', "args": {text}}}' for n, text in enumerate(texts)]
    path = tmp_path / "a.json"
    path.write_text("[" + ",\n".join([*events, json.dumps(operator(99, INPUTS))]) + "]", encoding="utf-8")
    store = ingest([path])
    actual = {row["name"]: row for row in rows(store)}
    assert json.loads(actual["op99"]["input_dims"]) == DIMS
    assert actual["op3"]["call_stack"] == "C:\\Users\\x"
    assert len(actual["op4"]["call_stack"].encode()) <= 64 << 10
    assert actual["op5"]["signature"] is None
    assert "op2" not in actual  # nested too deep
    assert notes(store, "too_deep") == 1
    assert notes(store, "text_cut") >= 1


def test_kernels(tmp_path: Path, scanner: str) -> None:
    def kernel(number: int, **args: Any) -> dict[str, Any]:
        shared = {"device": 0, "stream": 7, "shared memory": 0, "grid": [33, 2, 2], "block": [64, 1, 1]}
        return operator(number, shared | args, cat="kernel", pid=0, tid=7)

    occupancy, blocks = "est. achieved occupancy %", "blocks per SM"
    args: list[dict[str, Any]] = [
        {occupancy: 43, blocks: 1.0}, {occupancy: "0.5", blocks: 0.010101, "grid": [1, 1, 1]}, {occupancy: 101, blocks: 0},
        {occupancy: -1, blocks: 7.7}, {occupancy: [1], blocks: "x"}, {blocks: 1e300}, {blocks: 1.0, "grid": [2**62, 2**62, 9]},
    ]  # fmt: skip
    store = ingest([trace(tmp_path / "a.json", [kernel(n, **more) for n, more in enumerate(args)])])
    unknown = [None] * 5
    assert store.frame("SELECT occupancy FROM device_event ORDER BY start_ns")["occupancy"].to_list() == [43.0, 0.5, *unknown]
    assert store.frame("SELECT multiprocessors AS n FROM device_event ORDER BY start_ns")["n"].to_list() == [132, 99, *unknown]
    assert store.frame("SELECT blocks_per_sm AS n FROM device_run ORDER BY start_ns")["n"].to_list() == [1.0, 1 / 99, *unknown]


def test_ids_are_of_the_run(tmp_path: Path) -> None:
    """Files with the same signatures in another order share the ids."""
    vector = INPUTS | {"Input Dims": [[1]]}
    for rank, calls in enumerate(([INPUTS, vector], [vector, INPUTS])):
        events = [operator(number, args, pid=70 + rank) for number, args in enumerate(calls)]
        trace(tmp_path / f"rank-{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    store = ingest([tmp_path])
    by_call = store.frame("SELECT process, input_dims FROM host_event AS h JOIN signature AS s ON s.id = h.signature ORDER BY 1, start_ns")
    assert by_call["input_dims"].to_list() == [json.dumps(DIMS), "[[1]]", "[[1]]", json.dumps(DIMS)]
    assert store.frame("SELECT count(*) FROM signature").item() == 2


def test_signatures_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_signatures, "SIGNATURES", 3)
    events = [operator(n, {"Input Dims": [[n % 6]]}) for n in range(12)]
    store = ingest([trace(tmp_path / "a.json", events)])
    assert [row["input_dims"] for row in rows(store)] == ["[[0]]", "[[1]]", "[[2]]", None, None, None] * 2
    assert notes(store, "limit_reached") == 3


def test_paths_and_secrets_are_masked(tmp_path: Path) -> None:
    args = {"Call stack": STACK, "kernel_file": "/home/alice/cache/k.py", "Concrete Inputs": ["https://bob:PLANTED@host/x", "alice"]}
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps([operator(1, args)]).encode()))
    masked = str(rows(ingest([path])))
    assert "PLANTED" not in masked
    assert STACK in masked
    [row] = rows(ingest([path], redact=["paths", "users"]))
    assert row["call_stack"] == "train.py(12): step;torch/nn/x.py(3): f"
    assert row["kernel_file"] == "k.py"
    assert "alice" not in str(row)
