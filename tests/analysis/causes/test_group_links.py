"""Expected bandwidth of links: figures of data sheets, worked out for groups on paper."""

from __future__ import annotations

import pytest
from postrun.analysis.causes.links import Link, group_link, link_within_node

# Model, ranks, GPUs of the node, GB/s of one GPU in one direction.
WITHIN = [
    ("NVIDIA H100 80GB HBM3", 8, 8, 450),
    ("NVIDIA H100 80GB HBM3", 2, 8, 450),  # a switch: two GPUs have all links
    ("NVIDIA H100 80GB HBM3", 2, 4, 150),  # four GPUs without a switch: 6 of 18 links lead to each other GPU
    ("NVIDIA H100 80GB HBM3", 4, None, 450),
    ("NVIDIA H100 PCIe", 8, 8, 64),
    ("NVIDIA H200", 8, 8, 450),
    ("NVIDIA H800", 8, 8, 200),
    ("NVIDIA A100-SXM4-80GB", 8, 8, 300),
    ("NVIDIA A100-SXM4-40GB", 3, 4, 200),
    ("NVIDIA A100 80GB PCIe", 4, 4, 32),
    ("NVIDIA A800-SXM4-80GB", 8, 8, 200),
    ("Tesla V100-SXM2-32GB", 8, 8, 150),
    ("Tesla V100-PCIE-16GB", 2, 2, 16),
    ("NVIDIA B200", 8, 8, 900),
    ("NVIDIA GB200", 4, 4, 900),
    ("NVIDIA L4", 4, 4, 32),
    ("NVIDIA L40S", 8, 8, 32),
    ("NVIDIA A10", 2, 2, 32),
    ("Tesla T4", 4, 4, 16),
    ("AMD Instinct MI300X", 8, 8, 448),  # 7 links of 64
    ("AMD Instinct MI300X", 2, 8, 64),
    ("AMD Instinct MI250X", 8, 8, 50),
]


@pytest.mark.parametrize(("model", "ranks", "gpus", "expected"), WITHIN)
def test_within_a_node(model: str, ranks: int, gpus: int | None, expected: float) -> None:
    link = link_within_node(model, ranks, gpus)
    assert link is not None
    assert link.gb_per_s == pytest.approx(expected)
    assert link.vendor == ("AMD" if "AMD" in model else "NVIDIA")


@pytest.mark.parametrize(
    ("model", "ranks"),
    [
        (None, 8), ("", 8), ("NVIDIA Whatever 9000", 8), ("NVIDIA A100-PG509-200", 8), ("NVIDIA H100 NVL", 2), ("NVIDIA H200 NVL", 4),
        ("NVIDIA A10G", 4), ("AMD Radeon Graphics", 8), ("Tesla V100-SXM2-32GB", 2), ("NVIDIA B200", 1),
    ],
)  # fmt: skip
def test_what_no_data_sheet_says_is_unknown(model: str | None, ranks: int) -> None:
    assert link_within_node(model, ranks, 8) is None


def test_across_nodes_only_the_network_of_a_known_machine_counts() -> None:
    h100 = "NVIDIA H100 80GB HBM3"
    assert group_link(h100, [0] * 8, 8, None) == Link("NVLink", 450, "NVIDIA")
    assert group_link(h100, [0] * 8 + [1] * 8, 8, None) is None
    # 3 200 Gbit/s are 400 GB/s for the eight GPUs of a machine, 50 for one of them
    assert group_link(h100, [0] * 8 + [1] * 8, 8, "ml.p5.48xlarge") == Link("network", 400, "NVIDIA")
    assert group_link(h100, [0, 1, 2, 3], 8, "ml.p5.48xlarge") == Link("network", 50, "NVIDIA")
    assert group_link(h100, [0, 1], None, "ml.p5.48xlarge") is None
    assert group_link(h100, [0, 0, 1], 8, "p5.48xlarge") is None
    assert group_link(h100, [0], 8, "p5.48xlarge") is None
