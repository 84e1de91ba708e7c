"""ExposedCommunication: the share of each device's time in collectives that no computation covers (docs/rules.md).

Per kernel name, ``exposed_ns`` is the length of the union of the executions minus the time that computation covers. Kernels of two names
that execute at the same time each get all of their own union, so these parts can exceed the exposed communication of the devices.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...device.coverage import DEVICE, with_covered
from ...report.model import DeviceTime
from ...report.rule_details import CollectiveKernel, CommunicationDevice, ExposedCommunicationDetails
from ...toolkit.intervals import union
from ...toolkit.labels import place_of
from ...toolkit.places import process_conditions
from ...toolkit.wording import duration, percent, plural, whole_percent
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.device_share import DeviceShare, above, finding, issues, no_device_activity, outcome
from ..evidence.frameworks import OVERLAPPED, framework_of
from ..evidence.run_data import RunData

# Kinds of collectives by the name of the kernel; the first match counts.
_KINDS: Final = (
    ("reduce-scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all-gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all-to-all", re.compile(r"all_?to_?all|deep_?ep", re.IGNORECASE)),
    ("send and receive", re.compile(r"send_?recv", re.IGNORECASE)),
    ("all-reduce", re.compile(r"all_?reduce|cross_device_reduce", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
)

# Ranges of TorchRec's pipelines that exchange the sparse features of the next batch ahead: who has them uses one.
_SPARSE_PIPELINE: Final = ("## wait_sparse_data_dist ##", "## start_sparse_data_dist%", "## sparse_data_dist ##", "## sdd_%")
_SHORT_NS: Final = 200_000  # collectives shorter than this on average are bound by their latency and not by their bytes
_LONG_NS: Final = 2_000_000  # all-reduces longer than this on average: the gradients come in few, large pieces
_BACKWARD_SHARE: Final = 2 / 3  # only the backward pass can hide the reduction of gradients: about two thirds of the computation
_GRADIENTS_SHARE: Final = 0.9  # all-reduces reduce gradients if threads with backward operators launch at least this share
_SLOW_PERCENT: Final = 5.0  # a rank that computes this much longer than the median can be the reason for the waits of the others


class ExposedCommunication(Rule):
    name = "ExposedCommunication"
    category = "trace"
    parameters = (Parameter("threshold", "%", 10, 10, "percentile", "share of a device's span that exposed communication may take"),)
    needs = "A profiler trace with the activity of the GPUs, such as one of torch.profiler with CUDA activity."
    checks = "How much of each device's time goes into collectives while it computes nothing."
    condition = "communication not covered by computation > threshold of the device's span, on any device"
    advice = "Overlap collectives with computation, choose the bucket size, and check the topology that NCCL found."

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
        title, advice = _advice(run, collectives, bad or run.breakdown)
        return outcome(
            run,
            shares,
            details=ExposedCommunicationDetails(tuple(map(_row, shares)), collectives[: run.top]),
            finding=finding(shares, "Exposed communication costs", threshold),
            title=title,
            recommendation=advice,
            saving_ns=sum(_could_hide(device) for device in bad),
            part="exposed_communication",
        )


def _row(share: DeviceShare) -> CommunicationDevice:
    return CommunicationDevice.of(
        share.device,
        exposed_ns=share.ns,
        exposed_percent=share.percent,
        issue=share.issue,
    )


def _could_hide(device: DeviceTime) -> int:
    hidden = device.communication_ns - device.exposed_communication_ns
    return min(device.exposed_communication_ns, device.computation_ns - hidden)


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


def _advice(run: RunData, collectives: Sequence[CollectiveKernel], devices: Sequence[DeviceTime]) -> tuple[str, str]:
    """Return the imperative that heads the finding, and the advice on a change."""
    exposed: dict[str, list[int]] = {}
    for row in collectives:
        kind = next((kind for kind, pattern in _KINDS if pattern.search(row.name)), "collective")
        sums = exposed.setdefault(kind, [0, 0, 0])
        for position, number in enumerate((row.exposed_ns, row.time_ns, row.count)):
            sums[position] += number
    kind, (part, time, count) = max(exposed.items(), key=lambda item: item[1][0])
    too_much = sum(d.communication_ns for d in devices) > _BACKWARD_SHARE * sum(d.computation_ns for d in devices)
    title, change = _change(run.store, kind, time / count, too_much=too_much)
    total = sum(sums[0] for sums in exposed.values())
    communication = sum(device.communication_ns for device in devices)
    hidden = communication - sum(device.exposed_communication_ns for device in devices)
    overlap = 100 * hidden / communication if communication else 0.0
    why = (
        f"{_what(kind, count)} of {duration(time / count)} on average make up {whole_percent(100 * part / total if total else 0.0)} of"
        f" what is exposed, and computation hides {percent(overlap)} of the communication"
    )
    slow = _slow_rank(run.breakdown)
    return title, f"{f'{slow} ' if slow else ''}{change}, because {why}."


def _what(kind: str, count: int) -> str:
    if kind == "send and receive":
        return plural(count, "send-and-receive kernel")
    return plural(count, kind) if not kind.endswith("all") else plural(count, f"{kind} exchange")


def _change(store: Store, kind: str, mean_ns: float, *, too_much: bool) -> tuple[str, str]:
    """Return title and imperative for the most exposed collective and its launcher."""
    if kind == "send and receive" and _named(store, "%all_to_all%", "%alltoall%"):
        kind = "all-to-all"
    if words := OVERLAPPED.get(framework_of(store) or ""):
        return f"Overlap {'collectives' if kind == 'collective' else kind} with computation", words
    if kind in ("all-gather", "reduce-scatter"):
        return f"Prefetch so that {kind} overlaps computation", (
            "Prefetch the shards of the next layer with `FullyShardedDataParallel(..., forward_prefetch=True,"
            " backward_prefetch=BackwardPrefetch.BACKWARD_PRE, limit_all_gathers=True)`, or shard only inside a node"
            " (`ShardingStrategy.HYBRID_SHARD`)"
        )
    if kind == "all-to-all" and _named(store, *_SPARSE_PIPELINE):
        return "Shorten the all-to-all exchange that stays exposed", (
            "Exchange fewer bytes (`QCommsConfig` of TorchRec with BF16), divide the embedding tables more evenly over the ranks, and wait"
            " for an exchange only where its result is needed; the next batch is exchanged ahead already (the trace has the ranges of"
            " TorchRec's pipeline for sparse data)"
        )
    if kind == "all-to-all":
        return "Overlap the all-to-all exchange with computation", (
            "Start the exchange with `all_to_all_single(..., async_op=True)` and wait for it only where its result is needed; for sharded"
            " embeddings exchange the next batch during this one's dense layers (`TrainPipelineSparseDist` of TorchRec)"
        )
    if kind == "send and receive":
        return "Overlap send and receive with computation", (
            "Launch sends and receives together with `batch_isend_irecv`, and give a pipeline more micro-batches or an interleaved schedule"
        )
    if kind == "all-reduce" and (_named(store, "DistributedDataParallel%") or _in_backward(store)):
        return _data_parallel(mean_ns, too_much=too_much)
    if kind == "all-reduce":
        return "Overlap all-reduce with computation", (
            "Start the all-reduce with `all_reduce(..., async_op=True)` and wait for it only where its result is needed; with tensor"
            " parallelism add sequence parallelism (`SequenceParallel`), which divides it into parts that overlap with the layers"
        )
    return f"Overlap {'broadcasts' if kind == 'broadcast' else 'collectives'} with computation", (
        "Start collectives with `async_op=True` and wait for them only where their result is needed"
    )


def _data_parallel(mean_ns: float, *, too_much: bool) -> tuple[str, str]:
    if mean_ns < _SHORT_NS:
        return "Reduce gradients in larger buckets", (
            "Reduce gradients in larger pieces with `DistributedDataParallel(..., bucket_cap_mb=100, gradient_as_bucket_view=True)`"
            " (default 25), since so short a reduction is mostly latency"
        )
    if too_much:
        return "Reduce fewer bytes per step", (
            "Reduce fewer bytes with `model.register_comm_hook(None, bf16_compress_hook)`, or less often with gradient accumulation under"
            " `model.no_sync()`, and check with `NCCL_DEBUG=INFO` and `nvidia-smi topo -m` that NCCL uses NVLink and InfiniBand"
        )
    if mean_ns > _LONG_NS:
        return "Overlap all-reduce with backward", (
            "Let the reduction begin earlier in the backward pass with smaller buckets, `DistributedDataParallel(..., bucket_cap_mb=10,"
            " gradient_as_bucket_view=True, static_graph=True)` (default 25), and halve the bytes with `bf16_compress_hook`"
        )
    return "Overlap all-reduce with backward", (
        "Let the reduction overlap the backward pass with `DistributedDataParallel(..., static_graph=True, gradient_as_bucket_view=True)`"
        " and without `find_unused_parameters`, and compare `bucket_cap_mb=10` with the default of 25"
    )


def _named(store: Store, *patterns: str) -> bool:
    condition = " OR ".join("text ILIKE ?" for _ in patterns)
    exists: bool = store.frame(f"SELECT EXISTS (FROM name WHERE {condition}) AS found", patterns).item()
    return exists


def _in_backward(store: Store) -> bool:
    """Return whether threads with backward operators launch most collectives."""
    share = store.frame("""
        WITH backward AS (
            SELECT DISTINCT h.process, h.tid FROM host_event AS h JOIN name AS n ON n.id = h.name
            WHERE h.kind = 'operator' AND n.text LIKE '%Backward%'
        ), collective AS (
            SELECT DISTINCT process, correlation FROM device_run WHERE communication AND correlation IS NOT NULL
        )
        SELECT avg((b.tid IS NOT NULL)::INTEGER) FROM host_event AS h
        JOIN collective AS c ON c.process = h.process AND c.correlation = h.correlation
        LEFT JOIN backward AS b ON b.process = h.process AND b.tid = h.tid
        WHERE h.kind = 'launch'
    """).item()
    return share is not None and share >= _GRADIENTS_SHARE


def _slow_rank(breakdown: Sequence[DeviceTime]) -> str | None:
    """Write a sentence on the rank that the others wait for, or return None.

    Of at least three ranks, one computes more than 5 % longer than the median, and is in collectives less than the median of the others,
    by at least half of that time."""
    ranks = [device for device in breakdown if device.rank is not None and device.communication_ns]
    if len(ranks) < 3:
        return None
    typical = statistics.median(device.computation_ns for device in ranks)
    slow = max(ranks, key=lambda device: device.computation_ns)
    excess = slow.computation_ns - typical
    waited = statistics.median(device.communication_ns for device in ranks if device is not slow) - slow.communication_ns
    if not above(excess, typical, _SLOW_PERCENT) or waited * 2 < excess:
        return None
    return (
        f"Look at {place_of(slow)} first: it computes longest and spends {duration(waited)} less in collectives than the others, which wait"
        " for it there."
    )
