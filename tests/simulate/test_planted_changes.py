"""Tests that each change of a simulated run changes its totals of the truth, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from postrun.errors import UsageError
from postrun.simulate import Changes, DemoTruth, Problems, write_demo

NONE = Problems(straggler_rank=None, exposed_communication=False, idle_tail=False, data_stall=False)


def truth(folder: Path, changes: Changes | None) -> DemoTruth:
    return write_demo(folder, steps=3, problems=NONE, nodes=1, gpus_per_node=2, changes=changes)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoTruth]:
    folder = tmp_path_factory.mktemp("plain")
    return folder, truth(folder, None)


def test_no_change_gives_the_same_bytes(plain: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    truth(tmp_path, Changes())
    files = sorted(path.relative_to(plain[0]) for path in plain[0].rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert all((plain[0] / path).read_bytes() == (tmp_path / path).read_bytes() for path in files)


def test_slower_loading_is_waited_for_in_each_step(plain: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    after = truth(tmp_path, Changes(slower_loading_ns=9_000_000))
    for old, new in zip(plain[1].ranks, after.ranks, strict=True):
        assert new.kernels == {name: kernel for name, kernel in old.kernels.items() if "nccl" not in name} | {
            name: kernel for name, kernel in new.kernels.items() if "nccl" in name
        }
        assert all(b - a == pytest.approx(9_000_000, rel=0.02) for a, b in zip(old.step_ns, new.step_ns, strict=True))


def test_one_slower_kernel_alone(plain: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    after = truth(tmp_path, Changes(slower_kernel=("flash_fwd", 1.4))).kernels
    for name, old in plain[1].kernels.items():
        assert after[name].count == old.count
        if "flash_fwd" in name:
            assert after[name].total_ns == pytest.approx(1.4 * old.total_ns, rel=1e-5)
        elif "nccl" not in name:
            assert after[name].total_ns == old.total_ns


def test_kernels_come_and_go(plain: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    before = set(plain[1].kernels)
    assert len(set(truth(tmp_path / "a", Changes(extra_kernel=True)).kernels) - before) == 1
    assert len(before - set(truth(tmp_path / "b", Changes(vanished_kernel=True)).kernels)) == 1
    fp32 = set(truth(tmp_path / "c", Changes(fp32_matrix=True)).kernels)
    assert all("simt_sgemm" in name for name in fp32 - before)
    assert len(before - fp32) == len(fp32 - before) == 4


def test_a_slow_link_and_pageable_copies(plain: tuple[Path, DemoTruth], tmp_path: Path) -> None:
    slow = truth(tmp_path / "a", Changes(slow_link_rank=1))
    assert slow.ranks[1].communication_ns > plain[1].ranks[1].communication_ns + 3 * 6_000_000
    assert slow.ranks[1].computation_ns == plain[1].ranks[1].computation_ns
    assert all(rank.pageable_copy_ns > 0 for rank in truth(tmp_path / "b", Changes(pageable_copies=True)).ranks)


def test_a_rank_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="slow_link_rank is 2, but the run has ranks 0 to 1"):
        truth(tmp_path, Changes(slow_link_rank=2))
