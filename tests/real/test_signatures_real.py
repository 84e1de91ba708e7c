"""Signatures of operators in real traces: every one equals the values that ``json`` reads from the file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from math import prod
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import ingest
from postrun.ingest.store import Store

TRACES = (
    "kineto/h100/Falconsai_nsfw_image_detection__1016002.json.gz", "kineto/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "kineto/quirks/mi250_minitoy_train_ROCm6_2_kineto.json.gz", "kineto/sampled_2_ranks/sampled_rank-0.json.gz",
    "kineto/v100_old_schema/resnet50_num_workers_0.json.gz",
)  # fmt: skip
LISTS = {"Input Dims": "input_dims", "Input type": "input_types", "Input Strides": "input_strides", "Concrete Inputs": "concrete_inputs"}
TEXTS = {"Call stack": "call_stack", "Module Hierarchy": "module_hierarchy"}


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: Path(path).name[:12])
def trace(request: pytest.FixtureRequest, shared_data: Path) -> Iterator[tuple[list[dict[str, Any]], Store]]:
    path = shared_data / request.param
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal, strict=False)
    with ingest([path]) as store:
        yield [event for event in document["traceEvents"] if event.get("ph") == "X"], store


def test_every_operator_has_its_inputs(trace: tuple[list[dict[str, Any]], Store]) -> None:
    events, store = trace
    expected = Counter[str]()
    for event in events:
        if event["cat"].lower() in ("cpu_op", "operator") and not event["name"].startswith(("enumerate(DataLoader)", "ProfilerStep#")):
            args = event.get("args", {})
            lists = [args.get(member) for member in LISTS]
            texts = [args.get(member) or None for member in TEXTS]
            numbers = [args.get("Sequence number"), args.get("Fwd thread id")]
            duration = int(Decimal(event["dur"]).scaleb(3))
            expected[json.dumps([event["name"], duration, *lists, *texts, *numbers], default=str)] += 1
    actual = Counter[str]()
    columns = ", ".join([*LISTS.values(), *TEXTS.values()])
    query = f"""SELECT n.text, h.duration_ns, {columns}, h.sequence, h.forward_thread FROM host_event AS h
        JOIN name AS n ON n.id = h.name LEFT JOIN signature AS s ON s.id = h.signature WHERE h.kind = 'operator'"""
    for name, duration, *values in store.frame(query).rows():
        lists = [None if text is None else json.loads(text) for text in values[: len(LISTS)]]
        actual[json.dumps([name, duration, *lists, *values[len(LISTS) :]])] += 1
    assert sum(expected.values()) > 60
    assert actual == expected


def test_every_kernel_has_its_occupancy_and_blocks(trace: tuple[list[dict[str, Any]], Store]) -> None:
    events, store = trace
    kernels = [event["args"] for event in events if event["cat"].lower() == "kernel"]
    expected = [(prod(args["grid"]), float(args["blocks per SM"])) for args in kernels if "blocks per SM" in args]
    rows = store.frame(
        "SELECT grid_x * grid_y * grid_z AS blocks, blocks_per_sm AS n FROM device_run WHERE blocks_per_sm IS NOT NULL"
    ).rows()
    assert sorted(rows) == [(blocks, pytest.approx(n, rel=1e-5, abs=1e-6)) for blocks, n in sorted(expected)]
    percents = Counter(args["est. achieved occupancy %"] for args in kernels if "est. achieved occupancy %" in args)
    stored = Counter(store.frame("SELECT occupancy AS n FROM device_event WHERE occupancy IS NOT NULL")["n"].to_list())
    assert {n: count for n, count in stored.items() if n} == {float(n): count for n, count in percents.items() if n}
