"""LoadBalancing: histograms of GPU utilization, compared by their Jensen-Shannon distance."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ...machine.series import MetricSeries
from ...machine.utilization import LABEL
from ...report.causes import Program
from ...report.detail_rows import Gpu
from ...report.sample_details import ComparedGpu, GpuPair, LoadBalancingDetails
from ...toolkit.labels import ranks
from ...toolkit.places import in_order
from ...toolkit.wording import count, distinct, duration, percent, plural
from ..evidence.base import Cost, Outcome, Parameter, Parameters, SampleRule, concluded, not_evaluated
from ..evidence.blocks import SampleBlock
from ..evidence.common_time import CommonTime
from ..evidence.frameworks import EQUAL_BATCHES, EQUAL_SHARES, EVERY_GPU
from ..evidence.gpus import NO_GPU, RECORD_LONGER, gpu, gpu_time, gpu_time_ns, record, too_few
from ..evidence.run_data import RunData
from ..evidence.sample_bounds import samples_for_distance
from ..evidence.utilization_bins import BINS, bin_counts

MOST_COMPARED: Final = 64  # More GPUs than these are each compared with the mean of all, and not with each other

_SIMILAR: Final = 10.0
_CAPTURE: Final = (
    "Record the job with `postrun record`, or system metrics with the hosted profiler, or profile with torch.profiler on CUDA activity."
)
_UNLIKE: Final = f"no two GPUs whose utilization was found in the same way: of one it was sampled, of the other {LABEL}"
_STAGES: Final = "each GPU is of another pipeline stage, whose work differs by design"
_AT_ONCE: Final = "Record all nodes for the same time; Data quality shows whether files of several runs were combined."


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two GPUs, or one GPU and the mean of all (``b`` is None)."""

    a: ComparedGpu
    b: ComparedGpu | None
    distance: float
    mean_difference: float
    violation: bool


class LoadBalancing(SampleRule):
    """Jensen-Shannon distance between the utilization histograms of GPUs.

    A GPU needs so many samples that equal loads rarely differ by more than the threshold, whatever ``patience`` is (docs/rules.md).
    A sampled GPU is not compared with a derived one: their histograms differ under the same load, because their windows differ."""

    name = "LoadBalancing"
    category = "system"
    parameters = (
        Parameter("threshold", "distance 0..1", 0.5, 0.24, "percentile", "largest distance that the histograms of two GPUs may have"),
        Parameter("patience", "samples", 10, 1000, "positive", "a GPU is evaluated if it has more samples than this", seconds=True),
    )
    needs = "Samples of the utilization of at least two GPUs, or kernel activity, which can replace them."
    checks = (
        "Compares the histograms of GPU utilization (50 bins of 2%) of every two GPUs of the run. With more than 64 GPUs, compares each"
        " with the mean of all."
    )
    condition = (
        "the Jensen-Shannon distance (logarithm base 2) of the histograms of two GPUs is above `threshold`; both GPUs have more than"
        " `patience` samples"
    )
    advice = "Divide the work evenly over the GPUs."

    def observe(self, block: SampleBlock, parameters: Parameters) -> pl.DataFrame:
        """Return a row per GPU with its number of samples per bin.

        Columns: node, unit, source, samples, mean, first_ns, last_ns, counts."""
        series = _together(block)
        table, begin, end = series.table, series.begin, series.end
        return table.select(
            "node", "unit", pl.col("source").cast(pl.String), pl.col("samples").cast(pl.UInt32),
            mean=series.mean,
            first_ns=series.time_ns.gather(begin),
            last_ns=series.time_ns.gather(end - 1),
            counts=bin_counts(series),
        )  # fmt: skip

    def conclude(self, observed: Sequence[pl.DataFrame], run: RunData, parameters: Parameters) -> Outcome:
        threshold, patience = parameters["threshold"], parameters["patience"]
        known = ranks(run.breakdown)
        rows = pl.concat(observed).rows(named=True) if observed else []
        devices = sorted((_device(row, run, known, patience) for row in rows), key=lambda device: (in_order(device.node), device.device))
        times = {(run.places.node(row["node"]), row["unit"]): (row["first_ns"], row["last_ns"]) for row in rows}
        together = run.samples.gpus_together
        if together is not None and together.none:
            return not_evaluated("no time at which all GPUs were recorded", _AT_ONCE)
        if not devices:
            return not_evaluated(NO_GPU, record(run, NO_GPU) if run.samples.metrics else _CAPTURE)
        if len(devices) == 1:
            return not_evaluated("one GPU in this run, nothing to compare it with", datapoints=devices[0].samples)
        in_pairs = len(devices) <= MOST_COMPARED
        enough = _enough([device for device in devices if device.evaluated], threshold, in_pairs)
        devices = [dataclasses.replace(device, evaluated=device.evaluated and device.samples >= enough) for device in devices]
        evaluated = [device for device in devices if device.evaluated]
        if len(evaluated) < 2:
            return not_evaluated(_too_few(devices, run, patience, enough), RECORD_LONGER, details=_details(devices, [], in_pairs))
        stages = _stages(run)
        pairs = _pairs(evaluated, threshold, stages) if in_pairs else _with_mean(evaluated, threshold, stages)
        if not pairs:
            different = len({device.derived for device in evaluated}) > 1
            return not_evaluated(
                _UNLIKE if different else _STAGES, _AT_ONCE if different else None, details=_details(devices, [], in_pairs)
            )
        pairs.sort(key=lambda pair: (-pair.distance, -abs(pair.mean_difference)))
        violating = [pair for pair in pairs if pair.violation]
        concerned = [device for pair in violating for device in (pair.a, pair.b) if device is not None]
        return concluded(
            violating,
            sum(device.samples for device in evaluated),
            [times[device.node, device.device] for device in concerned],
            details=_details(devices, pairs, in_pairs),
            finding=_finding(evaluated, pairs, violating, threshold, _when(together, run)),
            recommendation=_recommendation(evaluated, violating, run.program) if violating else None,
            cost=_cost(evaluated, concerned, in_pairs, run) if violating else None,
        )


def _together(block: SampleBlock) -> MetricSeries:
    """Return the GPU samples of the time in which all nodes were recorded.

    A node that was recorded earlier saw the start of the job, which is not an imbalance. Nodes that were recorded for too little of the
    time are left out."""
    series = block.columns("gpu")
    if (together := block.gpus_together) is None:
        return series
    left_out = series.by_row("node").is_in(list(together.left_out))
    return series.rows(series.time_ns.is_between(together.first_ns, together.last_ns) & ~left_out)


def _when(together: CommonTime | None, run: RunData) -> str:
    """Describe the time of the comparison if it is not the complete time."""
    if together is None:
        return ""
    names = sorted((run.places.node(node) for node in together.left_out), key=in_order)
    but = f" but {names[0] if len(names) == 1 else plural(len(names), 'node')}" if names else ""
    return f" in the {duration(together.last_ns - together.first_ns)} in which all{but} were recorded,"


def distance(p: Sequence[float], q: Sequence[float]) -> float:
    """Return the Jensen-Shannon distance (base 2) of two distributions: 0 to 1."""
    terms = []
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        if a > 0:
            terms.append(a * math.log2(a / middle))
        if b > 0:
            terms.append(b * math.log2(b / middle))
    return math.sqrt(min(max(math.fsum(terms) / 2, 0.0), 1.0))


def _device(row: dict[str, Any], run: RunData, known: Mapping[tuple[str, int], int], patience: float) -> ComparedGpu:
    node = run.places.node(row["node"])
    return ComparedGpu.of(
        row,
        node=node,
        device=row["unit"],
        rank=known.get((node, row["unit"])),
        derived=row["source"] == "derived",
        histogram=tuple(n / row["samples"] for n in row["counts"]),
        evaluated=row["samples"] > patience,
    )


def _stages(run: RunData) -> dict[tuple[str, int], int]:
    """Return the pipeline stage of each rank (host name, rank) that has one.

    Stages differ in their work by design; StageImbalance compares them."""
    if not run.peers.pipeline:
        return {}
    places = ((run.places.process(process), stage) for process, stage in run.peers.roles.items())
    return {(place.node, place.rank): stage for place, stage in places if place.rank is not None}


def _kind(device: ComparedGpu, stages: Mapping[tuple[str, int], int]) -> tuple[bool, int | None]:
    """Return what two GPUs must share to be compared."""
    return device.derived, None if device.rank is None else stages.get((device.node, device.rank))


def _pairs(evaluated: Sequence[ComparedGpu], threshold: float, stages: Mapping[tuple[str, int], int]) -> list[_Pair]:
    alike = ((a, b) for a, b in itertools.combinations(evaluated, 2) if _kind(a, stages) == _kind(b, stages))
    return [_pair(a, b, b.histogram, b.mean, threshold) for a, b in alike]


def _pair(a: ComparedGpu, b: ComparedGpu | None, histogram: Sequence[float], mean: float, threshold: float) -> _Pair:
    apart = distance(a.histogram, histogram)
    return _Pair(a, b, apart, a.mean - mean, apart > threshold)


def _with_mean(evaluated: Sequence[ComparedGpu], threshold: float, stages: Mapping[tuple[str, int], int]) -> list[_Pair]:
    kinds: dict[tuple[bool, int | None], list[ComparedGpu]] = {}
    for device in evaluated:
        kinds.setdefault(_kind(device, stages), []).append(device)
    compared = []
    for alike in kinds.values():
        if len(alike) < 2:
            continue
        shares = [math.fsum(column) / len(alike) for column in zip(*(device.histogram for device in alike), strict=True)]
        mean = math.fsum(device.mean for device in alike) / len(alike)
        compared += [_pair(device, None, shares, mean, threshold) for device in alike]
    return compared


def _details(devices: Sequence[ComparedGpu], pairs: Sequence[_Pair], in_pairs: bool) -> LoadBalancingDetails:
    """Return at most 64 devices and the 64 furthest pairs, and how many are left out."""
    listed = list(devices)
    if not in_pairs:
        furthest = [pair.a for pair in pairs[:MOST_COMPARED]]
        rest = [device for device in devices if not device.evaluated]
        listed = sorted((furthest + rest)[:MOST_COMPARED], key=lambda device: (in_order(device.node), device.device))
    return LoadBalancingDetails(
        compared="pairs" if in_pairs else "mean",
        devices=tuple(listed),
        pairs=tuple(
            GpuPair(_key(pair.a), _key(pair.b) if pair.b else None, pair.distance, pair.mean_difference, pair.violation)
            for pair in pairs[:MOST_COMPARED]
        ),
        left_out=len(devices) - len(listed),
        pairs_left_out=max(len(pairs) - MOST_COMPARED, 0),
        matrix=_matrix(devices, pairs) if in_pairs else None,
    )


def _key(device: ComparedGpu) -> Gpu:
    return Gpu(device.node, device.device)


def _matrix(devices: Sequence[ComparedGpu], pairs: Sequence[_Pair]) -> tuple[tuple[float | None, ...], ...]:
    """Return the distances of all devices; None for those that were not compared."""
    distances = {(id(device), id(device)): 0.0 for device in devices if device.evaluated}
    for pair in pairs:
        distances[id(pair.a), id(pair.b)] = distances[id(pair.b), id(pair.a)] = pair.distance
    return tuple(tuple(distances.get((id(a), id(b))) for b in devices) for a in devices)


def _enough(devices: Sequence[ComparedGpu], threshold: float, in_pairs: bool) -> float:
    """Return the samples from which equal loads rarely exceed the threshold."""
    number = len(devices)
    return samples_for_distance(threshold, BINS, number * (number - 1) // 2 if in_pairs else number)


def _too_few(devices: Sequence[ComparedGpu], run: RunData, patience: float, enough: float) -> str:
    second = sorted((device.samples for device in devices), reverse=True)[1]
    if second > patience:
        if math.isinf(enough):
            return "the threshold is 0, which two samples of the same load always exceed"
        return (
            f"{count(second)} of {count(int(enough))} samples of two GPUs needed: histograms of fewer samples differ by chance, more than"
            " the threshold in 1% of the runs"
        )
    derived = any(device.derived for device in devices)
    return too_few("LoadBalancing", second, patience, run, parameter="patience", derived=derived, what="samples of two GPUs")


def _finding(evaluated: Sequence[ComparedGpu], pairs: Sequence[_Pair], violating: Sequence[_Pair], threshold: float, when: str) -> str:
    furthest = pairs[0]
    derived = (f" ({LABEL})" if furthest.a.derived else "") + when
    if furthest.b is not None:
        compared = (
            f"of {gpu(furthest.a)} (mean {percent(furthest.a.mean)}) and {gpu(furthest.b)} (mean {percent(furthest.b.mean)}) lie"
            f" {distinct(furthest.distance, threshold, 2)} apart"
        )
        number = f"{count(len(violating))} of {plural(len(pairs), 'pair')}"
    else:
        compared = (
            f"of {gpu(furthest.a)} (mean {percent(furthest.a.mean)}) lies {distinct(furthest.distance, threshold, 2)} from the mean of"
            f" {plural(len(pairs), 'GPU')} (mean {percent(furthest.a.mean - furthest.mean_difference)})"
        )
        number = f"{count(len(violating))} of {plural(len(pairs), 'GPU')}"
    what = f"Utilization histograms{derived} {compared}" if furthest.b is not None else f"The utilization histogram{derived} {compared}"
    if violating:
        also = f"; so do {number}" if len(pairs) > 1 else ""
        return f"{what} (Jensen-Shannon distance), above the threshold of {threshold:g}{also}."
    return f"{what} at most (Jensen-Shannon distance), not above the threshold of {threshold:g}."


def _recommendation(evaluated: Sequence[ComparedGpu], violating: Sequence[_Pair], program: Program) -> str:
    concerned = {id(device): device for pair in violating for device in (pair.a, pair.b) if device is not None}
    least = min(concerned.values(), key=lambda device: device.mean)
    busiest = max((device for device in evaluated if device.derived == least.derived), key=lambda device: device.mean)
    idle = [device for device in evaluated if device.mean <= 0]
    if idle:
        machine = max(sum(1 for device in evaluated if device.node == one.node) for one in idle)
        return (
            f"Start one process per GPU ({EVERY_GPU.of(program).format(gpus=machine)}) or ask for fewer GPUs:"
            f" {plural(len(idle), 'GPU')} of {count(len(evaluated))} did nothing, {gpu(idle[0])} among them."
        )
    if busiest.mean - least.mean < _SIMILAR:
        return (
            f"Compare what runs on {gpu(least)} and on {gpu(busiest)}: their means differ by only"
            f" {busiest.mean - least.mean:.1f} percentage points, so the course of the load differs and not its amount; equal batches for"
            f" every rank ({EQUAL_BATCHES.of(program)}) make it alike."
        )
    rank_0 = " and leave work of rank 0 alone (logging, evaluation) out of the step" if least.rank != 0 and busiest.rank == 0 else ""
    return (
        f"Give every GPU the same share of each batch ({EQUAL_SHARES.of(program)}){rank_0}:"
        f" {gpu(least)} is used {percent(least.mean)} of the time and {gpu(busiest)} {percent(busiest.mean)}."
    )


def _cost(evaluated: Sequence[ComparedGpu], concerned: Sequence[ComparedGpu], in_pairs: bool, run: RunData) -> Cost | None:
    """Sum the GPU time by which the GPUs concerned were less busy than the busiest."""
    members = {id(device): device for device in concerned}.values()
    compared = list(members) if in_pairs else evaluated
    busiest = {made: max((device.mean for device in compared if device.derived == made), default=0.0) for made in (False, True)}
    lost = math.fsum((busiest[device.derived] - device.mean) / 100 * gpu_time_ns([device], run) for device in members)
    total = round(gpu_time_ns(evaluated, run))
    if not total:
        return None
    least = min(members, key=lambda device: device.mean)
    return Cost(
        title="Divide the work evenly over the GPUs",
        ns=min(round(max(lost, 0.0)), total),
        of_ns=total,
        where=gpu(least),
        base=gpu_time(evaluated) if run.samples.gpus_together is None else "GPU time while all were recorded",
    )
