"""Tests for the files of the capture library -> rows, including damaged and split files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from postrun.analysis.machine.system_usage import system_usage
from postrun.analysis.rules.evidence.blocks import Samples
from postrun.cli import main
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.metrics import METRICS
from postrun.native import _native
from prt_reader import MISSING
from prt_writer import PrtWriter, golden

START = 1_700_000_000_000_000_000
NO_DRIVER = "no libnvidia-ml.so.1 on this machine: no driver of NVIDIA GPUs"
PACKAGE = Path(_native.__file__).parent


class Recording(PrtWriter):
    """A file of process ``pid`` on ``host``; ticks are nanoseconds since START."""

    def __init__(
        self, names: list[str], *, pid: int = 4711, parent: int = 42, number: int = 1, session: int = 1, host: str = "h1", rank: int = -1,
        started: int = START - 10**9, process: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.parts = [_native.write_trace_header(bytes([session] * 16), pid, parent, number, START)]
        self.prelude(names, [(i * 10**9, i * 10**9, START + i * 10**9) for i in range(4)])
        if process:
            self.add("process", {1: [pid], 2: [parent], 3: [started], 4: ["python t.py"], 5: [host], 6: [rank], 7: [rank], 8: [8]})
        self.add("thread", {1: [1], 2: [pid], 3: ["MainThread"]})

    def ranges(self, name: int, starts: list[int], length: int, values: list[int] | None = None, source: int = 1) -> Recording:
        count = len(starts)
        columns = {1: [name] * count, 2: starts, 3: [length] * count, 4: values or [MISSING] * count, 5: [0] * count, 6: [0] * count}
        self.add("annotation", columns, source=source, first_time=starts[0])
        return self

    def samples(self, metric: int, times: list[int], values: list[float], unit: int = -1) -> Recording:
        count = len(times)
        self.add("metric", {1: [metric] * count, 2: [unit] * count, 3: times, 4: values}, first_time=times[0])
        return self


def load(folder: Path, **files: bytes | PrtWriter) -> Store:
    for name, written in files.items():
        (folder / f"{name}.prt").write_bytes(written if isinstance(written, bytes) else written.data())
    return ingest([folder])


def rows(store: Store, sql: str) -> list[Any]:
    return store.frame(sql).rows()


def notes(store: Store) -> dict[str, int]:
    return dict(rows(store, "SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code"))


def status(store: Store) -> str:
    return str(store.frame("SELECT status FROM run").item())


def test_every_table_of_the_golden_file(tmp_path: Path) -> None:
    # One file with a bit of everything (tests/helpers/prt_writer.py): ticks of 1 / 2.6 GHz, the clock set by an hour after 2 s.
    with load(tmp_path, g=golden()) as store:
        assert rows(store, "SELECT hostname FROM node") == [("h1",)]
        assert rows(store, "SELECT pid, rank, local_rank, world_size, command FROM process") == [(4711, 3, None, 8, "python t.py")]
        steps = rows(store, 'SELECT "index" FROM step')
        assert steps == [(7,)] * 10  # values of the ranges named step; the one that the stop closed is another
        assert rows(store, "SELECT count(*), count(*) FILTER (complete) FROM annotation") == [(40, 39)]
        assert rows(store, "SELECT DISTINCT tid, side FROM annotation") == [(4711, "host")]
        assert rows(store, "SELECT kind, tid, correlation FROM host_event ORDER BY start_ns") == [
            ("launch", 4711, 1), ("sync", 4712, 2), ("call", 4711, 3),
        ]  # fmt: skip
        kinds = rows(store, "SELECT kind::VARCHAR, count(*) FROM device_event GROUP BY 1 ORDER BY 1")
        assert kinds == [("kernel", 4), ("memcpy", 4), ("memset", 4), ("sync", 4)]
        kernels = rows(store, """SELECT n.text, device, stream, correlation, grid_x, block_z, registers, shared_memory, graph_node
            FROM device_event JOIN name n ON n.id = name WHERE kind = 'kernel' ORDER BY start_ns LIMIT 2""")  # fmt: skip
        assert kernels == [("é kernel", 0, 7, 1, 8, 13, 14, 15, None), ("forward", 1, 20, 2, 1, 1, 1, 1, None)]
        copies = rows(store, "SELECT copy_kind, bytes, pageable FROM device_event WHERE kind = 'memcpy' ORDER BY start_ns")
        assert copies == [
            ("HtoD", 4, False),
            ("DtoH", 2**40, True),
            ("DtoD", 0, None),
            ("PtoP", 1, None),
        ]  # only the host has pageable memory
        texts = rows(store, "SELECT n.text FROM device_event JOIN name n ON n.id = name WHERE kind = 'sync' ORDER BY start_ns")
        assert texts == [("Event Sync",), ("Stream Wait Event",), ("Stream Sync",), ("Context Sync",)]
        counters = rows(store, "SELECT unit, value FROM sample WHERE metric = 'counter.loss' ORDER BY time_ns")
        assert counters == [(0, 0.25), (0, 1 / 3), (0, -7.5)]
        cpu = rows(store, "SELECT unit, value FROM sample WHERE metric = 'cpu_utilization' ORDER BY time_ns, unit NULLS FIRST")
        assert cpu == [(None, 50.5), (0, 0.1), (1, 99.9), (None, 100.0), (0, 0.0), (1, 33.3)]
        assert rows(store, "SELECT cores FROM node") == [(2,)]
        assert rows(store, 'SELECT "index" FROM device ORDER BY 1') == [(0,), (1,)]
        noted = notes(store)
        assert noted["ring_full"] == 12
        assert noted["disk_full"] == 2**33
        assert status(store) == "partial"  # the disk ended the file
        events = store.frame("SELECT events FROM source").item()
        assert events == 40 + 3 + 16 + 3 + 6


def test_files_of_one_process_are_one(tmp_path: Path) -> None:
    first = Recording(["step"]).ranges(1, [0, 10, 20], 5, [0, 1, 2]).end()
    second = Recording(["warm-up", "step"], number=2).ranges(2, [30, 40], 5, [3, 4]).end()
    again = Recording(["step"], session=2).ranges(1, [90], 5, [5]).end()  # stopped and started
    repeated = Recording(["step"], session=3, started=START + 60 * 10**9).ranges(1, [95], 5, [5]).end()  # the number used again
    with load(tmp_path, a=first, b=second, c=again, d=repeated) as store:
        assert rows(store, "SELECT process, count(*) FROM step GROUP BY 1 ORDER BY 1") == [(0, 6), (1, 1)]
        actual = rows(store, 'SELECT "index", host_start_ns - 1700000000000000000 FROM step WHERE process = 0 ORDER BY 2')
        assert actual == [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 90)]
        assert status(store) == "unknown"
        assert notes(store) == {}
        assert store.frame("SELECT count(*) FROM profile_window").item() == 0  # nothing of devices: no time in which they were watched


def test_parts_that_are_missing_or_there_twice(tmp_path: Path) -> None:
    third = Recording(["step"], number=3).ranges(1, [0], 5, [0])
    cut = Recording(["step"], number=3).ranges(1, [0, 10], 5, [0, 1]).end()
    with load(tmp_path, a=third.end(), b=cut) as store:
        assert notes(store) == {"duplicate_part": 1, "file_missing": 2}
        assert len(rows(store, "FROM annotation")) == 1


def test_workers_do_not_have_the_rank_of_their_parent(tmp_path: Path) -> None:
    parent = Recording(["step"], rank=2).ranges(1, [0], 5, [0]).end()
    worker = Recording(["load"], pid=4800, parent=4711, rank=2).ranges(1, [0], 5).end()
    elsewhere = Recording(["step"], pid=4800, parent=4711, rank=3, host="h2", session=2).ranges(1, [0], 5, [0]).end()
    with load(tmp_path, a=worker, b=parent, c=elsewhere) as store:  # the worker's file is read first
        assert rows(store, "SELECT hostname, pid, rank FROM process JOIN node n ON n.id = node ORDER BY 1, 2") == [
            ("h1", 4711, 2), ("h1", 4800, None), ("h2", 4800, 3),
        ]  # fmt: skip
        assert notes(store) == {}


def test_one_machine_is_sampled_once(tmp_path: Path) -> None:
    second = 10**9
    first = Recording(["memory_used_percent"], rank=0).samples(1, [0, second, 2 * second], [1.0, 2.0, 3.0]).end()
    inside = Recording(["memory_used_percent"], pid=4712, rank=1).samples(1, [second // 2, 3 * second], [9.0, 4.0]).end()
    elsewhere = Recording(["memory_used_percent", "new.metric"], pid=4711, rank=2, host="h2", session=2)
    elsewhere.samples(1, [second], [50.0]).samples(2, [second], [1.0])
    with load(tmp_path, a=first, b=inside, c=elsewhere.end()) as store:
        assert rows(store, "SELECT hostname, value FROM sample JOIN node n ON n.id = node ORDER BY 1, time_ns") == [
            ("h1", 1.0), ("h1", 2.0), ("h1", 3.0), ("h1", 4.0), ("h2", 50.0),
        ]  # fmt: skip
        assert notes(store) == {"sampled_twice": 1, "unknown_metric": 1}


def test_counters_are_no_samples_of_the_machine(tmp_path: Path) -> None:
    recording = Recording(["loss", "memory_used_percent"]).samples(2, [i * 10**9 for i in range(4)], [1.0, 2.0, 3.0, 4.0])
    recording.add("counter", {1: [1] * 1000, 2: [i * 10**6 for i in range(1000)], 3: [0.5] * 999 + [float("nan")]}, source=1)
    with load(tmp_path, a=recording.end()) as store:
        assert rows(store, "SELECT count(*) FROM sample") == [(1004,)]
        samples = Samples(store)
        assert samples.interval_ns == 10**9
        assert samples.metrics == {"memory_used_percent"}
        [usage] = system_usage(store).nodes
        assert (usage.metric, usage.samples) == ("cpu_memory", 4)


def test_names_and_threads_that_are_lost(tmp_path: Path) -> None:
    lost = Recording(["step"]).ranges(7, [0], 5).ranges(0, [10], 5).ranges(1, [20], 5, [3], source=9)
    with load(tmp_path, a=lost.end()) as store:
        assert rows(store, "SELECT text, tid FROM annotation JOIN name n ON n.id = name ORDER BY start_ns") == [
            ("?name#7", 4711), ("(no name)", 4711), ("step", -9),
        ]  # fmt: skip
        assert notes(store) == {"unresolved_name": 1, "thread_unknown": 1}


def test_a_range_may_end_after_the_file_in_which_its_thread_did(tmp_path: Path) -> None:
    first = Recording(["load"])
    first.add("thread", {1: [9], 2: [4799], 3: ["loader"]})
    later = Recording(["load"], number=2).ranges(1, [0], 5, source=9).ranges(1, [10], 5, source=8).end()
    anew = Recording(["load"], session=2).ranges(1, [20], 5, source=9).end()  # numbers of another session are other threads
    written = {"h-1.4711.1700": first.end(), "h-1.4711.1700-2": later, "h-1.4711.1800": anew}  # as the library calls them
    with load(tmp_path, **written) as store:
        assert rows(store, "SELECT tid FROM annotation ORDER BY start_ns") == [(4799,), (-8,), (-9,)]
        assert notes(store)["thread_unknown"] == 2


def test_parts_of_a_recording_are_read_by_their_number(tmp_path: Path) -> None:
    """Each file describes the thread with another id; the latest earlier one counts."""
    written = {}
    for number in range(1, 12):
        part = Recording(["load"], number=number)
        if number not in (2, 10):
            part.add("thread", {1: [9], 2: [5000 + number], 3: ["loader"]})
        written["h.4711.1700" + (f"-{number}" if number > 1 else "")] = part.ranges(1, [number], 1, source=9).end()
    with load(tmp_path, **written) as store:
        assert rows(store, "SELECT tid FROM annotation ORDER BY start_ns") == [
            (5000 + (i - 1 if i in (2, 10) else i),) for i in range(1, 12)
        ]  # fmt: skip


def test_what_a_recording_says_in_the_end_counts(tmp_path: Path) -> None:
    """A later part repeats everything; if recordings contradict, neither counts."""
    written = {}
    for session, pid in ((1, 4711), (2, 4712)):
        for number in range(1, 4):
            part = Recording(["a"], number=number, session=session, pid=pid)
            part.add("meta", {1: ["epoch", "who", "kept"], 2: [str(number), f"process {pid}", "1"]})
            written[f"h.{pid}.1700" + (f"-{number}" if number > 1 else "")] = part.ranges(1, [number], 1).end()
    with load(tmp_path, **written) as store:
        metadata = json.loads(store.frame("SELECT metadata FROM run").item())
    assert {key: metadata.get(key) for key in ("epoch", "who", "kept")} == {"epoch": "3", "who": None, "kept": "1"}


def test_without_description_of_the_process(tmp_path: Path) -> None:
    with load(tmp_path, **{"node-7.99.1700": Recording(["a"], pid=99, process=False).ranges(1, [0], 5).end()}) as store:
        assert rows(store, "SELECT hostname, pid, rank FROM process JOIN node n ON n.id = node") == [("node-7", 99, None)]


def test_a_trace_without_its_machine_is_of_the_recorded_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    events = [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": 1, "ts": 2.0, "dur": 1, "args": {"correlation": 1}},
        {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 4.0, "dur": 2, "args": {"correlation": 1, "device": 0, "stream": 7}},
    ]
    events = [{"ph": "X", **event} for event in events]
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": START, "traceEvents": events}))
    recording = Recording(["step", "cudaLaunchKernel", "mine"], rank=5).ranges(1, [0, 10_000], 9_000, [0, 1])
    recording.add("api", {1: [2], 2: [12_000], 3: [500], 4: [1], 5: [0], 6: [4711]}, first_time=12_000)
    shape = {number: [1] for number in range(8, 16)}
    recording.add("kernel", {1: [3], 2: [13_000], 3: [700], 4: [0], 5: [1], 6: [7], 7: [1], **shape}, first_time=13_000)
    with load(folder, z=recording.end()) as store:
        assert rows(store, "SELECT pid, rank, hostname FROM process JOIN node n ON n.id = node") == [(4711, 5, "h1")]
        # Each kernel belongs to the launch of its own source, though both count from 1.
        assert rows(store, 'SELECT "index", device_start_ns - 1700000000000000000, device_events FROM step ORDER BY 1') == [
            (0, 4_000, 1), (1, 13_000, 1),
        ]  # fmt: skip


def outcome(path: Path) -> str:
    """Return the status of a run of one file, or the reason why it has none."""
    try:
        with ingest([path]) as store:
            assert notes(store)
            return status(store)
    except InputError as error:
        return "nothing usable" if f"{path}: nothing usable" in str(error) else str(error)


@pytest.mark.slow
def test_damaged_files_never_fail(tmp_path: Path) -> None:
    recording = Recording(["step", "memory_used_percent"]).ranges(1, [0, 10], 5, [0, 1]).ranges(1, [20], 5, [2])
    complete = recording.samples(2, [0, 10**9], [1.0, 2.0]).end().data()
    path = tmp_path / "d.prt"
    for at in [*range(64, len(complete), 80), len(complete) - 1]:  # in a block, wherever
        path.write_bytes(complete[:at] + bytes([complete[at] ^ 0x55]) + complete[at + 1 :])
        assert outcome(path) == "partial", at
    for at, expected in ((0, "nothing usable"), (8, "unknown"), (25, "unknown"), (41, "unknown"), (62, "unknown")):
        path.write_bytes(complete[:at] + bytes([complete[at] ^ 0x55]) + complete[at + 1 :])
        assert outcome(path) == expected, at
    outcomes = []
    for size in [0, 7, 64, *range(100, len(complete), 120)]:
        path.write_bytes(complete[:size])
        outcomes.append(outcome(path))
    assert outcomes[:3] == ["nothing usable"] * 3
    assert outcomes == sorted(outcomes)  # nothing, until the first rows are there; then a part
    assert outcomes[-1] == "partial"


RECORDER = """
import ctypes, sys, time
class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("directory", ctypes.c_char_p), ("rotate_bytes", ctypes.c_uint64),
                ("ring_records", ctypes.c_uint32), ("drain_ms", ctypes.c_uint32), ("sample_ms", ctypes.c_uint32),
                ("sample_for_s", ctypes.c_uint32), ("zstd_level", ctypes.c_int32), ("flags", ctypes.c_uint32)]
lib = ctypes.CDLL(sys.argv[1])
lib.postrun_name.argtypes, lib.postrun_name.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint32
lib.postrun_begin.argtypes = [ctypes.c_uint32, ctypes.c_int64]
lib.postrun_counter.argtypes = [ctypes.c_uint32, ctypes.c_double]
config = Config(ctypes.sizeof(Config), sys.argv[2].encode(), 0, 0, 0, 100, 0, 0, 0)
assert lib.postrun_configure(ctypes.byref(config)) == 0 and lib.postrun_start() == 0
lib.postrun_metadata(b"model", b"tiny")
step, forward, loss = (lib.postrun_name(text, len(text)) for text in (b"step", b"forward", b"loss"))
for i in range(12):
    lib.postrun_begin(step, 100 + i)
    lib.postrun_begin(forward, -2**63)
    time.sleep(0.1)
    lib.postrun_end()
    lib.postrun_counter(loss, 1 / (1 + i))
    lib.postrun_end()
if sys.argv[3:] != ["killed"]:
    assert lib.postrun_stop() == 0
else:
    lib.postrun_flush()
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = PACKAGE / "lib" / "libpostrun.so"
    if not library.is_file():
        pytest.skip("libpostrun.so is not beside the package")
    folder = tmp_path_factory.mktemp("recorded")
    for how in ("whole", "killed"):
        (folder / how).mkdir()
        subprocess.run([sys.executable, "-c", RECORDER, library, folder / how, how], check=how == "whole", timeout=60)
    return folder


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """postrun in this process."""
    done = CliRunner().invoke(main, [str(word) for word in arguments])
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def test_from_recording_to_report(recorded: Path, tmp_path: Path) -> None:
    done = command("report", recorded / "whole", "-o", tmp_path, "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    groups = {group["name"]: group for group in report["annotations"]["groups"]}
    assert {name: group["quantiles"]["count"] for name, group in groups.items()} == {"step": 12, "forward": 12}
    assert groups["forward"]["quantiles"]["min"] >= 99e6
    assert [step["index"] for step in report["steps"]["steps"]] == list(range(100, 112))
    usage = {row["metric"]: row for row in report["system_usage"]["nodes"]}
    assert {"cpu", "cpu_memory"} <= usage.keys()
    assert 0 < usage["cpu_memory"]["p50"] < 100
    assert abs(report["steps"]["steps"][0]["start_ns"] - time.time_ns()) < 3_600 * 10**9


def test_a_killed_recording_is_partial(recorded: Path) -> None:
    with ingest([recorded / "killed"]) as store:
        assert status(store) == "partial"
        assert "no_end" in notes(store)
        assert rows(store, "SELECT count(*) FROM step") == [(12,)]
        assert rows(store, "SELECT count(*), min(value) FROM sample WHERE metric = 'counter.loss'") == [(12, 1 / 12)]
        assert set(store.frame("SELECT DISTINCT metric FROM sample")["metric"]) <= {*METRICS, "counter.loss"}


def test_inspect(recorded: Path, tmp_path: Path) -> None:
    [complete] = (recorded / "whole").iterdir()
    done = command("inspect", complete)
    assert done.returncode == 0, done.stderr
    for text in ("Process ", "Threads: ", "forward", "sample_ms: 100", "Complete: stopped properly"):
        assert text in done.stdout
    actual = json.loads(command("inspect", complete, "--json").stdout)
    assert actual["complete"]
    assert actual["tables"]["annotation"]["rows"] == 24
    assert {"name": "step", "rows": 12} in actual["names"]
    assert actual["end"]["lost"] == 0
    assert 1e9 < actual["last_ns"] - actual["first_ns"] < 60e9
    [killed] = (recorded / "killed").iterdir()
    done = command("inspect", killed)
    assert done.returncode == 0
    assert "Damage: the recording was not stopped properly" in done.stdout
    copy = tmp_path / "x.prt"
    copy.write_bytes(b"whatever")
    (tmp_path / "nothing").mkdir()
    for wrong in (copy, tmp_path / "nothing", tmp_path / "missing.prt"):
        done = command("inspect", wrong)
        assert done.returncode == 4
        assert done.stderr.startswith(f"postrun: {wrong}: ")
        assert "Traceback" not in done.stderr


def test_inspect_several_files_and_folders(recorded: Path, tmp_path: Path) -> None:
    [complete], [killed] = (list((recorded / name).iterdir()) for name in ("whole", "killed"))
    alone = command("inspect", killed).stdout + "\n" + command("inspect", complete).stdout
    assert command("inspect", killed, complete).stdout == alone
    assert command("inspect", recorded / "killed", recorded / "whole", complete).stdout == alone, "a file is shown once"
    actual = json.loads(command("inspect", "--json", recorded / "killed", recorded / "whole").stdout)
    assert [one["path"] for one in actual] == [str(killed), str(complete)]
    (only,) = json.loads(command("inspect", "--json", recorded / "whole").stdout)
    assert only == json.loads(command("inspect", "--json", complete).stdout)
    empty = tmp_path / "empty.prt"
    empty.touch()
    done = command("inspect", empty)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{empty}: the file is empty" in done.stderr
    done = command("inspect", empty, complete)
    assert done.returncode == 4
    assert f"{empty}: the file is empty" in done.stderr
    assert "Complete: stopped properly" in done.stdout, "the others are shown"
    assert [one["path"] for one in json.loads(command("inspect", "--json", empty, complete).stdout)] == [str(complete)]


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        ({"capability.gpu.samples": NO_DRIVER}, 0),
        ({"capability.gpu.samples": NO_DRIVER, "capability.gpu": "no NVIDIA driver: libcuda.so.1 is not on this machine"}, 0),
        ({"capability.gpu.samples": NO_DRIVER, "capability.gpu": "AMD GPUs are not supported; use PyTorch's profiler"}, None),
        ({"capability.gpu.samples": "libnvidia-ml.so.1 has no nvmlInit_v2"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("recorder", [True, False])
def test_only_a_recorder_without_a_driver_proves_that_there_is_no_gpu(
    facts: dict[str, str], gpus: int | None, recorder: bool, tmp_path: Path
) -> None:
    recording = Recording(["cpu_utilization"]).samples(1, [0, 10**9], [50.0, 50.0], unit=0)
    job = {"job.command": "python t.py", "job.started_ns": str(START), "job.pid": "50"} if recorder else {}
    recording.add("meta", {1: [*facts, *job], 2: [*facts.values(), *job.values()]})
    with load(tmp_path, recording=recording) as store:
        assert rows(store, "SELECT gpus FROM node") == [(gpus if recorder else None,)]


def test_a_process_with_gpus_of_another_maker_refutes_that_there_is_none(tmp_path: Path) -> None:
    job = {"capability.gpu.samples": NO_DRIVER, "job.command": "python t.py", "job.started_ns": str(START), "job.pid": "50"}
    reason = {"capability.gpu": "AMD GPUs are not supported; use PyTorch's profiler"}
    for names in (("a", "b"), ("b", "a")):  # in whatever order the files are read
        recorder = Recording(["cpu_utilization"]).samples(1, [0, 10**9], [50.0, 50.0], unit=0)
        recorder.add("meta", {1: list(job), 2: list(job.values())})
        process = Recording(["step"], pid=50, session=2).ranges(1, [0], 5)
        process.add("meta", {1: list(reason), 2: list(reason.values())})
        folder = tmp_path / names[0]
        folder.mkdir()
        with load(folder, **dict(zip(names, (recorder, process), strict=True))) as store:
            assert rows(store, "SELECT gpus FROM node") == [(None,)]
