"""ExposedCopies: the share of each device's time in copies and memsets that no kernel hides (docs/rules.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...device.coverage import DEVICE, with_covered
from ...report.rule_details import CopyingDevice, ExposedCopiesDetails, ExposedCopy
from ...toolkit.intervals import union
from ...toolkit.places import process_conditions
from ...toolkit.wording import duration, plural, significant, size
from ..evidence.base import Outcome, Parameter, Parameters, Rule
from ..evidence.copy_advice import copy_advice
from ..evidence.device_share import DeviceShare, above, finding, issues, no_device_activity, outcome
from ..evidence.run_data import RunData

_KINDS: Final = ["kind", "memory"]
_COPIES: Final = """
    SELECT e.node, e.process, e.device, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.bytes,
        CASE WHEN e.kind = 'memset' THEN 'Memset' ELSE coalesce(e.copy_kind, 'unknown') END AS kind,
        CASE WHEN e.kind = 'memset' THEN NULL WHEN e.pageable THEN 'pageable' WHEN NOT e.pageable THEN 'pinned' END AS memory
    FROM device_event AS e WHERE e.kind IN ('memcpy', 'memset') AND {}
"""


class ExposedCopies(Rule):
    name = "ExposedCopies"
    category = "trace"
    parameters = (Parameter("threshold", "%", 10, 10, "percentile", "share of a device's span that copies without a kernel may take"),)
    needs = "A profiler trace with the activity of the GPUs, such as one of torch.profiler with CUDA activity."
    checks = "How much of each device's time goes into copies and memsets while no kernel runs."
    condition = "time in copies and memsets while no kernel runs > `threshold` of the device's span, on any device"
    advice = "Keep data on the device, and copy the rest on a stream of its own while kernels run."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        threshold = parameters["threshold"]
        shares = [
            DeviceShare(device, device.exposed_memory_ns, above(device.exposed_memory_ns, device.span_ns, threshold))
            for device in run.breakdown
        ]
        copies = _copies(run.store) if issues(shares) else ()
        return outcome(
            run,
            shares,
            details=ExposedCopiesDetails(
                tuple(
                    CopyingDevice.of(share.device, exposed_ns=share.ns, exposed_percent=share.percent, issue=bool(share.issue))
                    for share in shares
                ),
                copies,
            ),
            finding=finding(shares, "Copies and memsets while no kernel runs take", threshold),
            title="Avoid or hide copies",
            recommendation=_recommendation(run, copies) if copies else "",
            saving_ns=sum(share.ns for share in shares if share.issue),
        )


def _copies(store: Store) -> tuple[ExposedCopy, ...]:
    """Return copies by kind and memory, longest exposed first; copies of one kind at the same time count once in ``exposed_ns``."""
    totals, exposed = [], []
    for group in process_conditions(store):
        events = store.frame(_COPIES.format(group))
        totals.append(events.with_columns(time=pl.col("end") - pl.col("start")).select(*_KINDS, "bytes", "time"))
        merged = union(events, [*DEVICE, *_KINDS])
        covered = with_covered(store, merged, "kernel", group=group, times="e.kind IN ('memcpy', 'memset')")
        exposed.append(covered.select(*_KINDS, exposed_ns=pl.col("end") - pl.col("start") - pl.col("covered")))
    by_kind = pl.concat(totals).group_by(_KINDS).agg(count=pl.len(), bytes=pl.col("bytes").sum(), time_ns=pl.col("time").sum())
    left = pl.concat(exposed).group_by(_KINDS).agg(pl.col("exposed_ns").sum())
    rows = by_kind.join(left, on=_KINDS, nulls_equal=True).sort("exposed_ns", "kind", descending=[True, False])
    return tuple(ExposedCopy(**(row | {"bytes": row["bytes"] or None})) for row in rows.iter_rows(named=True))


def _recommendation(run: RunData, copies: Sequence[ExposedCopy]) -> str:
    main = copies[0]
    name, names = ("memset", "memsets") if main.kind == "Memset" else (f"{main.kind} copy", f"{main.kind} copies")
    memory = f" of {main.memory} memory" if main.memory else ""
    volume = f" ({size(main.bytes)} in all, {significant(main.bytes / main.time_ns)} GB/s)" if main.bytes and main.time_ns else ""
    return (
        f"{copy_advice(run.program, main.kind, main.memory)}, because {plural(main.count, name, names)}{memory}{volume} make up"
        f" {duration(main.exposed_ns)} of it."
    )
