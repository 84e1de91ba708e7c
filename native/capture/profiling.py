"""What of a profiling configuration holds for a session of this process, the job's or the program's own, and from when on?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from ..recording import environment as capture_environment
from ..recording import gpu as capture_gpu

if TYPE_CHECKING:
    from ..profiling.plan import ProfilingPlan

SAMPLE_MS: Final = 500  # How often the system is sampled where nothing else is said


def plan_of(config: object) -> ProfilingPlan | None:
    """That of the job, else of the script. Raises UsageError, TypeError."""
    if config is None and not capture_environment.has_profiler_config():
        return None
    from ..profiling.engine import active

    try:
        given = None if config is None else active.plan(config)
    except Exception as error:
        raise error.with_traceback(None) from None  # the caller's mistake, not one of the functions that read the file
    return active.of_environment() or given


def sample_ms(given: int | None, plan: ProfilingPlan | None) -> int:
    """The system sampler's interval in milliseconds: as given, else the plan's, else SAMPLE_MS."""
    if given is not None:
        return given
    return SAMPLE_MS if plan is None or plan.sample_ms is None else plan.sample_ms


def rotate_s(given: int | None, plan: ProfilingPlan | None) -> int:
    """The age of a trace file, in seconds, at which it is closed: as given, else the plan's, else 0."""
    return given if given is not None else (plan and plan.rotate_s) or 0


def arm(plan: ProfilingPlan | None, gpu: bool | str | None) -> bool:
    """The windows of the plan open and close with the steps from now on."""
    if plan is None or not plan.of_framework:
        return False
    from ..profiling.engine import active

    capture_gpu.session_asks(gpu)
    return active.arm(plan)


def disarm() -> None:
    """Every window closes."""
    active = sys.modules.get("postrun.native.profiling.engine.active")
    if active is not None:
        active.disarm()


def arm_by_environment() -> None:
    """In the session that POSTRUN_CAPTURE=1 began at import: the windows of the job's configuration, and the hooks that find steps."""
    capture_gpu.begins_by_environment()
    if not capture_environment.session_lasts():
        return
    armed = capture_environment.has_profiler_config() and arm(plan_of(None), False)
    if capture_environment.has_hooks():
        from ..profiling.engine import active, loading

        if not armed:
            active.arm_hooks()
        loading.hook()  # around what profiles data loaders: a step begins before its batch is requested
