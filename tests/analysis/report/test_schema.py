"""Tests of the JSON Schema of report.json: it accepts reports and refuses what no report may be."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import schema as schemas
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]


@pytest.mark.parametrize("of", ["report", "comparison"])
def test_it_is_a_schema(of: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.schema(of))


@pytest.fixture(scope="module")
def text(make_module_store: MakeStore) -> str:
    store = make_module_store(
        names={"gemm": ("gemm", "BF16", "GEMM")},
        device_event=[{"kind": "kernel", "name": "gemm", "start_ns": 10**18 + 5, "duration_ns": 7, "correlation": 1}],
        host_event=[{"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 10**18, "duration_ns": 2, "correlation": 1}],
    )
    return analyze(store, Options(generated_at_ns=1)).to_json()


@pytest.fixture
def document(text: str) -> Any:
    return json.loads(text)


def test_a_report_validates(document: Any) -> None:
    jsonschema.validate(document, schemas.schema())
    assert document["time_breakdown"][0]["busy_ns"] == 7


def test_an_empty_report_validates(make_store: MakeStore) -> None:
    jsonschema.validate(json.loads(analyze(make_store(nodes=[], processes=[])).to_json()), schemas.schema())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kernels", 0, "total_ns"), "7"),
        (("kernels", 0, "total_ns"), None),
        (("schema_version",), 2),
        (("time_breakdown", 0, "extra"), 1),
        (("launches", "latency"), 5),
    ],
)
def test_it_refuses_what_is_no_report(document: Any, path: tuple[str | int, ...], value: Any) -> None:
    changed = copy.deepcopy(document)
    location = changed
    for key in path[:-1]:
        location = location[key]
    location[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, schemas.schema())


def test_every_field_is_required(document: Any) -> None:
    del document["kernels"][0]["precision"]
    with pytest.raises(jsonschema.ValidationError, match="precision"):
        jsonschema.validate(document, schemas.schema())


def test_an_installation_prints_it() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "postrun.analysis.report.schema", "comparison"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == schemas.schema("comparison")
    assert json.loads(done.stdout)["title"] == "comparison.json of postrun"
