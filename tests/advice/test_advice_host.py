"""The report names the planted cause of runs with late launches, data loading, synchronization, copies and precision."""

from __future__ import annotations

import pytest
from advice_score import Case
from case_tests import check, parameters
from cases_host import HOST


@pytest.mark.parametrize("case", parameters(HOST))
def test_the_report_names_the_cause(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, request)
