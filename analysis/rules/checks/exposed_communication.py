"""ExposedCommunication: the share of each device's time in collectives that no computation covers (docs/rules.md).

Per kernel name, ``exposed_ns`` is the length of the union of the executions minus the time that computation covers. Kernels of two names
that execute at the same time each get all of their own union, so these parts can exceed the exposed communication of the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...causes.bandwidth import bus_of_all, group_transfers
from ...causes.exposed import Lead, exposed_rows, lead
from ...device.coverage import DEVICE, with_covered
from ...efficiency.largest_site import Site
from ...report.communication_details import CollectiveKernel, CommunicationDevice, ExposedCommunicationDetails
from ...report.device import DeviceTime
from ...toolkit.intervals import union
from ...toolkit.labels import place, process_place
from ...toolkit.places import process_conditions
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.communication_advice import Facts, advise
from ..evidence.device_share import DeviceShare, above, finding, gpus, issues, no_device_activity, outcome, steps_of
from ..evidence.frameworks import OVERLAPPED, framework_of
from ..evidence.run_data import RunData

_BACKWARD_SHARE: Final = 2 / 3  # only the backward pass can hide the reduction of gradients: about two thirds of the computation
# Names that show what is in use: DDP copies gradients out of buckets, DDP searches for unused parameters, TorchRec exchanges ahead.
_NAMES: Final = (
    r"^torch\.distributed\.ddp\.reducer::copy_bucket_to_grad$",
    r"^torch\.distributed\.ddp\.reducer::search_unused_parameters$",
    r"^## (wait_|start_)?sparse_data_dist|^## sdd_",
)
_NAMED: Final = f"SELECT {', '.join('coalesce(bool_or(regexp_matches(text, ?)), false)' for _ in _NAMES)} FROM name"


class ExposedCommunication(Rule):
    name = "ExposedCommunication"
    category = "trace"
    parameters = (Parameter("threshold", "%", 10, 10, "percentile", "share of a device's span that exposed communication may take"),)
    needs = "A profiler trace with the activity of the GPUs, such as a trace of torch.profiler with CUDA activity."
    checks = "Measures the share of each device's time in collectives while the device computes nothing."
    condition = "communication that no computation covers takes more than `threshold` of the span of any device"
    advice = "Overlap communication between GPUs with computation. If ranks wait for each other, find the rank that arrives last."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        if not any(device.communication_ns for device in run.breakdown):
            return not_evaluated(
                "no collective kernels in this run", "Profile a rank of a distributed run with torch.profiler on CUDA activity."
            )
        threshold = parameters["threshold"]
        shares = [
            DeviceShare(device, device.exposed_communication_ns, above(device.exposed_communication_ns, device.span_ns, threshold))
            for device in run.breakdown
        ]
        collectives = _collectives(run.store, sum(device.exposed_communication_ns for device in run.breakdown))
        bad = [share.device for share in issues(shares)]
        title, advice, top = _advice(run, bad or run.breakdown)
        return outcome(
            run,
            shares,
            details=ExposedCommunicationDetails(
                tuple(map(_row, shares)), collectives[: run.top], exposed_rows(run.store, run.exposed_calls)[: run.top]
            ),
            finding=finding(run, shares, "Exposed communication costs", threshold),
            title=title,
            recommendation=advice,
            saving_ns=_saving(top, bad),
            part="exposed_communication",
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        names = run.store.frame("SELECT id FROM communication_name")["id"]
        return run.site_of_work(pl.col("kernel").is_in(names.to_list()))


def _row(share: DeviceShare) -> CommunicationDevice:
    return CommunicationDevice.of(
        share.device,
        exposed_ns=share.ns,
        exposed_percent=share.percent,
        issue=share.issue,
    )


def _saving(top: Lead | None, bad: Sequence[DeviceTime]) -> int | None:
    """Return what the advice can save; None if it is to record more."""
    if top is not None and top.waits:
        return top.waiting_ns
    return None if top is not None and top.varies else sum(_could_hide(device) for device in bad)


def _could_hide(device: DeviceTime) -> int:
    return min(device.exposed_communication_ns, _free(device))


def _free(device: DeviceTime) -> int:
    """Return the computation of a device that hides no communication."""
    return device.computation_ns - (device.communication_ns - device.exposed_communication_ns)


def _collectives(store: Store, exposed_ns: int) -> tuple[CollectiveKernel, ...]:
    """Return the collectives by short name, over all devices, longest exposed first."""
    totals = store.frame("""
        SELECT coalesce(n.short, n.text) AS name, count(*) AS count, sum(e.duration_ns)::BIGINT AS time_ns
        FROM device_run AS e JOIN name AS n ON n.id = e.name WHERE e.communication GROUP BY ALL
    """)
    if len(totals) == 1:
        rows = totals.with_columns(exposed_ns=pl.lit(exposed_ns))
    else:
        parts = [_exposed(store, condition) for condition in process_conditions(store)]
        exposed = pl.concat(parts).group_by("name").agg(pl.col("exposed_ns").sum())
        rows = totals.join(exposed, on="name", how="left").with_columns(pl.col("exposed_ns").fill_null(0))
    ranked = rows.sort("exposed_ns", "time_ns", "name", descending=[True, True, False])
    return tuple(CollectiveKernel(*row) for row in ranked.select("name", "count", "time_ns", "exposed_ns").iter_rows())


def _exposed(store: Store, group: str) -> pl.DataFrame:
    """Return name and exposed_ns of the collectives of a group of processes."""
    events = store.frame(f"""
        SELECT e.node, e.process, e.device, e.start_ns AS start, e.end_ns AS "end", coalesce(n.short, n.text) AS name
        FROM device_run AS e JOIN name AS n ON n.id = e.name WHERE e.communication AND {group}
    """)
    # Runs of one name on one device do not overlap after the union, whatever streams they ran on.
    merged = union(events, [*DEVICE, "name"])
    left = pl.col("end") - pl.col("start") - pl.col("covered")
    return with_covered(store, merged, "computation", group=group).group_by("name").agg(exposed_ns=left.sum())


def _advice(run: RunData, devices: Sequence[DeviceTime]) -> tuple[str, str, Lead | None]:
    """Return the title of the finding, the advice, and the calls that it is about."""
    places = {(device.node, device.rank, device.pid) for device in devices}
    calls = run.exposed_calls
    processes = [process for process in calls["process"].unique().drop_nulls() if run.places.process(process) in places]
    top = lead(run.store, calls, processes)
    if top is None:
        return ExposedCommunication.advice.rstrip("."), ExposedCommunication.advice, None
    title, recommendation = advise(top, _facts(run, top, devices))
    return title, recommendation, top


def _facts(run: RunData, top: Lead, devices: Sequence[DeviceTime]) -> Facts:
    named = run.store.frame(_NAMED, list(_NAMES)).row(0)
    computation, communication = sum(d.computation_ns for d in devices), sum(d.communication_ns for d in devices)
    steps = steps_of(run)
    per_process = [steps[device.node, device.rank, device.pid] for device in devices]
    bus, nodes = _bandwidth(run, top)
    return Facts(
        bus=bus,
        nodes=nodes,
        on="" if len(devices) == len(run.breakdown) else f" on {gpus(len(devices), len(run.breakdown))}",
        late=tuple(_device_name(run, process) for process in top.late),
        too_much=communication > _BACKWARD_SHARE * computation,
        per_step=top.count / sum(per_process) if all(per_process) and len(per_process) == top.processes else None,
        bucket_copies=named[0],
        unused_search=named[1],
        sparse_pipeline=named[2],
        free_ns=sum(_free(device) for device in devices),
        other_words=OVERLAPPED.get(framework_of(run.store) or ""),
    )


def _bandwidth(run: RunData, top: Lead) -> tuple[float | None, int]:
    """Return the bus bandwidth and nodes of calls whose link is unknown."""
    transfers, _ = group_transfers(run.store)
    alike = transfers.filter(
        pl.col("operation") == top.operation,
        pl.col("expected").is_null(),
        pl.col("group_description").eq_missing(pl.lit(top.group)),
        pl.col("group_size").eq_missing(pl.lit(top.group_size)),
    )
    if alike.is_empty():
        return None, 1
    return alike.select(bus_of_all()).item(), int(alike["nodes"].max())  # type: ignore[arg-type]


def _device_name(run: RunData, process: int) -> tuple[int | None, str]:
    """Return the rank of a process and the name of its device."""
    late = run.places.process(process)
    gpu = next((device.device for device in run.breakdown if (device.node, device.rank, device.pid) == late), None)
    return late.rank, process_place(*late) if gpu is None else place(late.node, late.rank, gpu)
