"""Tests of a comparison of two real runs on different GPUs: figures against a second, plain computation, and the note that the hardware
differs first."""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator
from postrun.analysis.report.comparison import Comparison
from postrun.ingest import ingest

NAMES = ("v100_rank1_of_2", "a100_rank3_of_8")


class Plain:
    """A trace read with json, loops and dicts; times in nanoseconds."""

    def __init__(self, path: Path) -> None:
        events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
        self.work: list[tuple[int, int, str, str]] = []
        self.kernels: dict[str, list[int]] = defaultdict(list)
        self.copies: dict[str, list[int]] = defaultdict(list)  # those that a step launched
        steps: list[tuple[int, int, int]] = []
        launched: dict[int, int] = {}
        ends: dict[int, list[tuple[int, int]]] = defaultdict(list)
        by_call: dict[int, list[tuple[str, int]]] = defaultdict(list)
        copied_by_call: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for event in events:
            if event.get("ph") != "X":
                continue
            start, end = int(Decimal(event["ts"]) * 1000), int((Decimal(event["ts"]) + Decimal(event.get("dur", 0))) * 1000)
            category, name, args = event.get("cat"), event["name"], event.get("args", {})
            if match := re.fullmatch(r"ProfilerStep#(\d+)", name):
                if category == "user_annotation":
                    steps.append((int(match[1]), start, end))
            elif category in ("cuda_runtime", "cuda_driver") and args.get("correlation"):
                launched[args["correlation"]] = start
            elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
                kind = "communication" if name.startswith("nccl") else category
                self.work.append((start, end, kind, name))
                ends[args.get("correlation")].append((start, end))
                if category == "kernel":
                    self.kernels[name].append(end - start)
                    by_call[args.get("correlation")].append((name, end - start))
                else:
                    copied = re.search(r"HtoD|DtoH|DtoD", name)
                    copied_by_call[args.get("correlation")].append((copied[0] if copied else "Memset", end - start))
        self.steps = len(steps)
        last = []
        for _, start, end in sorted(steps):
            work = [one for call, at in launched.items() if start <= at < end for one in ends.get(call, ())]
            last.append(max(one[1] for one in work))
        self.periods = [after - before for before, after in pairwise(last)]
        self.first, self.last = last[0], last[-1]
        self.kernels_in_steps: dict[str, list[int]] = defaultdict(list)
        # Work without a launch in the trace was launched before the first step.
        for of_call, lengths in ((by_call, self.kernels_in_steps), (copied_by_call, self.copies)):
            for call, runs in of_call.items():
                if call in launched:
                    for name, length in runs:
                        lengths[name].append(length)

    def covered(self, *kinds: str) -> int:
        """Sum the time of the steps in which work of one of the kinds ran."""
        work = [(max(s, self.first), min(e, self.last)) for s, e, k, _ in self.work if k in kinds and e > self.first and s < self.last]
        edges = sorted([(s, 1) for s, _ in work] + [(e, -1) for _, e in work])
        total = depth = since = 0
        for time, change in edges:
            if depth > 0:
                total += time - since
            depth, since = depth + change, time
        return total

    @property
    def parts(self) -> dict[str, float]:
        kernel, overlap, busy = (
            self.covered("kernel"),
            self.covered("kernel", "communication"),
            self.covered("kernel", "communication", "gpu_memcpy", "gpu_memset"),
        )
        # From the end of the first step: the wait before it is not known.
        parts = (kernel, overlap - kernel, busy - overlap, self.last - self.first - busy)
        names = ("computation", "exposed communication", "exposed memory operations", "idle")
        return {name: part / len(self.periods) for name, part in zip(names, parts, strict=True)}


@pytest.fixture(scope="module")
def pair(shared_data: Path) -> tuple[Plain, Plain]:
    base, new = (Plain(shared_data / "kineto" / "diff_pair" / f"{name}.json.gz") for name in NAMES)
    return base, new


@pytest.fixture(scope="module")
def comparison(shared_data: Path) -> Comparison:
    reports = []
    for name in NAMES:
        with ingest([shared_data / "kineto" / "diff_pair" / f"{name}.json.gz"]) as store:
            reports.append(analyze(store, Options(generated_at_ns=0)))
    return compare(reports[0], reports[1], generator=Generator("postrun", "0", 0, {}))


def test_that_the_hardware_differs_is_said_first(comparison: Comparison) -> None:
    first, second, third = comparison.differences[:3]
    assert (first.name, first.base, first.new) == ("GPU model", "Tesla V100-SXM2-16GB", "NVIDIA A100-PG509-200")
    assert first.limits is not None
    assert (second.name, second.base, second.new) == ("world size", "2", "8")
    assert (third.name, third.base, third.new) == ("captured ranks", "rank 1 of 2", "rank 3 of 8")
    assert comparison.headline == (
        "On different GPUs (V100 and A100) and ranks (2 and 8), the new run is 34.2% faster per step (median 117 ms → 76.8 ms), mostly from"
        " computation (-38.5 ms)."
    )
    # Names of kernels follow the GPU, those of operators and modules do not.
    assert not comparison.different_programs


def test_steps(comparison: Comparison, pair: tuple[Plain, Plain]) -> None:
    assert comparison.steps is not None
    medians = [statistics.median(plain.periods) for plain in pair]
    assert (comparison.steps.base.p50, comparison.steps.new.p50) == pytest.approx(medians)
    assert comparison.steps.change_percent == pytest.approx(100 * (medians[1] / medians[0] - 1))
    assert max(pair[1].periods) < min(pair[0].periods)  # so that of all arrangements two are as extreme
    assert comparison.steps.p_value == pytest.approx(2 / math.comb(10, 5))
    assert comparison.steps.likelier == 0
    ratios = [after / before for before in pair[0].periods for after in pair[1].periods]
    assert comparison.steps.shift_percent == pytest.approx(100 * (statistics.median(ratios) - 1))
    assert sum(comparison.steps.base_counts) + comparison.steps.base_beyond == len(pair[0].periods) == comparison.steps.base.count


def test_parts(comparison: Comparison, pair: tuple[Plain, Plain]) -> None:
    assert (comparison.basis.unit, comparison.basis.base, comparison.basis.new) == ("step", 6, 6)
    assert {part.name: part.base_ns for part in comparison.parts} == pytest.approx(pair[0].parts)
    assert {part.name: part.new_ns for part in comparison.parts} == pytest.approx(pair[1].parts)
    assert comparison.whole is not None
    assert comparison.whole.new_ns == pytest.approx(sum(pair[1].parts.values()))


def test_kernels(comparison: Comparison, pair: tuple[Plain, Plain]) -> None:
    """Every kernel of both runs is there once; effects are differences per step."""
    for side, plain in (("base", pair[0]), ("new", pair[1])):
        listed = [name for one in comparison.kernels for name in getattr(one, f"{side}_names")]
        assert sorted(listed) == sorted(plain.kernels)
    for kernel in comparison.kernels:
        before, after = (
            [time for name in names for time in plain.kernels_in_steps[name]]
            for names, plain in ((kernel.base_names, pair[0]), (kernel.new_names, pair[1]))
        )
        assert kernel.effect_ns == pytest.approx(sum(after) / 6 - sum(before) / 6)
        assert (kernel.base_count, kernel.new_count) == pytest.approx((len(before) / 6, len(after) / 6))
        if kernel.matched == "name":
            assert kernel.base_names == kernel.new_names
        elif kernel.matched is None:
            assert not (kernel.base_names and kernel.new_names)
    assert {name for one in comparison.kernels if one.matched == "name" for name in one.base_names} == pair[0].kernels.keys() & pair[
        1
    ].kernels.keys()
    effects = [abs(one.effect_ns) for one in comparison.kernels]
    assert effects == sorted(effects, reverse=True)


def test_a_kernel_that_grew_or_shrank_did_so_beyond_its_spread(comparison: Comparison, pair: tuple[Plain, Plain]) -> None:
    """The comparison must never claim more than the variance of single runs shows."""
    for kernel in comparison.kernels:
        if kernel.state not in ("grown", "shrunk") or abs(kernel.new_count - kernel.base_count) > 0.01 * kernel.base_count:
            continue
        samples = [
            [t for name in names for t in plain.kernels[name]]
            for names, plain in ((kernel.base_names, pair[0]), (kernel.new_names, pair[1]))
        ]
        error = math.sqrt(sum(statistics.pvariance(sample) / len(sample) for sample in samples))
        assert abs(statistics.mean(samples[1]) - statistics.mean(samples[0])) > 2.58 * error, kernel.short_name


def test_copies(comparison: Comparison, pair: tuple[Plain, Plain]) -> None:
    for kind in ("HtoD", "DtoH", "DtoD", "Memset"):
        listed = [one for one in comparison.memory_operations if one.kind == kind]
        assert sum(one.effect_ns for one in listed) == pytest.approx((sum(pair[1].copies[kind]) - sum(pair[0].copies[kind])) / 6)
        assert sum(one.new_count for one in listed) == pytest.approx(len(pair[1].copies[kind]) / 6)


def test_verdicts_side_by_side(comparison: Comparison) -> None:
    outcomes: dict[str, Any] = {one.rule: (one.base, one.new, one.outcome) for one in comparison.rules}
    assert outcomes["LowPrecision"] == ("IssuesFound", "NoIssuesFound", "mended")
    assert outcomes["ExposedCommunication"] == ("NoIssuesFound", "IssuesFound", "broken")
    assert {one.name for one in comparison.changes if one.area == "verdict"} == {
        rule for rule, (_, _, how) in outcomes.items() if how in ("mended", "broken")
    }
