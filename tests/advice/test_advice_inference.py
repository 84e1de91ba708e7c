"""The report names the planted cause of runs with inference."""

from __future__ import annotations

import pytest
from advice_score import Case
from case_tests import check, parameters
from cases_inference import INFERENCE


@pytest.mark.parametrize("case", parameters(INFERENCE))
def test_the_report_names_the_cause(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, request)
