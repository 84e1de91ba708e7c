"""Is the time of decorators told of their functions whatever calls whom, and soon, however many there are?"""

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
    """The plain way: for each decorator look for the next one among all, then for what it calls among all functions."""
    found = {function: (*figures, dict(callers)) for function, (*figures, callers) in stats.items()}
    todo = [function for function in found if function[2].startswith("annotated ")]
    while todo:
        decorator = next((one for one in todo if not set(todo) & set(found[one][4])), todo[0])
        todo.remove(decorator)
        above = found[decorator][4]
        whole = sum(figures[3] for figures in above.values())
        for function, (*_, callers) in found.items():
            if decorator not in callers or function in FUNCTIONS[-2:]:
                continue
            _, _, own, total = callers.pop(decorator)
            for caller, (calls, primitive, its_own, below) in list(above.items()):
                share = below / whole if whole > 0 else 1 / len(above)
                callers[caller] = added(callers.get(caller), (calls, primitive, own * share, total * share))
                above[caller] = calls, primitive, its_own, max(its_own, below - total * share)
    return found


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
    found, plain = one_function._without_decorators(stats), one_after_the_other(stats)
    assert found == plain
    assert [[function, *figures[4]] for function, figures in found.items()] == [[one, *of[4]] for one, of in plain.items()]


def test_thousands_of_decorators_take_no_time() -> None:
    """A program that decorates in its loop: each function of a decorator is called once, and calls the same function."""
    many = 8000
    main, leaf, begin = ("/a.py", 1, "main"), ("/a.py", 5, "leaf"), ("~", 0, "<postrun.native._native.range_begin>")
    decorators = [(FILE, 40, f"annotated leaf {number}") for number in range(many)]
    stats: Stats = {main: (1, 1, 0.0, 4.0 * many, {})}
    for decorator in decorators:
        stats[decorator] = 1, 1, 1.0, 4.0, {main: (1, 1, 1.0, 4.0)}
    stats[leaf] = many, many, 2.0 * many, 2.0 * many, dict.fromkeys(decorators, (1, 1, 2.0, 2.0))
    stats[begin] = many, many, 1.0 * many, 1.0 * many, dict.fromkeys(decorators, (1, 1, 1.0, 1.0))
    began = time.process_time()
    found = with_one_function(stats)
    assert time.process_time() - began < 3
    assert found == {
        main: (1, 1, 0.0, 4.0 * many, {}),
        leaf: (many, many, 2.0 * many, 2.0 * many, {main: (many, many, 2.0 * many, 2.0 * many)}),
        RECORDING: (many, many, 2.0 * many, 2.0 * many, {main: (many, many, 2.0 * many, 2.0 * many)}),
    }
