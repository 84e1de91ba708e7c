"""Both readers read a file of version 1.1 with all kinds of GPU records as ever, and its report has the right figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("postrun.native._native")

import prt_reader
from golden_gpu import META, SECOND, START, TABLES, expected, golden_gpu
from postrun.analysis import Options, analyze
from postrun.ingest import ingest
from postrun.ingest.prt.format import TraceFile

GOLDEN = Path(__file__).parent / "golden" / "v1_1.prt"


def by_c(path: Path) -> dict[str, list[dict[str, Any]]]:
    trace = TraceFile(path)
    assert trace.problems() == []
    return {table: trace.table(table).arrow().to_pylist() for table in TABLES}


def test_the_golden_file_of_gpus_reads_as_ever() -> None:
    assert by_c(GOLDEN) == expected()
    trace = TraceFile(GOLDEN)
    assert (trace.header["major"], trace.header["minor"], trace.header["pid"]) == (1, 1, 4711)
    assert {key: value for key, value in trace.metadata().items() if key != "clock.ticks_per_second"} == META


def test_the_second_reader_gives_the_same_rows() -> None:
    tables = prt_reader.read(GOLDEN.read_bytes())
    assert {table: tables[table] for table in TABLES} == expected()


def test_what_is_written_today_holds_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "t.prt").write_bytes(golden_gpu())
    assert by_c(tmp_path / "t.prt") == expected()


def test_what_the_report_makes_of_it(tmp_path: Path) -> None:
    with ingest([GOLDEN]) as store:
        report = analyze(store, Options(generated_at_ns=0))

        def rows(sql: str) -> list[Any]:
            return store.frame(sql).rows()

        # The process's device 0 is the driver's GPU 1, by UUID. The copy from host to host and a context without other records: 0.
        assert rows("SELECT DISTINCT device FROM device_event") == [(1,)]
        assert rows(f"SELECT first_ns - {START}, last_ns - {START} FROM profile_window ORDER BY 1") == [
            (1_000_000, 5_000_000),
            (SECOND, 2 * SECOND),  # not closed: to the end of the recording
        ]
        assert rows("SELECT n.text FROM device_event e JOIN name n ON n.id = e.name WHERE kind = 'kernel' ORDER BY start_ns") == [
            ("kernel(float*, int)",), ("kernel(float*, int)",), ("sgemm_128x64",), ("sgemm_128x64",), ("(no name)",),
        ]  # fmt: skip
        shape = "grid_x, block_z, registers, shared_memory, graph_node"
        assert rows(f"SELECT {shape} FROM device_event WHERE kind = 'kernel' ORDER BY start_ns") == [
            (2**31 - 1, 8, 255, 232_448, None), (132, 1, 40, 0, 2**32 + 5), (64, 1, 96, 49_152, 2**32 + 6), (1, 1, 16, 0, None),
            (1, 1, 16, 0, None),
        ]  # fmt: skip
    notes = {note.code: (note.severity, note.count) for note in report.data_quality}
    assert notes["device_records_lost"] == ("warning", 1_000)
    assert notes["device_times_lost"] == ("warning", 7)
    assert report.run.status == "partial"
    # Kernels: 20 us, 300 us, 400 us, 1 ms, 0. Copies 100 + 50 + 2 + 200 us + 10 ns, the memset 4 us.
    assert {(one.name, one.total_ns, one.count) for one in report.activity.shares} == {
        ("kernel", 1_720_000, 5), ("memcpy", 352_010, 5), ("memset", 4_000, 1), ("sync", 1_584_000, 4),
    }  # fmt: skip
    assert report.activity.sync_source == "device"
    assert {(one.kind, one.memory, one.total_ns, one.total_bytes, one.bandwidth_gb_per_s) for one in report.memory_operations} == {
        ("HtoD", "pinned", 100_000, 2_500_000, 25.0), ("DtoH", "pageable", 50_000, 4, 0.00008), ("DtoD", None, 2_000, 2**40, 2**40 / 2_000),
        ("PtoP", None, 200_000, 1_000_000, 5.0), ("HtoH", "pageable", 10, 0, 0.0), ("Memset", None, 4_000, 8_192, 2.048),
    }  # fmt: skip
    # Launches: runtime's 101 (the driver's inside of it is a call), the copy 102, the graph 103, and in the second window 1 and 2^32 - 1.
    actual = report.launches
    assert (actual.calls, actual.pairs, actual.graph_runs, actual.negative) == (5, 5, 1, 0)
    assert (actual.launches_without_run, actual.runs_without_launch) == (0, 5)  # copies 106 to 108, one without correlation, memset 109
    # 1,150 - 1,108; 1,250 - 1,206; 1,500 - 1,320; 16 - 14; 30 - 24 us
    assert sorted(pair.latency_ns for pair in actual.slowest) == [2_000, 6_000, 42_000, 44_000, 180_000]
    [device] = report.time_breakdown
    # First window: 1,150 - 1,170, 1,250 - 1,350, 1,500 - 1,800, 1,900 - 2,300, 2,400 - 2,450, 2,460 - 2,462, 2,470 - 2,670, 2,700 - 2,704,
    # 2,800 - 2,800.01 us; second: 16 - 1,016 us. The spans are from the first to the last of each.
    assert (device.device, device.busy_ns, device.span_ns) == (1, 1_076_010 + 1_000_000, 1_650_010 + 1_000_000)
    assert device.device_name == "NVIDIA H100 80GB HBM3"
    # Steps 10, 11 and one that the stop ended, which is left out. Step 10: 1,150 to 2,300 us (by launches), 11: 16 to 1,016 us.
    assert [(one.index, one.on_device, one.duration_ns) for one in report.steps.steps] == [(10, True, 1_150_000), (11, True, 1_000_000)]
    [clocks] = report.system_usage.gpu_clocks
    # Bits 36: power cap and thermal, from 1 s to 2 s; the last sample stands for the usual interval, 1 s.
    assert (clocks.device, clocks.power_p50_w, clocks.power_max_w) == (1, (123.456 + 699.9) / 2, 699.9)
    assert (clocks.sm_clock_min_mhz, clocks.sm_clock_max_mhz) == (1200.0, 1980.0)
    assert (clocks.sampled_ns, clocks.heat_ns, clocks.power_ns, clocks.hardware_ns) == (3 * SECOND, SECOND, SECOND, 0)
    [gpu] = [one for one in report.system_usage.series if one.metric == "gpu"]
    assert (gpu.derived, [time - START for time in gpu.time_ns], gpu.mean, gpu.low, gpu.high) == (
        False, [0, SECOND], (45.0, 26.0), (0.0, 2.0), (90.0, 50.0),
    )  # fmt: skip
    assert [(one.index, one.uuid, one.sm_count) for one in report.devices] == [
        (0, META["gpu.0.uuid"], None),
        (1, META["cuda.0.uuid"], 132),
    ]
