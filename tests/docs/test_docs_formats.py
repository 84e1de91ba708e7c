"""The pages of the formats name every table and column of the run store, and every key of report.json."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from postrun.analysis.report import Report
from postrun.analysis.report.causes import Gap, Iteration, IterationKind, Program, Role
from postrun.analysis.report.collectives import Collective, CollectiveGroup, CollectiveTotals, CollectiveWait, WaitLink
from postrun.analysis.report.comparison import Verdict
from postrun.analysis.report.rules import Finding
from postrun.ingest.store import Store
from postrun.ingest.store.schema import ENUM_VALUES, SCHEMA


@pytest.fixture(scope="module")
def docs(project_root: Path) -> Path:
    folder = project_root / "docs"
    if not folder.is_dir():
        pytest.skip("no documents beside the tests")
    return folder


def test_the_page_of_the_run_store_has_the_tables_and_views_of_the_product(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(docs / "site"))
    run_store = importlib.import_module("run_store")
    text = (docs / "run-store.md").read_text(encoding="utf-8")
    assert text == run_store.page(text), "run: python -P docs/site/run_store.py"
    for name in SCHEMA:
        assert f"\n#### {name}\n" in text
    for values in ENUM_VALUES.values():
        assert f"{', '.join(values[:-1])} or {values[-1]} |" in text


def test_the_questions_in_sql_can_be_asked(docs: Path, tmp_path: Path) -> None:
    text = (docs / "run-store.md").read_text(encoding="utf-8")
    sql = "".join(re.findall(r"^```sql\n(.+?)^```", text, re.MULTILINE | re.DOTALL))
    statements = [statement for statement in re.split(r";\s*$", sql, flags=re.MULTILINE) if statement.strip()]
    assert len(statements) >= 3
    with Store.create(tmp_path / "run.duckdb") as store:
        for statement in statements:
            rows = store.frame(statement)
            if re.search("^(?:INSERT|DELETE) ", statement, re.MULTILINE):
                assert rows.rows() == [(0,)]  # changed
            else:
                assert rows.is_empty() or "comment" in statement


def test_every_key_of_report_json(docs: Path) -> None:
    page = (docs / "report-json.md").read_text(encoding="utf-8").split("## Rules and findings")[0]
    assert not [field.name for field in dataclasses.fields(Report) if f"`{field.name}`" not in page]


FIELD_TABLES = {
    "program": Program,
    "roles": Role,
    "collectives": Collective,
    "collective_totals": CollectiveTotals,
    "gaps": Gap,
    "iterations": Iteration,
    "iteration_kinds": IterationKind,
    "comparison.verdict": Verdict,
    "Rules and findings": Finding,
}


@pytest.mark.parametrize("section", FIELD_TABLES)
def test_each_field_of_the_evidence_has_a_row(docs: Path, section: str) -> None:
    text = (docs / "report-json.md").read_text(encoding="utf-8")
    match = re.search(rf"^##+ {re.escape(section)}\n(.+?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    table = match[1].split("| field | unit | meaning |\n|---|---|---|\n")[1].split("\n\n")[0]
    documented = [name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(documented) == sorted(field.name for field in dataclasses.fields(FIELD_TABLES[section]))


def test_each_field_of_the_lists_of_collectives_is_named(docs: Path) -> None:
    text = (docs / "report-json.md").read_text(encoding="utf-8")
    for key, of in (("waits", CollectiveWait), ("groups", CollectiveGroup), ("chain", WaitLink)):
        row = re.search(rf"^\| `{key}` \| list \|(.+)$", text, re.MULTILINE)
        assert row is not None
        assert re.findall(r"`(\w+)`", row[1]) == [field.name for field in dataclasses.fields(of)]
