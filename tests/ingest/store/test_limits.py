"""Tests that the limits of a run hold, with notes on the omissions, and that everything else is unchanged."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from call_nightly import told
from click.testing import CliRunner
from postrun import analyze
from postrun.cli import main
from postrun.errors import InputError, UsageError
from postrun.ingest import ingest
from postrun.ingest.chrome_trace.inflate import Inflate
from postrun.ingest.chrome_trace.scan import TraceScan
from postrun.ingest.chrome_trace.unpacked import unpacked
from postrun.ingest.derive import finish, limit_rows
from postrun.ingest.gpu_logs import rows as gpu_log
from postrun.ingest.gpu_logs.lines import LogLines
from postrun.ingest.prt.format import TraceFile
from postrun.ingest.store import Store, limits, registry, run_row
from postrun.ingest.store import tables as store_module
from postrun.ingest.store.limits import LEFT_OUT, OTHER_KERNELS, TEXT_BYTES, cut_text, size_in_bytes, unpacked_limit
from postrun.ingest.store.schema import SCHEMA
from prt_writer import PrtWriter

START_US = 1_700_000_000_000_000
LONG = 200_000


def kernel(name: str, index: int, *, device: int = 0, stream: int = 7) -> dict[str, Any]:
    args = {"device": device, "stream": stream, "correlation": index + 1}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": START_US + 10 * index, "dur": 3, "args": args}


def operator(name: str, index: int, *, tid: int = 100) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 100, "tid": tid, "ts": START_US + 10 * index, "dur": 5, "args": {}}


def text_of(events: Iterable[dict[str, Any]]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events)}).encode()


def write(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    path.write_bytes(text_of(events))
    return path


def notes(store: Store, code: str = "limit_reached") -> list[tuple[str, int]]:
    return store.frame('SELECT message, "count" FROM ingest_note WHERE code = ? ORDER BY message', [code]).rows()


def numbers(store: Store, sql: str) -> list[Any]:
    return store.frame(sql).to_series().to_list()


# -- texts -----------------------------------------------------------------------------------------------------------------


def test_a_cut_text_is_within_the_limit_and_different_texts_stay_different() -> None:
    texts = ["é" * LONG + end for end in ("", "a", "b")]
    cut = [cut_text(text) for text in texts]
    assert len(set(cut)) == 3
    assert all(len(text.encode()) <= TEXT_BYTES and text.startswith("é" * 30_000 + "é") for text in cut)
    assert cut[0].endswith(f"… [{2 * LONG} bytes, {cut[0][-9:-1]}]")
    assert [cut_text(text) for text in cut] == cut
    assert cut_text("é" * (TEXT_BYTES // 2)) == "é" * (TEXT_BYTES // 2)


def test_long_names_of_kernels_are_cut_and_counted_and_stay_two_kernels(tmp_path: Path) -> None:
    names = ["x" * LONG + end for end in ("a", "b")]
    path = write(tmp_path / "trace.json", [kernel(names[place % 2], place) for place in range(6)])
    result = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "out"), "--format", "html,json"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "report.json").stat().st_size < 3 * LONG
    with ingest([path]) as store:
        rows = store.frame("SELECT n.text, count(*), sum(duration_ns) FROM device_event e JOIN name n ON n.id = e.name GROUP BY ALL").rows()
        assert sorted((len(text.encode()) <= TEXT_BYTES, count, total) for text, count, total in rows) == [(True, 3, 9000)] * 2
        assert [count for _, count in notes(store, "text_cut")] == [6]


def test_long_texts_of_all_kinds_are_cut_in_the_store(tmp_path: Path) -> None:
    long = "h" * LONG
    job = {"name": long, "hyperparameters": {"prompt": long, long: 1, "nested": {"a": [long]}, "lr": 0.1}, "labels": {"a": long}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    write(tmp_path / "trace.json", [operator("a", 0), {**kernel("k", 1), "args": {"device": 0, "stream": 7, "Collective name": long}}])
    with ingest([tmp_path]) as store:
        for table, columns in SCHEMA.items():
            for column, kind in columns.items():
                if kind == "VARCHAR" and column not in ("hyperparameters", "labels"):
                    assert (numbers(store, f'SELECT max(strlen("{column}")) FROM {table}')[0] or 0) <= TEXT_BYTES, (table, column)
        parameters = json.loads(numbers(store, "SELECT hyperparameters FROM run")[0])
        assert parameters["lr"] == 0.1
        assert all(len(key) <= TEXT_BYTES and len(str(value)) <= TEXT_BYTES for key, value in parameters.items())


def test_hyperparameters_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARAMETERS", 5)
    monkeypatch.setattr(run_row, "PARAMETERS", 5)
    (tmp_path / "job.json").write_text(json.dumps({"labels": {f"l{i}": str(i) for i in range(8)}}))
    write(tmp_path / "trace.json", [operator("a", 0)])
    with ingest([tmp_path]) as store:
        assert json.loads(numbers(store, "SELECT labels FROM run")[0]) == {f"l{i}": str(i) for i in range(5)}
        assert notes(store) == [("The job has more than 5 labels, the limit; the others were left out.", 3)]


def test_texts_of_a_recording_are_cut(tmp_path: Path) -> None:
    writer = PrtWriter(zstd_level=3).prelude(["n" * LONG], [(0, 0, START_US * 1000)])
    writer.add("meta", {1: ["note"], 2: ["m" * LONG]})
    writer.add("process", {1: [1], 2: [0], 3: [START_US * 1000], 4: ["c" * LONG], 5: ["h1"], 6: [0], 7: [0], 8: [1]})
    writer.add("annotation", {1: [1], 2: [0], 3: [10], 4: [1], 5: [0], 6: [0]}, source=1)
    (tmp_path / "a.prt").write_bytes(writer.end().data())
    with ingest([tmp_path]) as store:
        assert len(numbers(store, "SELECT text FROM name ORDER BY strlen(text) DESC LIMIT 1")[0].encode()) <= TEXT_BYTES
        assert len(numbers(store, "SELECT command FROM process")[0].encode()) <= TEXT_BYTES


# -- how many --------------------------------------------------------------------------------------------------------------


def test_names_beyond_the_limit_share_one_name_and_keep_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "NAMES", 10)
    path = write(tmp_path / "trace.json", [operator(f"op{place}", place) for place in range(30)])
    with ingest([path]) as store:
        assert store.frame("SELECT count(*) AS n FROM host_event").item() == 30
        shared = "SELECT count(*) AS n FROM host_event e JOIN name n ON n.id = e.name WHERE text = ?"
        others = store.frame(shared, [LEFT_OUT]).item()
        assert 20 <= others < 30
        assert [count for _, count in notes(store)] == [others]


def test_the_scanner_limits_texts_of_one_file_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TraceScan.__init__
    monkeypatch.setattr(TraceScan, "__init__", lambda self, **options: original(self, **{**options, "string_limit": 10}))
    path = write(tmp_path / "trace.json", [operator(f"op{place}", place) for place in range(30)])
    with ingest([path]) as store:
        [(_, count)] = notes(store, "text_left_out")
        assert count == store.frame("SELECT count(*) AS n FROM host_event e JOIN name n ON n.id = e.name WHERE text = ?", [LEFT_OUT]).item()


def test_kernels_beyond_the_limit_are_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "KERNELS", 5)
    events = [{**kernel(f"k{place}", place), "dur": 100 - place} for place in range(12)]
    with ingest([write(tmp_path / "trace.json", events)]) as store:
        rows = store.frame("SELECT text, sum(duration_ns) FROM device_event e JOIN name n ON n.id = e.name GROUP BY ALL").rows()
        others = sum(100 - place for place in range(5, 12)) * 1000
        assert dict(rows) == {f"k{place}": (100 - place) * 1000 for place in range(5)} | {OTHER_KERNELS: others}
        assert [count for _, count in notes(store)] == [7]


@pytest.mark.parametrize(
    ("column", "bound", "what"),
    [("device", limits.DEVICES_PER_PROCESS, "devices of a process"), ("stream", limits.STREAMS_PER_DEVICE, "streams of a device")],
)
def test_events_of_devices_and_streams_beyond_the_limit_are_left_out(tmp_path: Path, column: str, bound: int, what: str) -> None:
    events = [kernel("k", place, **{column: place}) for place in range(bound + 300)]
    with ingest([write(tmp_path / "trace.json", events)]) as store:
        assert store.frame(f"SELECT count(*) AS n, max({column}) AS most FROM device_event").row(0) == (bound, bound - 1)
        text = f"The run has more than {bound:,} {what}, the limit; the events of the others were left out."
        assert notes(store) == [(text, 300)]


def test_threads_devices_and_metrics_beyond_the_limits_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_rows, "_BOUNDS", (("threads of a process", "host_event", ("process",), "tid", 3),))
    monkeypatch.setattr(limit_rows, "DEVICES", 4)
    events = [operator("a", place, tid=place) for place in range(5)] + [kernel("k", place, device=place) for place in range(6)]
    with ingest([write(tmp_path / "trace.json", events)]) as store:
        assert numbers(store, "SELECT tid FROM host_event ORDER BY tid") == [0, 1, 2]
        assert numbers(store, "SELECT device FROM device_event ORDER BY device") == [0, 1, 2, 3]
        assert numbers(store, 'SELECT "index" FROM device ORDER BY 1') == [0, 1, 2, 3]
        assert sorted(count for _, count in notes(store)) == [2, 2]


def metrics_line(node: str) -> str:
    record = {"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 5.0, "NodeId": node, "Timestamp": START_US / 1e6}
    return json.dumps(record) + "\n"


def test_nodes_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "NODES", 3)
    (tmp_path / "1700000000.algo-1.json").write_text("".join(metrics_line(f"algo-{place}") for place in range(7)))
    with ingest([tmp_path]) as store:
        assert numbers(store, "SELECT hostname FROM node ORDER BY 1") == ["algo-0", "algo-1", "algo-2"]
        assert store.frame("SELECT count(*) AS n FROM sample").item() == 3
        assert [count for _, count in notes(store)] == [4]


@pytest.mark.slow
def test_one_file_does_not_take_the_nodes_of_the_others(tmp_path: Path) -> None:
    lines = (metrics_line(f"algo-{place}") for place in range(limits.NODES + 4))
    (tmp_path / "1700000000.algo-1.json").write_text("".join(lines))
    document = {"schemaVersion": 1, "host_name": "good-host", "traceEvents": [kernel("good_kernel", 0)]}
    (tmp_path / "good.pt.trace.json").write_text(json.dumps(document))
    result = CliRunner().invoke(main, ["report", str(tmp_path), "-o", str(tmp_path / "out"), "--format", "json"])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out" / "report.json").read_text()
    assert "good_kernel" in text
    assert "good-host" in text
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT count(*) FROM node").item() == limits.NODES_PER_FILE + 1
        assert [count for _, count in notes(store)] == [limits.NODES + 4 - limits.NODES_PER_FILE]


def test_a_log_of_many_machines_keeps_the_first_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_log, "NODES_PER_FILE", 2)
    rows = [f"2024-01-01T00:00:0{place}Z,0,GPU-{place},n{place},NVIDIA H100,98" for place in range(5)]
    (tmp_path / "dcgm.csv").write_text("\n".join(["timestamp,gpu,UUID,Hostname,modelName,DCGM_FI_DEV_GPU_UTIL", *rows, ""]))
    with ingest([tmp_path]) as store:
        assert numbers(store, "SELECT hostname FROM node ORDER BY 1") == ["n0", "n1"]
        assert [count for _, count in notes(store, "too_many_devices")] == [3]


def test_processes_of_one_export_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PROCESSES_PER_FILE", 2)
    with sqlite3.connect(tmp_path / "report1.sqlite") as export:
        export.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        export.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        columns = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName")
        definitions = ", ".join(f'"{column}" INTEGER' for column in columns)
        export.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({definitions})")
        rows = [(10 * place, 10 * place + 5, 0, 1, 7, place, 1 << 48 | (place + 1) << 24, 1, 1) for place in range(5)]
        export.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(columns))})", rows)
    export.close()
    with ingest([tmp_path]) as store:
        assert numbers(store, "SELECT pid FROM process ORDER BY 1") == [1, 2]
        assert store.frame("SELECT count(*) FROM device_event").item() == 2
        assert [count for _, count in notes(store)] == [3]


def test_processes_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PROCESSES", 2)
    for rank in range(4):
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 4}, "traceEvents": [operator(f"a{rank}", rank)]}
        (tmp_path / f"host_{100 + rank}.trace.json").write_text(json.dumps(document))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT count(*) AS n FROM process").item() == 2
        assert store.frame("SELECT count(*) AS n FROM host_event").item() == 2
        assert [count for _, count in notes(store)] == [2]


def test_thousands_of_categories_give_few_notes(tmp_path: Path) -> None:
    events = [{**operator("a", place), "cat": f"odd{place}"} for place in range(3000)] + [operator("a", 1)]
    with ingest([write(tmp_path / "trace.json", events)]) as store:
        counts = [count for _, count in (*notes(store, "category_not_read"), *notes(store, "categories_not_read"))]
        assert sum(counts) == 3000
        assert len(counts) <= limits.CATEGORIES + 1


# -- unpacking -------------------------------------------------------------------------------------------------------------


def packed_trace(folder: Path, events: int = 40_000, *, zstd: bool = False) -> Path:
    path = folder / f"trace.json.{'zst' if zstd else 'gz'}"
    text = text_of(operator("a", place) for place in range(events))
    path.write_bytes(zstandard.compress(text) if zstd else gzip.compress(text))
    return path


def test_sizes_and_the_default_limit() -> None:
    assert [size_in_bytes(size) for size in ("1MB", "1.5 GB", "2GiB", "3kb")] == [10**6, 1_500_000_000, 2 << 30, 3000]
    assert [unpacked_limit(packed, None) for packed in (1, 10**9)] == [20 * 10**9, 200 * 10**9]
    assert unpacked_limit(10**9, "1MB") == 10**6
    with pytest.raises(UsageError, match=r"^--max-unpacked 'much' is not a size"):
        unpacked_limit(1, "much")


@pytest.mark.parametrize("zstd", [False, True])
def test_inflate_stops_exactly_at_the_limit(tmp_path: Path, zstd: bool) -> None:
    path = packed_trace(tmp_path, zstd=zstd)
    unpacked = b"".join(Inflate(path))
    assert len(unpacked) > 2_000_000
    stream = Inflate(path, max_unpacked="1MB")
    assert b"".join(stream) == unpacked[:1_000_000]
    assert [defect.code for defect in stream.defects] == ["unpacked_limit"]
    stream = Inflate(path, max_unpacked="100MB")
    assert (b"".join(stream), stream.defects) == (unpacked, [])


@pytest.mark.slow
def test_the_report_of_a_trace_cut_at_the_limit_counts_what_came_before_and_says_so(tmp_path: Path) -> None:
    path = packed_trace(tmp_path)
    options = ["-o", str(tmp_path / "out"), "--format", "json", "--max-unpacked", "1MB"]
    result = CliRunner().invoke(main, ["report", str(path), *options])
    assert result.exit_code == 0, result.output
    report = (tmp_path / "out" / "report.json").read_text()
    assert "unpacks to more than the limit" in report
    assert "--max-unpacked" in report
    with ingest([path], max_unpacked="1MB") as store:
        assert 5_000 < store.frame("SELECT count(*) AS n FROM host_event").item() < 20_000
        assert store.frame("SELECT status FROM run").item() == "partial"
    assert analyze(path, rules=[], max_unpacked="1MB").run.status == "partial"
    with ingest([path]) as store:
        assert store.frame("SELECT count(*) AS n FROM host_event").item() == 40_000


def test_a_plain_file_has_no_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", (operator("a", place) for place in range(20_000)))
    with ingest([path], max_unpacked="1KB") as store:
        assert store.frame("SELECT count(*) AS n FROM host_event").item() == 20_000


@pytest.mark.parametrize("command", ["report", "ingest", "compare", "export", "nightly"])
def test_every_command_that_reads_runs_takes_the_option(tmp_path: Path, command: str) -> None:
    path = str(packed_trace(tmp_path, 10))
    arguments = {"compare": [path, path], "export": [path, "-f", "csv", "-o", str(tmp_path / "x")]}
    arguments |= {"nightly": [str(tmp_path), "-o", str(tmp_path / "out")]}
    args = arguments.get(command, [path])
    result = CliRunner().invoke(main, [command, *args, "--max-unpacked", "much"])
    assert result.exit_code == 2
    assert "'much'" in result.output
    result = CliRunner().invoke(main, [command, *args], env={"POSTRUN_MAX_UNPACKED": "lots"})
    assert result.exit_code == 2
    assert "POSTRUN_MAX_UNPACKED" in result.output


def test_a_night_reads_with_the_limit(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    packed_trace(tmp_path / "runs" / "a")
    output = told(
        tmp_path / "runs", "-o", tmp_path / "out", "--engine", "none", "--settle", "0", "--format", "json", "--max-unpacked", "1MB"
    )
    assert output
    [report] = (tmp_path / "out").rglob("latest/report.json")
    assert "unpacks to more than the limit" in report.read_text()


def packed_database(path: Path, *, pages: int | None = None) -> Path:
    with sqlite3.connect(path.with_suffix("")) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
        connection.execute("CREATE TABLE filler (text)")
        connection.execute("INSERT INTO filler VALUES (?)", ["x" * 3_000_000])
    connection.close()
    raw = bytearray(path.with_suffix("").read_bytes())
    path.with_suffix("").unlink()
    if pages is not None:
        raw[28:32] = pages.to_bytes(4, "big")
    path.write_bytes(gzip.compress(bytes(raw)))
    return path


@pytest.mark.parametrize("pages", [None, 500_000])
def test_a_database_beyond_the_limit_is_refused_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int | None
) -> None:
    path = packed_database(tmp_path / "a.sqlite.gz", pages=pages)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    why = "unpacked it needs more than 1,000,000 bytes, the limit; raise --max-unpacked"
    with pytest.raises(InputError, match=why), unpacked(path, "1MB"):
        pass
    assert list(temporary.iterdir()) == []
    write(tmp_path / "trace.json", [operator("a", 0)])
    with ingest([tmp_path], max_unpacked="1MB") as store:
        assert any("raise --max-unpacked" in message for message, _ in notes(store, "not_readable"))
        assert store.frame("SELECT count(*) AS n FROM host_event").item() == 1


def test_packed_system_metrics_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "trace.json", [operator("a", 0)])
    (tmp_path / "1700000000.algo-1.json.gz").write_bytes(gzip.compress((metrics_line("algo-1") * 9000).encode()))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT count(*) AS n FROM sample").item() == 9000
    with ingest([tmp_path], max_unpacked="1MB") as store:
        assert store.frame("SELECT count(*) AS n FROM sample").item() == 0
        assert any("raise --max-unpacked" in message for message, _ in notes(store, "unreadable"))


def test_blocks_of_a_recording_beyond_the_limit_are_left_out(tmp_path: Path) -> None:
    writer = PrtWriter(zstd_level=3).prelude(["step"], [(0, 0, START_US * 1000)])
    chosen = random.Random(1).choices([1, 500_000, 2**40], k=20_000)
    columns = {1: [1] * 20_000, 2: range(0, 20_000_000, 1000), 3: [10] * 20_000, 4: chosen, 5: [0] * 20_000, 6: [0] * 20_000}
    for _ in range(4):
        writer.add("annotation", columns, source=1)
    (tmp_path / "a.prt").write_bytes(writer.end().data())
    block = TraceFile(tmp_path / "a.prt").contents["annotation"].raw_bytes // 4
    with ingest([tmp_path]) as store:
        total = store.frame("SELECT count(*) AS n FROM annotation").item()
    with ingest([tmp_path], max_unpacked=f"{block * 1.5 / 1000:.3f}KB") as store:
        part = store.frame("SELECT count(*) AS n FROM annotation").item()
        assert (total, part) == (80_000, 20_000)
        assert any("Raise --max-unpacked" in message for message, _ in notes(store, "unpacked_limit"))


def test_millions_of_empty_lines_of_a_log_take_little_memory(tmp_path: Path) -> None:
    head = b"timestamp, index, utilization.gpu [%]\n"
    path = tmp_path / "smi.csv.gz"
    path.write_bytes(gzip.compress(head + b"\n" * 20_000_000 + b"2024/01/01 00:00:00.123, 0, 85 %\n", 1))
    lines = [line for series in LogLines(path) for line in series]
    assert lines == [head.strip().decode(), "2024/01/01 00:00:00.123, 0, 85 %"]
    script = (
        "import re, sys; from pathlib import Path; from postrun.ingest.gpu_logs.lines import LogLines\n"
        "for series in LogLines(Path(sys.argv[1])): pass\n"
        "print(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300 << 10  # KiB; some 130,000 with Polars itself


def test_a_trace_without_events_adds_no_machine_and_no_process(tmp_path: Path) -> None:
    document = {"schemaVersion": 1, "host_name": "good-host", "traceEvents": [kernel("good_kernel", 0)]}
    (tmp_path / "good.pt.trace.json").write_text(json.dumps(document))
    (tmp_path / "bad.pt.trace.json").write_bytes(b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", \x00\x00\x00')
    with ingest([tmp_path]) as store:
        assert numbers(store, "SELECT hostname FROM node") == ["good-host"]
        assert store.frame("SELECT count(*) FROM process").item() == 1
        assert numbers(store, "SELECT file FROM ingest_note WHERE code = 'no_events'") == ["bad.pt.trace.json"]
