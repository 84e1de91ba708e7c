"""Structured logs of torch.compile: their compilations, also of damaged and hostile logs."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
import zstandard
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.discover import format_of
from postrun.ingest.torch_trace.compilations import MOST, Compilations
from postrun.ingest.torch_trace.entries import LONGEST_LINE, Entries
from torch_trace_logs import BEGAN_US, PID, SECOND, begun, entry, graph_break, ids, limit, metrics, reasons, started

NAME = "dedicated_log_torch_trace_abc.log"
MISMATCH = "0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5"
STEP = "0/0: self.k == 0      # self.k+=1  # app/model.py:9 in forward (HINT: integer attributes of the nn.Module)\nUser stack trace:\n  x"
BREAK = (
    "Graph break in user code at /app/model.py:16\nGraph Break Reason: Encountered graph break when attempting to trace CALL\n\n"
    "Failed to trace builtin operator\n  Explanation: Dynamo does not know"
)
LOG = (
    begun()
    + started(0, 0) + metrics(0, 0, 0, 40) + metrics(0, 0, 40, 5, backward=True, co_name=None, co_filename=None, co_firstlineno=None)
    + started(0, 1) + reasons(0, 1, [STEP]) + metrics(0, 1, 50, 0.25)
    + started(0, 2) + reasons(0, 2, [MISMATCH, STEP]) + metrics(0, 2, 51, 7)
    + started(1, 0, line=14) + graph_break(1, 0, BREAK) + metrics(1, 0, 60, 3, co_firstlineno=14)
    + reasons(0, 3, [MISMATCH]) + limit(0, 3, 70)
)  # fmt: skip


def put(folder: Path, text: str | bytes, name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(path: Path, columns: str = "*") -> list[dict[str, Any]]:
    with ingest([path]) as store:
        return store.frame(f"SELECT {columns} FROM compilation ORDER BY start_ns NULLS LAST").to_dicts()


def notes(path: Path) -> dict[str, int]:
    with ingest([path]) as store:
        return dict(store.frame('SELECT code, sum("count")::INTEGER FROM ingest_note GROUP BY code').rows())


def test_compilations_with_function_times_and_reasons(tmp_path: Path) -> None:
    listed = rows(put(tmp_path, LOG))
    assert [(row["frame"], row["version"], row["backward"], row["line"], row["limit_reached"]) for row in listed] == [
        ("0", 0, False, 8, False), ("0", 0, True, 8, False), ("0", 1, False, 8, False), ("0", 2, False, 8, False),
        ("1", 0, False, 14, False), ("0", 3, False, 8, True),
    ]  # fmt: skip
    assert {(row["function"], row["file"], row["finished"]) for row in listed} == {("forward", "/app/model.py", True)}
    assert (listed[3]["start_ns"], listed[3]["duration_ns"]) == (BEGAN_US * 1000 + 51 * SECOND, 7 * SECOND)
    assert [row["reason"] for row in listed] == [
        None, None, "self.k == 0 # self.k+=1 # app/model.py:9 in forward (HINT: integer attributes of the nn.Module)",
        "tensor 'x' size mismatch at index 0. expected 4, actual 5", None, "tensor 'x' size mismatch at index 0. expected 4, actual 5",
    ]  # fmt: skip
    assert [(row["graph_breaks"], row["graph_break"]) for row in listed if row["graph_breaks"]] == [
        (1, "/app/model.py:16: Failed to trace builtin operator")
    ]
    assert listed[-1]["failure"] == "Unsupported: Dynamo recompile limit exceeded"


@pytest.mark.parametrize(
    ("kind", "why", "reached"),
    [
        ("torch._dynamo.exc.Unsupported", "cache_size_limit reached", True),  # 2.3
        ("CacheLimitExceeded", "cache_size_limit reached", True),  # 2.5
        ("RecompileLimitExceeded", "accumulated_recompile_limit reached", True),  # 2.7
        ("Unsupported", "Failed to trace builtin operator", False),
        (None, None, False),
        (7, ["recompile_limit"], False),
    ],
)
def test_the_limit_in_other_versions(tmp_path: Path, kind: Any, why: Any, reached: bool) -> None:
    (row,) = rows(put(tmp_path, metrics(0, 8, 1, 1, fail_type=kind, fail_reason=why)))
    assert row["limit_reached"] is reached


def test_times_of_older_versions(tmp_path: Path) -> None:
    facts = {"co_name": "f", "start_time": 1_700_000_000.25, "entire_frame_compile_time_s": 1.5}
    (row,) = rows(put(tmp_path, entry({"compilation_metrics": facts, **ids(3, 1)})))
    assert (row["frame"], row["version"], row["start_ns"], row["duration_ns"]) == ("3", 1, 1_700_000_000_250_000_000, 1_500_000_000)


def test_ids_of_compiled_autograd_and_of_the_metrics_alone(tmp_path: Path) -> None:
    body = {"compilation_metrics": {"co_name": "f", "start_time_us": BEGAN_US, "duration_us": 5}}
    text = entry({**body, **ids(3, 1), "compiled_autograd_id": 2}) + entry(
        {"compilation_metrics": {**body["compilation_metrics"], "compile_id": "!4/5/6"}}
    )
    assert [(row["frame"], row["version"]) for row in rows(put(tmp_path, text), "frame, version")] in (
        [("!2/3", 1), ("!4/5", 6)], [("!4/5", 6), ("!2/3", 1)],
    )  # fmt: skip


def test_a_killed_process_leaves_a_compilation_without_times(tmp_path: Path) -> None:
    path = put(tmp_path, LOG + started(7, 0, "loss", line=99) + '{"compilation')
    last = rows(path)[-1]
    assert (last["function"], last["file"], last["line"], last["start_ns"], last["finished"]) == ("loss", "/app/model.py", 99, None, False)
    assert notes(path)["unfinished"] == 1


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_logs(tmp_path: Path, pack: Any) -> None:
    assert len(rows(put(tmp_path, pack(LOG.encode()), NAME + ".gz"))) == 6


def test_other_names_are_recognized_by_the_first_line(tmp_path: Path) -> None:
    known = {
        name: format_of(put(tmp_path, text, name))
        for name, text in (
            ("raw.log", LOG), ("rank.log", LOG.replace("V1124", "[rank3]:V1124", 1)),
            ("notes.log", "V1124 16:09:00.035000 7 a.py:1] text\n"),
            ("other.log", 'V1124 16:09:00.035000 7 a.py:1] {"loss": 1}\n'), ("train.log", "epoch 1\n" + LOG), ("empty.log", ""), (NAME, ""),
        )
    }  # fmt: skip
    assert {name: kind and kind.name for name, kind in known.items()} == {
        "raw.log": "torch.compile log", "rank.log": "torch.compile log", "notes.log": None, "other.log": None, "train.log": None,
        "empty.log": None, NAME: "torch.compile log",
    }  # fmt: skip


def test_the_rank_is_in_entries_prefix_or_name(tmp_path: Path) -> None:
    body = {"compilation_metrics": {"co_name": "f", "start_time_us": BEGAN_US, "duration_us": 5}, **ids(0, 0)}
    for number, (text, name) in enumerate(
        (
            (entry({**body, "rank": 3}), NAME),
            (entry(body, prefix="[rank3]:"), NAME),
            (entry(body), "dedicated_log_torch_trace_rank_3_x.log"),
        )
    ):
        with ingest([put(tmp_path / str(number), text, name)]) as store:
            assert store.frame("SELECT pid, rank FROM process").rows() == [(PID, 3)]


def trace(pid: int, host: str, rank: int | None = None) -> str:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": 1, "ts": 1.0, "dur": 5.0}
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    return json.dumps({"schemaVersion": 1, "host_name": host, "baseTimeNanoseconds": BEGAN_US * 1000, **info, "traceEvents": [event]})


def test_a_log_belongs_to_the_process_with_its_id(tmp_path: Path) -> None:
    put(tmp_path, LOG)
    put(tmp_path, trace(PID, "node-a"), "a.trace.json")
    put(tmp_path, trace(99, "node-b"), "b.trace.json")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT DISTINCT hostname, pid FROM compilation AS c JOIN process AS p ON p.id = c.process"
                           " JOIN node AS n ON n.id = c.node").rows() == [("node-a", PID)]  # fmt: skip
        assert store.frame("SELECT count(*) FROM process").item() == 2


def test_containers_with_equal_process_ids_are_told_apart_by_the_rank(tmp_path: Path) -> None:
    put(tmp_path, trace(1, "node-a", 0), "a.trace.json")
    put(tmp_path, trace(1, "node-b", 1), "b.trace.json")
    body = {"compilation_metrics": {"co_name": "f", "start_time_us": BEGAN_US, "duration_us": 5}, **ids(0, 0)}
    put(tmp_path, entry({**body, "rank": 1}, pid=1))
    put(tmp_path, entry({**body, "rank": 5}, pid=1), "dedicated_log_torch_trace_rank_5_x.log")
    with ingest([tmp_path]) as store:
        listed = store.frame("SELECT hostname, rank FROM compilation AS c JOIN process AS p ON p.id = c.process"
                            " JOIN node AS n ON n.id = c.node ORDER BY rank").rows()  # fmt: skip
    assert listed == [("node-b", 1), ("unknown host", 5)]


def test_a_clock_offset_shifts_the_compilations(tmp_path: Path) -> None:
    path = put(tmp_path, LOG)
    with ingest([path], clock_offsets={NAME: 3 * SECOND}) as store:
        assert store.frame("SELECT min(start_ns) FROM compilation").item() == BEGAN_US * 1000 + 3 * SECOND


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0" * 5000,
        random.Random(1).randbytes(100_000),
        b"\t" * 10_000,
        b"epoch 1, loss 2\n" * 50,
        b"\xff\xfe" + "V1124".encode("utf-16-le"),
    ],
)
def test_a_file_without_an_entry_is_named(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InputError, match=r"empty file|has no entry of a log of torch.compile"):
        ingest([put(tmp_path, text)])


def test_a_log_without_a_compilation_says_so(tmp_path: Path) -> None:
    put(tmp_path, trace(PID, "node-a"), "a.trace.json")
    put(tmp_path, begun())
    assert notes(tmp_path)["no_compilation"] == 1


def test_every_cut_gives_the_compilations_before_it(tmp_path: Path) -> None:
    data = LOG.encode()
    complete = [number for number in range(len(data)) if data.startswith(b"V1124", number)]
    for cut in (*range(complete[3], len(data), 377), len(data) - 1):
        compilations = Compilations()
        for parsed in Entries(put(tmp_path, data[:cut])):
            compilations.add(parsed)
        ended = [row for row in compilations.close() if row.finished]
        assert len(ended) == sum(b"compilation_metrics" in line and _is_json(line) for line in data[:cut].split(b"\n"))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line[line.index(b"] ") + 2 :])
    except ValueError:
        return False
    return True


HOSTILE = {
    "deep": 'V1124 16:09:00.1 7 a.py:1] {"compilation_metrics": ' + "[" * 100_000,
    "no number": entry({"compilation_metrics": {"start_time_us": 1}, "frame_id": "0", "frame_compile_id": None}),
    "negative": entry({"compilation_metrics": {}, "frame_id": -1, "frame_compile_id": 2**70}),
    "boolean": entry({"compilation_metrics": {}, "frame_id": True, "frame_compile_id": False}),
    "list": entry({"compilation_metrics": [1], **ids(0, 0)}),
    "times": metrics(0, 0, 0, 1, start_time_us=-5, duration_us=2**80) + metrics(0, 1, 0, 1, start_time_us=1e300, duration_us="x")
    + entry({"compilation_metrics": {"start_time": float("nan"), "entire_frame_compile_time_s": float("inf")}, **ids(0, 2)}),
    "control": metrics(0, 0, 0, 1, co_name="\x1b[31m\0\u202e", co_filename="\ud800", co_firstlineno=2**40),
    "strings": entry({"str": [1, 2]}) + entry({"str": ["a", -1]}) + entry({"str": "a"}) + started(0, 0, file=9),
    "stack": entry({"dynamo_start": {"stack": {"a": 1}}, **ids(0, 0)}) + entry({"dynamo_start": {"stack": [5]}, **ids(0, 1)}),
    "artifact": entry({"artifact": {"name": "recompile_reasons"}, **ids(0, 0)}) + reasons(0, 1, ["["]) + reasons(0, 2, ["[" * 100_000]),
    "pid": metrics(0, 0, 0, 1).replace(" 4242 ", " 999999999999999999 "),
    "others": metrics(0, 0, 0, 1) + metrics(0, 1, 0, 1).replace(" 4242 ", " 17 "),
    "odd": metrics(0, 0, 0, 1, co_name=["a"], fail_type={"a": 1}, fail_reason=3, recompile_reason=[1]),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries_cost_themselves_alone(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, metrics(50, 0, 9, 1) + HOSTILE[name] + "\n" + metrics(51, 0, 10, 1))
    assert {row["frame"] for row in rows(path)} >= {"50", "51"}
    assert "reader_failed" not in notes(path)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    text = metrics(0, 0, 0, 1) + entry({"compilation_metrics": {}}) + HOSTILE["deep"] + "\n" + metrics(0, 1, 2, 1).replace(" 4242 ", " 17 ")
    listed = notes(put(tmp_path, text))
    assert (listed["odd_entries"], listed["not_json"]) == (2, 1)


@pytest.mark.slow
def test_giant_lines_and_millions_of_lines(tmp_path: Path) -> None:
    giant = b"V1124 16:09:00.1 7 a.py:1] {" + b"x" * (LONGEST_LINE + (3 << 20)) + b"\n"
    unused = b"\t" * 3_000_000 + b"\n" + b"\n" * 3_000_000 + b"\tpayload of a graph\n" * 1_000_000
    path = put(tmp_path, metrics(0, 0, 0, 1).encode() + giant + unused + metrics(0, 1, 2, 1).encode())
    assert [row["version"] for row in rows(path, "version, start_ns")] == [0, 1]
    assert notes(path)["too_long"] == 1


@pytest.mark.slow
def test_the_number_of_compilations_is_bounded(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(started(number, 0) + metrics(number, 1, number, 0.5) for number in range(MOST + 50)))
    assert len(rows(path, "start_ns")) == MOST
    assert notes(path)["limit_reached"] >= 50


def test_texts_are_cut_and_secrets_masked(tmp_path: Path) -> None:
    path = put(tmp_path, reasons(0, 0, ["url == 'https://user:hunter2@host/x' " + "y" * 5000]) + metrics(0, 0, 0, 1))
    (row,) = rows(path)
    assert "hunter2" not in row["reason"]
    assert len(row["reason"]) <= 1000


def test_secrets_in_values_of_guards_and_in_paths_are_masked(tmp_path: Path) -> None:
    secret = "ghp_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    log = reasons(0, 0, [f"L['api_key'] == '{secret}'"]) + metrics(0, 0, 0, 1, co_filename=f"/home/ada/token={secret}/model.py")
    with ingest([put(tmp_path, log)]) as store:
        ((reason, file),) = store.connection.execute("SELECT reason, file FROM compilation").fetchall()
        assert (reason, file) == ("L['api_key'] == '***'", "/home/ada/token=***")
        (message,) = store.frame("SELECT message FROM ingest_note WHERE code = 'values_masked'")["message"]
    assert "access token" in message


@pytest.mark.parametrize("guard", ["tensor 'L['key_cache']' size mismatch at index 2. expected 35, actual 36", "L['self'].token == 5"])
def test_guards_without_secrets_stay_as_they_are(tmp_path: Path, guard: str) -> None:
    (row,) = rows(put(tmp_path, reasons(0, 0, [guard]) + metrics(0, 0, 0, 1)))
    assert row["reason"] == guard


def test_paths_of_functions_are_redacted(tmp_path: Path) -> None:
    with ingest([put(tmp_path, metrics(0, 0, 0, 1, co_filename="/home/ada/job/model.py"))], redact=["paths"]) as store:
        assert store.frame("SELECT file FROM compilation").item() == "model.py"


PARTS = [*(text[:4000] for text in HOSTILE.values()), LOG[:4000], "\t[\n", "\n", "V1124 16:09:00.1 7 a.py:1] {}", "[rank1]:"]


@settings(max_examples=examples(200))
@given(parts=st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=40), st.binary(max_size=40)), max_size=8))
def test_any_text_gives_valid_rows(tmp_path_factory: pytest.TempPathFactory, parts: list[str | bytes]) -> None:
    data = b"".join(part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts)
    compilations = Compilations()
    entries = Entries(put(tmp_path_factory.mktemp("any"), data))
    for parsed in entries:
        assert len(parsed.payload) <= 40
        compilations.add(parsed)
    for row in compilations.close():
        assert row.version >= 0
        assert row.duration_ns is None or row.duration_ns >= 0
        for text in (row.function, row.file, row.reason, row.graph_break, row.failure):
            assert text is None or text.encode()
    assert entries.headers <= data.count(b"]")
