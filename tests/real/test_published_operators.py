"""FLOPs and bytes of operators against another tool's tables next to three real traces (*.operators.csv)."""

from __future__ import annotations

import ast
import csv
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.efficiency.signatures import parse
from postrun.analysis.efficiency.work import work_of


def published_flop(row: dict[str, str], dims: list[Any], flop: int) -> int:
    """Apply the conventions of the tables to our count.

    They add the bias of addmm, and halve causal attention exactly."""
    if row["operator"] == "aten::addmm":
        return flop + dims[1][0] * dims[2][1]
    if row["model"] == "SDPA_fwd" and ast.literal_eval(row["concrete_inputs"])[4] == "True":
        return flop // 2
    return flop


def published_bytes(row: dict[str, str], dims: list[Any], moved: int) -> int:
    """Apply the conventions of the tables to our bytes.

    Elements have 2 bytes if the tables differ. They leave out the bias of a convolution, count six values per channel of a layer
    normalization with a weight and a bias, and write a single element of a mean.
    """
    if row["model"] == "CONV_fwd":
        return moved - dims[2][0] * 2
    if row["model"] == "Normalization":
        return moved + (6 - 2) * dims[2][0] * 2
    if row["model"] == "Reduce_fwd":
        return moved - (prod(dims[0][:-1]) - 1) * 4
    return moved


def test_published_flops_and_bytes(shared_data: Path) -> None:
    rows = []
    for file in (shared_data / "kineto").glob("*/*.operators.csv"):
        with file.open(encoding="utf-8", newline="") as lines:
            rows += csv.DictReader(lines)
    assert len(rows) == 46
    for row in rows:
        columns = ("input_dims", "input_types", "input_strides", "concrete_inputs")
        signature = parse(row["operator"], *(json.dumps(ast.literal_eval(row[column])) for column in columns))
        assert signature is not None
        work, dims = work_of(signature), ast.literal_eval(row["input_dims"])
        matrix = row["model"] in {"GEMM", "CONV_fwd", "SDPA_fwd"}
        assert work.matrix == matrix
        assert (work.flop is not None) == matrix  # the tables count one operation or more per element of the others
        if work.flop is not None:
            assert published_flop(row, dims, work.flop) == round(float(row["gflop_per_call"]) * 1e9), row
        assert work.bytes is not None, row
        assert published_bytes(row, dims, work.bytes) == pytest.approx(float(row["mib_moved_per_call"]) * 2**20, abs=1e-3), row
