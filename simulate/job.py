"""The whole simulated job around the few seconds that the profiler saw.

Initialization, training with the profile window, slow storage for a time, an evaluation, more training, and at the end either idle minutes
or a short finalization.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import median

from .training_run import LOADER_NS, STALL_EVERY, STALL_NS, STALL_OFFSET, Problems, Rank, StepTimes

SECOND = 1_000_000_000
JOB_START = 1_772_531_233 * SECOND  # 2026-03-03 09:47:13 UTC: the job runs over a full hour
JOB_SECONDS = 1_122  # 18 min 42 s
WINDOW_START = JOB_START + 300 * SECOND
FIRST_PROFILED_STEP = 900
_FIRST_STEP_NS = 3_900_000_000  # libraries load, memory is first allocated
_STORAGE_STALL = (JOB_START + 520 * SECOND, JOB_START + 590 * SECOND)
_STORAGE_STALL_NS = 740_000_000  # added to each step
_EVALUATION_START = JOB_START + 700 * SECOND
_EVALUATION_STEPS = 90
_IDLE_TAIL_SECONDS, _FINALIZATION_SECONDS = 214, 12


@dataclass(frozen=True, slots=True)
class Job:
    """The job on one clock, ns since the epoch."""

    first_step: int
    lead_ranks: tuple[Rank, ...]  # the first rank of every node: the workers that record their steps
    before: tuple[StepTimes, ...]  # steps before the profiled window
    after: tuple[StepTimes, ...]
    sample_times: tuple[int, ...]
    storage_stall: tuple[int, int] | None
    evaluation: tuple[int, int]
    training_end: int

    def steps_of(self, rank: Rank) -> list[StepTimes]:
        """Return all steps of a worker in order of time; ``rank`` has the profiled ones."""
        return [*self.before, *rank.steps, *self.after]

    def phase(self, time: int) -> str:
        """Return init, train, stall, evaluation or tail."""
        if time < self.before[0].start:
            return "init"
        if time >= self.training_end:
            return "tail"
        if self.storage_stall and self.storage_stall[0] <= time < self.storage_stall[1]:
            return "stall"
        if self.evaluation[0] <= time < self.evaluation[1]:
            return "evaluation"
        return "train"


def _step(mode: str, start: int, duration: int, loader: int, pattern: StepTimes) -> StepTimes:
    """Return a step of this length with the host phases of ``pattern``."""
    loader_end = start + loader
    forward_end = loader_end + pattern.forward_end - pattern.loader_end
    backward_end = forward_end if mode == "EVAL" else forward_end + pattern.backward_end - pattern.forward_end
    return StepTimes(mode, start, loader_end, forward_end, backward_end, start + duration)


def job_around(ranks: list[Rank], problems: Problems, seed: int, gpus_per_node: int) -> Job:
    """Return the job around the profiled steps of ``ranks``, with similar steps."""
    random = Random(seed * 10_007 - 2).random
    profiled = ranks[0].steps
    typical = int(median(step.end - step.start for step in profiled))
    training_end = JOB_START + (JOB_SECONDS - (_IDLE_TAIL_SECONDS if problems.idle_tail else _FINALIZATION_SECONDS)) * SECOND
    stall = _STORAGE_STALL if problems.data_stall else None

    def lengths(number: int, time: int) -> tuple[int, int]:
        """Return the length of a training step and of the wait for its batch."""
        jitter = random()
        loader, duration = LOADER_NS, int(typical * (0.985 + 0.03 * jitter))
        if problems.data_stall and number % STALL_EVERY == STALL_OFFSET:
            loader, duration = loader + STALL_NS, duration + STALL_NS
        if stall and stall[0] <= time < stall[1]:
            extra = int(_STORAGE_STALL_NS * (0.8 + 0.4 * jitter))
            loader, duration = loader + extra, duration + extra
        return duration, loader

    plan = [lengths(number, 0) for number in range(FIRST_PROFILED_STEP)]
    plan[0] = (_FIRST_STEP_NS, plan[0][1])
    clock = WINDOW_START - sum(duration for duration, _ in plan) - 150_000_000
    before: list[StepTimes] = []
    for duration, loader in plan:
        before.append(_step("TRAIN", clock, duration, loader, profiled[0]))
        clock += duration

    after: list[StepTimes] = []
    clock = max(rank.steps[-1].end for rank in ranks) + 400_000_000  # the profiler writes its trace
    number = FIRST_PROFILED_STEP + len(profiled)
    evaluation = (0, 0)
    while True:
        if clock >= _EVALUATION_START and evaluation == (0, 0):
            started = clock
            for _ in range(_EVALUATION_STEPS):
                after.append(_step("EVAL", clock, int(typical * 0.36), LOADER_NS, profiled[0]))
                clock = after[-1].end
            evaluation = (started, clock)
        duration, loader = lengths(number, clock)
        if clock + duration > training_end:
            break
        after.append(_step("TRAIN", clock, duration, loader, profiled[0]))
        clock += duration
        number += 1
    return Job(
        first_step=FIRST_PROFILED_STEP,
        lead_ranks=tuple(ranks[::gpus_per_node]),
        before=tuple(before),
        after=tuple(after),
        sample_times=tuple(JOB_START + second * SECOND for second in range(JOB_SECONDS + 1)),
        storage_stall=stall,
        evaluation=evaluation,
        training_end=clock,
    )
