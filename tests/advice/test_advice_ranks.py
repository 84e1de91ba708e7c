"""The report names the planted cause of runs with slow ranks, long pipeline stages and uneven work."""

from __future__ import annotations

import pytest
from advice_score import Case
from case_tests import check, parameters
from cases_ranks import STAGES, STRAGGLERS, WORK


@pytest.mark.parametrize("case", parameters((*STRAGGLERS, *STAGES, *WORK)))
def test_the_report_names_the_cause(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, request)
