"""Each definition has one place: conditions on kinds and categories of device work are in views.sql alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from postrun import analysis, export

ROOT = Path(analysis.__file__).parent
SOURCES = sorted(path for package in (analysis, export) for path in Path(package.__file__).parent.rglob("*.py"))

# Text of SQL or Python that repeats a definition, and the files that may have it.
REPEATED = {
    "category of communication": (r"category\s*(=|<>|IS (NOT )?DISTINCT FROM|IN)\s*\(?'communication'", set[str]()),
    "records of synchronization are no work": (r"kind\s*(<>|!=)\s*'sync'", set[str]()),
    "exposed communication in percent": (r"exposed_communication_ns\s*/", set[str]()),
    "time of all steps": (r"mean_step_ns\s*\*", {"report/steps.py"}),
    "exposed communication": (r"communication\W*&\s*~\s*\S*computation", {"device/time_breakdown.py"}),
    "idle time": (r"span_ns\W*-\s*\S*busy_ns", {"device/time_breakdown.py"}),
}


@pytest.mark.parametrize("meaning", REPEATED)
def test_a_definition_has_one_place(meaning: str) -> None:
    pattern, allowed = REPEATED[meaning]
    having = {os.path.relpath(path, ROOT) for path in SOURCES if re.search(pattern, path.read_text())}
    assert having <= allowed
