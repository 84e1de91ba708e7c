"""Tests that traces for viewers contain all of a run, counted by Perfetto's trace processor, a plain protobuf reader, and json."""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postrun.export.write import write
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.simulate import Problems, write_demo
from trace_processor import fields, query

HOSTILE = ['</script>"\\\n\t', "ünï ☃ 𝄞", "a" * 5000, "\x01\x7f", "{}[],:", "%s{0}", ""]
START = 1_772_000_000_000_000_001


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A simulated run of two nodes with two GPUs each, traces and system samples."""
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, seed=3, steps=2, problems=Problems(straggler_rank=None), nodes=2, gpus_per_node=2)
    with ingest([str(folder)]) as store:
        # The hosted profiler's files cover minutes; their first seconds, and those of the traces, are enough.
        store.connection.execute(
            "DELETE FROM raw.sample WHERE id IN (SELECT id FROM sample WHERE time_ns > (SELECT min(time_ns) + 20000000000 FROM sample))"
        )
        worked = "(SELECT min(start_ns) - 1000000000 FROM device_event) AND (SELECT max(start_ns) FROM device_event)"
        store.connection.execute(f"DELETE FROM raw.annotation WHERE id IN (SELECT id FROM annotation WHERE start_ns NOT BETWEEN {worked})")
        store.connection.execute(f"DELETE FROM step WHERE host_start_ns NOT BETWEEN {worked}")
        yield store


@pytest.fixture(scope="module")
def demo_perfetto(demo: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return perfetto(demo, tmp_path_factory.mktemp("perfetto"))


@pytest.fixture(scope="module")
def demo_chrome(demo: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("chrome") / "run.json.gz"
    write(demo, "chrome", file)
    return file


@pytest.fixture(scope="module")
def small() -> Iterator[Store]:
    """Yield a run with hostile names, overlaps, and a graph that runs twice."""
    with Store.temporary() as store:
        store.insert("node", {"id": 0, "hostname": "host<&>"})
        store.insert("process", {"id": 0, "node": 0, "pid": 77, "rank": 0, "world_size": 1})
        ids = store.name_ids(["cudaGraphLaunch", "cudaLaunchKernel", *HOSTILE])
        of = {"node": 0, "process": 0}
        for name, start, duration, correlation in [(ids[0], 0, 10, 5), (ids[1], 20, 5, 6), (ids[1], 22, 1, None), (ids[1], 24, 9, 7)]:
            more = {
                "tid": 1,
                "kind": "launch",
                "name": name,
                "start_ns": START + start,
                "duration_ns": duration,
                "correlation": correlation,
            }
            store.insert("host_event", {**of, **more})
        runs = [(2, 100, 50, 5), (3, 120, 60, 5), (4, 18, 3, 6), (5, 180, 0, None), (6, 180, 0, None), (7, 180, 7, 7), (8, 187, 1, 99)]
        for name, start, duration, correlation in runs:
            more = {"device": 0, "stream": 7, "kind": "kernel", "name": ids[name], "start_ns": START + start, "duration_ns": duration}
            store.insert("device_event", {**of, **more, "correlation": correlation, "bytes": None, "grid_x": 4, "grid_y": 2, "grid_z": 1})
        for value, at in ((1.5, 0), (float("nan"), 1), (None, 2), (-3e300, 3)):
            store.insert("sample", {"node": 0, "metric": "counter.loss\n<", "unit": 0, "time_ns": START + at, "value": value})
        yield store


def perfetto(store: Store, folder: Path) -> Path:
    file = folder / "run.pftrace"
    write(store, "perfetto", file)
    return file


class Plain:
    """A Perfetto trace read without any of our code or theirs: slices by track path, arrows, values."""

    def __init__(self, data: bytes) -> None:
        self.parent: dict[int, int | None] = {}
        self.label: dict[int, str] = {}
        self.slices: list[tuple[tuple[str, ...], str, str, int, int]] = []
        self.arrows: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.values: dict[tuple[str, ...], list[tuple[int, float]]] = defaultdict(list)
        words: dict[int, dict[int, str]] = defaultdict(dict)
        stacks: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
        for _, packet in fields(data):
            parts = dict(fields(packet))
            for kind, entry in fields(parts.get(12, b"")):
                known = dict(fields(entry))
                words[kind][known[1]] = known[2].decode()
            if 60 in parts:
                track = dict(fields(parts[60]))
                assert track[1] not in self.label
                self.parent[track[1]], self.label[track[1]] = track.get(5), track[2].decode()
            if 11 not in parts:
                continue
            event = list(fields(parts[11]))
            expanded, at = dict(event), parts[8]
            if expanded[9] == 1:
                stacks[expanded[11]].append((words[2][expanded[10]], words[1][expanded[3]], at))
                for number, value in event:
                    if number == 47:
                        self.arrows[struct.unpack("<Q", value)[0]].append((words[1][expanded[3]], at))
            elif expanded[9] == 2:
                name, category, start = stacks[expanded[11]].pop()
                self.slices.append((self.path(expanded[11]), category, name, start, at - start))
            else:
                self.values[self.path(expanded[11])].append((at, struct.unpack("<d", expanded[44])[0]))
        assert not any(stacks.values())

    def path(self, track: int | None) -> tuple[str, ...]:
        return () if track is None else (*self.path(self.parent[track]), self.label[track])


def stored(store: Store) -> Counter[tuple[str, str, int, int]]:
    """Category, name, start and duration of every event of a store."""
    rows: list[Any] = []
    for table, kind in (("device_event", "kind::VARCHAR"), ("host_event", "kind::VARCHAR"), ("annotation", "'annotation'")):
        rows += store.frame(f"SELECT {kind}, n.text, start_ns, duration_ns FROM {table} AS t JOIN name AS n ON n.id = t.name").rows()
    rows += store.frame("SELECT 'step', 'step ' || \"index\", host_start_ns, host_duration_ns FROM step").rows()
    return Counter(rows)


def pairs(store: Store) -> int:
    """Device runs whose correlation a launch of their process has."""
    launches = set(store.frame("SELECT process, correlation FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL").rows())
    return sum(row in launches for row in store.frame("SELECT process, correlation FROM device_event WHERE kind <> 'sync'").rows())


def averages(store: Store) -> int:
    sql = "SELECT DISTINCT node, metric, time_ns FROM sample WHERE metric IN ('cpu_utilization', 'gpu_utilization') AND unit IS NOT NULL"
    return len(store.frame(sql))


@pytest.mark.slow
def test_the_trace_processor_counts_what_the_store_holds(demo: Store, demo_perfetto: Path) -> None:
    slices, flows, values, faults, backwards, parents = query(
        demo_perfetto,
        "SELECT category, name, ts, dur FROM slice",
        "SELECT count(*), sum(o.category = 'launch'), sum(i.ts - o.ts) FROM flow JOIN slice AS o ON o.id = slice_out"
        " JOIN slice AS i ON i.id = slice_in",
        "SELECT count(*) FROM counter",
        "SELECT name, value FROM stats WHERE value <> 0 AND severity <> 'info'",
        "SELECT count(*) FROM slice WHERE dur < 0",
        "SELECT g.name, p.name, t.name FROM track AS t JOIN track AS p ON p.id = t.parent_id JOIN track AS g ON g.id = p.parent_id",
    )
    assert Counter(slices) == stored(demo)
    latency = demo.frame("""
        SELECT sum(d.start_ns - h.start_ns) FROM device_event AS d JOIN host_event AS h USING (process, correlation) WHERE h.kind = 'launch'
    """).item()
    assert flows == [(pairs(demo), pairs(demo), int(latency))]
    assert values == [(demo.frame("SELECT count(*) FROM sample").item() + averages(demo),)]
    assert faults == []
    assert backwards == [(0,)]
    assert {("GPU-0 device", "stream 7"), ("GPU-1 device", "stream 7")} <= {(p, t) for _, p, t in parents}
    assert all(g.startswith("HOST-") for g, p, t in parents if p.endswith("device"))
    assert any(p == "GPUs" and t == "SUM Utilization" for _, p, t in parents)


def test_arguments_and_hostile_names_reach_the_trace_processor(small: Store, tmp_path: Path) -> None:
    rows, names, faults = query(
        perfetto(small, tmp_path),
        "SELECT s.dur, key, display_value FROM slice AS s JOIN args USING (arg_set_id)",
        "SELECT name FROM slice WHERE category = 'kernel'",
        "SELECT name FROM stats WHERE value <> 0 AND severity <> 'info'",
    )
    assert {(50, "debug.grid", "4, 2, 1"), (50, "debug.correlation", "5"), (50, "debug.stream", "7")} <= set(rows)
    assert {name for (name,) in names} >= {name for name in HOSTILE if name}
    assert faults == []


def test_a_plain_reader_finds_every_event_exactly(demo: Store, demo_perfetto: Path) -> None:
    read = Plain(demo_perfetto.read_bytes())
    assert Counter((category, name, start, duration) for _, category, name, start, duration in read.slices) == stored(demo)
    assert len(read.arrows) == pairs(demo)
    assert all([kind for kind, _ in ends] == ["launch", "kernel"] or ends[0][0] == "launch" for ends in read.arrows.values())
    of_gpu = demo.frame("""
        SELECT time_ns, value FROM sample JOIN node ON node.id = node
        WHERE metric = 'gpu_utilization' AND unit = 1 AND hostname = (SELECT min(hostname) FROM node) ORDER BY time_ns
    """).rows()
    first = min(path[0] for path in read.values)
    assert [values for path, values in read.values.items() if path[0] == first and path[-1] == "GPU-1 utilization"] == [of_gpu]
    couples = defaultdict(list)
    for time_ns, value in [
        pair for path, some in read.values.items() if path[0] == first and path[-1][5:] == " utilization" for pair in some
    ]:
        couples[time_ns].append(value)
    mean = dict(read.values[first, "GPUs", "SUM Utilization"])
    assert mean == pytest.approx({at: sum(some) / len(some) for at, some in couples.items()})


def test_a_run_worked_out_by_hand(small: Store, tmp_path: Path) -> None:
    read = Plain(perfetto(small, tmp_path).read_bytes())
    top = ("host<&>", "GPUs", "HOST-0 PID-77 rank 0")
    assert Counter((path, start - START, duration) for path, _, _, start, duration in read.slices) == Counter(
        [((*top, "GPU-0 host", "thread 1"), *one) for one in ((0, 10), (20, 5), (22, 1), (24, 9))]
        + [((*top, "GPU-0 device", "stream 7"), *one) for one in ((18, 3), (100, 50), (120, 60), (180, 7), (180, 0), (180, 0), (187, 1))]
    )
    assert sorted(sorted((kind, at - START) for kind, at in ends) for ends in read.arrows.values()) == [
        [("kernel", 18), ("launch", 20)], [("kernel", 100), ("launch", 0)], [("kernel", 120), ("launch", 0)],
        [("kernel", 180), ("launch", 24)],
    ]  # fmt: skip
    assert read.values == {(*top, "loss\n<"): [(START, 1.5), (START + 3, -3e300)]}


def chrome(store: Store, file: Path) -> dict[str, Any]:
    write(store, "chrome", file)
    return loaded(file)


def loaded(file: Path) -> dict[str, Any]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    trace: dict[str, Any] = json.loads(data, parse_constant=lambda word: pytest.fail(word))
    return trace


def nanoseconds(micro: float) -> int:
    return round(micro * 1000)


def test_chrome_holds_every_event_arrow_and_value(demo: Store, demo_chrome: Path) -> None:
    read = loaded(demo_chrome)
    by_phase: dict[str, list[Any]] = defaultdict(list)
    for event in read["traceEvents"]:
        by_phase[event["ph"]].append(event)
    base = read["baseTimeNanoseconds"]
    actual = Counter((e["name"], base + nanoseconds(e["ts"]), nanoseconds(e["dur"])) for e in by_phase["X"])
    assert actual == Counter({key[1:]: 0 for key in stored(demo)}) + Counter([key[1:] for key in stored(demo).elements()])
    assert len(by_phase["s"]) == len(by_phase["f"]) == len({e["id"] for e in by_phase["s"]}) == pairs(demo)
    starts = {(e["pid"], e["tid"], e["ts"]) for e in by_phase["X"]}
    assert {(e["pid"], e["tid"], e["ts"]) for e in by_phase["s"] + by_phase["f"]} <= starts
    assert len(by_phase["C"]) == demo.frame("SELECT count(*) FROM sample").item() + averages(demo)
    named = {(e["pid"], e["tid"]) for e in by_phase["M"] if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in by_phase["X"]} <= named


def test_chrome_of_hostile_names_and_overlaps(small: Store, tmp_path: Path) -> None:
    events = chrome(small, tmp_path / "run.json")["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert Counter(e["name"] for e in kernels) == Counter(HOSTILE)
    by_thread = defaultdict(list)
    for event in kernels:
        by_thread[event["pid"], event["tid"]].append((nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"])))
    assert len(by_thread) == 2
    for spans in by_thread.values():
        assert all(before[1] <= after[0] for before, after in zip(sorted(spans), sorted(spans)[1:], strict=False))


@pytest.mark.parametrize(
    "trace",
    [
        "sampled_2_ranks/sampled_rank-0.json.gz",
        "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
        "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    ],
)
def test_our_own_reader_reads_chrome_back(trace: str, shared_data: Path, tmp_path: Path) -> None:
    text = """
        SELECT kind::VARCHAR, n.text, start_ns, duration_ns, device, stream, correlation, external_id, bytes, grid_x, grid_y,
            block_x, registers
        FROM device_event JOIN name AS n ON n.id = name
    """
    host = "SELECT kind::VARCHAR, n.text, start_ns, duration_ns, correlation FROM host_event JOIN name AS n ON n.id = name"
    ranges = "SELECT side, n.text, start_ns, duration_ns FROM annotation JOIN name AS n ON n.id = name"
    steps = 'SELECT "index", host_start_ns, host_duration_ns, device_start_ns, device_duration_ns FROM step'
    with ingest([str(shared_data / "kineto" / trace)]) as store:
        write(store, "chrome", tmp_path / "again.json")
        plain = Plain(perfetto(store, tmp_path).read_bytes())
        assert Counter((c, n, s, d) for _, c, n, s, d in plain.slices) == stored(store)
        with ingest([str(tmp_path / "again.json")]) as again:
            for sql in (text, host, ranges, steps):
                assert Counter(again.frame(sql).rows()) == Counter(store.frame(sql).rows())


def test_two_exports_are_alike_to_the_byte(demo: Store, demo_perfetto: Path, demo_chrome: Path, tmp_path: Path) -> None:
    for kind, first, name in (("perfetto", demo_perfetto, "run.pftrace"), ("chrome", demo_chrome, "again.json.gz")):
        write(demo, kind, tmp_path / name)
        assert (tmp_path / name).read_bytes() == first.read_bytes()


TIMES = st.integers(0, 40) | st.integers(0, 2**63 - 1)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("device_event", "host_event", "annotation")), st.text(st.characters(), max_size=5), TIMES,
        st.integers(-3, 20) | TIMES | st.none(), st.none() | st.integers(-(2**63), 2**63 - 1), st.integers(0, 1),
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(events=EVENTS)
def test_whatever_the_events_are(events: list[Any]) -> None:
    """Names can be hostile, events can overlap, and lengths and times are extreme."""
    with Store.create(None) as store, TemporaryDirectory() as folder:
        store.insert("node", {"id": 0})
        store.insert("process", {"id": 0, "node": 0})
        wanted: Counter[Any] = Counter()
        cut = 0
        for table, name, start, duration, number, track in events:
            text = name.encode("utf-8", "backslashreplace").decode()
            length = max(0, min(duration or 0, 2**63 - 1 - start))
            cut += length != (duration or 0)
            row = {"node": 0, "process": 0, "name": store.name_ids([name])[0], "start_ns": start, "duration_ns": duration}
            if table == "annotation":
                row |= {"side": "host", "tid": track, "value": number, "arguments": name}
                wanted["annotation", text, start, length] += 1
            elif table == "host_event":
                row |= {"kind": "operator", "tid": track, "correlation": number}
                wanted["operator", text, start, length] += 1
            else:
                row |= {"kind": "kernel", "device": 0, "stream": track, "bytes": number, "correlation": number}
                wanted["kernel", text, start, length] += 1
            store.insert(table, row)
        file = Path(folder) / "run"
        assert write(store, "perfetto", file).cut == cut
        read = Plain(file.read_bytes())
        assert Counter(row[1:] for row in read.slices) == wanted
        trace = chrome(store, file)
        words = {"cpu_op": "operator", "user_annotation": "annotation", "kernel": "kernel"}
        displayed: Counter[Any] = Counter()
        for event in json.loads(file.read_bytes(), parse_float=Decimal)["traceEvents"]:
            if event["ph"] == "X":
                start = trace["baseTimeNanoseconds"] + int(event["ts"] * 1000)
                displayed[words[event["cat"]], event["name"], start, int(event["dur"] * 1000)] += 1
        assert displayed == wanted


def test_times_below_zero_are_moved_up(tmp_path: Path) -> None:
    with Store.temporary() as store:
        store.insert("node", {"id": 0})
        for at in (-5, 3):
            store.insert("sample", {"node": 0, "metric": "memory_used_percent", "time_ns": at, "value": 1.0})
        assert write(store, "perfetto", tmp_path / "run.pftrace").shifted_ns == 5
        read = Plain((tmp_path / "run.pftrace").read_bytes())
        assert list(read.values.values()) == [[(0, 1.0), (8, 1.0)]]


def test_an_empty_run(tmp_path: Path) -> None:
    with Store.temporary() as store:
        assert Plain(perfetto(store, tmp_path).read_bytes()).label == {}
        assert chrome(store, tmp_path / "run.json")["traceEvents"] == []
