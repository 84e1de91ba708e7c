"""The check for contradictions between advice and figures finds what it is for."""

from __future__ import annotations

import dataclasses

import pytest
from contradictions import contradictions
from postrun.analysis.report import Report
from postrun.analysis.report.causes import Program
from postrun.analysis.report.rules import Finding
from postrun.analysis.report.run import Tile
from report_stub import empty_report


def finding(text: str, advice: str, *, title: str = "Do it", rank: int = 1, cost: float = 50.0) -> Finding:
    return Finding(rank, "Rule", "high", title, text, advice, None, 1, cost, None, 1, cost, "GPU time in the profile window")


def report(*findings: Finding, kind: str = "training", frameworks: tuple[str, ...] = (), **tiles: float) -> Report:
    empty = empty_report()
    summary_tiles = tuple(Tile(key, key, "", "", "", number) for key, number in tiles.items())
    return dataclasses.replace(
        empty, summary=dataclasses.replace(empty.summary, figures=summary_tiles), findings=findings, program=Program(kind, frameworks, ())
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (report(finding("", "Load further ahead."), data_loading=0.05), "advises on loading"),
        (report(finding("", "Run forward and loss under it."), kind="inference"), "'loss' in a run of inference"),
        (report(finding("", "Fuse with `torch.compile`."), frameworks=("torch.compile",)), "torch.compile, which is in use"),
        (report(finding("", "Use `torch.cuda.CUDAGraph`."), frameworks=("CUDA graphs",)), "CUDA graphs, which are in use"),
        (report(finding("", "", cost=1.0), finding("", "", rank=2)), "worth 1.0% before"),
    ],
)
def test_the_check_finds_contradictions(wrong: Report, words: str) -> None:
    (line,) = contradictions(wrong)
    assert words in line
