"""The details of rules keep their types and keys on the way through report.json."""

from __future__ import annotations

import json
from typing import Any

import pytest
from postrun.analysis.report import plain
from postrun.analysis.report.load import rule_details
from postrun.analysis.report.rule_details import DETAILS
from postrun.analysis.report.sample_details import BottleneckDetails, LoadBalancingDetails
from postrun.analysis.report.trace_details import HostBoundDetails
from postrun.analysis.rules.engine.catalogue import PROFILER_REPORT, RULES
from rule_details import details_from


def test_every_built_in_rule_has_details() -> None:
    assert DETAILS.keys() == {*RULES, PROFILER_REPORT}


@pytest.mark.parametrize("rule", DETAILS)
def test_details_are_the_same_after_they_were_written_and_read(rule: str) -> None:
    details = details_from(rule, {})
    assert rule_details(rule, "trace", json.loads(json.dumps(plain(details)))) == details


def test_a_key_that_does_not_apply_is_left_out() -> None:
    assert plain(details_from("CPUBottleneck", {})).keys() == {"total", "nodes", "active", "bottleneck_ns"}
    bottleneck = details_from("CPUBottleneck", {"left_out": 3, "without_gpu": True})
    assert isinstance(bottleneck, BottleneckDetails)
    assert (bottleneck.left_out, bottleneck.without_gpu) == (3, True)
    assert list(plain(bottleneck)) == ["total", "nodes", "left_out", "active", "bottleneck_ns", "without_gpu"]
    balance = details_from("LoadBalancing", {"matrix": [[0.0, None], [None, 0.0]]})
    assert isinstance(balance, LoadBalancingDetails)
    assert balance.matrix == ((0.0, None), (None, 0.0))


@pytest.mark.parametrize("changed", [{"kernels": None}, {"kernels": [{}]}, {"after_synchronisation_ns": "12"}, {"devices": {}}])
def test_details_of_another_version_stay_a_dict(changed: dict[str, Any]) -> None:
    data = plain(details_from("HostBound", {}))
    assert isinstance(rule_details("HostBound", "trace", data | {"new": 1}), HostBoundDetails)
    assert rule_details("HostBound", "trace", data | changed) == data | changed
    assert rule_details("HostBound", "trace", {}) == {}


def test_details_of_a_custom_rule_stay_a_dict() -> None:
    data = plain(details_from("HostBound", {}))
    assert rule_details("Mine", "custom", data) is data
    assert rule_details("HostBound", "custom", data) is data
