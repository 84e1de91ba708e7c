"""UnfusedElementwise: chains of PyTorch's elementwise, normalization and reduction kernels (docs/rules.md).

A compiler fuses such a chain to a kernel, which reads and writes memory once. It takes at least as long as the longest kernel of the chain:
the rest is what fusing can save at most.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...efficiency.largest_site import Site
from ...report.device import DeviceTime
from ...report.rule_details import ChainedDevice, CountedTime, UnfusedElementwiseDetails
from ...toolkit.places import Places, process_conditions
from ...toolkit.wording import count, duration, plural
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.device_share import DeviceShare, above, finding, issues, no_device_activity, outcome
from ..evidence.fusion_advice import FUSED_CHAINS
from ..evidence.run_data import RunData

# Kernels of eager operators that TorchInductor generates code for, also instead of the batch normalization of cuDNN and MIOpen. Those that
# update lists of tensors belong to optimizers.
_FUSIBLE: Final = """
    SELECT id FROM name WHERE category IN ('elementwise', 'reduction', 'memory', 'normalisation', 'softmax')
        AND NOT contains(text, 'multi_tensor_apply')
        AND (contains(text, 'at::native::') OR regexp_matches(text, 'cudnn::(\\w+::)*bn_(fw|bw)|MIOpenBatchNorm'))
"""
_KERNELS: Final = f"""
    SELECT e.node, e.process, e.device, e.stream, e.start_ns AS start, e.name, e.duration_ns AS time,
        e.name IN ({_FUSIBLE}) IS TRUE AS fusible
    FROM device_event AS e WHERE e.kind = 'kernel' AND {{}}
"""
_STREAM: Final = ("node", "process", "device", "stream")
_Device = tuple[str, int | None, int | None, int]
_Figures = tuple[int, int, int, int, int]  # chains, their kernels, time and extra time; time of all kernels that can be fused
_Chains = dict[_Device, _Figures]


class UnfusedElementwise(Rule):
    name = "UnfusedElementwise"
    category = "trace"
    parameters = (Parameter("threshold", "%", 10, 10, "percentile", "share of a device's span that fusing may save"),)
    needs = "A profiler trace with kernels of PyTorch's eager operators."
    checks = "Measures the time that each device would save if chains of elementwise kernels were fused."
    condition = (
        "on any device, chains of elementwise kernels take longer than the longest kernel of each by more than `threshold` of the span"
    )
    advice = "Fuse chains of elementwise operators with `torch.compile`."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        if not run.store.frame(f"SELECT EXISTS (FROM device_event WHERE kind = 'kernel' AND name IN ({_FUSIBLE}))").item():
            return not_evaluated("no elementwise kernels of PyTorch's eager operators in this run")
        chains, kernels = _chains(run.store)
        shares = [_share(device, chains, parameters["threshold"]) for device in run.breakdown]
        bad = [share.device for share in issues(shares)]
        return outcome(
            run,
            shares,
            details=UnfusedElementwiseDetails(tuple(_row(share, chains) for share in shares), kernels[: run.top]),
            finding=finding(
                run, shares, "Chains of elementwise kernels exceed the longest kernel of each chain by", parameters["threshold"]
            ),
            title="Fuse chains of elementwise kernels",
            recommendation=_recommendation(run, [_of(device, chains) for device in bad], kernels) if bad else "",
            saving_ns=sum(share.ns for share in shares if share.issue),
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        assert isinstance(outcome.details, UnfusedElementwiseDetails)
        return run.site_of_work(pl.col("text").is_in([kernel.name for kernel in outcome.details.kernels]))


def _chains(store: Store) -> tuple[_Chains, tuple[CountedTime, ...]]:
    """Return the chains of each device, and the kernels in chains by name.

    Kernels: longest first."""
    places = Places(store)
    by_device, by_name = zip(
        *(_of_processes(store.frame(_KERNELS.format(condition))) for condition in process_conditions(store)), strict=True
    )
    chains: _Chains = {}
    for node, process, device, *figures in pl.concat(by_device).group_by("node", "process", "device").agg(pl.all().sum()).iter_rows():
        location = places.process(process, node)
        chains[location.node, location.rank, location.pid, device] = (figures[0], figures[1], figures[2], figures[3], figures[4])
    rows = pl.concat(by_name)
    texts = dict(store.frame("SELECT id, coalesce(short, text) FROM name").rows())
    named = rows.with_columns(text=pl.col("name").replace_strict(texts, default="", return_dtype=pl.String))
    kernels = named.group_by("text").agg(pl.col("count", "time").sum()).sort("time", "text", descending=[True, False])
    return chains, tuple(CountedTime(*row) for row in kernels.iter_rows())


def _of_processes(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the chains of some processes by device, and their kernels by name."""
    first = pl.any_horizontal(pl.struct(_STREAM).ne_missing(pl.struct(_STREAM).shift(1)), ~pl.col("fusible"))
    ordered = kernels.sort(*_STREAM, "start", "fusible").with_columns(chain=first.cum_sum()).filter("fusible")
    chained = ordered.group_by("chain").agg(
        pl.col("node", "process", "device").first(), count=pl.len(), time=pl.col("time").sum(), longest=pl.col("time").max()
    )
    several, time, longest = pl.col("count") > 1, pl.col("time"), pl.col("longest")
    by_device = chained.group_by("node", "process", "device").agg(
        chains=several.sum().cast(pl.Int64),
        count=pl.col("count").filter(several).sum().cast(pl.Int64),
        total=time.filter(several).sum(),
        extra=(time - longest).sum(),
        every=time.sum(),
    )
    inside = ordered.join(chained.filter(several), on="chain", how="semi")
    return by_device, inside.group_by("name").agg(count=pl.len().cast(pl.Int64), time=pl.col("time").sum())


def _of(device: DeviceTime, chains: _Chains) -> _Figures:
    return chains.get((device.node, device.rank, device.pid, device.device), (0, 0, 0, 0, 0))


def _share(device: DeviceTime, chains: _Chains, threshold: float) -> DeviceShare:
    extra = _of(device, chains)[3]
    return DeviceShare(device, extra, above(extra, device.span_ns, threshold))


def _row(share: DeviceShare, chains: _Chains) -> ChainedDevice:
    number, kernels, time, extra, every = _of(share.device, chains)
    return ChainedDevice.of(
        share.device,
        chains=number,
        kernels=kernels,
        time_ns=time,
        extra_ns=extra,
        extra_percent=share.percent,
        issue=bool(share.issue),
        fusible_ns=every,
    )


def _recommendation(run: RunData, bad: list[_Figures], kernels: tuple[CountedTime, ...]) -> str:
    chains, number, time, extra, every = (sum(figures) for figures in zip(*bad, strict=True))
    named = " and ".join(f"`{kernel.name}`" for kernel in kernels[:2])
    return (
        f"{FUSED_CHAINS.of(run.program)}, because {count(number)} elementwise, normalization and reduction kernels in"
        f" {plural(chains, 'chain')} take {duration(time)} of the {duration(every)} of such kernels,"
        f" and the longest kernels of all chains {duration(time - extra)}. A fused chain takes at least as long as its longest kernel. The"
        f" chains contain mostly {named}."
    )
