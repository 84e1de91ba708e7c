"""Sentences of a comparison: the verdict in one, and its details in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..report.comparison import Amount, Comparison, Difference, Verdict
from ..report.model import Report
from ..toolkit import wording
from .alike import ACTIVITY, GPU, WORLD, short_models
from .base_runs import differ
from .basis import SAME, UNDECIDED
from .changes import CHANGED, decided, host_parts_alone, per, scarce
from .parts import host_name
from .programs import evidence
from .steps import FASTER, SLOWER
from .verdict import COUNTS, RANGES, STEPS, interval

_MAINLY: Final = 0.5  # of the change of the time, from which a part is its main cause


def headline(base: Report, new: Report, compared: Comparison) -> str:
    """Word the verdict with both times and the main cause, in one sentence."""
    assert compared.judgment is not None
    verdict = compared.judgment
    if compared.different_programs:
        return verdict.text
    limit = _limit(base, new, compared.differences)
    if verdict.state in (SLOWER, FASTER):
        text = f"The new run {_pace(verdict, _unit(compared))} ({_times(verdict)}){_cause(compared)}."
    elif verdict.state == SAME:
        text = f"No difference beyond {_bound(compared)} ({_times(verdict)} {_unit(compared)}{_interval(verdict)})."
    else:
        text = _undetermined(compared)
    return f"{limit}, {text[:1].lower()}{text[1:]}" if limit else text


def _pace(verdict: Verdict, unit: str) -> str:
    """Write "is 8.1% slower per step"; above twice the time "takes 3.1× as long"."""
    assert verdict.percent is not None
    if verdict.percent > 100:
        return f"takes {wording.factor(1 + verdict.percent / 100)} as long {unit}"
    return f"is {wording.percent(abs(verdict.percent))} {verdict.state} {unit}"


def _times(verdict: Verdict) -> str:
    assert verdict.base_ns is not None
    assert verdict.new_ns is not None
    mean = {STEPS: "median ", RANGES: "mean "}.get(verdict.evidence or "", "")
    return f"{mean}{wording.duration(verdict.base_ns)} → {wording.duration(verdict.new_ns)}"


def _unit(compared: Comparison) -> str:
    assert compared.judgment is not None
    if compared.judgment.evidence == RANGES:
        return f"per range {compared.basis.name}"
    return "for the same work" if compared.judgment.evidence == COUNTS else "per step"


def _interval(verdict: Verdict) -> str:
    if verdict.low_percent is None or verdict.high_percent is None or verdict.evidence == COUNTS:
        return ""
    return f", {interval(verdict.low_percent, verdict.high_percent)}"


def _bound(compared: Comparison) -> str:
    """Name the reason why the change is not one: the noise, or the threshold."""
    assert compared.judgment is not None
    low, high = compared.judgment.low_percent, compared.judgment.high_percent
    if low is not None and high is not None and low * high > 0:
        return f"the threshold of {wording.threshold_text(compared.threshold_percent)}"
    return "the edges of the profiles" if compared.judgment.evidence == COUNTS else "the noise"


def _undetermined(compared: Comparison) -> str:
    """Word why there is no verdict, with the times if both runs have them."""
    assert compared.judgment is not None
    verdict, steps = compared.judgment, compared.steps
    if verdict.evidence is not None:
        what = (
            "base runs"
            if verdict.runs_percent is not None
            else {STEPS: "steps", RANGES: f"ranges {compared.basis.name}"}.get(verdict.evidence, "times for the same work")
        )
        return f"No verdict: the {what} vary too much ({_times(verdict)}{_interval(verdict)})."
    if steps is not None:
        counts = f"{wording.count(steps.base.count)} and {wording.count(steps.new.count)}"
        medians = f"median {wording.duration(steps.base.p50)} → {wording.duration(steps.new.p50)}"
        return f"No verdict: {counts} steps are too few ({medians} per step)."
    return verdict.text


def _cause(compared: Comparison) -> str:
    """Name the part that changed most: ", mostly from idle time (+9.00 ms)"."""
    assert compared.judgment is not None
    parts = [part for part in compared.parts or compared.host_parts if decided(part)]
    sign = 1 if compared.judgment.state == SLOWER else -1
    parts = [part for part in parts if part.effect_ns * sign > 0]
    if not parts:
        return ""
    most = max(parts, key=lambda part: abs(part.effect_ns))
    total = compared.whole.effect_ns if compared.whole is not None else compared.steps.change_ns if compared.steps is not None else 0.0
    how = "mostly" if abs(most.effect_ns) >= _MAINLY * abs(total) else "partly"
    loading = next((one for one in compared.changes if one.area == "data loading" and one.effect_ns is not None), None)
    if most.name == "idle" and loading is not None and (loading.effect_ns or 0.0) * sign >= _MAINLY * abs(most.effect_ns):
        return f", {how} from data loading ({wording.signed_duration(loading.effect_ns or 0.0)})"
    name = "idle time" if most.name == "idle" else host_name(most.name)
    return f", {how} from {name} ({wording.signed_duration(most.effect_ns)})"


def details(compared: Comparison) -> str:
    """Word what neither the headline nor the list of changes contains."""
    if compared.different_programs:
        return _evidence(compared)
    names = {difference.name for difference in compared.differences}
    assert compared.judgment is not None
    text = compared.judgment.text if compared.judgment.evidence in (RANGES, COUNTS) else ""
    if ACTIVITY in names:
        return f"{text} GPU activity was recorded in one run only.".strip()
    runs = differ(len(compared.baselines) + 1, compared.judgment.runs_percent) if compared.judgment.runs_percent is not None else ""
    text = text or runs
    undecided = _undecided(compared)
    return " ".join(sentence for sentence in (text, undecided, _gaps(compared), _nothing(compared, undecided)) if sentence)


def _evidence(compared: Comparison) -> str:
    """Word how little the programs share, and the times of their steps."""
    text = evidence(compared.shared_names)
    if compared.steps is not None:
        base, new = (wording.duration(side.p50) for side in (compared.steps.base, compared.steps.new))
        text += f" The median step takes {base} in base and {new} in new."
    return text


def _open(compared: Comparison) -> list[Amount]:
    """Return the parts that too few steps leave undecided, largest first."""
    amounts = [part for part in (*compared.parts, *host_parts_alone(compared)) if part.state == UNDECIDED]
    return sorted(amounts, key=lambda part: -abs(part.effect_ns))


def _undecided(compared: Comparison) -> str:
    """Word the undecided parts: "Too few steps to tell: idle is 64 ms a step longer."."""
    clauses: list[str] = []
    for part in _open(compared)[:2]:
        length, way = wording.duration(abs(part.effect_ns)), "longer" if part.effect_ns > 0 else "shorter"
        clauses.append(f"{host_name(part.name)} {length} {way}" if clauses else f"{host_name(part.name)} is {length} a step {way}")
    too = compared.steps is not None and compared.steps.verdict == UNDECIDED
    return f"{'Also undecided:' if too else f'Too few {scarce(compared)} to tell:'} {', '.join(clauses)}." if clauses else ""


def _limit(base: Report, new: Report, alike: Sequence[Difference]) -> str:
    """Word the main difference: "On different GPUs (V100 and A100)"; else empty."""
    names = {one.name: one for one in alike}
    clauses = []
    if GPU in names:
        models = [short_models(report) for report in (base, new)]
        if models[0] == models[1]:
            models = [names[GPU].base, names[GPU].new]
        clauses.append(f"different GPUs ({models[0]} and {models[1]})")
    if WORLD in names:
        clauses.append(f"{'' if clauses else 'different numbers of '}ranks ({names[WORLD].base} and {names[WORLD].new})")
    return f"On {' and '.join(clauses)}" if clauses else ""


def _gaps(compared: Comparison) -> str:
    """Name the cause with most of the change of the gaps, if idle time changed."""
    idle = next((part for part in compared.parts if part.name == "idle" and decided(part)), None)
    causes = [cause for cause in compared.idle if idle is not None and decided(cause) and cause.effect_ns * idle.effect_ns > 0]
    if not causes:
        return ""
    most = max(causes, key=lambda cause: abs(cause.effect_ns))
    by = f"{wording.duration(abs(most.effect_ns))} {per(compared.basis)}"
    return f"In the gaps of the streams, {most.name} {CHANGED[most.state]} most, by {by}."


def _nothing(compared: Comparison, undecided: str) -> str:
    if any(change.area != "step" for change in compared.changes):
        return ""
    more = "else " if compared.steps or undecided else ""
    return f"Nothing {more}changed by more than its spread and {wording.threshold_text(compared.threshold_percent)}."
