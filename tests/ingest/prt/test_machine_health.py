"""Tests of the notes of hardware errors: recordings with known samples -> exact notes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from postrun.analysis import Options, analyze
from postrun.ingest import ingest
from postrun.ingest.prt.machine_health import XID
from postrun.ingest.store.metrics import METRICS
from postrun.native import _native
from prt_writer import PrtWriter

START = 1_700_000_000_000_000_000
SECOND = 10**9
Sample = tuple[str, int, float, float]  # metric, unit, seconds, value
Notes = Callable[..., list[tuple[str, str, str, int]]]


def recording(samples: list[Sample], metadata: dict[str, str], *, host: str = "h1", pid: int = 4711) -> bytes:
    names = sorted({metric for metric, _, _, _ in samples})
    writer = PrtWriter()
    writer.parts = [_native.write_trace_header(bytes([pid % 256] * 16), pid, 1, 1, START)]
    writer.prelude(names, [(i * SECOND, i * SECOND, START + i * SECOND) for i in range(3)])
    writer.add("process", {1: [pid], 2: [1], 3: [START - SECOND], 4: ["python t.py"], 5: [host], 6: [-1], 7: [-1], 8: [-1]})
    if metadata:
        writer.add("meta", {1: list(metadata), 2: list(metadata.values())})
    samples = sorted(samples, key=lambda sample: sample[2])
    columns = {
        1: [names.index(metric) + 1 for metric, _, _, _ in samples], 2: [unit for _, unit, _, _ in samples],
        3: [round(at * SECOND) for _, _, at, _ in samples], 4: [float(value) for _, _, _, value in samples],
    }  # fmt: skip
    writer.add("metric", columns, first_time=columns[3][0])
    return writer.end().data()


@pytest.fixture
def noted(tmp_path: Path) -> Notes:
    """The notes of hardware errors of one recording: code, severity, text, count."""

    def read(samples: list[Sample], metadata: dict[str, str] | None = None) -> list[tuple[str, str, str, int]]:
        (tmp_path / "a.prt").write_bytes(recording([("gpu_power", 0, 0, 100), *samples], metadata or {}))
        with ingest([tmp_path]) as store:
            assert store.frame("SELECT count(*) FROM ingest_note WHERE code = 'unknown_metric'").item() == 0
            actual = "SELECT code, severity, message, count FROM ingest_note WHERE regexp_matches(code, '^(gpu|infiniband)_') ORDER BY 1"
            return [(code, severity, text, count) for code, severity, text, count in store.frame(actual).rows()]

    return read


def test_xid_errors(noted: Notes) -> None:
    times = [(1, 3, 79), (0, 1, 31), (0, 2, 31), (-1, 4, 13), (0, 5, 9999)]
    samples: list[Sample] = [("gpu_xid", unit, at, code) for unit, at, code in times]
    text = (
        "The driver reported errors of GPUs on h1:"
        " GPU 0: XID 31 (a page fault of the GPU, mostly an illegal address of the program), 2 times;"
        " GPU 0: XID 9999 (see NVIDIA's list of XID errors); GPU 1: XID 79 (the GPU has fallen off the bus);"
        " an unknown GPU: XID 13 (an exception of the compute engine, mostly an illegal instruction or address of the program)."
    )
    assert noted(samples) == [("gpu_xid", "warning", text, 5)]


def test_well_known_xid_errors_have_words() -> None:
    assert {13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 140} <= set(XID)


def test_memory_errors_of_the_run(noted: Notes) -> None:
    """Only increases count; earlier values do not belong to this run."""
    before: list[Sample] = [
        (metric, unit, 0, 5)
        for unit in (0, 1)
        for metric in METRICS
        if metric.startswith("gpu_ecc_") or metric.startswith("gpu_remapped_rows")
    ]
    fine: list[Sample] = [("gpu_row_remapping_pending", 0, 0, 0), ("gpu_row_remapping_failed", 0, 0, 0)]
    assert noted(before + fine) == []
    assert noted([*before, *fine, ("gpu_ecc_corrected", 1, 60, 12)]) == [
        ("gpu_memory_errors", "info", "Memory errors of GPUs on h1 during the run: GPU 1: 7 corrected ECC errors.", 1)
    ]
    worse: list[Sample] = [
        ("gpu_ecc_uncorrected", 1, 60, 6), ("gpu_ecc_uncorrected_lifetime", 1, 60, 6), ("gpu_remapped_rows_uncorrected", 1, 60, 6),
        ("gpu_row_remapping_pending", 0, 60, 1), ("gpu_row_remapping_failed", 1, 0, 1),
    ]  # fmt: skip
    errors, failed, pending = noted(before + fine + worse)
    assert errors[1] == failed[1] == pending[1] == "warning"
    assert errors[2].startswith("Memory errors of GPUs on h1 during the run: GPU 1: 1 uncorrected ECC error; GPU 1: 1 row remapped for ")
    assert failed[2].startswith("These GPUs on h1 have a memory row that could not be replaced;")
    assert failed[2].endswith(": GPU 1.")
    assert pending[2] == "These GPUs on h1 have a memory row that waits for a reset of the GPU to be replaced: GPU 0."


def test_links_that_went_down(noted: Notes) -> None:
    downs: list[Sample] = [
        ("infiniband_link_downed", 0, 0, 0), ("infiniband_link_downed", 0, 60, 1), ("infiniband_link_downed", 1, 0, 0),
        ("infiniband_link_downed", 2, 0, 0), ("infiniband_link_downed", 2, 60, 3),
    ]  # fmt: skip
    text = "Links of InfiniBand ports on h1 went down during the run: mlx5_0/1 once, port 2 3 times."
    names = {"infiniband.0.port": "mlx5_0/1", "infiniband.1.port": "mlx5_1/1"}
    assert noted(downs, names) == [("infiniband_link_down", "warning", text, 2)]


def test_figures_of_temperatures_and_links(tmp_path: Path) -> None:
    """Temperatures are means of GPUs, bytes sums of both directions, then means."""
    samples: list[Sample] = []
    for second in range(10):
        for gpu in (0, 1):
            samples += [("gpu_utilization", gpu, second, 50), ("gpu_temperature", gpu, second, 60 + 10 * gpu)]
        if second % 5 == 0:
            samples += [("gpu_pcie_transmit", 0, second, 1e9), ("gpu_pcie_receive", 0, second, 2e9), ("gpu_throttle_power", 0, second, 25)]
            samples += [("infiniband_transmit", port, second, 4e9) for port in (0, 1)]
    (tmp_path / "a.prt").write_bytes(recording(samples, {}))
    with ingest([tmp_path]) as store:
        report = analyze(store, Options(generated_at_ns=0))
    usage = {row.metric: (row.samples, row.p50, row.unit) for row in report.system_usage.nodes}
    assert usage["gpu_temperature"] == (10, 65, "°C")
    assert usage["gpu_pcie"] == (2, 3e9, "B/s")
    assert usage["gpu_throttle_power"] == (2, 25, "% of the interval")
    assert usage["infiniband"] == (2, 4e9, "B/s")
    assert usage["gpu"] == (10, 50, "%")
