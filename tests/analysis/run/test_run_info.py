"""Identity of a run, from stores made by hand."""

from __future__ import annotations

from collections.abc import Callable

from postrun.analysis.run import run_info
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
EPOCH = 1_712_195_495_519_689_047


def test_run_with_everything(make_store: MakeStore) -> None:
    store = make_store(
        run=[
            {
                "name": "resnet", "status": "completed", "started_ns": EPOCH, "ended_ns": EPOCH + 9, "framework": "PyTorch 2.13",
                "instance_type": "ml.p4d", "resources": '["arn:1", "arn:2"]', "hyperparameters": '{"lr": 0.1, "b": "x", "a": [1]}',
                "labels": "{}", "metadata": None,
            }
        ],
        processes=[{"id": 0, "node": 0, "rank": 0, "world_size": 2}, {"id": 1, "node": 0, "rank": 1, "world_size": 2}],
        source=[
            {"id": 0, "path": "b.json", "format": "kineto", "bytes": 5, "events": 3, "first_ns": EPOCH + 1, "last_ns": EPOCH + 2},
            {"id": 1, "path": "a.txt", "format": "unknown"},
        ],
    )  # fmt: skip
    result = run_info.run(store)
    assert (result.name, result.status, result.started_at_ns, result.ended_at_ns) == ("resnet", "completed", EPOCH, EPOCH + 9)
    assert (result.relative_times, result.world_size, result.framework) == (False, 2, "PyTorch 2.13")
    assert result.resources == ("arn:1", "arn:2")
    assert result.hyperparameters == {"a": "[1]", "b": "x", "lr": "0.1"}
    assert (result.labels, result.metadata) == ({}, {})
    assert [(s.path, s.format, s.events) for s in result.sources] == [("a.txt", "unknown", 0), ("b.json", "kineto", 3)]
    assert run_info.run(store, name="other").name == "other"


def test_run_with_nothing(make_store: MakeStore) -> None:
    result = run_info.run(make_store())
    assert (result.name, result.status, result.started_at_ns, result.world_size, result.relative_times) == (
        "run",
        "unknown",
        None,
        None,
        False,
    )


def test_times_come_from_the_sources_where_the_run_has_none(make_store: MakeStore) -> None:
    store = make_store(
        source=[
            {"id": 0, "path": "a", "format": "kineto", "first_ns": 500, "last_ns": 900},
            {"id": 1, "path": "b", "format": "kineto", "first_ns": 400, "last_ns": 600},
        ]
    )
    result = run_info.run(store)
    assert (result.started_at_ns, result.ended_at_ns, result.relative_times) == (400, 900, True)
    store.insert("source", {"id": 2, "path": "c", "format": "kineto", "first_ns": EPOCH, "last_ns": EPOCH + 7})
    result = run_info.run(store)
    assert (result.started_at_ns, result.ended_at_ns, result.relative_times) == (EPOCH, EPOCH + 7, False)


def test_devices_are_used_where_they_have_events_or_samples(make_store: MakeStore) -> None:
    store = make_store(
        device=[{"node": 0, "index": i, "name": "H100", "memory_bytes": 80} for i in (2, 0, 1)],
        device_event=[
            {"kind": "kernel", "start_ns": 0, "duration_ns": 1, "device": 0},
            {"kind": "kernel", "start_ns": 0, "duration_ns": 1, "device": 5},
        ],
        sample=[
            {"node": 0, "metric": "gpu_utilization", "unit": 2, "time_ns": 0, "value": 0.0},
            {"node": 0, "metric": "cpu_utilization", "unit": 1, "time_ns": 0, "value": 0.0},
        ],
    )
    result = run_info.devices(store)
    assert [(d.index, d.name, d.used) for d in result] == [(0, "H100", True), (1, "H100", False), (2, "H100", True), (5, None, True)]


def test_nodes_and_processes_in_order(make_store: MakeStore) -> None:
    store = make_store(
        nodes=[{"id": 0, "hostname": "b", "cores": 8}, {"id": 1, "hostname": "a"}, {"id": 2}],
        processes=[{"id": 0, "node": 0, "rank": 1, "label": "w1"}, {"id": 1, "node": 0, "rank": 0}, {"id": 2, "node": 1, "pid": 4}],
    )
    assert [(n.hostname, n.cores) for n in run_info.nodes(store)] == [("a", None), ("b", 8), ("node-2", None)]
    assert [(p.node, p.rank, p.pid, p.label) for p in run_info.processes(store)] == [
        ("a", None, 4, None),
        ("b", 0, None, None),
        ("b", 1, None, "w1"),
    ]


def test_notes_worst_first(make_store: MakeStore) -> None:
    store = make_store()
    store.note("info", "z", "third", file="a")
    store.note("warning", "a", "second", file="b", count=4, first_ns=1, last_ns=2)
    store.note("error", "a", "first")
    result = run_info.data_quality(store)
    assert [(n.severity, n.message) for n in result] == [("error", "first"), ("warning", "second"), ("info", "third")]
    assert (result[1].file, result[1].count, result[1].first_ns, result[1].last_ns) == ("b", 4, 1, 2)


def test_notes_of_many_files_are_one_entry_where_they_need_no_attention(make_store: MakeStore) -> None:
    store = make_store()
    for file in ("b.json", "a.json"):
        store.note("info", "phase_not_read", f"Not stored in {file}.", count=3, file=file)
        store.note("warning", "truncated", f"Breaks off at {file}.", file=file)
    assert [(n.severity, n.file, n.files, n.count, n.message) for n in run_info.data_quality(store)] == [
        ("warning", "a.json", 1, 1, "Breaks off at a.json."),
        ("warning", "b.json", 1, 1, "Breaks off at b.json."),
        ("info", "a.json", 2, 6, "Not stored in a.json."),
    ]


def test_more_steps_or_machines_than_the_documentation_advises_are_told(make_store: MakeStore) -> None:
    def advice(steps: int, machines: int, device_events: int = 1) -> list[tuple[str, str, int]]:
        store = make_store(
            step=[
                {"node": 0, "process": process, "phase": "train", "index": i, "host_start_ns": i, "host_duration_ns": 1,
                 "device_events": device_events}
                for process in range(2) for i in range(steps)
            ],
            device_event=[{"node": node, "process": node, "device": 0, "kind": "kernel", "start_ns": 0} for node in range(machines)],
        )  # fmt: skip
        return [(note.severity, note.code, note.count) for note in run_info.data_quality(store)]

    assert advice(300, 7) == []
    assert advice(301, 8, device_events=0) == [("info", "many_machines", 8)]
    assert advice(301, 8) == [("info", "many_machines", 8), ("info", "many_steps", 301)]
