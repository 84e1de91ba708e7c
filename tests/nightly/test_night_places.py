"""Where the files of a night are: folders of runs and of their reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from postrun.nightly import places
from postrun.nightly.model import CustomRule, FoundRun, ReportOptions


def test_the_place_of_a_rule_file_changes_no_report() -> None:
    rule = (CustomRule("Found", (), b"class Found: pass"),)
    first, second, third = (
        places.options_digest(ReportOptions(custom_rules=rules, custom_files=files))
        for rules, files in ((rule, ("/a/own.py",)), (rule, ("/b/own.py",)), ((replace(rule[0], code=b"pass"),), ("/a/own.py",)))
    )
    assert first == second != third


def test_reports_of_another_version_have_a_folder_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run, options = FoundRun("a", "traces", (), True, "f" * 32), ReportOptions()
    before = places.report_folder(run, options)
    monkeypatch.setattr(places, "REPORT", places.REPORT + 1)
    assert places.report_folder(run, options) != before
    assert places.VERSION_FOLDER.fullmatch(before.removeprefix("runs/a/") + "/")


@pytest.mark.parametrize(
    ("source", "out", "expected"),
    [
        ("s3://b/p", "s3://b/p/reports", ("reports",)),
        ("s3://b/p/", "s3://b/p/a/b/", ("a/b",)),
        ("s3://b", "s3://b/reports", ("reports",)),
        ("s3://b/p", "s3://b/p", ()),
        ("s3://b/p", "s3://b/p-reports", ()),
        ("s3://b/p", "s3://b", ()),
        ("s3://b/p", "s3://c/p/reports", ()),
        ("/tmp/x", "/tmp/x/../x/reports", ("reports",)),
    ],
)
def test_the_reports_below_the_source(source: str, out: str, expected: tuple[str, ...]) -> None:
    assert places.own_folders(source, out) == expected


def test_a_run_of_the_name_that_the_root_run_has() -> None:
    names = [".", "_whole", "__whole", "_whole/a", "__whole/a", "_whole2", "whole", "a/_whole"]
    folders = [places.run_folder(name) for name in names]
    assert folders[0] == "runs/_whole"
    assert folders[-3:] == ["runs/_whole2", "runs/whole", "runs/a/_whole"]
    assert len(set(folders)) == len(names)
    assert not any(folder.startswith("runs/_whole/") for folder in folders)
