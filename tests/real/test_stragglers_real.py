"""Two jobs with published causes, as traces: the rules name the causes, and the simulation gives the published figures.

The recordings and figures are those of arXiv 2505.05713: shares of the excess that goes when the slowest 3% of workers (M_W) or the last
stage (M_S) are ideal, and durations of a step.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from judging import Judged
from postrun.analysis import Options
from postrun.analysis.assemble import _ranks_compared
from postrun.analysis.causes.what_if import WhatIf
from postrun.analysis.rules.engine.engine import evaluate
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest import ingest

CAUSES = ("StragglerRank", "StageImbalance", "WorkImbalance", "HostPauses")
BUSY = """
    SELECT p.rank, sum(e.duration_ns)::BIGINT FROM device_run AS e JOIN process AS p ON p.id = e.process WHERE e.computation GROUP BY ALL
"""


class Evaluated:
    """A job with its simulation and the results of all rules over kernels."""

    def __init__(self, name: str, groups: bool, data: Path, folder: Path) -> None:
        self.expected: dict[str, Any] = json.loads((data / "expected.json").read_text())[name]
        self.name, self.groups = name, groups
        with ingest([folder]) as store, store.unchanged():
            run = RunData(store, Options(generated_at_ns=0))
            self.judged = Judged(*evaluate(run, select([*CAUSES, "ExposedCommunication"])))
            assert isinstance(run.what_if, WhatIf), run.what_if
            self.simulated = run.what_if
            self.compared = {row.rank: row for row in _ranks_compared(run, ()).ranks}
            # Each rank computes on a single stream, so its kernels do not overlap.
            self.busy_ns: dict[int, int] = dict(store.frame(BUSY).rows())

    def result(self, rule: str) -> Any:
        return next(result for result in self.judged.rules if result.rule == rule)

    def finding(self, rule: str) -> Any:
        return next((finding for finding in self.judged.findings if finding.rule == rule), None)


# tests/advice names the cause of AR without groups.
@pytest.fixture(scope="module", params=[("AR", True), ("ST", True), ("ST", False)], ids=["AR", "ST", "ST-nog"])
def evaluated(
    request: pytest.FixtureRequest, shared_data: Path, published_job: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Evaluated:
    data = shared_data / "stragglers"
    name, groups = request.param
    folder = published_job(name) if groups else tmp_path_factory.mktemp(name)
    if not groups:
        subprocess.run([sys.executable, data / "make_kineto.py", data / f"trace-{name}.parquet", folder, "--no-groups"], check=True)
    return Evaluated(name, groups, data, folder)


def test_the_simulation_gives_the_published_shares(evaluated: Evaluated) -> None:
    simulated, expected = evaluated.simulated, evaluated.expected
    roles = simulated.peers.roles
    last = max(roles.values())
    computing = simulated.computing.group_by("rank").agg(pl.col("computing").mean()).sort("computing")
    slowest = [computing["rank"][-1]]  # 3% of 8 or 16 workers, rounded up
    assert simulated.gain_of_ranks(slowest).explained == pytest.approx(expected["M_W"], abs=0.03)
    assert simulated.gain(pl.col("role") == last).explained == pytest.approx(expected["M_S"], abs=0.03)
    assert simulated.replayed_ns / simulated.ideal_ns == pytest.approx(expected["slowdown"], abs=0.02)
    assert simulated.step_ns / 1e9 == pytest.approx(expected["step_s"], rel=0.02)


def test_the_replay_is_within_five_percent(evaluated: Evaluated) -> None:
    assert evaluated.simulated.replayed_ns == pytest.approx(evaluated.simulated.recorded_ns, rel=0.01)


def test_the_cause_is_named_with_the_published_gain(evaluated: Evaluated) -> None:
    expected = evaluated.expected
    rule, share, where = {
        "AR": ("StragglerRank", "M_W", "rank 0, node-0 GPU 0"),
        "ST": ("StageImbalance", "M_S", "pipeline stage 3 (ranks 6 and 7)" if evaluated.groups else "the stage of ranks 6 and 7"),
    }[evaluated.name]
    gain = 100 * expected[share] * (expected["step_s"] - expected["ideal_s"]) / expected["step_s"]
    finding = evaluated.finding(rule)
    assert (finding.where, finding.saving_kind) == (where, "predicted")
    assert finding.saving_percent == pytest.approx(gain, rel=0.2)
    named = {finding.rule for finding in evaluated.judged.findings}
    assert named.isdisjoint(set(CAUSES) - {rule})


def test_stages_and_ranks_compared_differ_by_the_kernel_that_waits(evaluated: Evaluated) -> None:
    details = evaluated.result("StageImbalance").details
    assert details.waiting_kernel == "multi_tensor_apply_kernel[L2NormFunctor]"
    for stage in details.stages:
        busy = [evaluated.busy_ns[rank] / details.steps for rank in stage.ranks]
        assert stage.computation_per_step_ns + stage.waits_per_step_ns == pytest.approx(statistics.median(busy), rel=0.01)


def test_a_cause_states_what_it_explains(evaluated: Evaluated) -> None:
    # M of the published job; a rule without an issue states no saving above its threshold.
    rule, share = {"AR": ("StragglerRank", "M_W"), "ST": ("StageImbalance", "M_S")}[evaluated.name]
    assert evaluated.expected[share] > 1
    explained = re.search(r"This saving is (all|9[789]%) of the time that equal durations", evaluated.finding(rule).text)
    assert explained is not None
    work = evaluated.result("WorkImbalance")
    assert work.verdict == "NoIssuesFound"
    assert all(float(saving) <= 5.0 for saving in re.findall(r"would save ([\d.]+)%", work.finding))


def test_groups_are_named_by_the_ranks_of_the_run(evaluated: Evaluated) -> None:
    # The layout numbers the ranks of AR 0, 4, ..., 60 in their groups.
    named = {int(rank) for row in evaluated.compared.values() for rank in re.findall(r"\d+(?=[,)])", row.waiting_group or "")}
    assert named <= set(evaluated.compared)
    assert bool(named) == evaluated.groups
