"""Section "Activity distribution": the recorded device time by kernels, memory operations, and synchronization."""

from __future__ import annotations

import dataclasses

from ...analysis.report.model import Report
from ..blocks import Section, meaning_of, say
from ..text.formats import percent
from .shares import shares_ring

_NAMES = {"kernel": "kernels", "memcpy": "memory copies", "memset": "memory sets", "sync": "synchronisation"}


def activity(report: Report) -> Section:
    shares = report.activity.shares
    if not shares:
        return Section(
            "activity", "Activity distribution", say("No kernel, copy or memset in this run: record the GPU activity of the profiler.")
        )
    named = [dataclasses.replace(share, name=_NAMES.get(share.name, share.name)) for share in shares]
    listed = ", ".join(f"{share.name} {percent(share.percent)}" for share in named)
    source = {"device": " Synchronisation as the device recorded it.", "host": " Synchronisation is the host's blocking calls."}
    ring = shares_ring(
        "activity-time",
        say("Durations are summed, so what ran at the same time counts twice.{}", source.get(report.activity.sync_source or "", "")),
        "GPU activity",
        named,
        "Activity",
        "Of the sum",
        label="summed",
        meaning=lambda name: "computation" if name == "kernels" else meaning_of(name),
    )
    return Section("activity", "Activity distribution", say("Of the summed durations: {}.", listed), [ring])
