"""Two real runs of related models on different GPUs: are the figures of their comparison those of a second, plain computation, and is it
said first that the hardware differs?"""

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
        self.copies: dict[str, list[int]] = defaultdict(list)
        steps: list[tuple[int, int, int]] = []
        launched: dict[int, int] = {}
        ends: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for event in events:
            if event.get("ph") != "X":
                continue
            start, end = int(Decimal(event["ts"]) * 1000), int((Decimal(event["ts"]) + Decimal(event.get("dur", 0))) * 1000)
            category, name, args = event.get("cat"), event["name"], event.get("args", {})
            if found := re.fullmatch(r"ProfilerStep#(\d+)", name):
                if category == "user_annotation":
                    steps.append((int(found[1]), start, end))
            elif category in ("cuda_runtime", "cuda_driver") and args.get("correlation"):
                launched[args["correlation"]] = start
            elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
                kind = "communication" if name.startswith("nccl") else category
                self.work.append((start, end, kind, name))
                ends[args.get("correlation")].append((start, end))
                if category == "kernel":
                    self.kernels[name].append(end - start)
                else:
                    copied = re.search(r"HtoD|DtoH|DtoD", name)
                    self.copies[copied[0] if copied else "Memset"].append(end - start)
        self.steps = len(steps)
        last = []
        for _, start, end in sorted(steps):
            own = [one for call, at in launched.items() if start <= at < end for one in ends.get(call, ())]
            last.append(max(one[1] for one in own))
        self.periods = [after - before for before, after in pairwise(last)]

    def covered(self, *kinds: str) -> int:
        """Time in which work of one of the kinds ran: a sweep over starts and ends."""
        edges = sorted([(s, 1) for s, _, k, _ in self.work if k in kinds] + [(e, -1) for _, e, k, _ in self.work if k in kinds])
        total = depth = since = 0
        for time, change in edges:
            if depth > 0:
                total += time - since
            depth, since = depth + change, time
        return total

    @property
    def parts(self) -> dict[str, float]:
        kernel, both, busy = (
            self.covered("kernel"),
            self.covered("kernel", "communication"),
            self.covered("kernel", "communication", "gpu_memcpy", "gpu_memset"),
        )
        span = max(end for _, end, _, _ in self.work) - min(start for start, _, _, _ in self.work)
        parts = (kernel, both - kernel, busy - both, span - busy)
        names = ("computation", "exposed communication", "exposed memory operations", "idle")
        return {name: part / self.steps for name, part in zip(names, parts, strict=True)}


@pytest.fixture(scope="module")
def pair(shared_data: Path) -> tuple[Plain, Plain]:
    base, new = (Plain(shared_data / "kineto" / "diff_pair" / f"{name}.json.gz") for name in NAMES)
    return base, new


@pytest.fixture(scope="module")
def made(shared_data: Path) -> Comparison:
    reports = []
    for name in NAMES:
        with ingest([shared_data / "kineto" / "diff_pair" / f"{name}.json.gz"]) as store:
            reports.append(analyze(store, Options(generated_at_ns=0)))
    return compare(reports[0], reports[1], generator=Generator("postrun", "0", 0, {}))


def test_that_the_hardware_differs_is_said_first(made: Comparison) -> None:
    first, second, third = made.differences[:3]
    assert (first.name, first.base, first.new) == ("GPU model", "Tesla V100-SXM2-16GB", "NVIDIA A100-PG509-200")
    assert first.limits is not None
    assert (second.name, second.base, second.new) == ("world size", "2", "8")
    assert (third.name, third.base, third.new) == ("captured ranks", "rank 1 of 2", "rank 3 of 8")
    assert made.headline.startswith("On different GPUs (V100 and A100) and ranks (2 and 8): steps are faster")
    # A kernel that only the other GPU has says nothing of the code.
    told = re.search(r"Of the kernels most: (\S+),", made.headline)
    assert told is not None
    assert next(one for one in made.kernels if one.short_name == told[1]).matched is not None


def test_steps(made: Comparison, pair: tuple[Plain, Plain]) -> None:
    assert made.steps is not None
    medians = [statistics.median(plain.periods) for plain in pair]
    assert (made.steps.base.p50, made.steps.new.p50) == pytest.approx(medians)
    assert made.steps.change_percent == pytest.approx(100 * (medians[1] / medians[0] - 1))
    assert max(pair[1].periods) < min(pair[0].periods)  # so that of all arrangements two are as extreme
    assert made.steps.p_value == pytest.approx(2 / math.comb(10, 5))
    assert made.steps.likelier == 0
    ratios = [after / before for before in pair[0].periods for after in pair[1].periods]
    assert made.steps.shift_percent == pytest.approx(100 * (statistics.median(ratios) - 1))
    assert sum(made.steps.base_counts) + made.steps.base_beyond == len(pair[0].periods) == made.steps.base.count


def test_parts(made: Comparison, pair: tuple[Plain, Plain]) -> None:
    assert (made.basis.unit, made.basis.base, made.basis.new) == ("step", 6, 6)
    assert {part.name: part.base_ns for part in made.parts} == pytest.approx(pair[0].parts)
    assert {part.name: part.new_ns for part in made.parts} == pytest.approx(pair[1].parts)
    assert made.whole is not None
    assert made.whole.new_ns == pytest.approx(sum(pair[1].parts.values()))


def test_kernels(made: Comparison, pair: tuple[Plain, Plain]) -> None:
    """Every kernel of both runs once, none lost; effects are the differences of the sums per step."""
    for side, plain in (("base", pair[0]), ("new", pair[1])):
        listed = [name for one in made.kernels for name in getattr(one, f"{side}_names")]
        assert sorted(listed) == sorted(plain.kernels)
    for one in made.kernels:
        before, after = (
            [time for name in names for time in plain.kernels[name]]
            for names, plain in ((one.base_names, pair[0]), (one.new_names, pair[1]))
        )
        assert one.effect_ns == pytest.approx(sum(after) / 6 - sum(before) / 6)
        assert (one.base_count, one.new_count) == pytest.approx((len(before) / 6, len(after) / 6))
        if one.matched == "name":
            assert one.base_names == one.new_names
        elif one.matched is None:
            assert not (one.base_names and one.new_names)
    assert {name for one in made.kernels if one.matched == "name" for name in one.base_names} == pair[0].kernels.keys() & pair[
        1
    ].kernels.keys()
    effects = [abs(one.effect_ns) for one in made.kernels]
    assert effects == sorted(effects, reverse=True)


def test_a_kernel_that_grew_or_shrank_did_so_beyond_its_spread(made: Comparison, pair: tuple[Plain, Plain]) -> None:
    """By the variance of its single runs, which the comparison does not know: it must never claim more than they show."""
    for one in made.kernels:
        if one.state not in ("grown", "shrunk") or abs(one.new_count - one.base_count) > 0.01 * one.base_count:
            continue
        samples = [
            [t for name in names for t in plain.kernels[name]] for names, plain in ((one.base_names, pair[0]), (one.new_names, pair[1]))
        ]
        error = math.sqrt(sum(statistics.pvariance(sample) / len(sample) for sample in samples))
        assert abs(statistics.mean(samples[1]) - statistics.mean(samples[0])) > 2.58 * error, one.short_name


def test_copies(made: Comparison, pair: tuple[Plain, Plain]) -> None:
    for kind in ("HtoD", "DtoH", "DtoD", "Memset"):
        listed = [one for one in made.memory_operations if one.kind == kind]
        assert sum(one.effect_ns for one in listed) == pytest.approx((sum(pair[1].copies[kind]) - sum(pair[0].copies[kind])) / 6)
        assert sum(one.new_count for one in listed) == pytest.approx(len(pair[1].copies[kind]) / 6)


def test_verdicts_side_by_side(made: Comparison) -> None:
    outcomes: dict[str, Any] = {one.rule: (one.base, one.new, one.outcome) for one in made.rules}
    assert outcomes["LowPrecision"] == ("IssuesFound", "NoIssuesFound", "mended")
    assert outcomes["ExposedCommunication"] == ("NoIssuesFound", "IssuesFound", "broken")
    assert {one.name for one in made.changes if one.area == "verdict"} == {
        rule for rule, (_, _, how) in outcomes.items() if how in ("mended", "broken")
    }
