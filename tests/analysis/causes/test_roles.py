"""Roles of ranks by the descriptions of process groups, and peers by the signature of the work."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.causes.roles import purpose
from postrun.analysis.rules.checks.load_balancing import _stages
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest import ingest
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]

NAMES = {
    "nccl": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "fp32", "communication"),
    "gemm": ("gemm", "fp32", "GEMM"),
    "other": ("other", "fp32", "elementwise"),
}


def peers_of(run: RunData) -> list[tuple[int, ...]]:
    return [tuple(run.peers.of(role)) for role in sorted(set(run.peers.roles.values()))]


def job(make_store: MakeStore, groups: Sequence[tuple[str, Sequence[int]]], ranks: int, extra: dict[int, int] | None = None) -> Store:
    """Make ranks with kernels, and an all-reduce in each of their groups.

    Groups with the description "send" have a send instead. ``extra``: rank -> additional kernels.
    """
    kernels: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    for rank in range(ranks):
        for number in range(100 + (extra or {}).get(rank, 0)):
            run = {"kind": "kernel", "name": "gemm" if number < 100 else "other", "start_ns": number * 10, "duration_ns": 5}
            kernels.append({**run, "process": rank, "device": rank, "grid_x": 1})
        for number, (description, members) in enumerate(groups):
            if rank not in members:
                continue
            start, correlation = 10_000 + number * 100, len(kernels)
            run = {"kind": "kernel", "name": "nccl", "start_ns": start, "duration_ns": 50, "correlation": correlation}
            kernels.append({**run, "process": rank, "device": rank, "grid_x": 1})
            record = {"node": 0, "process": rank, "on_device": True, "start_ns": start, "duration_ns": 50, "correlation": correlation}
            group = {
                "group_name": str(number),
                "group_description": description,
                "group_ranks": str(list(members)),
                "group_size": len(members),
            }
            operation = "send" if description == "send" else "allreduce"
            records.append({**record, "operation": operation, "element_type": "Float", "in_elements": 8, "out_elements": 8, **group})
    processes = [{"id": rank, "node": 0, "rank": rank, "pid": 100 + rank} for rank in range(ranks)]
    return make_store(names=NAMES, processes=processes, device_event=kernels, collective=records)


def test_megatron_layout(make_store: MakeStore) -> None:
    # 2 pipeline stages x 2 data-parallel x 2 context-parallel x 2 tensor-parallel ranks, tensor fastest, pipeline slowest.
    layout = dict(enumerate(product(range(2), repeat=4)))  # rank -> stage, data, context, tensor
    groups = []
    for description, axes in (
        ("TENSOR_MODEL_PARALLEL_GROUP", (3,)), ("CONTEXT_PARALLEL_GROUP", (2,)), ("DATA_PARALLEL_GROUP_WITH_CP", (1, 2)),
        ("PIPELINE_MODEL_PARALLEL_GROUP", (0,)), ("MODEL_PARALLEL_GROUP", (0, 3)), ("default_pg", (0, 1, 2, 3)),
    ):  # fmt: skip
        fixed = [axis for axis in range(4) if axis not in axes]
        members: dict[tuple[int, ...], list[int]] = {}
        for rank, where in layout.items():
            members.setdefault(tuple(where[axis] for axis in fixed), []).append(rank)
        groups += [(description, ranks) for ranks in members.values()]
    store = job(make_store, groups, 16)
    run = RunData(store)
    known = {role.rank: (role.pipeline_stage, role.data_parallel, role.context_parallel, role.tensor_parallel) for role in run.roles}
    assert known == layout
    assert {role.source for role in run.roles} == {"groups"}
    assert (peers_of(run), run.peers.source) == ([tuple(range(8)), tuple(range(8, 16))], "groups")
    assert _stages(run) == {(role.node, role.rank): role.pipeline_stage for role in run.roles}


def test_hybrid_shards_of_a_mesh(make_store: MakeStore) -> None:
    # Two replicas of three shards: ranks 0–2 and 3 to 5.
    groups = [("mesh_dp_shard", range(3)), ("mesh_dp_shard", range(3, 6)), *(("mesh_dp_replicate", (rank, rank + 3)) for rank in range(3))]
    run = RunData(job(make_store, groups, 6))
    assert [role.data_parallel for role in run.roles] == [0, 1, 2, 3, 4, 5]
    assert peers_of(run) == [(0, 1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("mesh_pp", "pipeline_stage"), ("mesh_tp", "tensor_parallel"), ("mesh_ep", "expert_parallel"), ("mesh_cp", "context_parallel"),
        ("mesh_dp", "data_parallel"), ("EXPERT_MODEL_PARALLEL_GROUP", "expert_parallel"), ("default_pg", None), ("undefined", None),
        ("EMBEDDING_GROUP", None), ("MODEL_PARALLEL_GROUP", None), ("EXPERT_DATA_PARALLEL_GROUP", None), ("mesh_dim_0", None), (None, None),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None), ("", None), ("wrapper", None),
    ],
)  # fmt: skip
def test_purposes(description: str | None, expected: str | None) -> None:
    assert purpose(description) == expected


def test_groups_that_contradict_each_other_give_nothing(make_store: MakeStore) -> None:
    store = job(make_store, [("mesh_tp", (0, 1)), ("mesh_tp", (1, 0))], 2)
    assert [role.tensor_parallel for role in RunData(store).roles] == [None, None]


def test_peers_by_work(make_store: MakeStore) -> None:
    # Ranks 0 and 1 differ by 1%, rank 2 by 10%, rank 3 runs the same as rank 0 and communicates with nobody else.
    groups = [("undefined", (0, 1, 2)), ("undefined", (3, 9)), ("send", (0, 2))]
    run = RunData(job(make_store, groups, 4, {1: 1, 2: 10}))
    assert (peers_of(run), run.peers.source) == ([(0, 1), (2,), (3,)], "work")
    assert [role.source for role in run.roles] == ["work", "work", "unknown", "unknown"]


def test_without_sends_all_ranks_are_peers(make_store: MakeStore) -> None:
    # Rank 1 runs 10% more kernels: without a pipeline that is more of the same work.
    run = RunData(job(make_store, [("undefined", (0, 1, 2))], 3, {1: 10}))
    assert (peers_of(run), run.peers.source) == ([(0, 1, 2)], "same")
    assert [role.source for role in run.roles] == ["same"] * 3


def test_ranks_that_all_differ_have_unknown_roles(make_store: MakeStore) -> None:
    run = RunData(job(make_store, [("undefined", (0, 1, 2)), ("send", (0, 1, 2))], 3, {1: 10, 2: 20}))
    assert run.peers.source == "unknown"
    assert [role.source for role in run.roles] == ["unknown"] * 3


def test_without_device_work_there_are_no_roles(make_store: MakeStore) -> None:
    run = RunData(make_store())
    assert (run.roles, run.peers.roles) == ((), {})


@pytest.mark.parametrize(("name", "replicas", "groups"), [("AR", 4, False), ("ST", 2, True), ("ST", 2, False)])
def test_published_jobs(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, replicas: int, groups: bool) -> None:
    maker = shared_data / "stragglers/make_kineto.py"
    if not maker.is_file():
        pytest.skip("the published jobs are not here")
    # Numbers of streams are exchanged at random: they mean nothing.
    program = maker.read_text(encoding="utf-8")
    numbers = [21, 22, 23, 24, 25]
    shuffled = random.Random(name).sample(numbers, len(numbers))
    for number, changed in zip(numbers, shuffled, strict=True):
        program = program.replace(f'": {number}', f'": {changed} ').replace(f"else {number} if", f"else {changed}  if")
        program = program.replace(f"STREAM.get(op, {number} ", f"STREAM.get(op, {changed}  ")
    (tmp_path / "make.py").write_text(program, encoding="utf-8")
    out = tmp_path / "traces"
    arguments = [maker.with_name(f"trace-{name}.parquet"), out, *([] if groups else ["--no-groups"])]
    subprocess.run([sys.executable, tmp_path / "make.py", *arguments], check=True)
    with ingest(sorted(out.glob("*.gz"))) as store:
        run = RunData(store)
        known = [(role.rank, role.pipeline_stage, role.data_parallel, role.source) for role in run.roles]
        stages = [tuple(range(stage * replicas, (stage + 1) * replicas)) for stage in range(4)]
        if groups:
            assert known == [(rank, *divmod(rank, replicas), "groups") for rank in range(4 * replicas)]
        else:
            assert known == [(rank, None, None, "work") for rank in range(4 * replicas)]
        assert (peers_of(run), run.peers.source) == (stages, "groups" if groups else "work")
