"""largest_site.py: shares worked out on paper."""

from __future__ import annotations

import polars as pl
from postrun.analysis.efficiency.largest_site import Site, largest_site, sampled


def test_half_of_the_time_decides() -> None:
    rows = [("M_0/A_0", "a.py:1", 50), ("M_0/B_0", "b.py:2", 49), (None, "", 1)]
    assert largest_site(rows) == Site("M_0/A_0", "a.py:1")
    assert largest_site(rows, total=198) == Site("M_0", None)  # 99 of 198 are in M_0
    assert largest_site(rows, total=199) is None
    assert largest_site([(None, "a.py:1", 5)]) == Site(None, "a.py:1")
    assert largest_site([("", "", 5)]) is None
    assert largest_site([]) is None
    assert largest_site([("M_0", "a.py:1", 0)]) is None


def test_layers_count_together() -> None:
    rows = [(f"M_0/Layer_{i}/Attention_{i}", f"{i}.py:1", 10) for i in range(12)] + [(f"M_0/Layer_{i}/MLP_{i}", None, 9) for i in range(12)]
    assert largest_site(rows) == Site("M_0/Layer_*/Attention_*", None)
    assert largest_site([(f"layers.{i}.mlp", None, 1) for i in range(3)]) == Site("layers.*.mlp", None)


def test_words() -> None:
    assert Site("M_0", "a.py:1").words == "`M_0` (`a.py:1`)"
    assert Site(None, "a.py:1").words == "`a.py:1`"
    assert Site("M_0", None).words == "`M_0`"


def test_samples_add_up_to_the_stretch() -> None:
    stretches = pl.DataFrame({"start": [100], "ns": [83], "tid": [7]})
    samples = sampled(stretches)
    assert samples["start"].to_list() == [105, 115, 125, 136, 146, 157, 167, 177]  # the middles of eighths of 10.375 ns
    assert (samples["ns"].sum(), samples["tid"].unique().to_list()) == (83, [7])
