"""Shares of snapshots in which a GPU was low while a core of its machine was at its limit, or waited for I/O.

In a run that proves to have no GPU the processors compute: the mean of a node's cores replaces its lowest GPU.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import polars as pl

from ...report.detail_rows import Active
from ...report.sample_details import BottleneckDetails, BottleneckNode, Snapshots
from ...toolkit.places import in_order
from ...toolkit.wording import capitalized, count, duration, percent, plural, threshold_text
from ..evidence.active_during import active_during
from ..evidence.base import Cost, Outcome, Parameter, Parameters, SampleRule, concluded, not_evaluated, required
from ..evidence.blocks import SNAPSHOTS, SampleBlock, window_ns
from ..evidence.frameworks import BUSY_CORES, MANY_READERS
from ..evidence.gpus import NO_CPU, NO_GPU, RECORD, RECORD_LONGER, capped, gpu_time, machines, per_gpu, record, too_few
from ..evidence.loading import WORTH_ADVICE_PERCENT
from ..evidence.run_data import RunData

_UNUSED: Final = "every GPU is at 0% for the whole run"
_LOW_CORES: Final = 50.0
"""Percent: a snapshot of a machine without GPUs is low when the mean of its cores is below this, so that half of them could do more."""
_SUMMED: Final = ("snapshots", "low", "bottlenecks", "windows", "windows_exceeded")


class Bottleneck(SampleRule):
    """Snapshots in which the lowest used GPU of a node is low while a core is at its limit (docs/rules.md).

    ``waited_snapshots``, times the interval, is the cost: in data parallel training all used GPUs wait for the lowest. Subclasses set
    the core's column of the snapshots, the parameter of its limit, and the words."""

    category = "system"
    core: ClassVar[str]
    figure: ClassVar[str]
    limit: ClassVar[str]
    absent: ClassVar[str]
    title: ClassVar[str]
    core_state: ClassVar[str]
    core_condition: ClassVar[str]

    def observe(self, block: SampleBlock, parameters: Parameters) -> dict[str, pl.DataFrame]:
        """Return rows per node, per evaluated window, and per stretch of bottlenecks."""
        limit, share = parameters[self.limit], parameters["threshold"]
        low = pl.col("gpu_min") < (parameters["gpu_threshold"] if block.device == "gpu" else _LOW_CORES)
        window = (pl.col("snapshot_ns") - block.origin_ns) // window_ns(parameters["scan_interval_us"])
        rows = block.snapshots() if len(block.columns(self.figure)) else pl.DataFrame(schema=SNAPSHOTS)
        rows = rows.filter(pl.col(self.core).is_not_null())
        rows = rows.with_columns(low=low, bottleneck=low & (pl.col(self.core) > limit))
        counted = rows.group_by("node").agg(
            snapshots=pl.len().cast(pl.Int64),
            low=pl.col("low").sum().cast(pl.Int64),
            bottlenecks=pl.col("bottleneck").sum().cast(pl.Int64),
            missing=(100 - pl.col("gpu_min")).filter("bottleneck").sum() / 100,
        )
        next_window = (pl.col("node") != pl.col("node").shift()) | (window != window.shift())
        in_windows = (
            rows.with_columns(number=next_window.fill_null(True).cum_sum().set_sorted())
            .group_by("number", maintain_order=True)
            .agg(
                pl.col("node").first(),
                window=window.first(),
                exceeded=_exceeded(pl.col("bottleneck").sum(), pl.len(), share),
                last_ns=pl.col("snapshot_ns").last(),
            )
            .drop("number")
        )
        judged = counted.filter(pl.col("snapshots") > parameters["patience"]).select("node")
        in_windows = in_windows.join(judged, on="node", how="semi")
        exceeded, last = pl.col("exceeded"), pl.col("last_ns").filter("exceeded")
        of_node = in_windows.group_by("node").agg(
            windows=pl.len().cast(pl.Int64), windows_exceeded=exceeded.sum().cast(pl.Int64), first_ns=last.min(), last_ns=last.max()
        )
        unused = (pl.col("max") <= 0) & (block.device == "gpu")
        gpus = block.boxes(block.device).sort("node", "unit").group_by("node", maintain_order=True)
        nodes = gpus.agg(
            used=(~unused).sum().cast(pl.Int64),
            unused=pl.col("unit").filter(unused),
            gpu_samples=pl.col("samples").sum().cast(pl.Int64),
            derived=(pl.col("source") == "derived").any(),
        )
        return {
            "nodes": nodes.join(counted, on="node", how="left").join(of_node, on="node", how="left"),
            "windows": in_windows.group_by("window").agg(exceeded.any()),
            "stretches": _stretches(rows, judged),
        }

    def conclude(self, observed: Sequence[Any], run: RunData, parameters: Parameters) -> Outcome:
        alone = run.samples.without_gpu
        if not alone and not run.samples.has("gpu"):
            return not_evaluated(NO_GPU, record(run, NO_GPU))
        if not run.samples.has(self.figure):
            return not_evaluated(self.absent, record(run, self.absent))
        if alone and self.figure == "core" and all((node.cores or 2) == 1 for node in run.nodes):
            return not_evaluated("one core, whose utilization is the mean of the cores")
        interval = run.samples.interval_ns or 0
        rows = [row for part in observed for row in part["nodes"].iter_rows(named=True)]
        measured = sorted((_measured(row, run, parameters) for row in rows), key=lambda part: in_order(part.row.node))
        nodes = [part.row for part in measured]
        judged = [row for row in nodes if row.issue is not None]
        total = Snapshots(**_slices({key: sum(getattr(row, key) for row in judged) for key in _SUMMED}))
        issues = [row for row in judged if row.issue]
        listed, left_out = capped(nodes, lambda row: row.issue)
        details = BottleneckDetails(
            total=total, nodes=listed, left_out=left_out, bottleneck_ns=total.bottlenecks * interval, without_gpu=alone or None
        )
        if not judged:
            return not_evaluated(*self._nothing(nodes, run, parameters), details=details)
        if total.bottlenecks:
            stretches = pl.concat([part["stretches"] for part in observed])
            active = active_during(run.store, stretches.select("node", "start", end=pl.col("last") + interval), run.top)
            details = dataclasses.replace(details, active=active)
        windows = pl.concat([part["windows"] for part in observed]).group_by("window").agg(pl.col("exceeded").any())
        skipped = len(nodes) - len(judged)
        return concluded(
            issues,
            total.snapshots,
            [(row.first_ns, row.last_ns) for row in judged],
            triggered=total.windows_exceeded,
            violations=total.bottlenecks,
            windows=len(windows),
            windows_triggered=int(windows["exceeded"].sum()),
            details=details,
            finding=self._finding(issues, judged, parameters, alone)
            + (f"; {plural(skipped, 'machine')} could not be evaluated" if skipped else "")
            + ".",
            recommendation=self.recommendation(max(issues, key=_share), run, details.active) if issues else None,
            cost=self._cost(measured, interval, run) if issues else None,
            checks=f"Finds nodes on which most cores are often idle while {self.core_state}." if alone else None,
            condition=f"the mean of the cores is below 50% while {self.core_condition}" if alone else None,
        )

    @abstractmethod
    def recommendation(self, worst: BottleneckNode, run: RunData, active: Active) -> str:
        """Advise on the node with the highest share of bottleneck snapshots."""

    @abstractmethod
    def state(self, parameters: Parameters) -> str:
        """Describe a core in a bottleneck snapshot: "a core was above 90%"."""

    def _state(self, parameters: Parameters, alone: bool) -> str:
        """Describe a bottleneck snapshot, with its thresholds."""
        if alone:
            return f"{capitalized(self.state(parameters))} while the mean of the cores was below {threshold_text(_LOW_CORES)}"
        return f"A GPU was below {threshold_text(parameters['gpu_threshold'])} while {self.state(parameters)}"

    def _nothing(self, nodes: Sequence[BottleneckNode], run: RunData, parameters: Parameters) -> tuple[str, str | None]:
        """Return why no node was evaluated, and which capture would help."""
        if not nodes:
            return NO_GPU, record(run, NO_GPU)
        most = max(nodes, key=lambda row: int(row.snapshots))
        if not any(row.used_gpus for row in nodes):
            return _UNUSED, None
        if not most.snapshots:
            return "no machine has samples of its GPUs and of its processor at the same times", RECORD
        reason = too_few(
            self.name, most.snapshots, parameters["patience"], run, parameter="patience", derived=most.derived, what="snapshots"
        )
        return reason, RECORD_LONGER

    def _finding(self, issues: Sequence[BottleneckNode], judged: Sequence[BottleneckNode], parameters: Parameters, alone: bool) -> str:
        worst = max(issues or judged, key=_share)
        most = more = ""
        if issues and len(judged) > 1:
            more = f"; {count(len(issues))} of {plural(len(judged), 'machine')} {'is' if len(issues) == 1 else 'are'} over it"
        elif not issues:
            most = f", the highest share of {plural(len(judged), 'machine')}" if len(judged) > 1 else ""
            if over := sum(row.windows_exceeded for row in judged):
                windows = plural(sum(row.windows for row in judged), "single window")
                more = f"; {count(over)} of {windows} are over it, the whole run is not"
        derived = ", GPU utilization derived from kernel activity" if any(row.derived for row in issues or judged) else ""
        return (
            f"{self._state(parameters, alone)} in {percent(_share(worst))} of {plural(worst.snapshots, 'snapshot')} of {worst.node}{most}"
            f" (threshold {threshold_text(parameters['threshold'])}){more}{derived}"
        )

    def _cost(self, measured: Sequence[_Measured], interval: int, run: RunData) -> Cost:
        issues = [part for part in measured if part.row.issue]
        ns = round(sum(part.waited_snapshots for part in issues) * interval)
        return Cost(
            title=self.title,
            ns=ns,
            of_ns=sum(part.gpu_samples for part in measured) * interval,
            saving_ns=ns,
            where=None if len(issues) == len(measured) > 1 else machines([part.row.node for part in issues]),
            base="sampled time of the nodes" if run.samples.without_gpu else gpu_time(part.row for part in measured),
        )


def _exceeded(bottlenecks: Any, snapshots: Any, share: float) -> Any:
    """Return whether bottlenecks / snapshots x 100 > share, without rounding."""
    return bottlenecks * 100 > snapshots * share


def _stretches(rows: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """Join bottleneck snapshots up to 1.5 intervals apart: node, start, last."""
    if not rows["bottleneck"].any():
        return pl.DataFrame(schema={"node": pl.Int32, "start": pl.Int64, "last": pl.Int64})
    rows = rows.join(judged, on="node", how="semi", maintain_order="left")
    apart = pl.when(pl.col("node") == pl.col("node").shift()).then(pl.col("snapshot_ns").diff())
    usual = rows.select(apart.median()).item() or 0
    new = apart.is_null() | (apart > 1.5 * usual) | ~pl.col("bottleneck").shift(1, fill_value=False)
    return (
        rows.with_columns(stretch=new.cum_sum())
        .filter("bottleneck")
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("node").first(), start=pl.col("snapshot_ns").first(), last=pl.col("snapshot_ns").last())
        .drop("stretch")
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """``waited_snapshots``: bottleneck snapshots x used GPUs x what is missing of the lowest of them to 100%."""

    row: BottleneckNode
    gpu_samples: int
    waited_snapshots: float


def _measured(row: Mapping[str, Any], run: RunData, parameters: Parameters) -> _Measured:
    counts = {key: row[key] or 0 for key in _SUMMED}
    judged = counts["snapshots"] > parameters["patience"]
    node = BottleneckNode.of(
        row,
        node=run.places.node(row["node"]),
        **_slices(counts),
        issue=bool(_exceeded(counts["bottlenecks"], counts["snapshots"], parameters["threshold"])) if judged else None,
        used_gpus=row["used"],
        unused=tuple(row["unused"]),
    )
    return _Measured(node, row["gpu_samples"], (row["missing"] or 0.0) * row["used"])


def _slices(counts: Mapping[str, int]) -> dict[str, Any]:
    """Add the slices that sum to 100%: GPU above, low otherwise, low with bottleneck."""
    snapshots, low, bottlenecks = counts["snapshots"], counts["low"], counts["bottlenecks"]
    return {
        **counts,
        "above_percent": _part(snapshots - low, snapshots),
        "other_percent": _part(low - bottlenecks, snapshots),
        "bottleneck_percent": _part(bottlenecks, snapshots),
        "of_low_percent": _part(bottlenecks, low),
    }


def _part(count: int, total: int) -> float | None:
    return 100 * count / total if total else None


def _share(row: BottleneckNode) -> float:
    return row.bottleneck_percent or 0.0


def _workers(node: str, run: RunData) -> str:
    """Name the setting for loader processes: one per core of a GPU, if known."""
    number = per_gpu(run, node)
    return f"`num_workers={number}`" if number else "a higher `num_workers`"


def _if_loading(run: RunData, *, what: str, load: str) -> str:
    """Advise on loading if the run shows that it waits for data."""
    if run.loading_percent is None:
        return f"{what}, and if it is data loading, {load}"
    if run.loading_percent < WORTH_ADVICE_PERCENT:
        return f"{what}, which is not data loading (waits for data take {percent(run.loading_percent)} of the steps)"
    return capitalized(load)


def _longest(active: Active) -> str:
    """End a recommendation with the longest activity during the bottleneck."""
    for rows, word in ((active.operators, "operator"), (active.annotations, "annotated range")):
        if rows:
            return f"; during the bottleneck the longest active {word} was {rows[0].name} ({duration(rows[0].time_ns)})"
    return ""


def _parameters(gpu_threshold: tuple[int, int], limit: Parameter, patience: int) -> tuple[Parameter, ...]:
    """Return the parameters; documented default of ``patience``, both of the GPU's."""
    return (
        Parameter("threshold", "%", 50, 50, "percentile", "share of a node's snapshots that may be bottlenecks"),
        Parameter("gpu_threshold", "%", *gpu_threshold, "percentile", "a snapshot is low if a used GPU is below this"),
        limit,
        Parameter(
            "patience",
            "samples",
            patience,
            1000,
            "positive",
            "a node is evaluated, over the whole run, if it has more snapshots than this",
            seconds=True,
        ),
    )


class CPUBottleneck(Bottleneck):
    """Low GPU while a core of the machine is above ``cpu_threshold``."""

    name = "CPUBottleneck"
    parameters = _parameters(
        (10, 10), Parameter("cpu_threshold", "%", 90, 90, "percentile", "a low snapshot is a bottleneck if a core is above this"), 100
    )
    needs = "Samples of GPU utilization and of every core's utilization. Kernel activity can replace the samples of GPU utilization."
    checks = "Finds nodes on which a GPU is often hardly used while a core is at its limit."
    condition = (
        "in more than `threshold` of a node's snapshots, a GPU is below `gpu_threshold` while a core is above `cpu_threshold`; the"
        " number of snapshots is above `patience`"
    )
    advice = "Take work off the cores that feed the GPUs, or give them more cores."

    core = "core_max"
    figure = "core"
    figures = ("core",)
    limit = "cpu_threshold"
    absent = NO_CPU
    title = "Take work off the processor"
    core_state = "a core is at its limit"
    core_condition = "a core is above `cpu_threshold`, in more than `threshold` of a node's snapshots"

    def state(self, parameters: Parameters) -> str:
        return f"a core was above {threshold_text(parameters['cpu_threshold'])}"

    def recommendation(self, worst: BottleneckNode, run: RunData, active: Active) -> str:
        if run.samples.without_gpu:
            return (
                "Let more cores share the work of the busy one: use more threads in the operators, load data in other processes, or"
                f" vectorize Python loops. On {worst.node} {percent(required(worst.of_low_percent))} of the snapshots with a mean of the"
                f" cores below 50% have a core at its limit{_longest(active)}."
            )
        knobs = BUSY_CORES.of(run.program).format(workers=_workers(worst.node, run))
        advice = _if_loading(
            run,
            what="Find what keeps the core busy",
            load=f"set {knobs}, do augmentation on the GPU or before training, or take an instance with more cores per GPU",
        )
        return (
            f"{advice}: on {worst.node} {percent(required(worst.of_low_percent))} of the snapshots with a low GPU have a core at its"
            f" limit{_longest(active)}."
        )


class IOBottleneck(Bottleneck):
    """Low GPU while a core of the machine waits for I/O more than ``io_threshold`` of the time."""

    name = "IOBottleneck"
    parameters = _parameters(
        (70, 10),
        Parameter("io_threshold", "%", 50, 50, "percentile", "a low snapshot is a bottleneck if the I/O wait of a core is above this"),
        1000,
    )
    needs = "Samples of GPU utilization and of every core's I/O wait. Kernel activity can replace the samples of GPU utilization."
    checks = "Finds nodes on which a GPU is often hardly used while a core waits for I/O."
    condition = (
        "in more than `threshold` of a node's snapshots, a GPU is below `gpu_threshold` while a core's I/O wait is above"
        " `io_threshold`; the number of snapshots is above `patience`"
    )
    advice = "Read ahead in more processes, or keep the data on faster storage."

    core = "iowait_max"
    figure = "core_iowait"
    figures = ("core_iowait",)
    limit = "io_threshold"
    absent = "no I/O wait samples in this run"
    title = "Shorten the waits for I/O"
    core_state = "a core waits for I/O"
    core_condition = "a core's I/O wait is above `io_threshold`, in more than `threshold` of a node's snapshots"

    def state(self, parameters: Parameters) -> str:
        return f"a core waited for I/O more than {threshold_text(parameters['io_threshold'])} of the time"

    def recommendation(self, worst: BottleneckNode, run: RunData, active: Active) -> str:
        readers = MANY_READERS.of(run.program).format(workers=_workers(worst.node, run))
        low = "a mean of the cores below 50%" if run.samples.without_gpu else "a low GPU"
        advice = _if_loading(
            run, what="Find what reads or writes", load=f"read ahead with {readers}, and keep the data on a local disk in few large files"
        )
        return (
            f"{advice}: on {worst.node}"
            f" {percent(required(worst.of_low_percent))} of the snapshots with {low} have a core waiting for I/O{_longest(active)}."
        )
