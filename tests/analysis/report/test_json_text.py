"""JSON text of reports, compared with that of the standard library."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.report.json_text import json_text

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
KEYS = st.text() | st.integers() | st.booleans() | st.none()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner), max_leaves=30)


def nine_digits(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: nine_digits(item) for key, item in value.items()}
    return [nine_digits(item) for item in value] if isinstance(value, list | tuple) else value


@given(VALUES)
def test_the_text_is_that_of_the_standard_library(value: Any) -> None:
    assert json_text(value) == json.dumps(nine_digits(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a number of JSON"):
        json_text({"a": [value]})


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="set is not a JSON value"):
        json_text([{1}])


def test_other_objects_are_written_as_the_default_says() -> None:
    assert json_text({"a": [{1, 2}]}, default=sorted) == json_text({"a": [[1, 2]]})
    with pytest.raises(TypeError):
        json_text([{1}, object()], default=sorted)
