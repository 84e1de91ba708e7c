"""The time of decorators is assigned to their functions whatever the calls, and quickly, however many there are."""

from __future__ import annotations

import operator
import os
import time
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.native.profiling.engine import one_function
from postrun.native.profiling.engine.one_function import RECORDING, with_one_function
from postrun.native.recording import decorators as capture_decorators

FILE = os.fspath(capture_decorators.__file__)
Function = tuple[str, int, str]
Stats = dict[Function, Any]

# Of decorators, of functions of the program, of the package.
FUNCTIONS: list[Function] = [
    *((FILE, 40, f"annotated f{number} {number}") for number in range(5)),
    *(("/a.py", number, f"f{number}") for number in range(4)),
    (FILE, 9, "own"),
    ("~", 0, "<postrun.native._native.range_begin>"),
]


def added(figures: tuple[float, ...] | None, more: tuple[float, ...]) -> tuple[float, ...]:
    return more if figures is None else tuple(map(operator.add, figures, more))


def one_after_the_other(stats: Stats) -> Stats:
    """Remove decorators one by one, with a search of all functions for each."""
    actual = {function: (*figures, dict(callers)) for function, (*figures, callers) in stats.items()}
    todo = [function for function in actual if function[2].startswith("annotated ")]
    while todo:
        decorator = next((one for one in todo if not set(todo) & set(actual[one][4])), todo[0])
        todo.remove(decorator)
        above = actual[decorator][4]
        complete = sum(figures[3] for figures in above.values())
        for function, (*_, callers) in actual.items():
            if decorator not in callers or function in FUNCTIONS[-2:]:
                continue
            _, _, self_time, total = callers.pop(decorator)
            for caller, (calls, primitive, its_own, below) in list(above.items()):
                share = below / complete if complete > 0 else 1 / len(above)
                callers[caller] = added(callers.get(caller), (calls, primitive, self_time * share, total * share))
                above[caller] = calls, primitive, its_own, max(its_own, below - total * share)
    return actual


counts = st.integers(1, 4)
seconds = st.integers(0, 16).map(lambda value: value / 4)
edge = st.tuples(counts, counts, seconds, seconds)
profiles = st.lists(st.sampled_from(FUNCTIONS), unique=True, max_size=len(FUNCTIONS)).flatmap(
    lambda functions: st.fixed_dictionaries(
        {
            function: st.tuples(counts, counts, seconds, seconds, st.dictionaries(st.sampled_from(FUNCTIONS), edge, max_size=5))
            for function in functions
        }
    )
)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(profiles)
def test_the_figures_are_those_of_the_plain_way(stats: Stats) -> None:
    actual, plain = one_function._without_decorators(stats), one_after_the_other(stats)
    assert actual == plain
    assert [[function, *figures[4]] for function, figures in actual.items()] == [[one, *of[4]] for one, of in plain.items()]


def test_thousands_of_decorators_take_no_time() -> None:
    """Decorate in a loop: each decorator's function runs once.

    All of them call the same function.
    """
    count = 8000
    main, leaf, begin = ("/a.py", 1, "main"), ("/a.py", 5, "leaf"), ("~", 0, "<postrun.native._native.range_begin>")
    decorators = [(FILE, 40, f"annotated leaf {number}") for number in range(count)]
    stats: Stats = {main: (1, 1, 0.0, 4.0 * count, {})}
    for decorator in decorators:
        stats[decorator] = 1, 1, 1.0, 4.0, {main: (1, 1, 1.0, 4.0)}
    stats[leaf] = count, count, 2.0 * count, 2.0 * count, dict.fromkeys(decorators, (1, 1, 2.0, 2.0))
    stats[begin] = count, count, 1.0 * count, 1.0 * count, dict.fromkeys(decorators, (1, 1, 1.0, 1.0))
    began = time.process_time()
    actual = with_one_function(stats)
    assert time.process_time() - began < 3
    assert actual == {
        main: (1, 1, 0.0, 4.0 * count, {}),
        leaf: (count, count, 2.0 * count, 2.0 * count, {main: (count, count, 2.0 * count, 2.0 * count)}),
        RECORDING: (count, count, 2.0 * count, 2.0 * count, {main: (count, count, 2.0 * count, 2.0 * count)}),
    }
