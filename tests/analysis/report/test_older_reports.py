"""Reports of earlier versions are read."""

from __future__ import annotations

from collections.abc import Callable

from postrun.analysis import analyze
from postrun.analysis.report.load import report_of
from postrun.ingest.store import Store


def test_collectives_as_one_object(make_store: Callable[..., Store]) -> None:
    content = analyze(make_store()).to_dict()
    row = {
        "operation": "all-reduce", "bytes": 4000, "element_type": "Float", "group_size": 2, "ranks": 1, "count": 2, "kernels": 4,
        "total_ns": 240, "shortest_ns": 90, "wait_ns": None, "algorithm_gb_per_s": 88.9, "bus_gb_per_s": 88.9, "best_bus_gb_per_s": 100.0,
        "group_size_assumed": False,
    }  # fmt: skip
    totals = {
        "further": 0,
        "further_ns": 0,
        "total_ns": 240,
        "sized_percent": 100.0,
        "matched": 0,
        "unmatched": 0,
        "waits": [],
        "absent": None,
    }
    for name in ("collective_totals", "roles"):
        del content[name]
    report = report_of({**content, "collectives": {"rows": [row], **totals}})
    (collective,) = report.collectives
    assert (collective.transfer_ns, collective.waiting_ns, collective.at_least, collective.group) == (90, None, True, None)
    assert report.collective_totals is not None
    assert report.collective_totals.total_ns == 240
    assert report_of({**content, "collectives": None}).collectives == ()
