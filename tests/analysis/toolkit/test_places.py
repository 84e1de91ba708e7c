"""Order of host names: numbers in them count as numbers."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.toolkit.places import Place, in_order


def test_numbers_in_names_of_hosts_count_as_numbers() -> None:
    names = ["algo-1", "algo-2", "algo-10", "gpu-node-3-rack-2", "gpu-node-3-rack-12", "gpu-node-20-rack-1", "login"]
    mixed = random.Random(1).sample(names, len(names))
    assert sorted(mixed, key=in_order) == names
    assert sorted([Place("algo-10", 0, 1), Place("algo-9", 5, 1)], key=lambda place: place.order)[0].node == "algo-9"


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.text("ab-.0", max_size=4))
def test_hosts_that_differ_in_one_number_stand_in_its_order(number: int, next_number: int, domain: str) -> None:
    first, second = f"node{number}x{domain}", f"node{next_number}x{domain}"
    assert (in_order(first) < in_order(second)) == (number < next_number)


@given(st.text(max_size=8), st.text(max_size=8))
def test_no_two_names_share_a_place(name: str, second_name: str) -> None:
    assert (in_order(name) == in_order(second_name)) == (name == second_name)
