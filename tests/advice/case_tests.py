"""Parameters and assertion of the tests of labeled runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from advice_score import Case, score
from known_failures import KNOWN
from published_jobs import Published


def parameters(cases: Iterable[Case]) -> list[Any]:
    """Return a parameter per case.

    Published data and variants of a case, which have a comma in their name, are slow.
    """
    return [pytest.param(case, id=case.name.replace(" ", "-"), marks=_marks(case)) for case in cases]


def _marks(case: Case) -> list[Any]:
    known = [pytest.mark.xfail(reason=KNOWN[case.name], strict=True)] if case.name in KNOWN else []
    return [*known, *([pytest.mark.slow] if isinstance(case.job, Published) or "," in case.name else [])]


def check(case: Case, request: pytest.FixtureRequest) -> None:
    """Assert that the report of a run meets what the case expects."""
    data = None
    if isinstance(case.job, Published):
        data = request.getfixturevalue("shared_data") / "stragglers"
        if not (data / f"trace-{case.job.job}.parquet").is_file():
            pytest.skip(f"no recording of the published job {case.job.job} in {data}")
    result = score(case, data)
    assert not result.wrong, "\n".join((*result.wrong, f"findings: {', '.join(result.findings) or 'none'}"))
