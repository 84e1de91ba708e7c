"""No advice contradicts a figure of the same report, on real traces; the check finds what it is for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from contradictions import contradictions
from postrun.analysis import analyze
from postrun.analysis.report import Report
from postrun.analysis.report.causes import Program
from postrun.analysis.report.rules import Finding
from postrun.analysis.report.run import Tile
from postrun.ingest import ingest
from report_stub import empty_report

TRACES = (
    "diff_pair/a100_rank3_of_8",
    "diff_pair/v100_rank1_of_2",
    "h100/Falconsai_nsfw_image_detection__1016002",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "mi300/gaunernst_bert-small-uncased__1016001",
    "quirks/alexnet_no_steps",
    "quirks/distributed_info_not_found",
    "quirks/event_sync_trace",
    "quirks/mi250_minitoy_train_ROCm6_2_kineto",
    "quirks/nccl_data",
    "quirks/rank_non_gpu",
    "sampled_2_ranks/sampled_rank-0",
    "sampled_2_ranks/sampled_rank-1",
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace",
    "v100_old_schema/resnet50_num_workers_0",
)


@pytest.mark.parametrize("name", TRACES)
def test_advice_agrees_with_the_figures(shared_data: Path, name: str) -> None:
    with ingest([shared_data / "kineto" / f"{name}.json.gz"]) as store:
        report = analyze(store)
    assert list(contradictions(report)) == []


def finding(text: str, advice: str, *, title: str = "Do it", rank: int = 1, cost: float = 50.0) -> Finding:
    return Finding(rank, "Rule", "high", title, text, advice, None, 1, cost, None, 1, cost, "GPU time of the profile")


def report(*findings: Finding, kind: str = "training", frameworks: tuple[str, ...] = (), **tiles: float) -> Report:
    empty = empty_report()
    summary_tiles = tuple(Tile(key, key, "", "", "", number) for key, number in tiles.items())
    return dataclasses.replace(
        empty, summary=dataclasses.replace(empty.summary, tiles=summary_tiles), findings=findings, program=Program(kind, frameworks, ())
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (report(finding("", "Load further ahead."), data_loading=0.05), "advises on loading"),
        (report(finding("", "Run forward and loss under it."), kind="inference"), "'loss' in a run of inference"),
        (report(finding("", "Fuse with `torch.compile`."), frameworks=("torch.compile",)), "torch.compile, which is in use"),
        (report(finding("", "Use `torch.cuda.CUDAGraph`."), frameworks=("CUDA graphs",)), "CUDA graphs, which are in use"),
        (report(finding("", "", cost=1.0), finding("", "", rank=2)), "worth 1.0 % before"),
    ],
)
def test_the_check_finds_contradictions(wrong: Report, words: str) -> None:
    (line,) = contradictions(wrong)
    assert words in line
