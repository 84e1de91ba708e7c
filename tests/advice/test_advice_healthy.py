"""The report accuses nothing in healthy training runs and nobody in balanced pipelines."""

from __future__ import annotations

import pytest
from advice_cases import CASES, KINDS, healthy_seed, pipeline_seed
from advice_score import NOTHING, Case, score
from case_tests import check, parameters
from cases_host import HEALTHY
from known_failures import KNOWN

QUICK = range(3)  # seeds of each kind
SLOW = range(3, 10)  # `make bench-advice` takes all 100


@pytest.mark.parametrize("case", parameters(HEALTHY))
def test_a_healthy_run_is_not_accused(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, request)


@pytest.mark.parametrize("seed", QUICK)
def test_a_healthy_run_of_any_shape_is_not_accused(seed: int) -> None:
    result = score(healthy_seed(seed))
    assert result.first == NOTHING, result.wrong


@pytest.mark.parametrize("seed", QUICK)
def test_nobody_is_accused_in_a_balanced_pipeline_of_any_shape(seed: int) -> None:
    result = score(pipeline_seed(seed))
    assert not result.wrong, result.wrong


@pytest.mark.slow
def test_no_healthy_run_is_accused() -> None:
    results = [score(healthy_seed(seed)) for seed in SLOW]
    accused = [(result.case.name, result.findings) for result in results if result.findings]
    assert not accused, accused


@pytest.mark.slow
def test_nobody_is_accused_in_balanced_pipelines() -> None:
    results = [score(pipeline_seed(seed)) for seed in SLOW]
    accused = [(result.case.name, result.wrong) for result in results if result.wrong]
    assert not accused, accused


def test_the_suite_has_enough_runs_with_different_names() -> None:
    assert len(CASES) >= 80
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(len(cases) for cases in KINDS.values()) == len(CASES)
    assert set(KNOWN) <= {case.name for case in CASES}
