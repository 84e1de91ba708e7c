"""code_coverage.py: the sentence below 80%, and its note."""

from __future__ import annotations

from postrun.analysis.report.modules import ModuleCoverage
from postrun.analysis.run.code_coverage import coverage_notes, unattributed


def test_a_small_unknown_part_is_not_mentioned() -> None:
    for coverage in (None, ModuleCoverage(), ModuleCoverage(attributed_percent=80.0)):
        assert unattributed(coverage) == ""
    assert coverage_notes(ModuleCoverage(attributed_percent=80.0)) == ()


def test_a_large_unknown_part() -> None:
    coverage = ModuleCoverage(known_percent=60.0, lines_percent=50.0, attributed_percent=70.0)
    assert unattributed(coverage) == "30% of the device time has no known operator or module."
    (note,) = coverage_notes(coverage)
    assert (note.severity, note.code) == ("info", "no_operator")
    assert note.message.startswith(unattributed(coverage))
    assert note.message.endswith("Modules are known for 60.0%, source lines for 50.0%.")
