"""Expected bus bandwidth of the links of a process group: GPU model, GPUs per node, and the nodes of the group -> GB/s per GPU.

Bandwidths are for one direction, in 10^9 bytes per second, by the data sheet of the vendor (``analysis/device/gpu_products.py``); the bus
bandwidth of nccl-tests compares with them. A model, form or network that the run does not name is unknown: no default replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..device.gpu_products import product_of

NETWORK: Final = "network"


@dataclass(frozen=True, slots=True)
class Link:
    """The slowest link that a ring through a group uses. ``gb_per_s``: of one GPU in one direction. ``vendor``: NVIDIA or AMD."""

    kind: str
    gb_per_s: float
    vendor: str

    @property
    def text(self) -> str:
        return f"{self.kind} ({self.gb_per_s:g} GB/s per GPU and direction)"


# Network of a whole machine in Gbit/s, by the type of a cloud machine: "Network bandwidth" on Amazon EC2's pages of instance types.
_NETWORKS: Final = {
    "p3dn.24xlarge": 100, "p4d.24xlarge": 400, "p4de.24xlarge": 400, "p5.48xlarge": 3200, "p5e.48xlarge": 3200, "p5en.48xlarge": 3200,
    "p6-b200.48xlarge": 3200,
}  # fmt: skip


def link_within_node(model: str | None, ranks: int, gpus: int | None) -> Link | None:
    """Return the link between ``ranks`` GPUs of a node, or None if it is unknown.

    ``gpus``: number of GPUs of the node, None if unknown."""
    product = product_of(model)
    if product is None or product.link is None or ranks < 2:
        return None
    link = product.link
    speed = link.gb_per_s
    if link.topology == "cube" and ranks not in (8, 16):
        return None  # the pairs of such a board have one or two of the six links, or none
    if link.topology == "board" and ranks <= 4 and not (gpus or 0) > 4:
        speed *= (ranks - 1) / 3  # without a switch a third of the links leads to each of the three others
    if link.topology == "mesh":
        if ranks > 8:
            return None
        speed *= ranks - 1
    return Link(link.kind, speed, product.vendor)


def host_gb_per_s(model: str | None) -> int | None:
    """Return the bandwidth of PCIe between host and GPU, None if unknown."""
    product = product_of(model)
    return product.host_gb_per_s if product else None


def group_link(model: str | None, nodes: Sequence[int | str], gpus: int | None, instance_type: str | None) -> Link | None:
    """Return the slowest link of a group, or None if it is unknown.

    ``nodes``: the node of each rank of the group, all of them known. ``model``: of all its GPUs. ``instance_type``: of the machines."""
    if len(nodes) < 2:
        return None
    ranks = Counter(nodes)
    if len(ranks) == 1:
        return link_within_node(model, len(nodes), gpus)
    total = _NETWORKS.get((instance_type or "").removeprefix("ml."))
    if total is None or not gpus or len(set(ranks.values())) > 1:
        return None
    product = product_of(model)
    share = min(1.0, ranks[nodes[0]] / gpus)  # other groups use the rest of the network
    return Link(NETWORK, total / 8 * share, product.vendor if product else "NVIDIA")
