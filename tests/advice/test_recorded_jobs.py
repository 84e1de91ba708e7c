"""The report names the planted cause of recorded pipelines, and its simulation agrees with an oracle that has the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from advice_score import Case
from case_tests import check, parameters
from cases_recorded import RECORDED
from job_oracle import Oracle
from postrun.analysis import Options
from postrun.analysis.causes.what_if import WhatIf
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest import ingest
from published_jobs import Published, write_recording
from recorded_jobs import Recording, record


@pytest.mark.parametrize("case", parameters(RECORDED))
def test_the_report_names_the_cause(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, request)


@pytest.mark.parametrize("job", ["AR", "ST"])
def test_the_oracle_has_the_published_figures(job: str, shared_data: Path) -> None:
    data = shared_data / "stragglers"
    if not data.is_dir():
        pytest.skip(f"no recording of the published job {job} in {data}")
    expected = json.loads((data / "expected.json").read_text())[job]
    oracle = Oracle(pl.read_parquet(data / f"trace-{job}.parquet"))
    slowest = oracle.slowest()
    assert oracle.step == pytest.approx(expected["step_s"], rel=1e-5)
    assert oracle.ideal == pytest.approx(expected["ideal_s"], rel=1e-5)
    assert oracle.explained(lambda replica, stage: (replica, stage) in slowest) == pytest.approx(expected["M_W"], abs=1e-4)
    assert oracle.explained(lambda replica, stage: stage == oracle.stages - 1) == pytest.approx(expected["M_S"], abs=1e-4)


JOBS = {
    "slow worker": Recording(slow={(2, 1): 1.4}),
    "two slow workers": Recording(slow={(2, 1): 1.4, (0, 3): 1.35}),
    "long last stage": Recording(replicas=2, stage={3: 1.8}),
    "long first stage": Recording(replicas=2, stage={0: 1.6}),
    "lengths": Recording(lengths=0.4, steps=10),
    "lengths and a slow worker": Recording(replicas=8, stages=2, steps=10, lengths=0.3, slow={(2, 1): 1.4}),
    "long stage and a slow worker": Recording(stage={3: 1.5}, slow={(1, 1): 1.6}),
    "one replica": Recording(replicas=1, stages=8, stage={7: 1.6}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("slow worker", "lengths") else pytest.mark.slow) for name in JOBS]
)
def test_the_simulation_agrees_with_the_oracle(name: str, tmp_path: Path) -> None:
    recording = record(JOBS[name])
    oracle = Oracle(recording)
    slowest, last = oracle.slowest(), oracle.stages - 1
    write_recording(tmp_path, recording, Published(""))
    with ingest([tmp_path]) as store, store.unchanged():
        simulated = RunData(store, Options(generated_at_ns=0)).what_if
    assert isinstance(simulated, WhatIf), simulated
    ranks = [JOBS[name].number(place) for place in slowest]
    assert simulated.gain_of_ranks(ranks).explained == pytest.approx(oracle.explained(lambda *place: place in slowest), abs=0.03)
    assert simulated.gain(pl.col("role") == last).explained == pytest.approx(oracle.explained(lambda _, stage: stage == last), abs=0.03)
    assert simulated.replayed_ns / simulated.ideal_ns == pytest.approx(oracle.step / oracle.ideal, rel=0.02)
