"""Tests that processes with different names in two tracers are joined if they did the same work."""

from __future__ import annotations

import random

import pytest
from made_tracers import Made, work
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NSIGHT, TRACE


@pytest.mark.parametrize(
    ("host", "pid"), [("unknown host", 17), ("3f2a1bc4d5e6", 17), ("3f2a1bc4d5e6", 4242), ("node7", 17), ("a-container-with-a-name", 17)]
)
def test_a_process_of_a_container_is_that_of_its_machine(host: str, pid: int) -> None:
    with Store.create(None) as store:
        builder = Made(store)
        kernels = work(1)
        builder.source(NSIGHT, {builder.process("node7", 4242): kernels}, tid=4242)
        builder.source(TRACE, {builder.process(host, pid, rank=3): kernels[20:40]}, tid=pid)
        builder.settle()
        assert builder.machines() == ["node7"]
        assert builder.processes() == [("node7", 4242, 3)]
        assert (builder.count("device_event"), builder.count("annotation")) == (60, 60)
        assert builder.count("host_event", "kind = 'launch'") == 60
        assert builder.count("host_event", "kind = 'operator'") == 20
        # The rows of the export are left out: every operator is next to a launch of its file, and all belong to one thread.
        linked = "SELECT count(*) FROM host_event AS o JOIN host_event AS l USING (process, tid, correlation)"
        assert store.frame(f"{linked} WHERE o.kind = 'operator' AND l.kind = 'launch'").item() == 20
        assert store.frame("SELECT DISTINCT tid FROM host_event UNION SELECT DISTINCT tid FROM annotation").rows() == [(4242,)]
        assert "recorded_twice" in {code for (code,) in store.frame("SELECT code FROM ingest_note").rows()}
        if pid != 4242:
            (text,) = builder.told("process_joined")
            assert "Process 17 of file1 is process 4242 of file0: 20 device events" in text
            assert "Process ids differ as in containers" in text
        if host not in ("node7", "unknown host"):
            (text,) = builder.told("machine_joined")
            assert f"{host} and node7 are one machine, shown as node7: 20 device events" in text
        for table in ("device_event", "host_event", "annotation"):
            assert builder.count(table, "node NOT IN (SELECT id FROM node) OR process NOT IN (SELECT id FROM process)") == 0


def test_the_name_of_a_container_stays_only_where_there_is_no_other() -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("3f2a1bc4d5e6", 9): work(1)})
        builder.source(TRACE, {builder.process("node7", 4242): work(1)})
        builder.settle()
        assert builder.machines() == ["node7"]


@pytest.mark.parametrize("same", [7, 8])
def test_fewer_than_eight_equal_events_join_nothing(same: int) -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4242): work(1, same)})
        builder.source(TRACE, {builder.process("3f2a1bc4d5e6", 17): work(1, same)})
        builder.settle()
        assert len(builder.machines()) == len(builder.processes()) == (1 if same == 8 else 2)


@pytest.mark.parametrize(("differing", "machines"), [(30, 1), (31, 2)])
def test_half_of_the_events_of_the_same_time_have_to_be_the_same(differing: int, machines: int) -> None:
    with Store.create(None) as store:
        builder = Made(store)
        kernels, others = work(1), work(2)
        mixed = kernels[:1] + others[1 : 1 + differing] + kernels[1 + differing :]
        builder.source(NSIGHT, {builder.process("node7", 4242): kernels})
        builder.source(TRACE, {builder.process("3f2a1bc4d5e6", 17): mixed})
        builder.settle()
        assert len(builder.machines()) == machines


@pytest.mark.parametrize("correlated", [True, False])
def test_equal_times_of_other_kernels_are_not_the_same_work(correlated: bool) -> None:
    """Another name is another spelling; with another correlation it is another kernel."""
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4242): work(1)})
        process = builder.process("3f2a1bc4d5e6", 17)
        builder.source(TRACE, {process: work(1)})
        (name,) = store.name_ids(["softmax"])
        of_process = "WHERE source_id IN (SELECT source_id FROM source_map WHERE process = ?)"
        store.connection.execute(f"UPDATE raw.device_event SET name = ? {of_process}", [name, process])
        if not correlated:
            store.connection.execute(
                f"UPDATE raw.device_event SET correlation = correlation + 500 {of_process}",
                [process],
            )
        builder.settle()
        assert len(builder.processes()) == (1 if correlated else 2)


@pytest.mark.parametrize("seed", range(10))
def test_runs_with_like_kernels_at_the_same_time_are_never_joined(seed: int) -> None:
    dice = random.Random(seed)
    with Store.create(None) as store:
        builder = Made(store)
        hosts = dice.choice([("node7", "node8"), ("node7", "3f2a1bc4d5e6"), ("node7", "node7"), ("unknown host", "unknown host 2")])
        builder.source(NSIGHT, {builder.process(hosts[0], 4242): work(2 * seed, 200)})
        builder.source(TRACE, {builder.process(hosts[1], 17): work(2 * seed + 1, 200)})
        builder.settle()
        assert len(builder.processes()) == 2
        assert builder.count("device_event") == builder.count("annotation") == 400
        assert builder.told("process_joined") == builder.told("clock_shifted") == []


@pytest.mark.parametrize("exported", [0, 1, 8])
@pytest.mark.parametrize("with_rank", [True, False])
def test_ranks_that_do_the_same_kernels_at_the_same_time_stay_apart(with_rank: bool, exported: int) -> None:
    """All ranks do the same to the nanosecond, each in a container with a GPU 0."""
    with Store.create(None) as store:
        builder = Made(store)
        for rank in range(exported):
            builder.source(NSIGHT, {builder.process(f"node{rank}", 4000 + rank): work(1)})
        for rank in range(8):
            builder.source(TRACE, {builder.process(f"container{rank}", 17, rank=rank if with_rank else None): work(1)})
        builder.settle()
        if exported == 1:  # its rank is ambiguous
            assert len(builder.processes()) == 9
        elif exported:
            assert len(builder.processes()) == 16
        else:
            assert len(builder.processes()) == 8
        assert builder.told("process_joined") == []


@pytest.mark.slow
def test_ranks_in_containers_are_each_the_process_that_did_their_work() -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4000 + rank): work(rank) for rank in range(8)})
        for rank in reversed(range(8)):
            builder.source(TRACE, {builder.process(f"{rank:012x}", 17, rank=rank): work(rank)})
        builder.settle()
        assert builder.processes() == [("node7", 4000 + rank, rank) for rank in range(8)]
        assert (builder.count("device_event"), builder.count("annotation")) == (480, 480)
        for rank in range(8):
            totals = store.frame(
                "SELECT sum(duration_ns)::BIGINT, count(*) FROM device_event AS d JOIN process AS p ON p.id = d.process WHERE rank = ?",
                [rank],
            ).row(0)
            assert totals == (sum(duration for _, duration in work(rank)), 60)


def test_ranks_that_differ_and_gpus_that_differ_speak_against_it() -> None:
    for rank, other_rank, model in ((0, 1, "NVIDIA A100-SXM4-40GB"), (0, 0, "NVIDIA H100 80GB HBM3")):
        with Store.create(None) as store:
            builder = Made(store)
            left, two = builder.process("node7", 4242, rank=rank), builder.process("3f2a1bc4d5e6", 17, rank=other_rank)
            store.insert("device", {"node": 0, "index": 0, "name": "A100-SXM4-40GB"})
            store.insert("device", {"node": 1, "index": 0, "name": model})
            builder.source(NSIGHT, {left: work(1)})
            builder.source(TRACE, {two: work(1)})
            builder.settle()
            assert len(builder.machines()) == 2


def test_the_same_work_on_gpus_of_other_numbers_is_not_the_same() -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4242): work(1)}, device=1)
        builder.source(TRACE, {builder.process("node7", 17): work(1)})
        builder.settle()
        assert len(builder.processes()) == 2
        assert builder.count("device_event") == 120


def test_a_machine_that_is_joined_keeps_its_name_for_logs_that_use_it() -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4242): work(1)})
        builder.source(TRACE, {builder.process("3f2a1bc4d5e6", 17): work(1)})
        builder.settle()
        ((node,),) = store.connection.execute("SELECT id FROM node").fetchall()
        assert builder.registry.node("3f2a1bc4d5e6") == builder.registry.node("node7") == node


@pytest.mark.parametrize(("uuid", "processes"), [("GPU-2", 2), ("GPU-1", 1)])
def test_gpus_of_other_uuids_are_not_one(uuid: str, processes: int) -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4242): work(1)})
        builder.source(TRACE, {builder.process("3f2a1bc4d5e6", 17): work(1)})
        store.insert("device", {"node": 0, "index": 0, "uuid": "GPU-1"})
        store.insert("device", {"node": 1, "index": 0, "uuid": uuid})
        builder.settle()
        assert len(builder.processes()) == processes


def test_synchronization_is_no_work() -> None:
    with Store.create(None) as store:
        builder = Made(store)
        builder.source(NSIGHT, {builder.process("node7", 4242): work(1)})
        builder.source(TRACE, {builder.process("3f2a1bc4d5e6", 17): work(1)})
        store.connection.execute("UPDATE raw.device_event SET kind = 'sync'")
        builder.settle()
        assert len(builder.processes()) == 2
