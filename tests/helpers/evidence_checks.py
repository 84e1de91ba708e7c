"""Checks the evidence of a report.md against report.json next to it, and against the run store of the same files.

Reads the Markdown as a user does; it shares no code with the package.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
from postrun.ingest import ingest

EVIDENCE = re.compile(r"^\*\*(E\d+)\*\* ([^\n]*)(?:\n\n```sql\n(.*?)\n```)?", re.MULTILINE | re.DOTALL)
VALUE = re.compile(r"`((?:/[^`]*)+)` = (-?[0-9.e+-]*[0-9]|null)")


def resolved(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer refers to (RFC 6901)."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def check_evidence(source: Path, out: Path) -> int:
    """Resolve every pointer and run every statement; return the number of statements."""
    text, report = (out / "report.md").read_text(encoding="utf-8"), json.loads((out / "report.json").read_bytes())
    for pointer in re.findall(r"`(/[a-z_]+(?:/[a-z0-9_]+)*)`", text):
        resolved(report, pointer)
    numbers, statements, path = [], 0, out / "checked.duckdb"
    with ingest([source], path):
        pass
    with duckdb.connect(str(path), read_only=True) as connection:
        for match in EVIDENCE.finditer(text):
            numbers.append(match[1])
            pairs = VALUE.findall(match[2])
            assert pairs, match[0]
            printed = [json.loads(value) for _, value in pairs]
            assert [resolved(report, pointer) for pointer, _ in pairs] == printed, match[0]
            if match[3]:
                statements += 1
                computed = [value for row in connection.execute(match[3]).fetchall() for value in row]
                assert len(computed) == len(printed), match[0]
                assert all(abs(a - b) <= 1e-8 * abs(b) for a, b in zip(computed, printed, strict=True)), (match[0], computed)
    path.unlink()
    assert numbers == [f"E{number}" for number in range(1, len(numbers) + 1)]
    assert set(re.findall(r"\bE\d+\b", text.partition("## Evidence")[0])) == set(numbers)
    return statements
