"""The report names the planted cause of runs with pauses of the host and communication."""

from __future__ import annotations

import pytest
from advice_score import Case
from case_tests import check, parameters
from cases_ranks import COMMUNICATION, PAUSES


@pytest.mark.parametrize("case", parameters((*PAUSES, *COMMUNICATION)))
def test_the_report_names_the_cause(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, request)
