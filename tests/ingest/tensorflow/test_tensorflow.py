"""Tests for hand-made traces of TensorFlow's profiler -> rows and figures, also damaged ones."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.analysis import analyze
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.discover import format_of
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import TENSORFLOW, TENSORFLOW_TIME
from postrun.ingest.store.identity import Placement
from postrun.ingest.store.registry import Registry
from postrun.ingest.store.result import TraceResult
from postrun.ingest.tensorflow.lanes import Lanes
from postrun.ingest.tensorflow.reader import NOT_STORED, read_tensorflow
from postrun.ingest.tensorflow.session import session_of

START_US = 1_704_067_200_000_000  # 2024-01-01 00:00 UTC
DERIVED = 0xDEADBEEF
HOST, GPU = 701, 1
MAIN, DATA = 11, 12
STREAM, COPIES = 14, 15


def process(pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}


def thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}


def event(pid: int, tid: int, name: str, start: float, duration: float, **arguments: str) -> dict[str, Any]:
    extra = {"args": arguments} if arguments else {}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start, "dur": duration, **extra}


def written(path: Path, events: list[dict[str, Any]], *, end: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, *([{}] if end else [])]}
    path.write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))
    return path


def hosted(
    root: Path, events: list[dict[str, Any]], *, step: str = "000000005", node: str | None = "12-algo-1", host: str = "ip-10-0-0-1"
) -> Path:
    """A trace where the hosted profiler puts it, with the file that names its start."""
    folder = root / "framework/tensorflow/detailed_profiling/2024010100" / step
    path = written(folder / f"plugins/profile/2024_01_01_00_00_00/{host}.trace.json.gz", events)
    if node is not None:
        (folder / f"{node}_{START_US}_{START_US + 1_000_000}.metadata").touch()
    return path


def step_of(number: int, at: float) -> list[dict[str, Any]]:
    """Return a training step of 1000 us that starts at ``at`` us.

    An operator of 100 us launches two consecutive kernels of 300 us and 200 us, and a copy of 1024 bytes takes 50 us on another stream; the
    batch comes after 400 us.
    """
    group = {"group_id": str(number)}
    launch = 10 * number
    return [
        event(HOST, MAIN, "train", at, 1000, step_num=str(100 + number), step_name=f"train {100 + number}", **group),
        event(HOST, DATA, "IteratorGetNextOp::DoCompute", at, 400, **group),
        event(HOST, DATA, "Iterator::Prefetch::Map", at + 10, 300),
        event(HOST, MAIN, "model/dense/MatMul:MatMul", at + 400, 100, **group),
        event(HOST, MAIN, "cuLaunchKernel", at + 410, 10, correlation_id=str(launch + 1), context_id="$$1", **group),
        event(HOST, MAIN, "cuLaunchKernel", at + 430, 10, correlation_id=str(launch + 2), context_id="$$1", **group),
        event(HOST, MAIN, "MemcpyH2D", at + 450, 10, correlation_id=str(launch + 3), memcpy_details="kind:unknown size:1024"),
        event(HOST, MAIN, "cuStreamSynchronize", at + 600, 300, **group),
        event(HOST, MAIN, "aws_marker-ForwardPass/dense:Identity", at + 520, 20),
        event(HOST, MAIN, "EagerExecute: MatMul", at + 390, 115),
        event(
            GPU, STREAM, "volta_sgemm_128x64_nn", at + 420, 300, correlation_id=str(launch + 1), tf_op="model/dense/MatMul:MatMul",
            kernel_details="regs:122 static_shared:16640 dynamic_shared:4 grid:8,2,3 block:128,1,1 occ_pct:25", **group,
        ),
        event(GPU, STREAM, "EigenMetaKernel", at + 720, 200, correlation_id=str(launch + 2), **group),
        event(
            GPU, COPIES, "MemcpyH2D", at + 460, 50, correlation_id=str(launch + 3),
            memcpy_details="kind_src:pageable kind_dst:device size:1024 dest:0 async:1", **group,
        ),
        event(GPU, DERIVED, str(number), at + 420, 500, step_name=f"train {100 + number}", **group),
        event(GPU, DERIVED + 3, "model/dense/MatMul:MatMul", at + 420, 500, **group),
        event(GPU, DERIVED + 2, "model", at + 420, 500, **group),
    ]  # fmt: skip


NAMES = [
    process(GPU, "/device:GPU:0"),
    process(HOST, "/host:CPU"),
    thread(GPU, STREAM, "Stream #14(Compute)"),
    thread(GPU, COPIES, "Stream #15(MemcpyH2D)"),
    thread(GPU, DERIVED, "Steps"),
    thread(GPU, DERIVED + 3, "TensorFlow Ops"),
    thread(GPU, DERIVED + 2, "TensorFlow Name Scope"),
    thread(HOST, MAIN, "python3"),
    thread(HOST, DATA, "tf_data_iterator_get_next"),
]
STEPS = 4
TRACE = NAMES + [one for number in range(STEPS) for one in step_of(number, 1000.0 + 2000 * number)]


def read(path: Path) -> tuple[Store, TraceResult]:
    store = Store.create(None)
    return store, read_tensorflow(store, Placement(Registry(store)), path, 0)


def notes(store: Store) -> dict[str, int]:
    return dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").rows())


def stored(store: Store) -> int:
    return int(sum(store.frame(f"SELECT count(*) FROM {table}").item() for table in ("device_event", "host_event", "annotation")))


# -- a run with GPU work ---------------------------------------------------------------------------------------------------


def test_device_work_has_its_times_sizes_and_launches(tmp_path: Path) -> None:
    store, result = read(hosted(tmp_path, TRACE))
    first, last = (START_US + 1000) * 1000, (START_US + 1000 + 2000 * (STEPS - 1) + 1000) * 1000
    derived = 2 * STEPS
    complete = sum(one["ph"] == "X" for one in TRACE)
    assert (result.events, result.first_ns, result.last_ns, result.relative, result.partial) == (
        complete - derived,
        first,
        last,
        False,
        False,
    )
    assert (result.framework, stored(store)) == ("TensorFlow", complete - derived)
    assert notes(store) == {"derived_lines": derived}
    rows = store.frame("""
        SELECT d.*, n.text FROM device_event AS d JOIN name AS n ON n.id = d.name ORDER BY start_ns LIMIT 3
    """).to_dicts()
    kernel, copy, plain = rows
    assert (kernel["text"], kernel["kind"], kernel["device"], kernel["stream"]) == ("volta_sgemm_128x64_nn", "kernel", 0, 14)
    assert [kernel[name] for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")] == [8, 2, 3, 128, 1, 1]
    assert (kernel["registers"], kernel["shared_memory"], kernel["bytes"]) == (122, 16_644, None)
    assert (kernel["start_ns"], kernel["duration_ns"]) == ((START_US + 1420) * 1000, 300_000)
    assert (copy["kind"], copy["copy_kind"], copy["pageable"], copy["bytes"], copy["stream"]) == ("memcpy", "HtoD", True, 1024, 15)
    assert (plain["text"], plain["kind"], plain["grid_x"], plain["shared_memory"]) == ("EigenMetaKernel", "kernel", None, None)
    kinds = dict(store.frame("SELECT kind, count(*) FROM host_event GROUP BY kind").rows())
    assert kinds == {"launch": 3 * STEPS, "sync": STEPS, "operator": 2 * STEPS, "loader": STEPS}
    assert store.frame('SELECT node, "index" FROM device').rows() == [(0, 0)]
    assert store.frame("SELECT hostname, pid, rank, label FROM process JOIN node ON node.id = node").rows() == [
        ("algo-1", 12, None, "algo-1-12")
    ]


@pytest.fixture(scope="module")
def store_of_run(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("tf") / "job"
    hosted(root, TRACE)
    return ingest([root])


def test_steps_have_the_numbers_and_the_device_work_of_the_profile(store_of_run: Store) -> None:
    actual = store_of_run.frame(
        "SELECT index, phase, host_duration_ns, device_start_ns - host_start_ns, device_duration_ns, device_events FROM step ORDER BY 1"
    )
    assert actual.rows() == [(100 + number, None, 1_000_000, 420_000, 500_000, 3) for number in range(STEPS)]
    on_device = store_of_run.frame(
        "SELECT n.text, value, duration_ns FROM annotation AS a JOIN name AS n ON n.id = a.name WHERE side = 'device'"
    )
    assert sorted(on_device.rows()) == [(f"step {100 + number}", 100 + number, 500_000) for number in range(STEPS)]


def test_figures_of_the_report(store_of_run: Store) -> None:
    report = analyze(store_of_run)
    assert (report.run.framework, report.run.relative_times) == ("TensorFlow", False)
    kernels = {row.name: (row.count, row.total_ns) for row in report.kernels}
    assert kernels == {"volta_sgemm_128x64_nn": (STEPS, STEPS * 300_000), "EigenMetaKernel": (STEPS, STEPS * 200_000)}
    parts = {share.name: share.total_ns for share in report.framework.step_parts}
    assert parts == {"data loading": STEPS * 400_000, "forward": STEPS * 20_000}
    [part] = report.steps.parts
    assert (part.mean_ns["data_loader"], part.mean_ns["kernel"]) == (400_000, 500_000)
    operators = {row.name: (row.count, row.total_ns) for row in report.framework.gpu_operators}
    # both kernels, and the copy, were launched inside of the operator
    assert operators == {"model/dense/MatMul:MatMul": (3 * STEPS, STEPS * 550_000)}
    cpu = {row.name: row.total_ns for row in report.framework.cpu_operators}
    assert cpu == {"model/dense/MatMul:MatMul": STEPS * 100_000, "aws_marker-ForwardPass/dense:Identity": STEPS * 20_000}


# -- where and when --------------------------------------------------------------------------------------------------------


def test_the_metadata_of_its_step_tells_node_and_start(tmp_path: Path) -> None:
    path = hosted(tmp_path, TRACE, node="80807-8c859046be41.ant.amazon.com", host="8c859046be41.ant.amazon.com")
    session = session_of(path)
    assert (session.hostname, session.number, session.node, session.start_us, session.step) == (
        "8c859046be41.ant.amazon.com", 80807, "80807-8c859046be41.ant.amazon.com", START_US, 5,
    )  # fmt: skip
    (metadata,) = path.parents[3].glob("*.metadata")
    known = format_of(metadata), format_of(path)
    assert [one.name for one in known if one] == [TENSORFLOW_TIME, TENSORFLOW]


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["12-algo-1_5_9.metadata"],  # no time
        ["12-algo-1_1704067200000000.metadata"],
        ["12-algo-1_99999999999999999999_99999999999999999999.metadata"],
        ["12-algo-1_１７０４０６７２００００００００_1704067200000001.metadata"],
        ["1-a_1704067200000000_1704067201000000.metadata", "2-b_1704067200000000_1704067201000000.metadata"],  # whose?
    ],
)
def test_without_a_start_times_are_relative_and_told(tmp_path: Path, names: list[str]) -> None:
    path = hosted(tmp_path, TRACE, node=None)
    for name in names:
        (path.parents[3] / name).touch()
    store, result = read(path)
    assert (result.relative, result.first_ns) == (True, 1_000_000)
    assert notes(store)["relative_times"] == 1
    assert store.frame("SELECT hostname, pid FROM process JOIN node ON node.id = node").rows() == [("ip-10-0-0-1", None)]


def test_of_several_metadata_files_the_one_of_the_machine_counts(tmp_path: Path) -> None:
    path = hosted(tmp_path, TRACE, node="3-ip-10-0-0-1.ec2.internal")
    (path.parents[3] / "4-ip-10-0-0-2.ec2.internal_1704067100000000_1704067101000000.metadata").touch()
    assert session_of(path).start_us == START_US


def test_profiles_of_one_machine_without_a_start_do_not_lie_on_each_other(tmp_path: Path) -> None:
    for day in ("01", "02", "03"):
        written(tmp_path / f"logs/plugins/profile/2024_01_{day}/node7.trace.json.gz", [*TRACE, event(HOST, MAIN, f"day {day}", 0, 1)])
    store = ingest([tmp_path / "logs"])
    windows = store.frame("SELECT first_ns, last_ns FROM profile_window ORDER BY first_ns").rows()
    assert windows[0] == (0, 8_000_000)
    assert all(after[0] - before[1] == 10**9 for before, after in itertools.pairwise(windows))
    assert store.frame("SELECT hostname FROM process JOIN node ON node.id = node").rows() == [("node7",)]
    # correlations begin anew in every profile: each step has the work of its own
    assert store.frame("SELECT device_events FROM step").rows() == [(3,)] * 3 * STEPS
    assert store.frame("SELECT count(DISTINCT correlation) FROM device_event").item() == 9 * STEPS


def test_a_node_whose_timelines_say_its_rank_is_one_process(tmp_path: Path) -> None:
    job = tmp_path / "job"
    hosted(job, TRACE)
    timeline = job / f"framework/pevents/2024010100/{START_US}_12-algo-1_pythontimeline.json"
    timeline.parent.mkdir(parents=True)
    timeline.write_text(
        json.dumps(
            [
                {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": START_US}},
                {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
                {"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 900, "dur": 1900, "args": {"pid": 905, "step_num": "100"}},
            ]
        )
    )
    store = ingest([job])
    assert store.frame("SELECT hostname, pid, rank, label FROM process JOIN node ON node.id = node").rows() == [
        ("algo-1", 905, 12, "algo-1-12")
    ]
    assert notes(store) == {"derived_lines": 2 * STEPS}


def test_steps_that_are_only_counted_go_on_from_the_number_of_the_folder(tmp_path: Path) -> None:
    events = [event(HOST, MAIN, "FunctionRun", 100 * i, 50, group_id=str(i), step_name=str(i)) for i in range(3)]
    store, _ = read(hosted(tmp_path, [*NAMES, *events]))
    assert sorted(store.frame("SELECT value FROM annotation WHERE phase = 'step'")["value"]) == [5, 6, 7]


def test_a_trace_given_alone_is_told_by_its_processes(tmp_path: Path) -> None:
    path = tmp_path / "anything.json"
    path.write_text(json.dumps({"traceEvents": TRACE}))
    known = format_of(path)
    assert known is not None
    assert known.name == TENSORFLOW
    store = ingest([path])
    assert store.frame("SELECT hostname, label FROM process JOIN node ON node.id = node").rows() == [("unknown host", "anything.json")]
    path.write_text(json.dumps(TRACE))  # a bare array
    assert format_of(path) == known


def test_the_copy_that_jax_writes_is_not_read_beside_its_original(tmp_path: Path) -> None:
    folder = tmp_path / "logs/plugins/profile/2024_01_01"
    jax = [process(HOST, "/host:CPU"), event(HOST, MAIN, "$train.py:7 step", 0, 90), event(HOST, MAIN, "train", 0, 90, step_num="3")]
    written(folder / "vm.trace.json.gz", jax)
    written(folder / "perfetto_trace.json.gz", jax, end=False)
    store = ingest([tmp_path / "logs"])
    assert dict(store.frame("SELECT kind, count(*) FROM host_event GROUP BY kind").rows()) == {"python": 1}
    assert store.frame("SELECT index FROM step").rows() == [(3,)]
    assert "duplicate" in notes(store)
    assert store.frame("SELECT framework FROM run").item() is None
    (folder / "vm.trace.json.gz").unlink()
    assert stored(ingest([tmp_path / "logs"])) == 2


# -- lanes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process_name", "thread_name", "tid", "expected"),
    [
        ("/device:GPU:3", "Stream #13(Compute,MemcpyD2D)", 13, ("stream", 3, 13)),
        ("/device:GPU:3 Stream #13(Compute,MemcpyD2D)", "", 0, ("stream", 3, 13)),
        ("/device:GPU:0", "stream:7", 7, ("stream", 0, 7)),
        ("/device:GPU:0/stream:7<MemcpyH2D>", "", 0, ("stream", 0, 7)),
        ("/device:GPU:0", "Compute", 2, ("stream", 0, 2)),
        ("/device:GPU:0", "Memcpy H2D", 3, ("stream", 0, 3)),
        ("/device:GPU:0", "", 9, ("stream", 0, 9)),
        ("/device:GPU:0", "", DERIVED + 7, ("derived", 0, None)),
        ("/device:GPU:0", "XLA Ops - from Stream #13", DERIVED + 5, ("derived", 0, None)),
        ("/device:GPU:0", "Launch Stats", DERIVED + 1, ("derived", 0, None)),
        ("/device:GPU:0/stream:all Compute", "", 0, ("derived", 0, None)),
        ("/device:GPU:0", "Steps", DERIVED, ("steps", 0, None)),
        ("/device:GPU:99999", "Stream #1", 1, ("derived", None, None)),
        ("/device:TPU:0", "XLA Ops", 1, ("derived", None, None)),
        ("/device:CPU:0", "", 1, ("host", None, None)),
        ("/host:CPU", "tf_Compute", 1, ("host", None, None)),
        ("/job:localhost/replica:0/task:0/device:GPU:0 Compute", "", 0, ("host", None, None)),
        ("", "", 1, ("host", None, None)),
    ],
)
def test_what_a_line_is(process_name: str, thread_name: str, tid: int, expected: tuple[str, int | None, int | None]) -> None:
    lanes = Lanes()
    lanes.add([(0, process(4, process_name)), (0, thread(4, tid, thread_name))])
    lane = lanes.of("4", str(tid))
    assert (lane.kind, lane.device, lane.stream) == expected


def test_names_of_lanes_may_come_behind_their_events(tmp_path: Path) -> None:
    events = [one for one in TRACE if one["ph"] == "X"]
    (first, second_result), (second, two) = (
        read(hosted(tmp_path / name, given)) for name, given in (("a", TRACE), ("b", [*events, *NAMES]))
    )
    assert second_result == two
    for table in ("device_event", "host_event", "annotation"):
        query = f"SELECT t.* EXCLUDE (name), n.text FROM {table} AS t JOIN name AS n ON n.id = t.name ORDER BY ALL"
        assert first.frame(query).rows() == second.frame(query).rows()


# -- damage ----------------------------------------------------------------------------------------------------------------


def test_a_cut_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = hosted(tmp_path, TRACE)
    complete = path.read_bytes()
    path.write_bytes(complete[: len(complete) * 3 // 4])
    store, result = read(path)
    assert result.partial
    assert 0 < result.events < sum(one["ph"] == "X" for one in TRACE)
    assert {"cut_stream", "truncated"} & set(notes(store))
    assert ingest([tmp_path]).frame("SELECT status FROM run").item() == "partial"


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0), b"{}", gzip.compress(b'{"traceEvents": [{}]}', mtime=0)])
def test_a_file_without_events_is_told(tmp_path: Path, content: bytes) -> None:
    path = hosted(tmp_path, TRACE)
    path.write_bytes(content)
    _, result = read(path)
    assert result.events == 0
    with pytest.raises(InputError, match="holds no event"):
        ingest([tmp_path])


def test_what_cannot_be_is_left_out_and_counted(tmp_path: Path) -> None:
    far, week = 2**53, 8 * 86_400 * 10**6
    odd = [
        event(HOST, MAIN, "late", far, 1),
        event(HOST, MAIN, "early", -far, 1),
        event(HOST, MAIN, "long", 0, week),
        event(HOST, MAIN, "backwards", 0, -5),
        {"ph": "B", "pid": HOST, "tid": MAIN, "name": "open", "ts": 1},
        {"ph": "E", "pid": HOST, "tid": MAIN, "ts": 2},
        event(GPU, STREAM, "MemoryAlloc", 5, 1),
        {"ph": "X", "pid": HOST, "tid": MAIN, "name": "no end", "ts": 3},
        event(HOST, MAIN, "\ud83d\ude00" * 3000, 4, 1),
        event(GPU, STREAM, "k", 5, 1, kernel_details="regs:99999999999999999999 grid:1,2 block:x", correlation_id="nine"),
    ]
    store, result = read(hosted(tmp_path, [*NAMES, *odd]))
    assert (result.events, stored(store)) == (3, 3)
    noted = notes(store)
    codes = ("absurd_time", "absurd_duration", "negative_duration", "begin_and_end", "no_device_work")
    assert [noted[code] for code in codes] == [2, 1, 1, 2, 1]
    assert noted["no_duration"] == 1
    assert store.frame("SELECT registers, grid_x, block_x, correlation FROM device_event").rows() == [(None, None, None, None)]


def test_files_beside_the_trace_are_one_note_of_each_kind(tmp_path: Path) -> None:
    path = hosted(tmp_path, TRACE)
    for name in ("kernel_stats.pb", "overview_page.pb", "xplane.pb"):
        (path.parent / f"ip-10-0-0-1.{name}").write_bytes(name.encode())
    (path.parents[3] / "events.out.tfevents.1704067200.ip.profile-empty").write_bytes(b"x")
    noted = ingest([tmp_path]).frame("SELECT severity, message, count FROM ingest_note WHERE code = 'format_not_read'").rows()
    assert noted == [("info", "TensorFlow profile data: of a TensorFlow profile its .trace.json.gz is read.", 4)]


texts = st.one_of(
    st.sampled_from(
        ["train", "MatMul:MatMul", "MemcpyD2H", "Memset", "/device:GPU:0", "Stream #3(Compute)", "Steps", "$a.py:1 f", "5", ""]
    ),
    st.text(max_size=12),
)
numbers = st.one_of(st.integers(-3, 20), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
anything = st.one_of(st.none(), st.booleans(), numbers, texts, st.lists(numbers, max_size=2))
names_of_args = st.sampled_from(
    ["name", "step_num", "step_name", "group_id", "correlation_id", "kernel_details", "memcpy_details", "bytes", "hlo_op", "x"]
)
events_of_any_kind = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "M", "B", "E", "i", "C"])},
    optional={
        "pid": st.one_of(st.integers(0, 3), anything),
        "tid": st.one_of(st.integers(0, 3), anything),
        "name": st.one_of(st.sampled_from(["process_name", "thread_name"]), texts),
        "ts": st.one_of(st.integers(0, 50), anything),
        "dur": st.one_of(st.integers(0, 50), anything),
        "args": st.one_of(st.dictionaries(names_of_args, anything, max_size=4), anything),
    },
)


@settings(max_examples=examples(40))
@given(st.lists(events_of_any_kind, max_size=12), st.integers(0, 400), st.booleans())
def test_whatever_a_file_holds_every_event_is_stored_or_counted(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], cut: int, complete: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "vm.trace.json"
    text = json.dumps({"traceEvents": [*NAMES[:2], *events, {}]})
    path.write_text(text if complete else text[: -cut or None])
    store, result = read(path)
    assert result.events == stored(store)
    if complete:
        counted = Counter(notes(store))
        assert result.events + sum(counted[code] for code in NOT_STORED) == sum(one["ph"] in ("X", "B", "E") for one in events)


def test_a_bomb_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    """A megabyte of zeros inside an event is not an event; earlier events are read."""
    path = hosted(tmp_path, TRACE)
    text = json.dumps({"traceEvents": TRACE})[:-2]
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = packer.compress(text.encode() + b', {"ph": "X", "name": "')
    for _ in range(20):
        data += packer.compress(b"0" * (1 << 20))
    path.write_bytes(data + packer.flush())
    _, result = read(path)
    assert result.events == sum(one["ph"] == "X" for one in TRACE) - 2 * STEPS
    assert result.partial
