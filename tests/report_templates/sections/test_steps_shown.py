"""Section "Steps": the order of its tables, and the longest step that other sections name."""

from __future__ import annotations

import dataclasses

from postrun.analysis.report.model import Report
from postrun.analysis.report.steps import Step, Steps
from postrun.report_templates.sections.steps import slowest_steps, steps

MS = 10**6


def test_processes_are_ranked_among_steps_of_their_kind(rich: Report) -> None:
    # Of 64 ranks, rank 3 is 11% above the others in TRAIN, rank 9 4% below them in EVAL; all EVAL steps are far from all others.
    medians = {"TRAIN": dict.fromkeys(range(64), 180.0) | {3: 200.0}, "EVAL": dict.fromkeys(range(64), 50.0) | {9: 48.0}}
    first = rich.steps.groups[0]
    groups = tuple(
        dataclasses.replace(
            first, node="n", rank=rank, pid=rank, phase=phase, on_device=False, slowest=(),
            quantiles=dataclasses.replace(first.quantiles, p50=median * MS),
        )
        for phase, ranks in medians.items()
        for rank, median in ranks.items()
    )  # fmt: skip
    section = steps(dataclasses.replace(rich, steps=Steps((), groups, (), None)))
    assert [cells[0].text for cells in section.tables["groups"].rows[:4]] == ["rank 3 TRAIN", "rank 9 EVAL", "rank 0 TRAIN", "rank 0 EVAL"]


def test_the_slowest_step_is_that_of_the_longest_time_from_step_to_step(rich: Report) -> None:
    # The GPU work of step 2 overlaps that of step 1: 190 ms, but 100 from end to end. Step 3 lasts 150.
    ends, durations = [100, 200, 300, 450], [90, 90, 190, 140]
    timed = tuple(
        Step("n", 0, 1, None, i, (end - took) * MS, took * MS, True, took * MS)
        for i, (end, took) in enumerate(zip(ends, durations, strict=True))
    )
    group = dataclasses.replace(rich.steps.groups[0], node="n", rank=0, pid=1, phase=None, on_device=True, slowest=timed)
    slowest, times = slowest_steps(Steps(timed, (group,), (), None))
    assert [(step.index, times.get(step)) for step in slowest] == [(3, 150 * MS), (2, 100 * MS), (1, 100 * MS), (0, None)]
