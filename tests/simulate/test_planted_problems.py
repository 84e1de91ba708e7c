"""Tests that each planted problem of the simulated run changes only its own figures, in the same way each time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from postrun.errors import UsageError
from postrun.simulate import DemoTruth, Problems, write_demo

STEPS = 9
NONE = Problems(straggler_rank=None, exposed_communication=False, idle_tail=False, data_stall=False)


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def demo(folder: Path, problems: Problems, seed: int = 1) -> DemoTruth:
    return write_demo(folder, seed=seed, steps=STEPS, problems=problems, gpus_per_node=2)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoTruth]:
    folder = tmp_path_factory.mktemp("healthy")
    return folder, demo(folder, NONE)


def test_without_problems_communication_is_hidden_and_the_ranks_are_even(healthy: tuple[Path, DemoTruth]) -> None:
    ranks = healthy[1].ranks
    assert all(rank.exposed_communication_ns < 0.01 * rank.span_ns for rank in ranks)
    assert all(rank.idle_ns < 0.04 * rank.span_ns for rank in ranks)
    assert all(rank.pageable_copy_ns == 0 for rank in ranks)
    computation = [rank.computation_ns for rank in ranks]
    assert max(computation) < 1.005 * min(computation)


def test_a_straggler_computes_longer_and_makes_the_others_wait(healthy: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    before, after = healthy[1].ranks, demo(tmp_path, Problems(3, False, False, False)).ranks
    assert after[3].computation_ns == pytest.approx(1.12 * before[3].computation_ns, rel=1e-5)
    for rank in range(3):
        assert after[rank].computation_ns == before[rank].computation_ns
        assert after[rank].exposed_communication_ns > before[rank].exposed_communication_ns + 0.05 * before[rank].computation_ns
    assert after[3].exposed_communication_ns < 0.01 * after[3].span_ns


def test_exposed_communication_adds_to_the_time_outside_of_computation_alone(healthy: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    after = demo(tmp_path, Problems(None, True, False, False))
    for old, new in zip(healthy[1].ranks, after.ranks, strict=True):
        assert new.computation_ns == old.computation_ns
        assert new.exposed_communication_ns > 0.08 * new.span_ns
        assert new.memory_ns == old.memory_ns
        assert {name: k.count for name, k in new.kernels.items()} == {name: k.count for name, k in old.kernels.items()}


def test_a_data_stall_slows_some_steps_and_copies_from_pageable_memory(healthy: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    after = demo(tmp_path, Problems(None, False, False, True))
    for old, new in zip(healthy[1].ranks, after.ranks, strict=True):
        assert new.computation_ns == old.computation_ns
        assert new.pageable_copy_ns > 0.01 * new.span_ns
        typical = median(new.step_ns)
        slow = [step for step, length in enumerate(new.step_ns) if length > 1.2 * typical]
        assert slow == [5, STEPS * 2 // 3]
        assert new.step_ns[STEPS * 2 // 3] == pytest.approx(3 * typical, rel=0.2)
        assert max(old.step_ns) < 1.05 * median(old.step_ns)


def test_an_idle_tail_ends_the_training_earlier_and_leaves_the_traces_alone(healthy: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    after = demo(tmp_path, Problems(None, False, True, False))
    before = healthy[1]
    assert after.job_end_ns == before.job_end_ns
    assert after.job_end_ns - after.training_end_ns > 180e9
    assert before.job_end_ns - before.training_end_ns < 15e9
    assert after.ranks == before.ranks
    old, new = digests(healthy[0] / "kineto"), digests(tmp_path / "kineto")
    assert old == new


def test_the_same_seed_gives_the_same_bytes_in_any_environment(healthy: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from postrun.simulate import *\n"
        f"write_demo(Path(sys.argv[1]), seed=1, steps={STEPS}, problems=Problems(None, False, False, False), gpus_per_node=2)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-P", "-c", code, str(tmp_path)], check=True, env=environment)
    assert digests(tmp_path) == digests(healthy[0])


def test_another_seed_gives_another_run(healthy: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    assert demo(tmp_path, NONE, seed=2).ranks[0].computation_ns != healthy[1].ranks[0].computation_ns


@pytest.mark.slow
def test_the_default_run_has_all_problems_and_is_small(tmp_path: Path) -> None:
    truth = write_demo(tmp_path)
    assert truth.problems == Problems(5, True, True, True)
    assert [len(rank.step_ns) for rank in truth.ranks] == [40] * 8
    assert sum(path.stat().st_size for path in (tmp_path / "kineto").iterdir()) < 5_000_000
    kernels_per_step = sum(kernel.count for kernel in truth.kernels.values()) / 320
    assert 120 <= kernels_per_step <= 160
    straggler, *others = sorted(truth.ranks, key=lambda rank: -rank.computation_ns)
    assert straggler.rank == 5
    assert straggler.computation_ns > 1.1 * others[0].computation_ns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"steps": 0}, "steps is 0"), ({"nodes": 0}, "nodes is 0"), ({"nodes": 1}, "straggler_rank is 5, but the run has ranks 0 to 3")],
)
def test_a_run_that_cannot_be_is_refused(arguments: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        write_demo(tmp_path, **arguments)


def test_a_single_gpu_has_nobody_to_talk_to(tmp_path: Path) -> None:
    truth = write_demo(tmp_path, steps=2, problems=NONE, nodes=1, gpus_per_node=1)
    assert truth.ranks[0].communication_ns == 0
    assert truth.ranks[0].busy_ns > 0


def test_a_new_run_replaces_an_earlier_one_and_no_other_files(tmp_path: Path) -> None:
    small: dict[str, Any] = {"steps": 1, "problems": NONE, "nodes": 1, "gpus_per_node": 1}
    write_demo(tmp_path / "twice", seed=2, **small)
    (tmp_path / "twice" / "notes.txt").write_text("mine")
    write_demo(tmp_path / "twice", seed=1, **small)
    write_demo(tmp_path / "once", seed=1, **small)
    (tmp_path / "once" / "notes.txt").write_text("mine")
    assert digests(tmp_path / "twice") == digests(tmp_path / "once")


@pytest.mark.parametrize("job", [None, "{}", "[]", "not JSON", '{"labels": {"team": "a"}}'])
def test_a_real_run_is_never_overwritten(job: str | None, tmp_path: Path) -> None:
    trace = tmp_path / "kineto" / "trace.json"
    trace.parent.mkdir()
    trace.write_text("precious")
    if job is not None:
        (tmp_path / "job.json").write_text(job)
    with pytest.raises(UsageError, match="is not of a simulated run"):
        write_demo(tmp_path, steps=1)
    assert trace.read_text() == "precious"
    assert not (tmp_path / "profiler-output").exists()
