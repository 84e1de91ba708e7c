"""The profiling plan of a session, from the job or from the program, and its start and end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from ..recording import environment as capture_environment
from ..recording import gpu as capture_gpu

if TYPE_CHECKING:
    from ..profiling.plan import ProfilingPlan

SAMPLE_MS: Final = 500  # default interval of the system sampler


def plan_of(config: object) -> ProfilingPlan | None:
    """Return the plan of the job, else of the script. Raise UsageError, TypeError."""
    if config is None and not capture_environment.has_profiler_config():
        return None
    from ..profiling.engine import active

    try:
        plan_of_script = None if config is None else active.plan(config)
    except Exception as error:
        raise error.with_traceback(None) from None  # the caller's mistake, not one of the functions that read the file
    return active.of_environment(plan_of_script)


def options(plan: ProfilingPlan | None, sample_ms: int | None = None, rotate_s: int | None = None) -> dict[str, int]:
    """Return the options of sampler and files; arguments override the plan."""
    planned_ms = SAMPLE_MS if plan is None or plan.sample_ms is None else plan.sample_ms
    return {
        "sample_ms": planned_ms if sample_ms is None else sample_ms,
        "cpu_for_s": (plan and plan.cpu_seconds) or 0,
        "rotate_s": rotate_s if rotate_s is not None else (plan and plan.rotate_s) or 0,
    }


def arm(plan: ProfilingPlan | None, gpu: bool | str | None) -> bool:
    """Let the windows of the plan open and close with the steps."""
    if plan is None or not plan.of_framework:
        return False
    from ..profiling.engine import active

    capture_gpu.session_asks(gpu)
    return active.arm(plan)


def disarm() -> None:
    """Close every window."""
    active = sys.modules.get("postrun.native.profiling.engine.active")
    if active is not None:
        active.disarm()


def arm_by_environment() -> None:
    """Arm the plan's windows and the hooks in a session of POSTRUN_CAPTURE=1."""
    capture_gpu.begins_by_environment()
    if not capture_environment.session_lasts():
        return
    armed = capture_environment.has_profiler_config() and arm(plan_of(None), False)
    if capture_environment.has_hooks():
        from ..profiling.engine import active, loading

        if not armed:
            active.arm_hooks()
        loading.hook()  # around the profiler of data loaders: a step begins before its batch is requested
