"""Cases that the report does not get right yet: name of the case -> its first broken expectation. The tests expect these to fail."""

from __future__ import annotations

from typing import Final

KNOWN: Final[dict[str, str]] = {
    "garbage collection of one rank at a time": "saves 8.5 % (upper_bound); the planted cause costs 33.8 %",
    "slow AMD GPU": "StragglerRank does not say 'rocm-smi|amd-smi'",
    "pauses of one rank without any record": "ExposedCommunication is first, not HostPauses",
    "checkpoint on rank 0": "HostPauses does not say 'rank 0'",
    "rank late by its logging": "ExposedCommunication is first, not HostPauses",
    "rank late by its logging, FSDP": "ExposedCommunication is first, not HostPauses",
    "rank late, no process groups": "ExposedCommunication is first, not HostPauses",
    "rank late, with stacks": "ExposedCommunication is first, not HostPauses",
    "slow links of one data-parallel group": "ExposedCommunication is first, not SlowCollectives",
    "slow link of one tensor-parallel group": "ExposedCommunication is first, not SlowCollectives",
    "all links slow between nodes": "ExposedCommunication is first, not SlowCollectives",
    "FSDP without prefetch": "ExposedCommunication does not say 'all-gather'",
    "FSDP without prefetch, two nodes": "ExposedCommunication does not say 'all-gather'",
    "synchronous all-reduces by hand, with stacks": "ExposedCommunication does not say 'average_gradients|train.py'",
}
