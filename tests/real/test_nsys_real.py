"""Tests that the report contains all of a real export of Nsight Systems: recounted by SQL and plain Python from the export.

The export: two processes of an inference job on two H100s, for one second. It names no GPU, and its calls and kernels are cut at the edges
of that second.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
import recompute
from postrun.analysis import analyze
from postrun.analysis.report import Report
from postrun.cli import main
from postrun.ingest import ingest
from postrun.ingest.kernels.demangle import demangled
from postrun.ingest.store import Store

PIDS = (111, 112)


@pytest.fixture(scope="module")
def path(shared_data: Path) -> Path:
    return shared_data / "nsys" / "h100_2gpu_1s.sqlite"


@pytest.fixture(scope="module")
def rows(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def store(path: Path) -> Iterator[Store]:
    with ingest([path]) as store:
        yield store


@pytest.fixture(scope="module")
def report(store: Store) -> Report:
    return analyze(store)


def test_every_row_is_there(store: Store, rows: sqlite3.Connection) -> None:
    tables = {"KERNEL": "kernel", "MEMCPY": "memcpy", "MEMSET": "memset", "SYNCHRONIZATION": "sync"}
    for table, kind in tables.items():
        expected = rows.execute(
            'SELECT count(*), sum("end" - start), min(start), max("end"), sum(globalPid >> 24 & 16777215), sum(correlationId),'
            " sum(streamId)"
            f" FROM CUPTI_ACTIVITY_KIND_{table}"
        ).fetchone()
        base = rows.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
        actual = store.frame(f"""
            SELECT count(*), sum(duration_ns)::BIGINT, min(start_ns) - {base}, max(start_ns + duration_ns) - {base}, sum(pid)::BIGINT,
                sum(correlation)::BIGINT, sum(stream)::BIGINT
            FROM device_event AS e JOIN process AS p ON p.id = e.process WHERE kind = '{kind}'""").row(0)
        assert actual == expected
    assert store.frame("SELECT count(*) FROM device_event").item() == 3442 + 904 + 22 + 244
    assert store.frame("SELECT count(*) FROM host_event WHERE kind IN ('launch', 'sync', 'call')").item() == 5796
    assert (
        store.frame("SELECT (SELECT count(*) FROM annotation) + (SELECT count(*) FROM host_event WHERE kind = 'operator')").item() == 16_782
    )
    assert store.frame("SELECT count(*) FROM host_event WHERE kind = 'overhead'").item() == 198


def test_processes_and_machine(store: Store, report: Report) -> None:
    """Of the 159 processes two were active; secrets of the environment are nowhere."""
    assert [(one.pid, one.rank, one.node) for one in report.processes] == [(111, 0, "modal"), (112, 1, "modal")]
    assert store.frame("SELECT hostname, cores FROM node").rows() == [("modal", 18)]
    assert store.frame("SELECT DISTINCT process, device FROM device_event ORDER BY ALL").rows() == [(0, 0), (1, 1)]
    notes = store.frame("SELECT severity, code FROM ingest_note ORDER BY ALL").rows()
    assert notes == [("warning", "rank_guessed")]
    everything = " ".join(str(store.frame(f"FROM {table}").rows()) for table in ("run", "process", "node", "source", "ingest_note"))
    assert "dummy" not in everything
    assert "MODAL" not in everything


def test_totals_of_kernels_by_name(report: Report, rows: sqlite3.Connection) -> None:
    launches = rows.execute("""
        SELECT m.value, count(*), sum("end" - start), min("end" - start), max("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL
        JOIN StringIds AS m ON m.id = mangledName GROUP BY mangledName""").fetchall()
    names = demangled([row[0] for row in launches])
    expected = {name: (n, total, least, most) for name, (_, n, total, least, most) in zip(names, launches, strict=True)}
    assert {one.name: (one.count, one.total_ns, one.min_ns, one.max_ns) for one in report.kernels} == expected
    assert max(report.kernels, key=lambda one: one.total_ns).total_ns == 31_121_662


def test_device_time(report: Report, rows: sqlite3.Connection) -> None:
    for line, (pid, device) in zip(report.time_breakdown, ((111, 0), (112, 1)), strict=True):
        spans = []
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            spans += rows.execute(
                f'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_{table} WHERE deviceId = ? AND globalPid >> 24 & 16777215 = ?', (device, pid)
            ).fetchall()
        busy, reached = 0, min(spans)[0]
        for start, end in sorted(spans):
            busy += max(end - max(start, reached), 0)
            reached = max(reached, end)
        span = max(end for _, end in spans) - min(spans)[0]
        assert (line.pid, line.busy_ns, line.span_ns, line.idle_ns) == (pid, busy, span, span - busy)


def test_copies(report: Report, rows: sqlite3.Connection) -> None:
    expected = rows.execute("""
        SELECT CASE copyKind WHEN 1 THEN 'HtoD' WHEN 2 THEN 'DtoH' WHEN 8 THEN 'DtoD' END,
            CASE WHEN 0 IN (srcKind, dstKind) THEN 'pageable' WHEN 1 IN (srcKind, dstKind) THEN 'pinned' END,
            count(*), sum(bytes), sum("end" - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1, 2
        UNION ALL SELECT 'Memset', NULL, count(*), sum(bytes), sum("end" - start) FROM CUPTI_ACTIVITY_KIND_MEMSET""").fetchall()
    actual = {(one.kind, one.memory): (one.count, one.total_bytes, one.total_ns) for one in report.memory_operations}
    assert actual == {(kind, memory): tuple(rest) for kind, memory, *rest in expected}


def test_ranges_and_operators(store: Store, rows: sqlite3.Connection) -> None:
    """PyTorch's emit_nvtx wrote operators of a namespace, else ranges without numbers."""
    texts_ns = rows.execute('SELECT text, "end" - start FROM NVTX_EVENTS').fetchall()
    texts = [(re.sub(r", (seq|op_id) = .*", "", text), ns) for text, ns in texts_ns]
    is_operator = re.compile(r"[a-z_]\w*::[\w.]+|\w+Backward\d*")
    for table, wanted in (("host_event WHERE kind = 'operator'", True), ("annotation", False)):
        selected = [(name, ns) for name, ns in texts if (is_operator.fullmatch(name) is not None) == wanted]
        counts, totals = Counter(name for name, _ in selected), Counter[str]()
        for name, ns in selected:
            totals[name] += ns
        actual = store.frame(
            f"SELECT n.text, c, t::BIGINT FROM (SELECT name, count(*) AS c, sum(duration_ns) AS t FROM {table}"
            " GROUP BY name) AS g JOIN name AS n ON n.id = g.name"
        ).rows()
        assert {name: (n, ns) for name, n, ns in actual} == {name: (counts[name], totals[name]) for name in counts}


def _as_traces(rows: sqlite3.Connection, folder: Path) -> list[Path]:
    """Write the export as traces of PyTorch's profiler, one per process."""
    words = dict(rows.execute("SELECT id, value FROM StringIds"))
    names = dict(zip(words, demangled(list(words.values())), strict=True))
    base = rows.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    memory, copies, waits = ("Pageable", "Pinned", "Device"), {1: "HtoD", 2: "DtoH", 8: "DtoD"}, {2: "Stream Wait Event", 3: "Stream Sync"}
    events: dict[int, list[dict[str, Any]]] = {pid: [] for pid in PIDS}

    def add(process: int, category: str, name: str, start: int, end: int, tid: int, **args: Any) -> None:
        pid = process >> 24 & 0xFFFFFF
        times = {"ts": f"{start // 1000}.{start % 1000:03}", "dur": f"{(end - start) // 1000}.{(end - start) % 1000:03}"}
        events[pid].append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args} | times)

    basic = 'globalPid, start, "end", streamId, correlationId'
    for process, start, end, stream, link, device, name in rows.execute(
        f"SELECT {basic}, deviceId, mangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
    ):
        add(process, "kernel", names[name], start, end, stream, device=device, stream=stream, correlation=link)
    for process, start, end, stream, link, device, size, kind, source, target in rows.execute(
        f"SELECT {basic}, deviceId, bytes, copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    ):
        name = f"Memcpy {copies[kind]} ({memory[source]} -> {memory[target]})"
        add(process, "gpu_memcpy", name, start, end, stream, device=device, stream=stream, correlation=link, bytes=size)
    for process, start, end, stream, link, device, size in rows.execute(f"SELECT {basic}, deviceId, bytes FROM CUPTI_ACTIVITY_KIND_MEMSET"):
        add(process, "gpu_memset", "Memset (Device)", start, end, stream, device=device, stream=stream, correlation=link, bytes=size)
    for process, start, end, stream, link, context, kind in rows.execute(
        f"SELECT {basic}, contextId, syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    ):
        # Context 1 is of the first GPU, context 2 of the second, as in kernels.
        add(process, "cuda_sync", waits[kind], start, end, stream, device=context - 1, stream=stream, correlation=link)
    for thread, start, end, link, name in rows.execute(
        'SELECT globalTid, start, "end", correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME'
    ):
        add(thread, "cuda_runtime", re.sub(r"_v\d+$", "", words[name]), start, end, thread & 0xFFFFFF, correlation=link)
    for thread, start, end, text in rows.execute('SELECT globalTid, start, "end", text FROM NVTX_EVENTS'):
        name = re.sub(r", (seq|op_id) = .*", "", text)
        category = "cpu_op" if re.fullmatch(r"[a-z_]\w*::[\w.]+|\w+Backward\d*", name) else "user_annotation"
        add(thread, category, name, start, end, thread & 0xFFFFFF)
    paths = []
    for pid, rows_of_process in events.items():
        text = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": rows_of_process})
        paths.append(folder / f"{pid}.json")
        paths[-1].write_text(re.sub(r'"(ts|dur)": "([\d.]+)"', r'"\1": \2', text))
    return paths


@pytest.fixture(scope="module")
def second_computation(project_root: Path) -> ModuleType:
    """The sections of a report by recomputation, as test_recomputed.py compares them."""
    spec = importlib.util.spec_from_file_location("recomputed_sections", project_root / "tests" / "real" / "test_recomputed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_section_is_that_of_the_same_events_in_traces(
    report: Report, rows: sqlite3.Connection, second_computation: ModuleType, tmp_path: Path
) -> None:
    traces = [recompute.Trace(path) for path in _as_traces(rows, tmp_path)]
    for section, (expected, actual) in second_computation.sections(traces, report).items():
        assert actual == second_computation.close(expected), section


def test_kinds_of_kernels(report: Report) -> None:
    assert {one.category for one in report.kernels} == {"GEMM", "elementwise", "reduction", "memory", "embedding/index", "softmax"}
    assert report.precision.matrix[0].name == "FP32"


def test_export_writes_every_event(path: Path, tmp_path: Path) -> None:
    main(["export", str(path), "--format", "parquet", "-o", str(tmp_path / "tables"), "--quiet"])
    written = {one.stem: pl.scan_parquet(one).select(pl.len()).collect().item() for one in (tmp_path / "tables").glob("*.parquet")}
    assert (written["device_event"], written["host_event"] + written["annotation"]) == (4612, 5796 + 198 + 16_782)
    main(["export", str(path), "--format", "perfetto", "-o", str(tmp_path / "trace.pftrace"), "--quiet"])
    assert (tmp_path / "trace.pftrace").stat().st_size > 100_000
