"""Cases of the advice suite: the first finding of a run, the words that must not appear, and the saving."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inference_jobs import Inference, simulate_inference
from job_engine import Rank
from job_oracle import Oracle
from job_trace import Layout, write_traces
from judging import Judged, rules_of
from postrun.analysis.report.rules import Finding
from postrun.ingest import ingest
from published_jobs import Published, write_published, write_recording
from recorded_jobs import Recording, record
from training_jobs import Training, simulate, span_ns

Job = Training | Inference | Published | Recording
NOTHING = "nothing"
"""The entry of :attr:`Case.first` for a run without findings."""
CULPRITS = ("StragglerRank", "StageImbalance", "WorkImbalance", "HostPauses", "SlowCollectives")
"""Rules that name the cause of a job's waiting."""


@dataclass(frozen=True, slots=True)
class Case:
    """A labeled run.

    ``first``: the rules that may come first, or NOTHING. ``says``: patterns that the first finding contains. ``must_not``: names of rules
    without a finding of their own, and patterns that no finding contains. ``folded``: rules whose finding, if any, names the rule that
    explains it. ``ideal``: the workers (replica, stage) of a recording whose operations take their ideal time, which gives the saving.
    ``without``: fields of the job without the planted cause, whose makespan gives the saving; ``saving_percent``: the saving
    if it is published. ``tolerance``: of the saving, in percentage points."""

    name: str
    job: Job
    first: tuple[str, ...]
    says: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    without: Mapping[str, Any] = field(default_factory=dict)
    ideal: Callable[[int, int], bool] | None = None
    saving_percent: float | None = None
    tolerance: float = 3.0

    @property
    def healthy(self) -> bool:
        return self.first == (NOTHING,)


@dataclass(frozen=True, slots=True)
class Score:
    """The report of a case against its expectations.

    ``wrong``: a sentence per broken expectation. ``saving``: predicted or bound, and its kind.
    """

    case: Case
    first: str
    findings: tuple[str, ...]
    wrong: tuple[str, ...]
    expected_saving: float | None
    saving: float | None
    saving_kind: str | None


def ranks_of(job: Training | Inference) -> list[Rank]:
    return simulate(job) if isinstance(job, Training) else simulate_inference(job)


def write_job(folder: Path, job: Training | Inference, ranks: list[Rank]) -> int:
    """Write the traces of a simulated job; return the number of events."""
    groups = tuple({group: None for number in range(job.world_size) for group in job.groups_of(number)})
    begins = [record.start for record in ranks[0].records if record.name == f"ProfilerStep#{job.recorded_from + 10}"]
    layout = Layout(
        job.gpu, job.gpus_per_node, job.world_size, groups, job.recorded, begins[0] if job.recorded_from else 0,
        tuple(1000 * skew for skew in job.skew_us), job.metadata,
    )  # fmt: skip
    return write_traces(folder, ranks, layout)


def judged(job: Job, published_data: Path | None = None) -> Judged:
    """Return the rules and findings of a job.

    ``published_data``: folder of the recordings.
    """
    with tempfile.TemporaryDirectory(prefix="postrun-advice-") as folder:
        if isinstance(job, Published):
            assert published_data is not None
            write_published(Path(folder), job, published_data)
        elif isinstance(job, Recording):
            write_recording(Path(folder), record(job), Published("", groups=job.groups, streams=job.streams))
        else:
            write_job(Path(folder), job, ranks_of(job))
        with ingest([Path(folder)]) as store:
            return rules_of(store)


def words(finding: Finding) -> str:
    return "\n".join(filter(None, (finding.title, finding.where, finding.text, finding.recommendation)))


def _matches(patterns: Iterable[str], text: str) -> list[str]:
    return [pattern for pattern in patterns if re.search(pattern, text, re.IGNORECASE)]


def expected_saving(case: Case) -> float | None:
    """Return by how many percent the job is shorter without its cause."""
    if case.saving_percent is not None or not (case.without or case.ideal):
        return case.saving_percent
    if isinstance(case.job, Recording):
        assert case.ideal is not None
        return Oracle(record(case.job)).saved(case.ideal)
    assert not isinstance(case.job, Published)
    planted, clean = span_ns(ranks_of(case.job)), span_ns(ranks_of(replace(case.job, **case.without)))
    return 100 * (planted - clean) / planted


def _saving_problem(case: Case, expected: float, finding: Finding) -> str | None:
    """Return what is wrong with a saving.

    A prediction must be right within the tolerance, an upper bound not below it.
    """
    if finding.saving_percent is None:
        return None if finding.saving_kind is None else f"{finding.rule} has a kind of saving and no saving"
    error = finding.saving_percent - expected
    if error < -case.tolerance or (finding.saving_kind == "predicted" and error > case.tolerance):
        return f"saves {finding.saving_percent:.1f}% ({finding.saving_kind}); the planted cause costs {expected:.1f}%"
    return None


def score(case: Case, published_data: Path | None = None) -> Score:
    """Compare the findings of a case with what it expects."""
    report = judged(case.job, published_data)
    findings = report.findings
    rules = {result.rule for result in report.rules}
    first = findings[0].rule if findings else NOTHING
    wrong = [f"{result.rule} failed: {result.reason}" for result in report.rules if result.verdict == "Error"]
    if first not in case.first:
        wrong.append(f"{first} is first, not {' or '.join(case.first)}")
    elif findings:
        missing = set(case.says) - set(_matches(case.says, words(findings[0])))
        wrong += [f"{first} lacks {pattern!r}" for pattern in sorted(missing)]
    named = {finding.rule for finding in findings if finding.explained_by is None}
    wrong += [f"{rule} has a finding" for rule in case.must_not if rule in rules and rule in named]
    patterns = [pattern for pattern in case.must_not if pattern not in {*rules, *CULPRITS}]
    for finding in findings:
        wrong += [f"{finding.rule} contains {pattern!r}" for pattern in _matches(patterns, words(finding))]
    wrong += [f"{rule} is not folded" for rule in case.folded if rule in named]
    expected = expected_saving(case)
    kind = saving = None
    if findings and first in case.first:
        saving, kind = findings[0].saving_percent, findings[0].saving_kind
        problem = _saving_problem(case, expected, findings[0]) if expected is not None else None
        wrong += [problem] if problem else []
    return Score(case, first, tuple(finding.rule for finding in findings), tuple(wrong), expected, saving, kind)
