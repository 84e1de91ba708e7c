"""A rule that fails stops no other rule, wherever it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.rules.checks.exposed_communication import ExposedCommunication
from postrun.analysis.rules.checks.low_gpu_utilization import LowGPUUtilization
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.ingest.store import Store


@pytest.mark.parametrize(
    ("rule", "method"),
    [(ExposedCommunication, "evaluate"), (LowGPUUtilization, "observe"), (LowGPUUtilization, "conclude")],
)
def test_a_rule_that_raises_is_an_error_and_stops_no_other(
    make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, rule: Any, method: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("nothing to divide by\nsecond line")

    monkeypatch.setattr(rule, method, fail)
    samples = [{"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": i * 1_000_000_000, "value": 50.0} for i in range(1200)]
    results = {result.rule: result for result in rules_of(make_store(sample=samples), Options(generated_at_ns=0)).rules}
    assert (results[rule.name].verdict, results[rule.name].reason) == ("Error", "ZeroDivisionError: nothing to divide by")
    assert [name for name, result in results.items() if result.verdict == "Error"] == [rule.name]
    assert len(results) == len(RULES) + 1  # ProfilerReport
    # 1,200 samples at 50%: the other rule evaluates them anyway.
    if rule is not LowGPUUtilization:
        assert results["LowGPUUtilization"].verdict == "IssuesFound"
