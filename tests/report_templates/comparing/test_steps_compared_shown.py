"""The time of each step, the ranks and the slowest steps, as the report shows them."""

from __future__ import annotations

import dataclasses
import re

import pytest
from postrun.analysis.report import (
    RankComparison,
    RankRow,
    RankSpread,
    RankSteps,
    Report,
    SlowSteps,
    Step,
    StepBar,
    StepBreakdown,
    StepDifference,
)
from postrun.analysis.report.collectives import CollectiveTotals, WaitLink
from postrun.report_templates.sections.launches import _depth
from postrun.report_templates.sections.rank_comparison import rank_comparison
from postrun.report_templates.sections.slow_steps import slow_steps
from postrun.report_templates.sections.step_breakdown import step_breakdown

MS = 1_000_000


def bars(*lengths: int) -> tuple[StepBar, ...]:
    """Make a bar: 1/2 computation, 1/4 exposed communication, 1/8 memory, 1/8 idle."""
    return tuple(StepBar(n, n, 2, 2 * t * MS, t * MS, t * MS // 2, t * MS // 4, t * MS // 4, t * MS // 8) for n, t in enumerate(lengths))


def row(rank: int, *, straggler: bool = False, waiting: float | None = 3e6) -> RankRow:
    computes = 60e6 if straggler else 50e6 + rank
    return RankRow(
        node="n", rank=rank, pid=rank, device=rank % 8, steps=4, step_ns=100e6, computation_ns=computes, communication_ns=30e6,
        waiting_ns=waiting, exposed_communication_ns=90e6 - computes, exposed_memory_ns=0.0, idle_ns=10e6, data_loading_ns=1e6,
        excess_percent=20.0 if straggler else 0.0, steps_over=4 if straggler else 0, others_wait_ns=9e6 if straggler else None,
        straggler=straggler,
    )  # fmt: skip


def test_bars_over_the_steps(rich: Report) -> None:
    mean = bars(40, 44, 400, 40)
    report = dataclasses.replace(rich, step_breakdown=StepBreakdown(4, 1, 2, mean, (RankSteps("a", 0, 1, 0, mean),)))
    section = step_breakdown(report)
    assert section.lead == (
        "Over 4\u00a0steps of 2\u00a0processes: 131\u00a0ms per step: 50.0% computation, 25.0% exposed communication,"
        " 12.5% exposed memory operations, 12.5% idle."
    )
    figure = section.figures["mean"]
    # The axis ends at the longest of the usual steps; the one of 400 ms is cut, with its length on top.
    assert "1\u00a0bar above 44.0 ms cut" in figure.caption
    # It computes 200 ms; the median of 20, 22, 200 and 20 is 21.
    assert re.findall(r">(400[^<]*)</text>", figure.svg) == ["400 · step 2: +179\u00a0ms computation"]
    paths = {name: shape for shape, name in re.findall(r'<path d="([^"]+)"[^>]*data-part="([^"]+)"', figure.svg)}
    heights = {name: [float(tall) for tall in re.findall(r"v([\d.]+)", shape)] for name, shape in paths.items()}
    assert heights["computation"] == pytest.approx([96 * 20 / 44, 96 * 22 / 44, 96, 96 * 20 / 44], abs=0.01)
    assert heights["idle"] == pytest.approx([96 * 5 / 44, 96 * 5.5 / 44, 96 * 5 / 44], abs=0.01)  # nothing of the bar that is cut
    assert "|2 (bar cut)|" in figure.svg
    assert "hidden communication" in figure.svg
    assert [cell.text for cell in section.tables["table"].rows[0]] == [
        "0", "40.0\u00a0ms", "20.0\u00a0ms", "10.0\u00a0ms", "5.00\u00a0ms", "5.00\u00a0ms", "2.50\u00a0ms",
    ]  # fmt: skip
    assert list(section.figures) == ["mean", "rank-0"]


def test_the_lead_names_what_the_mean_excludes(rich: Report) -> None:
    """Steps end at 10, 24 and 40 ms: median 15 ms. The chart has all of them."""
    timed = [Step("n", 0, 1, None, i, at * 10**6, 10**7, True, 10**7) for i, at in enumerate((0, 14, 30))]
    steps = dataclasses.replace(rich.steps, steps=tuple(timed))
    breakdown = StepBreakdown(3, 1, 1, bars(10, 14, 16), average=bars(30)[0])
    lead = str(step_breakdown(dataclasses.replace(rich, steps=steps, step_breakdown=breakdown)).lead).replace("\u00a0", " ")
    assert lead.startswith("The step time is 15.0 ms (median). Mean: 30.0 ms per step: ")
    assert lead.endswith("; the mean excludes the first step, because the wait before it is not known.")


def test_pooled_steps_are_told(rich: Report) -> None:
    mean = tuple(dataclasses.replace(bar, first=3 * n, last=3 * n + 2, steps=3) for n, bar in enumerate(bars(40, 44)))
    section = step_breakdown(dataclasses.replace(rich, step_breakdown=StepBreakdown(6, 3, 1, mean)))
    assert "Each bar is the mean of 3 neighboring steps" in section.figures["mean"].caption
    assert [cells[0].text for cells in section.tables["table"].rows] == ["0–2", "3–5"]


def test_a_few_ranks(rich: Report) -> None:
    comparison = RankComparison(10.0, 4, (row(0), row(1, straggler=True, waiting=None)), (), ("They wait.",))
    section = rank_comparison(dataclasses.replace(rich, rank_comparison=comparison))
    assert (str(section.lead), list(section.figures), list(section.tables)) == ("They wait.", ["bars"], ["ranks"])
    assert "* rank 1" in section.figures["bars"].svg
    # The straggler is first, before a page can end.
    cells = [cell.text for cell in section.tables["ranks"].rows[0]]
    assert cells[0] == "rank 1 · n GPU 1"
    assert cells[4] == "—"
    assert cells[-3:] == ["+20.0%", "4 of 4", "yes"]


@pytest.mark.parametrize(("timed", "words"), [(39, "over 40 steps;"), (4, "over the 4 of 40 steps whose previous step was recorded;")])
def test_means_of_a_part_of_the_steps_name_it(rich: Report, timed: int, words: str) -> None:
    comparison = RankComparison(10.0, 40, (row(0), row(1)), timed_steps=timed)
    note = rank_comparison(dataclasses.replace(rich, rank_comparison=comparison)).tables["ranks"].note
    assert note is not None
    assert words in note.replace("\u00a0", " ")


def test_who_waits_for_whom_is_one_sentence(rich: Report) -> None:
    links = (WaitLink((5, 6, 7), 4, "dp1", 53_000_000_000), WaitLink((4,), 0, None, 35_000_000_000))
    totals = CollectiveTotals(0, 0, 0, None, 0, 0, (), None, chain=links)
    comparison = RankComparison(10.0, 4, (row(0), row(1)), (), ("They wait.",))
    section = rank_comparison(dataclasses.replace(rich, rank_comparison=comparison, collective_totals=totals))
    words = str(section.lead).replace("\u00a0", " ")
    assert words == "They wait. Ranks 5–7 wait longest for rank 4 in group dp1 (53.0 s), rank 4 for rank 0 (35.0 s)."


def test_a_mean_depth_near_zero_is_a_bound() -> None:
    assert [_depth(mean) for mean in (None, 0.0, 0.00000425, 0.00123, 0.7)] == ["—", "0", "<\u00a00.001", "0.00123", "0.700"]


def test_512_ranks_are_extremes_and_quantiles(rich: Report) -> None:
    ranks = tuple(row(rank, straggler=rank == 300) for rank in range(512))
    spread = (RankSpread("computation", 512, 50e6, 50e6, 50e6, 50e6, 60e6, 0, 300),)
    section = rank_comparison(dataclasses.replace(rich, rank_comparison=RankComparison(10.0, 4, ranks, spread, ("They wait.",))))
    assert list(section.figures) == ["bars", "over-ranks"]
    names = [cells[0].text for cells in section.tables["ranks"].rows]
    assert len(names) == 16
    assert names[0] == "rank 300 · n GPU 4"
    assert "16 of 512" in section.figures["bars"].caption
    assert [cell.text for cell in section.tables["quantiles"].rows[0]][-2:] == ["rank 0", "rank 300"]
    assert len(section.figures["over-ranks"].svg) < 100_000


def test_the_slowest_steps(rich: Report) -> None:
    def difference(kind: str, name: str, slow: float, usual: float, *, claimed: bool) -> StepDifference:
        return StepDifference(kind, name, slow, usual, usual - 1e6, usual + 1e6, slow - usual, int(claimed), claimed)

    parts = (difference("part", "step", 90e6, 50e6, claimed=True), difference("part", "idle", 10.5e6, 10e6, claimed=False))
    ran = (difference("operator", "<script>alert(1)</script>", 40e6, 2e6, claimed=True),)
    slow_report = SlowSteps("n", 0, 1, 20, (7,), 10, parts, (), ran, ("Step 7 took 90 ms.",))
    report = dataclasses.replace(rich, slow_steps=slow_report)
    section = slow_steps(report)
    assert [cells[4].text for cells in section.tables["parts"].rows] == ["+40.0\u00a0ms", "within typical range"]
    assert [cells[1].text for cells in section.tables["ran"].rows] == ["host operator"]


def test_without_data_each_is_a_sentence(rich: Report) -> None:
    older = dataclasses.replace(rich, step_breakdown=StepBreakdown(), rank_comparison=RankComparison(), slow_steps=SlowSteps())
    for build in (step_breakdown, rank_comparison, slow_steps):
        assert build(older).empty
        assert "version of postrun" in build(older).lead
    absent = dataclasses.replace(rich, slow_steps=SlowSteps(absent="Only 2 steps."))
    assert str(slow_steps(absent).lead) == "Only 2 steps."
