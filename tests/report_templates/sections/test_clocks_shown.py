"""The files with shifted times on the page, with amounts and reasons."""

from __future__ import annotations

import dataclasses

import pytest
from postrun.analysis.report import Report
from postrun.report_templates.text.formats import shift
from report_pages import html_of


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_shifted_files_stand_in_data_quality(small_reports: dict[str, Report], target: str) -> None:
    report = next(report for report in small_reports.values() if report.run.sources)
    before = html_of(report, target)
    assert "Times that were shifted" not in before
    moved = dataclasses.replace(report.run.sources[0], clock_offset_ns=-25_200 * 10**9, clock_evidence="correlation <0.97>")
    run = dataclasses.replace(report.run, sources=(moved, *report.run.sources[1:]))
    page = html_of(dataclasses.replace(report, run=run), target)
    part = page.partition("Times that were shifted")[2].partition("</table>")[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "\N{MINUS SIGN}7 h" in part
    assert "correlation &lt;0.97&gt;" in part


def test_a_shift_has_a_sign_and_an_epoch_no_number() -> None:
    assert shift(1_500_000_000).replace("\N{NO-BREAK SPACE}", " ") == "+1.50 s"
    assert shift(1_700_000_000 * 10**9) == "brought to the epoch"
