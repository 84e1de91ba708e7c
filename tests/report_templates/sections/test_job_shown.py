"""The facts of the job's recorder in the section "Information", each once."""

from __future__ import annotations

import dataclasses

import pytest
from postrun.analysis.report import Report
from report_pages import html_of

METADATA = {
    "job.command": "python train.py --name 'a <b>'",
    "job.exit_code": "3",
    "job.directory": "/home/me",
    "job.environment.WORLD_SIZE": "2",
    "dataset": "v7",
}


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_facts_of_the_job_have_labels(small_reports: dict[str, Report], target: str) -> None:
    report = small_reports["cpu"]
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, metadata=METADATA))
    text = html_of(report, target).partition('<section id="information"')[2].partition("</section>")[0]
    for label, value in (("Command", "python train.py --name &#39;a &lt;b&gt;&#39;"), ("Exit code", "3"), ("Folder", "/home/me")):
        assert text.count(value if len(value) > 1 else f">{value}<") >= 1
        assert f">{label}<" in text
    assert text.count("train.py") == 1
    assert "job.exit_code" not in text
    assert "job.environment.WORLD_SIZE" in text
    assert "v7" in text
