"""The text of the heat map if units have the same mean in the printed precision."""

from __future__ import annotations

import pytest
from postrun.analysis.report import UnitHeat
from postrun.report_templates.sections.system_usage import _heat


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (99.32, 99.28, "all 2 alike with 99.3% on average"),
        (99.28, 99.28, "all 2 alike with 99.3% on average"),
        (98.0, 99.3, "all 2 alike with 98.0%–99.3% on average"),
        (80.0, 99.3, "GPU 1 of n busiest with 99.3% on average, GPU 0 of n least with 80.0%"),
    ],
)
def test_units_that_show_the_same_mean_are_alike(first: float, second: float, expected: str) -> None:
    figure = _heat([UnitHeat("n", "gpu", (0, 1), (0, 10), ((first, first), (second, second)), derived=False)], "gpu", "GPU")
    assert figure is not None
    assert figure.alt.replace("\N{NO-BREAK SPACE}", " ") == f"Utilization of each GPU: {expected}"


def test_the_mean_of_one_unit_is_its_own() -> None:
    figure = _heat([UnitHeat("n", "gpu", (3,), (0, 10), ((50.0, 50.0),), derived=False)], "gpu", "GPU")
    assert figure is not None
    assert "GPU 3 of n busiest with 50.0" in figure.alt
