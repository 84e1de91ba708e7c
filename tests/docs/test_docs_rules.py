"""docs/rules.md agrees with the descriptions of the rules, and the pages link to targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from postrun.analysis.rules.engine.catalogue import DOCUMENTED, PROFILER_REPORT, RULES
from postrun.analysis.rules.evidence.base import SCAN_INTERVAL, Parameter

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HEADING = ["parameter", "unit", "documented", "service", ""]


def sections(text: str) -> dict[str, str]:
    """Title -> text of every section of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table(text: str) -> list[list[str]]:
    """Return the cells of the first table of parameters, or none, without heading."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    if HEADING not in rows:
        return []
    first = rows.index(HEADING) + 2
    return rows[first:]


def table_row(parameter: Parameter) -> list[str]:
    defaults = ["none" if value is None else str(value) for value in (parameter.documented, parameter.service)]
    one_of = f" (one of {', '.join(parameter.choices)})" if parameter.choices else ""
    return [f"`{parameter.name}`", parameter.unit, *defaults, parameter.meaning + one_of]


SECTIONS = sections(PAGE)


def test_every_rule_has_its_section_and_no_section_is_of_a_rule_that_is_gone() -> None:
    general = ["Common ground", "Verdicts", "Presets", "What an issue costs"]
    assert list(SECTIONS)[: len(general)] == general
    assert list(SECTIONS)[len(general) :] == [*RULES, PROFILER_REPORT]


@pytest.mark.parametrize("rule", RULES)
def test_the_parameters_of_a_rule(rule: str) -> None:
    assert table(SECTIONS[rule]) == [table_row(parameter) for parameter in RULES[rule].parameters]


def test_the_parameter_of_every_rule() -> None:
    assert table(SECTIONS["Common ground"]) == [table_row(SCAN_INTERVAL)]


@pytest.mark.parametrize("rule", [*RULES, PROFILER_REPORT])
def test_a_section_says_when_there_is_an_issue_and_what_is_counted(rule: str) -> None:
    text = SECTIONS[rule]
    assert "**Issue:**" in text
    assert "**Counts" in text
    assert "**Cost" in text or "**costs**" in text or rule == PROFILER_REPORT
    assert "**Decided" in text or "**decided**" in text
    if rule in RULES:
        prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
        assert all(f"`{parameter.name}`" in prose for parameter in RULES[rule].parameters)
        assert ("**Issue:** never" in text) == RULES[rule].informs


@pytest.mark.parametrize("rule", [*RULES, PROFILER_REPORT])
def test_a_section_begins_with_a_sentence_and_the_formula(rule: str) -> None:
    match = re.match(r"\n\n[^\n].*?\n\n```text\n(.+?)\n```\n", SECTIONS[rule], re.DOTALL)
    assert match is not None
    formula = match[1]
    assert re.search(r"^issue +=", formula, re.MULTILINE) or RULES[rule].informs
    if rule in RULES:
        missing = [parameter.name for parameter in RULES[rule].parameters if not re.search(rf"\b{parameter.name}\b", formula)]
        assert missing in ([], ["mode"])  # selects the steps that are evaluated
    assert max(map(len, formula.splitlines())) <= 130


def test_the_order_of_the_documented_rules() -> None:
    order = re.search(r"The order is: (.+?)\.", SECTIONS[PROFILER_REPORT], re.DOTALL)
    assert order is not None
    assert re.split(r",\s+", order[1]) == [rule.name for rule in DOCUMENTED]


def anchors(page: Path) -> set[str]:
    """The anchors that headings make."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), target


def test_the_page_is_linked() -> None:
    for page in ("README.md", "docs/definitions.md", "docs/report-json.md", "docs/command-line.md", "docs/rules-api.md"):
        assert re.search(r"\]\((docs/)?rules\.md", (ROOT / page).read_text(encoding="utf-8")), page
