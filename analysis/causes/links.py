"""Expected bus bandwidth of the links of a process group: GPU model, GPUs per node, and the nodes of the group -> GB/s per GPU.

Bandwidths are of one direction, in 10^9 bytes per second, by the data sheet of the vendor; the bus bandwidth of nccl-tests compares with
them. A model, form or network that the run does not name is unknown: no default replaces it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NVLINK: Final = "NVLink"
XGMI: Final = "xGMI"
PCIE: Final = "PCIe"
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


@dataclass(frozen=True, slots=True)
class _Model:
    """``links``: how the GPUs of a node are connected. switch: any group has all links; board: so on nodes of more than four GPUs, on
    others in pairs; cube: in groups of 8 or 16; mesh: ``gb_per_s`` is of the link between two GPUs; ring: a ring uses one link."""

    pattern: re.Pattern[str]
    kind: str
    gb_per_s: float
    vendor: str
    links: str


def _model(pattern: str, kind: str, gb_per_s: float, vendor: str = "NVIDIA", links: str = "switch") -> _Model:
    return _Model(re.compile(pattern, re.IGNORECASE), kind, gb_per_s, vendor, links)


# The first match counts. Data sheets give the sum of both directions; half of it is of one.
_MODELS: Final = (
    _model(r"\bNVL\b", "", 0),  # bridges between two or four cards: which cards have one, no trace shows
    # PCIe cards: "Interconnect" of the data sheets; Gen5 x16 is 128 GB/s, Gen4 x16 64 GB/s, Gen3 x16 32 GB/s in both directions.
    _model(r"\bH[18]00\b.*PCIe", PCIE, 64),  # NVIDIA H100 Tensor Core GPU data sheet: PCIe Gen5 128 GB/s
    _model(r"\bA[18]00\b.*PCIe", PCIE, 32),  # NVIDIA A100 80GB PCIe data sheet: PCIe Gen4 64 GB/s
    _model(r"\bV100\b.*PCIe", PCIE, 16),  # NVIDIA V100 data sheet: PCIe 32 GB/s
    _model(r"\bL40S?\b", PCIE, 32),  # NVIDIA L40S data sheet: PCIe Gen4 x16, 64 GB/s bidirectional
    _model(r"\bL4\b", PCIE, 32),  # NVIDIA L4 data sheet: PCIe Gen4 64 GB/s
    _model(r"\bA10\b", PCIE, 32),  # NVIDIA A10 data sheet: PCIe Gen4 64 GB/s; the A10G of one cloud has half of the lanes and is unknown
    _model(r"\bT4\b", PCIE, 16),  # NVIDIA T4 data sheet: x16 PCIe Gen3, 32 GB/s
    # NVLink of SXM modules: "Interconnect" or "NVLink bandwidth" of the data sheets, of both directions.
    _model(r"\bG?B[23]00\b", NVLINK, 900),  # NVIDIA DGX B200 and GB200 NVL72 data sheets: fifth generation, 1.8 TB/s per GPU
    _model(r"\bG?H200\b", NVLINK, 450, links="board"),  # NVIDIA H200 data sheet: 900 GB/s
    _model(r"\bH20\b", NVLINK, 450, links="board"),  # NVIDIA H20: 900 GB/s
    _model(r"\bH800\b", NVLINK, 200, links="board"),  # NVIDIA H800: 400 GB/s
    _model(r"\bH100\b.*(SXM|HBM3)", NVLINK, 450, links="board"),  # NVIDIA H100 data sheet: 900 GB/s
    _model(r"\bA800\b.*SXM", NVLINK, 200, links="board"),  # NVIDIA A800 data sheet: 400 GB/s
    _model(r"\bA100\b.*SXM", NVLINK, 300, links="board"),  # NVIDIA A100 data sheet: 600 GB/s
    _model(r"\bV100\b.*SXM", NVLINK, 150, links="cube"),  # NVIDIA V100 data sheet: 300 GB/s
    # AMD Infinity Fabric links between GPUs (xGMI), of both directions: AMD Instinct MI300X data sheet: 7 links of 128 GB/s; MI325X the
    # same; MI350X, MI355X: 7 links of 153.6 GB/s; MI250, MI250X: 100 GB/s per link, and a ring uses one between two modules.
    _model(r"\bMI3(00|25)X\b", XGMI, 64, "AMD", "mesh"),
    _model(r"\bMI35[05]X\b", XGMI, 76.8, "AMD", "mesh"),
    _model(r"\bMI250X?\b", XGMI, 50, "AMD", "ring"),
)

# Bandwidth of PCIe between the host and a GPU, in one direction: half of the data sheets' figure. All forms of a model have the same.
# GPUs that NVLink-C2C or Infinity Fabric connects to the processor (GH200, GB200, MI250X, MI300A) are unknown, and so are other models.
_TO_HOST: Final = (
    (re.compile(r"\bG[HB]\d+", re.IGNORECASE), None),
    (re.compile(r"\b(H100|H200|H800|H20|MI3(00|25)X|MI35[05]X)\b", re.IGNORECASE), 64),  # Gen5 x16, 128 GB/s
    (re.compile(r"\b(A100|A800|L40S?|L4|A10)\b", re.IGNORECASE), 32),  # Gen4 x16, 64 GB/s
    (re.compile(r"\b(V100|T4)\b", re.IGNORECASE), 16),  # Gen3 x16, 32 GB/s
)

# Network of a whole machine in Gbit/s, by the type of a cloud machine: "Network bandwidth" on Amazon EC2's pages of instance types.
_NETWORKS: Final = {
    "p3dn.24xlarge": 100, "p4d.24xlarge": 400, "p4de.24xlarge": 400, "p5.48xlarge": 3200, "p5e.48xlarge": 3200, "p5en.48xlarge": 3200,
    "p6-b200.48xlarge": 3200,
}  # fmt: skip


def link_within_node(model: str | None, ranks: int, gpus: int | None) -> Link | None:
    """Return the link between ``ranks`` GPUs of a node, or None if it is unknown.

    ``gpus``: number of GPUs of the node, None if unknown."""
    known = next((entry for entry in _MODELS if entry.pattern.search(model or "")), None)
    if known is None or not known.gb_per_s or ranks < 2:
        return None
    speed = known.gb_per_s
    if known.links == "cube" and ranks not in (8, 16):
        return None  # the pairs of such a board have one or two of the six links, or none
    if known.links == "board" and ranks <= 4 and not (gpus or 0) > 4:
        speed *= (ranks - 1) / 3  # without a switch a third of the links leads to each of the three others
    if known.links == "mesh":
        if ranks > 8:
            return None
        speed *= ranks - 1
    return Link(known.kind, speed, known.vendor)


def host_gb_per_s(model: str | None) -> int | None:
    """Return the bandwidth of PCIe between host and GPU, None if unknown."""
    return next((speed for pattern, speed in _TO_HOST if pattern.search(model or "")), None)


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
    known = next((entry for entry in _MODELS if entry.pattern.search(model or "")), None)
    share = min(1.0, ranks[nodes[0]] / gpus)  # other groups use the rest of the network
    return Link(NETWORK, total / 8 * share, known.vendor if known else "NVIDIA")
