"""Reasons of lost records: reason number of a ``LOSS`` row of a trace file -> its words.

`postrun inspect`, `postrun record` and the notes of a report share the table.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple


class LossReason(NamedTuple):
    """``code``: of the note in a report. ``name``: a few words. ``text``: the meaning and a remedy.

    ``missing``: a part of the run is missing from the figures.
    """

    code: str
    name: str
    text: str
    missing: bool = False


LOSS_REASONS: Final = MappingProxyType(
    {
        1: LossReason(
            "ring_full", "ring full",
            "Records were lost: a thread made them faster than they could be written. Give its ring more records",
        ),
        2: LossReason(
            "disk_full", "disk",
            "Records were lost: they could not be written to disk. Free some space, or record to another place", missing=True,
        ),
        3: LossReason("lost_at_fork", "fork", "Records were lost when the process forked"),
        4: LossReason("too_deep", "nested too deep", "Ranges nested deeper than 64 were left out"),
        5: LossReason(
            "device_records_lost", "device records lost",
            "Records of kernels, copies or calls were lost: the device made more than there was memory for. What they took is missing from"
            " every figure of devices; record fewer steps at a time", missing=True,
        ),
        6: LossReason(
            "device_times_lost", "device records without times",
            "Kernels, copies or calls were left out: the device's tracer did not say when they ran", missing=True,
        ),
    }
)  # fmt: skip


def loss_reason(number: int) -> LossReason:
    """Return the reason of a number; a newer file may have unknown numbers."""
    return LOSS_REASONS.get(number) or LossReason("records_lost", f"reason {number}", f"Records were lost (reason {number})")
