"""The pages of the formats name every table and column of the run store, and every key of report.json."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from postrun.analysis.report import Report
from postrun.ingest.store import Store
from postrun.ingest.store.tables import ENUM_VALUES, SCHEMA


@pytest.fixture(scope="module")
def docs(project_root: Path) -> Path:
    folder = project_root / "docs"
    if not folder.is_dir():
        pytest.skip("no documents beside the tests")
    return folder


def test_every_table_of_the_run_store_with_its_columns(docs: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", (docs / "run-store.md").read_text(encoding="utf-8"), re.MULTILINE)
    rows_by_name = dict(rows)
    assert sorted(rows_by_name) == sorted(SCHEMA)
    for table, columns in SCHEMA.items():
        named = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", rows_by_name[table]))
        assert named == list(columns), table
    for values, table in (("DEVICE_KIND", "device_event"), ("HOST_KIND", "host_event")):
        assert f"({', '.join(ENUM_VALUES[values])})" in rows_by_name[table]


def test_the_questions_in_sql_can_be_asked(docs: Path, tmp_path: Path) -> None:
    text = (docs / "run-store.md").read_text(encoding="utf-8")
    sql = "".join(re.findall(r"^```sql\n(.+?)^```", text, re.MULTILINE | re.DOTALL))
    statements = [statement for statement in re.split(r";\s*$", sql, flags=re.MULTILINE) if statement.strip()]
    assert len(statements) >= 3
    with Store.create(tmp_path / "run.duckdb") as store:
        for statement in statements:
            assert store.frame(statement).is_empty()


def test_every_key_of_report_json(docs: Path) -> None:
    page = (docs / "report-json.md").read_text(encoding="utf-8").split("## Rules and findings")[0]
    assert not [field.name for field in dataclasses.fields(Report) if f"`{field.name}`" not in page]
