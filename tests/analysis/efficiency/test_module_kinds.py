"""Sums over the layers of a model, worked out on paper, and as a property."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.efficiency.module_kinds import module_kinds
from postrun.analysis.report.modules import Module


def module(path: str, device: int, own_time: int) -> Module:
    return Module(path, device, own_time, device // 2, 1, 3, 2 * device, 1)


def test_layers_of_a_model_are_one_row() -> None:
    rows = module_kinds(
        (
            module("Net_0", 100, 10),
            module("Net_0/Layer_1", 50, 5), module("Net_0/Layer_1/Linear_7", 45, 45),
            module("Net_0/Layer_0", 38, 8), module("Net_0/Layer_0/Linear_3", 30, 30),
            module("Net_0/Head_0", 2, 2),
            module("", 7, 7),
        )
    )  # fmt: skip
    assert rows == (
        module("Net_0", 100, 10),
        Module("Net_0/Layer_*", 88, 13, 44, 2, 6, 176, 2),
        Module("Net_0/Layer_*/Linear_*", 75, 75, 22 + 15, 2, 6, 150, 2),
        module("Net_0/Head_0", 2, 2),
        module("", 7, 7),
    )


def test_numbers_of_layers_in_one_name() -> None:
    rows = module_kinds((module("model.layers.0.mlp", 4, 4), module("model.layers.1.mlp", 3, 3), module("step2", 2, 2)))
    assert [(row.path, row.device_ns) for row in rows] == [("model.layers.*.mlp", 7), ("step2", 2)]


def test_without_equal_modules_there_is_nothing_to_sum() -> None:
    assert module_kinds(()) == ()
    assert module_kinds((module("Net_0", 3, 1), module("Net_0/Linear_0", 2, 2))) == ()


NAMES = st.sampled_from(["A_0", "A_1", "B_2", "c", "", "layers.3.x", "*"])


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.integers(0, 2**60), max_size=30))
def test_own_times_add_up_to_the_same(times: dict[str, int]) -> None:
    rows = tuple(module(path, time, time) for path, time in times.items())
    kinds = module_kinds(rows)
    if kinds:
        assert sum(row.self_device_ns for row in kinds) == sum(row.self_device_ns for row in rows)
        assert sum(row.launches for row in kinds) == sum(row.launches for row in rows)
        assert len(kinds) < len(rows)
