"""The time over which nodes are compared is the one that their records share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.rules.evidence.common_time import CommonTime, common_time


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], None),
        ([(0, 100)], None),
        ([(0, 100), (0, 100)], None),
        ([(0, 100), (2, 102)], None),  # 4 of 98 more
        ([(0, 100), (20, 100)], CommonTime(20, 100)),
        ([(0, 100), (70, 100)], CommonTime(70, 100)),  # two remain whatever they share,
        ([(0, 40), (50, 100)], CommonTime(50, 40)),  # or not
        ([(0, 100), (0, 100), (0, 1)], CommonTime(0, 100, frozenset({2}))),
        ([(0, 100), (40, 90), (0, 100)], CommonTime(40, 90)),  # half of the longest is enough
        ([(0, 100), (41, 90), (0, 100)], CommonTime(0, 100, frozenset({1}))),
        ([(0, 100), (0, 100), (0, 47), (53, 100)], CommonTime(0, 100, frozenset({2, 3}))),  # one took the place of the other
        ([(0, 10), (20, 30), (40, 50)], CommonTime(20, 10, frozenset({2}))),
    ],
)
def test_what_is_common(spans: list[tuple[int, int]], expected: CommonTime | None) -> None:
    assert common_time(dict(enumerate(spans))) == expected


SPAN = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted).map(tuple)


@given(st.lists(SPAN, min_size=1, max_size=6))
def test_it_is_the_intersection_of_those_that_are_kept(spans: list[tuple[int, int]]) -> None:
    actual = common_time(dict(enumerate(spans)))
    if actual is None:
        return
    kept = [span for node, span in enumerate(spans) if node not in actual.left_out]
    times = [{*range(first, last + 1)} for first, last in kept]
    assert {*range(actual.first_ns, actual.last_ns + 1)} == set.intersection(*times)
    assert actual.none == (not set.intersection(*times))
    assert len(kept) >= min(2, len(spans))
    if len(kept) > 2:
        assert 2 * (actual.last_ns - actual.first_ns) >= max(last - first for first, last in spans)
