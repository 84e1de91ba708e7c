"""Reading of the inputs that the profiler records: no value of a trace may raise anything but UndeterminedError."""

from __future__ import annotations

import json

import pytest
from postrun.analysis.efficiency.signatures import TYPES, Signature, UndeterminedError, parse


def test_parse_a_product() -> None:
    signature = parse("aten::mm", "[[8, 16], [16, 4]]", '["float", "c10::BFloat16"]', "[[16, 1], [1, 16]]", '["", ""]')
    assert signature is not None
    assert signature.tensor(1).dims == (16, 4)
    assert signature.tensor(1).bytes == 128
    assert signature.is_none(2)


@pytest.mark.parametrize(
    ("dims", "types"),
    [
        (None, "[]"),
        ("[]", None),
        ("{}", "[]"),
        ("[", "[]"),
        ("[[1]]", "[]"),
        ("[" * 100_000, "[]"),
        ("1" * 5000, "[]"),
        ("[" + "1," * 10**6, "[]"),
    ],
)
def test_parse_nothing_from_broken_texts(dims: str | None, types: str | None) -> None:
    assert parse("aten::mm", dims, types) is None


def test_parse_without_strides_and_values() -> None:
    signature = parse("aten::mm", "[[8, 16], [16, 4]]", '["float", "float"]', "[[16, 1]]", None)
    assert signature == Signature("aten::mm", [[8, 16], [16, 4]], ["float", "float"])
    with pytest.raises(UndeterminedError):
        signature.integer(0)


@pytest.mark.parametrize("dims", [[-1], [2**50], [2**25, 2**26], [1.5], ["8"], [[8]], [True], [None], [1] * 65, 8, None, {}])
def test_sizes_that_no_tensor_has(dims: object) -> None:
    signature = parse("aten::relu", json.dumps([dims]), '["float"]')
    assert signature is not None
    with pytest.raises(UndeterminedError):
        signature.tensor(0)


@pytest.mark.parametrize(
    ("dims", "strides", "distinct"),
    [
        ([4, 5], [5, 1], 20),
        ([4, 5], [0, 1], 5),
        ([4, 5], [0, 0], 1),
        ([4, 5], [1, 1], 8),  # a sliding window over 8 elements
        ([4, 5], [10, 2], 20),
        ([0, 5], [5, 1], 0),
        ([], [], 1),
        ([4, 5], [], 20),  # unknown
        ([4, 5], [-1, 0], 20),  # not readable
    ],
)
def test_distinct_elements(dims: list[int], strides: list[int], distinct: int) -> None:
    signature = Signature("aten::relu", [dims], ["float"], [strides])
    assert signature.tensor(0).bytes == distinct * 4


def test_values() -> None:
    signature = Signature("x", [[]] * 6, ["Scalar"] * 4 + ["", "ScalarList"], (), ["7", "True", "15", "[1, 2]", "", "[True, False]"])
    assert signature.integer(0) == 7
    assert signature.flag(1)
    assert signature.scalar_type(2) == TYPES["c10::BFloat16"]
    assert signature.scalar_type(4) is None
    assert signature.integers(3) == [1, 2]
    assert signature.integers(5) == [1, 0]


@pytest.mark.parametrize("text", ["", "x", "9" * 30, "1.5", "[1, x]", "[", "]", "[9999999999999999999]", 7, None, [1]])
def test_values_that_cannot_be_read(text: object) -> None:
    signature = Signature("x", [[]], ["Scalar"], (), [text])
    for read in (signature.integer, signature.flag, signature.integers, signature.scalar_type):
        with pytest.raises(UndeterminedError):
            read(0)
