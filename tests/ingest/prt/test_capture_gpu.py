"""Tests for recorded GPU activity -> rows and figures, in any order and with gaps. The events are computed by hand."""

from __future__ import annotations

import errno
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.prt import staged_rows
from postrun.ingest.prt.file_rows import CaptureFile
from postrun.ingest.prt.reader import Captures
from postrun.ingest.store import Store
from postrun.ingest.store.result import CaptureResult
from postrun.native import _native
from prt_reader import MISSING
from prt_writer import PrtWriter

START = 1_700_000_000_000_000_000
NAMES = ["k", "cudaLaunchKernel", "cudaStreamSynchronize", "cudaGraphLaunch", "cuLaunchKernel", "step", "other", "gpu_utilization"]
K, LAUNCH, WAIT, GRAPH, DRIVER, STEP, SECOND, UTILIZATION = range(1, 9)
HOST_LAUNCH, HOST_SYNC, HOST_CALL = range(3)


@dataclass
class Gpu:
    """A recording of one process; times are ns after START. :meth:`data` is the file."""

    pid: int = 100
    session: int = 1
    rank: int = -1
    host: str = "h1"
    number: int = 1
    metadata: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: list(NAMES))
    blocks: list[tuple[str, dict[int, list[Any]], int]] = field(default_factory=list)

    def add(self, table: str, columns: dict[int, list[Any]], source: int = 0) -> Gpu:
        self.blocks.append((table, columns, source))
        return self

    def call(self, start: int, length: int, correlation: int, *, name: int = LAUNCH, kind: int = HOST_LAUNCH, tid: int = 100) -> Gpu:
        return self.add("api", {1: [name], 2: [start], 3: [length], 4: [correlation], 5: [kind], 6: [tid]})

    def run(self, start: int, length: int, correlation: int, *, stream: int = 7, device: int = 0, name: int = K, node: int = 0) -> Gpu:
        shape = {number: [1] for number in range(8, 16)}
        return self.add("kernel", {1: [name], **self._columns(start, length, correlation, stream, device), **shape, 16: [node]})

    def copy(self, start: int, length: int, correlation: int, *, kind: int, size: int, pageable: int, stream: int = 7) -> Gpu:
        return self.add("memcpy", {**self._columns(start, length, correlation, stream, 0), 8: [kind], 9: [size], 10: [pageable]})

    def fill(self, start: int, length: int, correlation: int, *, size: int) -> Gpu:
        return self.add("memset", {**self._columns(start, length, correlation, 7, 0), 9: [size]})

    def sync(
        self, start: int, length: int, correlation: int, *, kind: int, device: int = -1, context: int = 1, stream: int = MISSING
    ) -> Gpu:
        return self.add("sync", {**self._columns(start, length, correlation, stream, device), 5: [context], 8: [kind]})

    def step(self, start: int, length: int, value: int) -> Gpu:
        return self.add("annotation", {1: [STEP], 2: [start], 3: [length], 4: [value], 5: [0], 6: [0]}, 1)

    def data(self) -> bytes:
        writer = PrtWriter()
        writer.parts = [_native.write_trace_header(bytes([self.session] * 16), self.pid, 1, self.number, START)]
        writer.prelude(self.names, [(i * 10**9, i * 10**9, START + i * 10**9) for i in range(3)])
        if self.metadata:
            writer.add("meta", {1: list(self.metadata), 2: list(self.metadata.values())})
        ids = {6: [self.rank], 7: [self.rank], 8: [-1]}
        writer.add("process", {1: [self.pid], 2: [1], 3: [START], 4: ["python t.py"], 5: [self.host], **ids})
        writer.add("thread", {1: [1], 2: [self.pid], 3: ["MainThread"]})
        for table, columns, source in self.blocks:
            writer.add(table, columns, source=source)
        return writer.end().data()

    @staticmethod
    def _columns(start: int, length: int, correlation: int, stream: int, device: int) -> dict[int, list[int]]:
        return {2: [start], 3: [length], 4: [device], 5: [device + 1], 6: [stream], 7: [correlation]}


def load(folder: Path, *recordings: Gpu) -> Store:
    folder.mkdir(exist_ok=True)
    for i, recording in enumerate(recordings):
        (folder / f"{i}.prt").write_bytes(recording.data())
    return ingest([folder])


def reported(folder: Path, *recordings: Gpu) -> Report:
    with load(folder, *recordings) as store:
        return analyze(store, Options(generated_at_ns=0))


def rows(store: Store, sql: str) -> list[Any]:
    return store.frame(sql).rows()


def notes(store: Store) -> dict[str, int]:
    return dict(rows(store, "SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code"))


def facts(prefix: str, uuids: Iterable[str], **more: str) -> dict[str, str]:
    return {f"{prefix}.{i}.{key}": value for i, uuid in enumerate(uuids) for key, value in {"uuid": uuid, **more}.items()}


def test_a_step_by_hand(tmp_path: Path) -> None:
    # Host:    launch 100-110 (1), copy 120-130 (2), memset 140-150 (3), launch 160-170 (4), wait 200-600 (5)
    # Device:  k 150-250, copy 250-300, memset 300-310 on stream 7; k 220-420 on stream 8. Records come backwards.
    recording = Gpu().step(50, 600, 3)
    recording.sync(205, 390, 5, kind=3, stream=8).run(220, 200, 4, stream=8, name=SECOND).fill(300, 10, 3, size=640)
    recording.copy(250, 50, 2, kind=1, size=1000, pageable=1).run(150, 100, 1)
    recording.call(200, 400, 5, name=WAIT, kind=HOST_SYNC).call(160, 10, 4).call(140, 10, 3).call(120, 10, 2).call(100, 10, 1)
    report = reported(tmp_path, recording)
    [device] = report.time_breakdown
    # busy 150-420; computation k and other: 150-250 and 220-420 = 270; memory 250-310, always during the second kernel
    assert (device.span_ns, device.busy_ns, device.computation_ns, device.memory_ns, device.exposed_memory_ns) == (270, 270, 270, 60, 0)
    assert (device.memcpy_ns, device.memset_ns, device.kernel_total_ns, device.linked_busy_ns) == (50, 10, 300, 270)
    assert {(row.name, row.total_ns, row.count) for row in report.activity.shares} == {
        ("kernel", 300, 2), ("memcpy", 50, 1), ("memset", 10, 1), ("sync", 390, 1),
    }  # fmt: skip
    assert report.activity.sync_source == "device"
    launches = report.launches
    # latencies: 150 - 110, 250 - 130, 300 - 150, 220 - 170
    assert (launches.calls, launches.pairs, launches.runs_without_launch, launches.launches_without_run, launches.negative) == (
        4,
        4,
        0,
        0,
        0,
    )
    assert sorted(pair.latency_ns for pair in launches.slowest) == [40, 50, 120, 150]
    assert [(one.kind, one.memory, one.total_bytes, one.bandwidth_gb_per_s) for one in report.memory_operations] == [
        ("HtoD", "pageable", 1000, 20.0), ("Memset", None, 640, 64.0),
    ]  # fmt: skip
    assert report.idle == ()  # no stream is idle between two kernels: those on stream 7 follow without a gap
    [step] = report.steps.steps
    assert (step.index, step.duration_ns, step.on_device) == (3, 270, True)


def test_gaps_of_a_stream_and_their_causes(tmp_path: Path) -> None:
    # Stream 7: 100-200 | gap of 50: host 10, kernel wait 40 | 250-300 | gap of 25, launched before: kernel wait | 325-400
    recording = Gpu().run(325, 75, 3).run(100, 100, 1).run(250, 50, 2).call(10, 10, 1).call(200, 10, 2).call(60, 10, 3)
    [idle] = reported(tmp_path, recording).idle
    assert (idle.stream, idle.gaps, idle.host_wait_ns, idle.kernel_wait_ns, idle.other_ns) == (7, 2, 10, 40 + 25, 0)


def test_a_graph_is_one_launch(tmp_path: Path) -> None:
    recording = Gpu().call(0, 10, 9, name=GRAPH)
    for i, node in enumerate((2**40 + 3, 2**40 + 1, 2**40 + 2)):
        recording.run(100 - 20 * i, 10, 9, node=node)
    with load(tmp_path, recording) as store:
        nodes = rows(store, "SELECT graph_node FROM device_event ORDER BY start_ns")
        assert nodes == [(2**40 + 2,), (2**40 + 1,), (2**40 + 3,)]
        launches = RunData(store).launches
    assert (launches.calls, launches.pairs, launches.graph_runs, launches.runs_without_launch, launches.launches_without_run) == (
        1,
        1,
        2,
        0,
        0,
    )
    assert [pair.latency_ns for pair in launches.slowest] == [50]  # to the first run


def test_correlations_that_are_missing(tmp_path: Path) -> None:
    recording = Gpu().call(0, 10, 1).call(20, 10, 2).call(40, 10, MISSING).run(30, 5, 1).run(50, 5, 3).run(60, 5, 0).run(70, 5, MISSING)
    with load(tmp_path, recording) as store:
        assert rows(store, "SELECT count(*) FROM device_event WHERE correlation IS NULL") == [(2,)]
        launches = RunData(store).launches
    assert (launches.calls, launches.pairs, launches.runs_without_launch, launches.launches_without_run) == (3, 1, 3, 2)


def test_a_device_whose_clock_is_before_the_hosts(tmp_path: Path) -> None:
    recording = Gpu().call(100, 20, 1).call(200, 20, 2).run(90, 50, 1).run(230, 50, 2)
    launches = reported(tmp_path, recording).launches
    assert (launches.pairs, launches.negative) == (2, 1)
    assert launches.latency is not None
    assert (launches.latency.count, launches.latency.max) == (1, 10)


def test_times_that_cannot_be(tmp_path: Path) -> None:
    recording = Gpu().run(100, -5_000, 1).run(200, -900, 2).run(300, 0, 3).run(400, 8 * 86_400 * 10**9, 4).run(-START, 10, 5)
    recording.call(50, -3_000, 6).call(60, 0, 7).run(MISSING, 5, 8).run(500, 7, 9)
    with load(tmp_path, recording) as store:
        assert rows(store, f"SELECT start_ns - {START}, duration_ns FROM device_event ORDER BY 1") == [(200, 0), (300, 0), (500, 7)]
        assert rows(store, "SELECT duration_ns FROM host_event") == [(0,)]
        noted = notes(store)
        assert noted.pop("out_of_range", 1) == 1
        assert noted == {"negative_duration": 2, "rounded_duration": 1, "absurd_duration": 1, "zero_time": 2} or noted == {
            "negative_duration": 2, "rounded_duration": 1, "absurd_duration": 1, "zero_time": 1, "incomplete_record": 1,
        }  # fmt: skip


def test_the_drivers_call_inside_of_the_runtimes_is_no_launch(tmp_path: Path) -> None:
    recording = Gpu().call(0, 50, 1).call(10, 20, 1, name=DRIVER).run(60, 5, 1).call(100, 10, 2, name=DRIVER).run(120, 5, 2)
    recording.call(200, 10, 3, name=DRIVER).call(220, 10, 3, name=DRIVER).run(240, 5, 3)  # consecutive calls: both count
    with load(tmp_path, recording) as store:
        assert rows(store, "SELECT kind::VARCHAR FROM host_event ORDER BY start_ns") == [
            ("launch",), ("call",), ("launch",), ("launch",), ("launch",),
        ]  # fmt: skip
        launches = RunData(store).launches
    assert (launches.calls, launches.pairs) == (4, 3)
    assert [pair.latency_ns for pair in launches.slowest] == [30, 10, 10]


def test_calls_are_named_as_programs_write_them(tmp_path: Path) -> None:
    texts = {
        "cudaLaunchKernel_v7000": "cudaLaunchKernel",
        "cudaMemcpyAsync_ptsz_v7000": "cudaMemcpyAsync",
        "cuLaunchKernel_ptsz": "cuLaunchKernel",
        "cuMemAlloc_v2": "cuMemAlloc_v2",
        "cudaDeviceSynchronize": "cudaDeviceSynchronize",
        "my_v7000": "my_v7000",
        "cudaGraphLaunch_v10000": "cudaGraphLaunch",
    }
    recording = Gpu(names=list(texts))
    for i in range(len(texts)):
        recording.call(i * 10, 1, i + 1, name=i + 1, kind=MISSING)
    with load(tmp_path, recording) as store:
        actual = rows(store, "SELECT n.text, kind::VARCHAR FROM host_event JOIN name n ON n.id = name ORDER BY start_ns")
    assert [text for text, _ in actual] == list(texts.values())
    assert [kind for _, kind in actual] == [
        "launch",
        "launch",
        "launch",
        "call",
        "sync",
        "call",
        "launch",
    ]  # by name, if the recording has no kind


def test_copies_are_named_as_the_profiler_does(tmp_path: Path) -> None:
    recording = Gpu()
    for i, (kind, pageable) in enumerate([(1, 1), (1, 0), (2, 0), (2, MISSING), (8, 0), (10, 0), (9, 1), (77, 0)]):
        recording.copy(i * 10, 5, i + 1, kind=kind, size=1, pageable=pageable)
    with load(tmp_path, recording) as store:
        actual = rows(store, "SELECT n.text, copy_kind, pageable FROM device_event JOIN name n ON n.id = name ORDER BY start_ns")
    assert actual == [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD", True), ("Memcpy HtoD (Pinned -> Device)", "HtoD", False),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH", False), ("Memcpy DtoH", "DtoH", None), ("Memcpy DtoD (Device -> Device)", "DtoD", None),
        ("Memcpy PtoP (Device -> Device)", "PtoP", None), ("Memcpy HtoH", "HtoH", True), ("Memcpy (unknown)", None, None),
    ]  # fmt: skip


def test_synchronization_is_of_the_device_of_its_context(tmp_path: Path) -> None:
    recording = Gpu().run(0, 5, 1, device=3).sync(10, 5, 2, kind=4, context=4, stream=2**32 - 1).sync(20, 5, 3, kind=1, context=9)
    recording.add("kernel", {1: [K], 2: [2], 3: [1], 4: [2], 5: [8], 6: [7], 7: [9]})
    with load(tmp_path, recording) as store:
        actual = rows(
            store, "SELECT n.text, device, stream FROM device_event JOIN name n ON n.id = name WHERE kind = 'sync' ORDER BY start_ns"
        )
        assert actual == [("Context Sync", 3, -1), ("Event Sync", 0, None)]
        assert notes(store)["device_unknown"] == 1  # a context that nothing else is of, and two devices


def test_windows_of_one_session(tmp_path: Path) -> None:
    # Two windows, in each correlation 1; between them the device works unseen. Steps: in the first, cut, outside, in the second.
    metadata = {"gpu.window.0": f"{START + 1000} {START + 2000}", "gpu.window.1": f"{START + 9000}"}
    recording = Gpu(metadata=metadata).step(1000, 900, 0).step(1900, 600, 1).step(4000, 100, 2).step(9000, 1000, 3)
    recording.call(1100, 10, 1).run(1200, 100, 1).run(1400, 100, 2).call(1350, 10, 2).call(1920, 10, 3).run(1940, 20, 3)
    recording.run(8990, 200, 1).call(9005, 10, 1).call(9500, 10, 2).run(9600, 100, 2)  # the device's clock is 20 ns behind
    with load(tmp_path, recording) as store:
        windows = rows(store, f"SELECT first_ns - {START}, last_ns - {START} FROM profile_window ORDER BY 1")
        assert windows == [(1000, 2000), (8990, 10_000)]  # the second one was not closed: until the last event
        report = analyze(store, Options(generated_at_ns=0))
        metadata_of_run = report.run.metadata
        noted = rows(store, f"SELECT message, count, first_ns - {START}, last_ns - {START} FROM ingest_note WHERE code = 'gpu_windows'")
        # 1000 and, to the last event, 1000 of the 9000 from the first to the last event
        text = "GPU activity was recorded in 2 windows only, 2.00 us of 9.00 us; figures of GPUs are of that time."
        assert [(one[0].replace("µ", "u"), *one[1:]) for one in noted] == [(text, 2, 1000, 10_000)]
    [device] = report.time_breakdown
    assert (device.span_ns, device.busy_ns) == ((1960 - 1200) + (9700 - 8990), 100 + 100 + 20 + 200 + 100)
    launches = report.launches
    assert (launches.calls, launches.pairs, launches.negative) == (5, 5, 1)
    assert sorted(pair.latency_ns for pair in launches.slowest) == [10, 40, 90, 90]
    [idle] = report.idle
    assert idle.host_wait_ns + idle.kernel_wait_ns + idle.other_ns == 100 + 440 + 410
    steps = {step.index: step.duration_ns if step.on_device else None for step in report.steps.steps}
    assert steps == {0: 300, 1: None, 2: None, 3: 710}
    assert not [key for key in metadata_of_run if key.startswith("gpu.")]


def test_a_window_that_ended_in_a_later_file(tmp_path: Path) -> None:
    # The later file is read first; it knows the end of the first window and the start of the second. In each correlation 1.
    began = {"gpu.window.0": f"{START + 1000}"}
    known = {"gpu.window.0": f"{START + 1000} {START + 2000}", "gpu.window.1": f"{START + 9000} {START + 9500}"}
    later = Gpu(number=2, metadata=known).run(9100, 100, 1).call(9010, 10, 1)
    first = Gpu(metadata=began).call(1100, 10, 1).run(1200, 100, 1)
    with load(tmp_path, later, first) as store:
        windows = rows(store, f"SELECT first_ns - {START}, last_ns - {START} FROM profile_window ORDER BY 1")
        assert windows == [(1000, 2000), (9000, 9500)]
        launches = RunData(store).launches
    assert sorted(pair.latency_ns for pair in launches.slowest) == [80, 90]


LAST = 2**32 - 1


def test_correlations_that_begin_anew_in_one_window(tmp_path: Path) -> None:
    # Ids count ..., 2^32 - 1, 0 (not an id), 1, 2 up to 4,000,000,000 again, twice. Two threads, records in reverse order.
    ids = [4_000_000_000, LAST - 1, LAST, 1, 2, 2_000_000_000, 4_000_000_000, LAST, 1, 2_000_000_000, 4_000_000_000]
    recording = Gpu()
    for position, number in reversed(list(enumerate(ids))):
        recording.run(position * 1000 + 150 + position, 5, number).call(position * 1000 + 100, 10, number, tid=100 + position % 2)
    recording.call(2090, 5, 1, name=WAIT, kind=HOST_CALL)  # of another thread, a little before LAST is given
    with load(tmp_path, recording) as store:
        launches = RunData(store).launches
        counts = rows(store, "SELECT correlation % 1099511627776 FROM device_event ORDER BY start_ns")
    assert (launches.calls, launches.pairs, launches.runs_without_launch, launches.graph_runs, launches.negative) == (11, 11, 0, 0, 0)
    assert sorted(pair.latency_ns for pair in launches.slowest) == [40 + place for place in range(1, 11)]
    full = [4_000_000_000, LAST - 1, LAST]
    full += [2**32 + number for number in (1, 2, 2_000_000_000, 4_000_000_000, LAST)]
    full += [2**33 + number for number in (1, 2_000_000_000, 4_000_000_000)]
    assert [count for (count,) in counts] == full


def test_correlations_of_a_graph_that_begin_anew(tmp_path: Path) -> None:
    # The first records of the window are those of the higher numbers: a run of before the count began anew starts behind a later launch.
    recording = Gpu().call(0, 10, 3).call(20, 10, LAST, name=GRAPH)
    recording.run(100, 5, LAST, node=1).run(110, 5, LAST, node=2).run(120, 5, 3)
    with load(tmp_path, recording) as store:
        launches = RunData(store).launches
        assert rows(store, "SELECT count(DISTINCT correlation), min(correlation) > 0 FROM device_event") == [(2, True)]
    assert (launches.pairs, launches.graph_runs) == (2, 1)
    assert sorted(pair.latency_ns for pair in launches.slowest) == [70, 110]


def test_high_correlations_of_two_windows_stay(tmp_path: Path) -> None:
    # Far apart, but of two windows: nothing began anew.
    metadata = {"gpu.window.0": f"{START} {START + 1000}", "gpu.window.1": f"{START + 5000} {START + 9000}"}
    recording = Gpu(metadata=metadata).call(10, 5, LAST).run(50, 5, LAST).call(6000, 5, 7).run(6050, 5, 7)
    with load(tmp_path, recording) as store:
        assert rows(store, "SELECT correlation % 1099511627776 FROM device_event ORDER BY start_ns") == [(LAST,), (7,)]
        assert RunData(store).launches.pairs == 2


def test_a_recording_without_windows_is_one(tmp_path: Path) -> None:
    # Two files of one session: the gap between the last run of the first and the first run of the second is a gap like any other.
    first, second = Gpu().call(0, 5, 1).run(10, 10, 1), Gpu(number=2).call(50, 10, 2).run(100, 10, 2)
    with load(tmp_path, first, second) as store:
        assert rows(store, f"SELECT first_ns - {START}, last_ns - {START} FROM profile_window") == [(0, 110)]
        report = analyze(store, Options(generated_at_ns=0))
    assert report.time_breakdown[0].idle_ns == 80
    assert (report.idle[0].host_wait_ns, report.idle[0].kernel_wait_ns) == (40, 40)


def test_correlations_begin_anew_in_every_session_and_process(tmp_path: Path) -> None:
    recording, again = Gpu().call(0, 10, 1).run(20, 5, 1), Gpu(session=2).call(1000, 10, 1).run(1030, 5, 1)
    other_process = Gpu(pid=200, session=3, rank=1).call(5, 10, 1).run(115, 5, 1, device=1)
    launches = reported(tmp_path, recording, again, other_process).launches
    assert (launches.pairs, launches.graph_runs, launches.negative) == (3, 0, 0)
    assert sorted(pair.latency_ns for pair in launches.slowest) == [10, 20, 100]


def test_devices_are_joined_by_uuid(tmp_path: Path) -> None:
    # CUDA_VISIBLE_DEVICES=2,3: the process's devices 0 and 1 are the driver's 2 and 3. They are written differently.
    driver = facts("gpu", [f"GPU-0000000{i}-aaaa-bbbb-cccc-000000000000" for i in range(4)], name="NVIDIA A100", memory_bytes="100")
    seen = facts(
        "cuda", [f"0000000{i}AAAABBBBCCCC000000000000" for i in (2, 3)], name="NVIDIA A100-SXM4", sm_count="108", compute_capability="8.0"
    )
    recording = Gpu(metadata=seen).run(0, 10, 1).run(20, 10, 2, device=1)
    recording.sync(40, 5, 3, kind=4)
    sampler = Gpu(pid=99, session=2, metadata=driver)
    sampler.add("metric", {1: [UTILIZATION] * 4, 2: [0, 1, 2, 3], 3: [0] * 4, 4: [0.0, 0.0, 50.0, 60.0]})
    with load(tmp_path, recording, sampler) as store:
        assert rows(store, "SELECT device, kind::VARCHAR FROM device_event ORDER BY start_ns") == [
            (2, "kernel"),
            (3, "kernel"),
            (2, "sync"),
        ]
        report = analyze(store, Options(generated_at_ns=0))
        assert notes(store) == {"device_renumbered": 2}
        assert rows(store, "SELECT gpus FROM node") == [(4,)]
    assert [(d.index, d.name, d.memory_bytes, d.sm_count, d.compute_capability, d.vendor, d.used) for d in report.devices] == [
        (0, "NVIDIA A100", 100, None, None, "NVIDIA", True), (1, "NVIDIA A100", 100, None, None, "NVIDIA", True),
        (2, "NVIDIA A100-SXM4", 100, 108, "8.0", "NVIDIA", True), (3, "NVIDIA A100-SXM4", 100, 108, "8.0", "NVIDIA", True),
    ]  # fmt: skip
    assert [row.device for row in report.time_breakdown] == [2, 3]


def test_ranks_that_each_see_one_device(tmp_path: Path) -> None:
    ranks = [Gpu(pid=10 + i, session=i + 1, rank=i, metadata=facts("cuda", [f"GPU-{i + 1:032x}"])).run(0, 10 + i, 1) for i in range(3)]
    with load(tmp_path, *ranks) as store:
        assert rows(store, "SELECT rank, device FROM device_event e JOIN process p ON p.id = e.process ORDER BY 1") == [
            (0, 0),
            (1, 1),
            (2, 2),
        ]
        actual = rows(store, 'SELECT "index", uuid FROM device ORDER BY 1')
        assert actual == [(i, f"GPU-{i + 1:032x}") for i in range(3)]
        assert notes(store) == {"device_renumbered": 2}


def test_ranks_that_share_a_device_or_do_not_say(tmp_path: Path) -> None:
    same = [Gpu(pid=10 + i, session=i + 1, rank=i, metadata=facts("cuda", ["GPU-" + "7" * 32])).run(i * 5, 10, 1) for i in range(2)]
    with load(tmp_path, *same) as store:
        assert rows(store, 'SELECT "index" FROM device') == [(0,)]
        assert notes(store) == {}
    silent = [Gpu(pid=10 + i, session=i + 1, rank=i).run(i * 5, 10, 1) for i in range(2)]
    with load(tmp_path, *silent) as store:
        assert rows(store, 'SELECT "index" FROM device') == [(0,)]
        assert notes(store) == {"device_by_number": 2}


def test_without_uuids_the_driver_says_what_is_visible(tmp_path: Path) -> None:
    metadata = {"gpu.0.name": "a", "gpu.1.name": "b", "gpu.1.visible_index": "0", "gpu.1.uuid": "GPU-1"}
    with load(tmp_path, Gpu(metadata=metadata).run(0, 10, 1)) as store:
        assert rows(store, "SELECT device FROM device_event") == [(1,)]
        assert rows(store, 'SELECT "index", name FROM device ORDER BY 1') == [(0, "a"), (1, "b")]


def test_parts_of_a_divided_gpu_are_devices_of_their_own(tmp_path: Path) -> None:
    parts = [f"MIG-{i:032x}" for i in (5, 6)]
    driver = {**facts("gpu", ["GPU-" + "1" * 32, "GPU-" + "2" * 32]), "gpu.1.mig": "1", "gpu.1.mig_devices": ",".join(parts)}
    ranks = [
        Gpu(pid=10 + i, session=i + 1, rank=i, metadata=driver | facts("cuda", [part.replace("MIG", "GPU")], name="A100 MIG 1g.5gb")).run(
            0, 10, 1
        )
        for i, part in enumerate(parts)
    ]
    with load(tmp_path, *ranks) as store:
        assert rows(store, "SELECT rank, device FROM device_event e JOIN process p ON p.id = e.process ORDER BY 1") == [(0, 1), (1, 2)]
        actual = rows(store, 'SELECT "index", name, uuid FROM device ORDER BY 1')
        assert actual == [(0, None, "GPU-" + "1" * 32), (1, "A100 MIG 1g.5gb", parts[0]), (2, "A100 MIG 1g.5gb", parts[1])]
        text = "GPU 1 is divided (MIG): devices 1 and 2 are parts of it. What was sampled of GPU 1 is of the whole GPU."
        assert rows(store, "SELECT message, count FROM ingest_note WHERE code = 'gpu_divided'") == [(text, 2)]


@pytest.mark.parametrize("listed", [True, False])
def test_a_part_of_a_divided_gpu_that_was_sampled(tmp_path: Path, *, listed: bool) -> None:
    # GPU 1 of two is divided; CUDA shows one of its parts, as device 0. The driver may list the parts or not.
    part = "MIG-" + "0000000a-0000-0000-0000-00000000000c"
    driver = {
        **facts("gpu", ["GPU-" + "1" * 32, "GPU-" + "2" * 32], name="NVIDIA A100-SXM4-40GB", memory_bytes="42949672960"),
        "gpu.1.mig": "1",
    }
    driver |= {"gpu.1.mig_devices": f"MIG-{'7' * 32},{part}"} if listed else {}
    driver["capability.gpu.utilization"] = "GPU 1: the GPU is divided (MIG), for which the driver has none"
    sampler = Gpu(pid=99, session=9, metadata=driver)
    sampler.add("metric", {1: [UTILIZATION], 2: [0], 3: [0], 4: [50.0]})
    seen = facts("cuda", ["GPU-" + part[4:]], name="NVIDIA A100-SXM4-40GB MIG 3g.20gb", memory_bytes="20937965568")
    with load(tmp_path, sampler, Gpu(metadata=seen).run(0, 10, 1)) as store:
        assert rows(store, "SELECT device FROM device_event") == [(1,)]
        actual = rows(store, 'SELECT "index", name, uuid, memory_bytes FROM device ORDER BY 1')
        assert actual == [
            (0, "NVIDIA A100-SXM4-40GB", "GPU-" + "1" * 32, 42949672960),
            (1, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", part, 20937965568),
        ]
        messages = dict(rows(store, "SELECT code, message FROM ingest_note"))
        report = analyze(store, Options(generated_at_ns=0))
    assert messages["gpu_divided"] == "GPU 1 is divided (MIG): device 1 is a part of it. What was sampled of GPU 1 is of the whole GPU."
    assert messages["not_captured"] == "Not captured: gpu.utilization (GPU 1: the GPU is divided (MIG), for which the driver has none)."
    # The part of a GPU has no samples of the utilization, so its kernels determine it; that of GPU 0 was sampled.
    assert {(series.metric, series.derived) for series in report.system_usage.series} >= {("gpu", False)}
    assert report.time_breakdown[0].device_name == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"


def test_a_part_of_a_gpu_whose_driver_was_not_asked(tmp_path: Path) -> None:
    with load(tmp_path, Gpu(metadata=facts("cuda", ["MIG-" + "5" * 32], name="A100 MIG 1g.5gb")).run(0, 10, 1)) as store:
        assert rows(store, 'SELECT "index", name, uuid FROM device') == [(0, "A100 MIG 1g.5gb", "MIG-" + "5" * 32)]
        assert notes(store) == {}


@pytest.mark.parametrize(
    "metadata",
    [
        {"cuda.0.uuid": "GPU-" + "0" * 32, "cuda.0.memory_bytes": "-1", "cuda.0.sm_count": "1e3", "gpu.0.uuid": ""},
        {
            "cuda.9999.uuid": "x",
            "cuda.-1.uuid": "y",
            "cuda.0.uuid.z": "z",
            "gpu.window.0": "x",
            "gpu.window.1": "5 4",
            "gpu.window.2": "9" * 30,
        },
        {"cuda.0.memory_bytes": "9" * 25, "cuda.0.name": "\x00\u202e" * 50, "gpu.1023.name": "n"},
    ],
)
def test_facts_that_make_no_sense(tmp_path: Path, metadata: dict[str, str]) -> None:
    with load(tmp_path, Gpu(metadata=metadata).run(0, 10, 1)) as store:
        assert rows(store, "SELECT device FROM device_event") == [(0,)]
        assert RunData(store).breakdown[0].busy_ns == 10
        assert rows(store, "SELECT memory_bytes, sm_count FROM device") in ([(None, None)], [(None, None), (None, None)])


@pytest.mark.parametrize(("reason", "code"), [(5, "device_records_lost"), (6, "device_times_lost")])
def test_lost_device_records_make_a_run_partial(tmp_path: Path, reason: int, code: str) -> None:
    recording = Gpu().run(0, 10, 1).add("loss", {1: [0], 2: [reason], 3: [77], 4: [5], 5: [9]})
    with load(tmp_path, recording) as store:
        assert notes(store) == {code: 77}
        assert rows(store, "SELECT status FROM run") == [("partial",)]


def test_why_there_is_nothing_of_the_gpu(tmp_path: Path) -> None:
    reason = "another profiler (nsys) is attached"
    metadata = {"capability.gpu": reason, "capability.cuda": reason, "capability.perf.cycles": "no"}
    report = reported(tmp_path, Gpu(metadata=metadata).step(0, 10, 1))
    [note] = [one for one in report.data_quality if one.code == "gpu_not_captured"]
    assert note.severity == "warning"
    assert note.message == f"GPU activity was not recorded: {reason}."
    assert report.kernels == ()


@pytest.mark.parametrize(
    ("reason", "config", "severity"),
    [
        ("no NVIDIA driver: libcuda.so.1: not found", {}, "info"),
        ("no NVIDIA driver: libcuda.so.1: not found", {"config.EnableCuda": "1"}, "warning"),
        ("no NVIDIA driver: libcuda.so.1: not found", {"config.EnableCuda": "false"}, "info"),
        ("the program did not use CUDA", {}, "info"),
        ("no CUPTI: not found", {}, "warning"),
    ],
)
def test_what_is_missing_is_a_warning_where_there_was_something(tmp_path: Path, reason: str, config: dict[str, str], severity: str) -> None:
    with load(tmp_path, Gpu(metadata={"capability.gpu": reason, **config}).step(0, 10, 1)) as store:
        code = "gpu_not_captured" if severity == "warning" else "not_captured"
        assert rows(store, "SELECT severity, code FROM ingest_note") == [(severity, code)]


@pytest.mark.parametrize("explained", [True, False])
def test_a_recorder_that_was_asked_for_gpus_makes_their_absence_a_warning(tmp_path: Path, explained: bool) -> None:
    """The note appears once, and not if another process of the job has activity."""
    ours, theirs = "no NVIDIA driver: libcuda.so.1 is not on this machine", "no NVIDIA driver: libcuda.so.1: cannot open"
    job = {"job.command": "python train.py", "recording.gpu": "asked for", "capability.gpu": ours, "capability.perf.cycles": "no counter"}
    recorder = Gpu(pid=1, session=1, metadata=job)
    program = Gpu(pid=2, session=2, metadata={"capability.gpu": theirs} if explained else {}).step(0, 10, 1)
    with load(tmp_path / "without", recorder, program) as store:
        assert rows(store, "SELECT severity, message FROM ingest_note WHERE code IN ('gpu_not_captured', 'not_captured') ORDER BY 1") == [
            ("info", "Not captured: perf.cycles (no counter)."),
            ("warning", f"GPU activity was not recorded: {theirs if explained else ours}."),
        ]
    with load(tmp_path / "with", recorder, program, Gpu(pid=3, session=3).run(0, 10, 1)) as store:
        assert rows(store, "SELECT message FROM ingest_note WHERE code = 'gpu_not_captured'") == []


def test_a_part_of_the_activity_is_missing(tmp_path: Path) -> None:
    with load(tmp_path, Gpu(metadata={"capability.gpu": "another profiler came"}).run(0, 10, 1)) as store:
        message = "Not all GPU activity was recorded: another profiler came."
        assert rows(store, "SELECT severity, message FROM ingest_note") == [("warning", message)]


def test_whose_activity_is_missing(tmp_path: Path) -> None:
    came, old = "another profiler came", "no CUPTI: not found"
    all_there = Gpu(pid=1).run(0, 10, 1)
    # Two files of one process, and only the second has rows of a device; two processes without any; one that did not use CUDA.
    partly = [Gpu(pid=2, session=2, number=i, metadata={"capability.gpu": came}) for i in (1, 2)]
    partly[1].run(0, 10, 1)
    without = [Gpu(pid=pid, session=pid, metadata={"capability.gpu": old}).step(0, 10, 1) for pid in (3, 4)]
    unused = Gpu(pid=5, session=5, metadata={"capability.gpu": "the program did not use CUDA"}).step(0, 10, 1)
    attached = Gpu(pid=6, session=6, metadata={"capability.gpu": "another profiler uses CUPTI: nsys"}).step(0, 10, 1)
    with load(tmp_path, all_there, *partly, *without, unused, attached) as store:
        actual = rows(store, "SELECT message, count FROM ingest_note WHERE code IN ('gpu_not_captured', 'not_captured') ORDER BY 1")
    assert actual == [
        ("GPU activity of 2 processes was not recorded: no CUPTI: not found.", 2),
        ("GPU activity of process 6 was not recorded: another profiler uses CUPTI: nsys.", 1),
        ("Not all GPU activity was recorded: another profiler came.", 1),
    ]


def test_what_a_profiler_traced_at_the_same_time_counts_once(tmp_path: Path) -> None:
    # The trace holds 1000 to 2000 of the same process; before and after it only the recording knows.
    events = [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100, "ts": 1.0, "dur": 0.01, "args": {"correlation": 5}},
        {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.9, "dur": 0.1, "args": {"correlation": 5, "device": 0, "stream": 7}},
    ]
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": START, "traceEvents": [{"ph": "X", **event} for event in events]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    recording = Gpu().call(100, 10, 1).run(200, 30, 1).call(1000, 10, 2).run(1900, 100, 2).call(3000, 10, 3).run(3100, 60, 3)
    with load(tmp_path, recording) as store:
        assert rows(store, f"SELECT start_ns - {START}, duration_ns FROM device_event ORDER BY 1") == [(200, 30), (1900, 100), (3100, 60)]
        assert rows(store, f"SELECT start_ns - {START} FROM host_event ORDER BY 1") == [(100,), (1000,), (3000,)]
        assert notes(store)["recorded_twice"] == 1
        assert RunData(store).launches.pairs == 3


def test_what_a_trace_also_has_is_left_out_and_comes_back(tmp_path: Path) -> None:
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": START, "traceEvents": [OPERATOR, traced(6000, 100, 5)]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    recording = Gpu().call(100, 10, 1).run(200, 30, 1).call(6000, 10, 2).run(6000, 100, 2)
    with load(tmp_path, recording) as store:
        assert rows(store, "SELECT table_name, count(*) FROM left_out WHERE reason = 'recorded twice' GROUP BY 1 ORDER BY 1") == [
            ("device_event", 1),
            ("host_event", 1),
        ]
        assert rows(store, "SELECT count(*) FROM device_event") == [(2,)]
        store.connection.execute("DELETE FROM left_out WHERE reason = 'recorded twice'")
        assert rows(store, "SELECT count(*) FROM device_event") == [(3,)]
        assert rows(store, f"SELECT start_ns - {START} FROM host_event WHERE kind = 'launch' ORDER BY 1") == [(100,), (6000,)]


OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100, "ts": 5.0, "dur": 1.0}


def traced(start: int, length: int, correlation: int) -> dict[str, Any]:
    """Return a kernel of a trace of process 100, which counts its devices from 0."""
    args = {"correlation": correlation, "device": 0, "stream": 7}
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": start / 1000, "dur": length / 1000, "args": args}


def test_devices_of_a_trace_of_the_process_are_those_of_the_node_also(tmp_path: Path) -> None:
    trace = {"schemaVersion": 1, "host_name": "h1", "baseTimeNanoseconds": START, "traceEvents": [OPERATOR, traced(6000, 100, 5)]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    driver = facts("gpu", [f"GPU-0000000{i}-aaaa-bbbb-cccc-000000000000" for i in range(4)])
    seen = facts("cuda", ["GPU-00000002-aaaa-bbbb-cccc-000000000000"])
    with load(tmp_path, Gpu(metadata={**driver, **seen}).run(0, 10, 1)) as store:
        assert rows(store, f"SELECT start_ns - {START}, device FROM device_event ORDER BY 1") == [(0, 2), (6000, 2)]
        assert rows(store, "SELECT DISTINCT device FROM raw.device_event") == [(0,)]


def test_rows_that_waited_in_files_are_those_that_waited_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def contents() -> list[Any]:
        recording = Gpu().call(0, 50, 1).call(10, 20, 1, name=DRIVER).run(60, 5, 1)
        for correlation in (LAST - 1, LAST, 1, 2):
            recording.call(100 + correlation % 7, 1, correlation).run(200 + correlation % 7, 1, correlation, device=correlation % 2)
        with load(tmp_path / "in", recording, Gpu(number=2).call(300, 5, 3).run(310, 5, 3)) as store:
            assert not [*store.private_folder().glob("staged-*")]
            return [rows(store, f"SELECT * FROM {table} ORDER BY id") for table in ("device_event", "host_event")]

    waited_in_memory = contents()
    monkeypatch.setattr(staged_rows, "_IN_MEMORY", 0)
    assert contents() == waited_in_memory


def test_a_recording_that_fails_leaves_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Captures._result

    def fail(captures: Captures, file: CaptureFile, complete: bool) -> CaptureResult:
        if file.opened.path.name == "0.prt":
            raise InputError("damaged")
        return result(captures, file, complete)

    monkeypatch.setattr(Captures, "_result", fail)
    with load(tmp_path, Gpu().call(0, 10, 1).run(20, 5, 1), Gpu(pid=200, session=2).call(7, 10, 1).run(30, 5, 1)) as store:
        assert rows(
            store, f"SELECT start_ns - {START} FROM raw.host_event UNION ALL SELECT start_ns - {START} FROM raw.device_event ORDER BY 1"
        ) == [
            (7,),
            (30,),
        ]
        assert notes(store)["not_readable"] == 1


def test_ids_of_other_tools_change_nothing(tmp_path: Path) -> None:
    def gpu() -> Gpu:
        return Gpu().call(0, 10, 1).run(20, 5, 1)

    for name, recording in (("with", gpu().add("external", {1: [1, 99, -5], 2: [3, 0, 5], 3: [2**40, -1, MISSING]})), ("without", gpu())):
        (tmp_path / name).mkdir()
        with load(tmp_path / name, recording) as store:
            assert rows(store, "SELECT external_id FROM device_event UNION ALL SELECT external_id FROM host_event") == [(None,), (None,)]
            assert notes(store) == {}
            assert rows(store, "SELECT events FROM source") == [(2,)]


def test_ranges_of_the_framework_around_its_loader(tmp_path: Path) -> None:
    recording = Gpu(names=["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "DataLoader"])
    recording.add("annotation", {1: [1, 2], 2: [0, 50], 3: [40, 10], 4: [MISSING] * 2, 5: [0, 0], 6: [0, 0]}, 1)
    with load(tmp_path, recording) as store:
        assert rows(store, "SELECT kind::VARCHAR, tid, duration_ns FROM host_event") == [("loader", 100, 40)]
        assert rows(store, "SELECT n.text FROM annotation JOIN name n ON n.id = name") == [("DataLoader",)]


RUN = st.tuples(
    st.integers(0, 500),
    st.integers(0, 40),
    st.integers(0, 12),
    st.sampled_from([7, 20]),
    st.integers(0, 1),
    st.sampled_from([K, SECOND]),
)
CALL = st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 12))


@settings(max_examples=examples(20))  # each is a whole report
@given(runs=st.lists(RUN, min_size=1, max_size=30), calls=st.lists(CALL, max_size=30))
def test_any_events_against_plain_python(tmp_path_factory: pytest.TempPathFactory, runs: list[Any], calls: list[Any]) -> None:
    recording = Gpu()
    for start, length, correlation, stream, device, name in runs:
        recording.run(start, length, correlation, stream=stream, device=device, name=name)
    for start, length, correlation in calls:
        recording.call(start, length, correlation)
    report = reported(tmp_path_factory.mktemp("any"), recording)

    totals: Counter[str] = Counter()
    busy: dict[int, set[int]] = defaultdict(set)
    first_run: dict[int, int] = {}
    for start, length, correlation, _, device, name in runs:
        totals[NAMES[name - 1]] += length
        busy[device] |= set(range(start, start + length))
        if correlation:
            first_run[correlation] = min(start, first_run.get(correlation, start))
    first_call: dict[int, tuple[int, int]] = {}
    for start, length, correlation in calls:
        if correlation:
            first_call[correlation] = min((start, start + length), first_call.get(correlation, (start, start + length)))
    latencies = [start - first_call[correlation][1] for correlation, start in first_run.items() if correlation in first_call]

    assert {kernel.name: kernel.total_ns for kernel in report.kernels} == dict(totals)
    assert sum(kernel.count for kernel in report.kernels) == len(runs)
    assert {row.device: row.busy_ns for row in report.time_breakdown} == {run[4]: len(busy[run[4]]) for run in runs}
    launches = report.launches
    assert (launches.calls, launches.pairs, launches.negative) == (len(calls), len(latencies), sum(one < 0 for one in latencies))
    assert sorted(pair.latency_ns for pair in launches.slowest) == sorted(sorted(one for one in latencies if one >= 0)[-10:])
    assert launches.runs_without_launch == sum(run[2] not in first_call for run in runs)
    assert launches.launches_without_run == sum(call[2] not in first_run for call in calls)


def test_a_full_disk_ends_the_ingest_while_events_wait_in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(self: pl.DataFrame, file: Path, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staged_rows, "_IN_MEMORY", -1)
    monkeypatch.setattr(pl.DataFrame, "write_ipc", full)
    message = r"temporary file of recorded events: .*No space left"
    with pytest.raises(duckdb.IOException, match=message), load(tmp_path, Gpu().call(0, 10, 1).run(20, 5, 1)):
        pass
