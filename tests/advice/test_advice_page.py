"""docs/advice.md lists the cases of the suite as they are."""

from __future__ import annotations

from pathlib import Path

from advice_bench import case_row
from advice_cases import KINDS


def test_the_page_lists_every_case_as_it_is_expected(project_root: Path) -> None:
    text = (project_root / "docs" / "advice.md").read_text(encoding="utf-8")
    rows = [tuple(line.strip("| ").split(" | ")[:3]) for line in text[text.index("## Cases") :].splitlines() if line.startswith("| ")]
    expected = [case_row(kind, case) for kind, cases in KINDS.items() for case in cases]
    assert rows[1:] == expected, "run: make bench-advice"
