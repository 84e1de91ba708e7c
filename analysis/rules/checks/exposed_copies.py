"""ExposedCopies: the share of each device's time in copies and memsets that no kernel covers (docs/rules.md).

The copies with the longest exposed time decide the advice: their direction, host memory, size, bandwidth, and the code that launches them.
Copies of gradients out of the buckets of DDP are found by the operator that DDP records for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from ...efficiency.largest_site import Site
from ...report.device import DeviceTime
from ...report.trace_details import ExposedCopiesDetails, ExposedCopiesDevice, ExposedCopy
from ...toolkit.wording import count, duration, percent, plural, significant, size, threshold_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.copied import BUCKET, bucket_times, copied_buckets, copies, of_devices, rows
from ..evidence.copy_advice import copy_advice
from ..evidence.device_share import DeviceShare, above, finding, issues, no_device_activity, outcome
from ..evidence.run_data import RunData

_SLOW_LINK: Final = 0.5  # of the bandwidth of the link, which large pinned copies exceed

_FSDP: Final = re.compile(r"^FSDP::|^FullyShardedDataParallel\.|torch/distributed/(fsdp|_composable/fsdp)/")
_VIEW: Final = "`DistributedDataParallel(..., gradient_as_bucket_view=True)`"


class ExposedCopies(Rule):
    name = "ExposedCopies"
    category = "trace"
    names_code = True
    parameters = (
        Parameter("threshold", "%", 10, 10, "percentile", "share of a device's span that copies and memsets without a kernel may take"),
        Parameter("bucket_threshold", "%", 1, 1, "percentile", "share of a device's span that copies of DDP's buckets may take"),
    )
    needs = "A profiler trace with the activity of the GPUs, such as a trace of torch.profiler with CUDA activity."
    checks = "Measures the share of each device's time in copies and memsets while no kernel runs."
    condition = (
        "copies and memsets during which no kernel runs take more than `threshold` of the span of any device, or copies of gradients out of"
        " DDP's buckets take more than `bucket_threshold` of it"
    )
    advice = "Copy less, from pinned memory, and while kernels run."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        if not any(device.memory_ns for device in run.breakdown):
            return not_evaluated("no copies and memsets in this run", "Profile steps of the run, with the copies of their data.")
        if not any(device.kernel_total_ns for device in run.breakdown):
            return not_evaluated("no kernels in this run, only copies and memsets", "Profile a part of the run in which kernels run.")
        threshold, limit = parameters["threshold"], parameters["bucket_threshold"]
        shares = [
            DeviceShare(device, device.exposed_memory_ns, above(device.exposed_memory_ns, device.span_ns, threshold))
            for device in run.breakdown
        ]
        of_buckets = any(device.memcpy_ns for device in run.breakdown) and copied_buckets(run.store)
        copied = copies(run.store, buckets=of_buckets) if of_buckets or issues(shares) else pl.DataFrame()
        times = {
            (*run.places.process(process, node), device): ns for (node, process, device), ns in bucket_times(copied).items()
        } if of_buckets else {}  # fmt: skip
        buckets = [
            DeviceShare(share.device, ns := times.get(_key(share.device), 0), above(ns, share.device.span_ns, limit)) for share in shares
        ]
        costs = [share if share.issue else replace(share, ns=min(of.ns, share.ns) if of.issue else share.ns, issue=share.issue or of.issue)
                 for share, of in zip(shares, buckets, strict=True)]  # fmt: skip
        bad = [share.device for share in issues(costs)]
        top = (
            _rows(run, copied, bad)
            if bad
            else _rows(run, copied.filter("bucket"), [share.device for share in shares])
            if of_buckets
            else ()
        )
        main = top[0] if top and issues(shares) else next((row for row in top if row.operator == BUCKET), None)
        text = finding(run, shares, "Copies and memsets that no kernel covers take", threshold)
        return outcome(
            run,
            costs,
            details=ExposedCopiesDetails(
                tuple(
                    ExposedCopiesDevice.of(
                        share.device, exposed_ns=share.ns, percent=share.percent, bucket_ns=of.ns, issue=bool(share.issue or of.issue)
                    )
                    for share, of in zip(shares, buckets, strict=True)
                ),
                top[: run.top],
            ),
            finding=text + _of_buckets(buckets, limit),
            title=_title(main, bad),
            recommendation=_recommendation(run, main, bad) if main else ExposedCopies.advice,
            saving_ns=sum(share.ns for share in issues(costs)),
            part="exposed_memory" if issues(shares) else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        return run.site_of_work(pl.col("kind").is_in(["memcpy", "memset"]))


def _key(device: DeviceTime) -> tuple[str, int | None, int | None, int]:
    return device.node, device.rank, device.pid, device.device


def _rows(run: RunData, copied: pl.DataFrame, devices: Sequence[DeviceTime]) -> tuple[ExposedCopy, ...]:
    places = {(device.node, device.rank, device.pid) for device in devices}
    processes = [process for process in copied["process"].unique() if run.places.process(process) in places]
    return rows(run.store, of_devices(copied, processes), {device.device_name for device in devices}, run.top)


def _of_buckets(shares: Sequence[DeviceShare], limit: float) -> str:
    """Return a sentence on the copies of DDP's buckets; empty without any."""
    top = max(shares, key=lambda share: share.percent)
    if not top.ns:
        return ""
    ns, span = sum(share.ns for share in shares), sum(share.device.span_ns for share in shares if share.ns)
    return (
        f" DDP copies gradients out of its buckets for {duration(ns)}, {percent(100 * ns / span)} (threshold {threshold_text(limit)});"
        f" {_VIEW} makes that needless."
    )


def _little(devices: Sequence[DeviceTime]) -> bool:
    """Return whether the kernels are too short to cover half of the exposed copies."""
    return 2 * _kernels(devices) < sum(device.exposed_memory_ns for device in devices)


def _kernels(devices: Sequence[DeviceTime]) -> int:
    return sum(device.busy_ns - device.exposed_memory_ns for device in devices)


def _title(main: ExposedCopy | None, devices: Sequence[DeviceTime]) -> str:
    if main is None:
        return "Cover copies with kernels"
    if main.operator == BUCKET:
        return "Keep the gradients in the buckets of DDP"
    if main.kind in ("DtoD", "Memset"):
        return "Avoid copies within the device" if main.kind == "DtoD" else "Avoid clearing memory"
    if main.memory == "pageable":
        return "Use pinned memory for copies"
    if _offloaded(main):
        return "Keep the parameters on the device"
    if _little(devices):
        return {"HtoD": "Copy less to the device", "DtoH": "Copy less to the host"}.get(main.kind, "Copy less between devices")
    return {"HtoD": "Copy to the device while kernels run", "DtoH": "Copy to the host while kernels run"}.get(
        main.kind, "Copy between devices while kernels run"
    )


def _recommendation(run: RunData, main: ExposedCopy, devices: Sequence[DeviceTime]) -> str:
    return f"{_change(run, main)}, because {_evidence(main)}.{_limits(main, devices)}"


def _offloaded(main: ExposedCopy) -> bool:
    """Return whether FSDP copies its parameters from the host."""
    return main.kind == "HtoD" and _FSDP.search(main.site or "") is not None


def _change(run: RunData, main: ExposedCopy) -> str:
    return f"Use {_VIEW}" if main.operator == BUCKET else copy_advice(run.program, main.kind, main.memory)


def _evidence(main: ExposedCopy) -> str:
    kind = "memset" if main.kind == "Memset" else f"{main.memory} {main.kind} copy" if main.memory else f"{main.kind} copy"
    kinds = f"{kind}s" if main.kind == "Memset" else f"{kind[:-1]}ies"
    source = f" of `{main.operator}`" if main.operator else ""
    each = f", {size(main.bytes / main.count)} each" if main.bytes and main.count > 1 else ""
    volume = f" ({size(main.bytes)}{each})" if main.bytes else ""
    hidden = 100 * (1 - main.exposed_ns / main.time_ns) if main.time_ns else 0.0
    return (
        f"{plural(main.count, kind, kinds)}{source}{volume} took {duration(main.time_ns)}, and kernels cover {percent(hidden)} of that"
        + (f". The longest comes from `{main.site}`" if main.site else "")
    )


def _limits(main: ExposedCopy, devices: Sequence[DeviceTime]) -> str:
    """Return sentences on the bandwidth and on the kernels that could cover copies."""
    text = ""
    if main.bandwidth_gb_per_s is not None and main.kind in ("HtoD", "DtoH"):
        text = f" Copies from 1 MiB reach {significant(main.bandwidth_gb_per_s)} GB/s"
        if main.link_gb_per_s is None:
            text += "."
        else:
            share = main.bandwidth_gb_per_s / main.link_gb_per_s
            text += f", {percent(100 * share)} of the {count(main.link_gb_per_s)} GB/s of PCIe."
            if share < _SLOW_LINK and main.memory == "pinned":
                text += (
                    " Check generation and width of the slots with"
                    " `nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv`, and which GPUs share a switch"
                    " with `nvidia-smi topo -m`."
                )
    if main.kind in ("HtoD", "DtoH", "PtoP") and _little(devices):
        text += f" Kernels run for {duration(_kernels(devices))}: they can hide no more than that."
    return text
