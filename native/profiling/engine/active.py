"""The profiling configuration of this process, and the engine that follows it; there is one of each at a time.

``POSTRUN_PROFILER_CONFIG`` names the file that `postrun record --profiler-config` gives to the processes of a job; it overrides the
script's own configuration.
"""

from __future__ import annotations

import atexit
import os
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....errors import UsageError
from ...recording import environment as capture_environment
from ..plan import ProfilingPlan, with_calls
from .steps import Steps, current, forget_in_child

if TYPE_CHECKING:
    from .engine import Engine

VARIABLE: Final = "POSTRUN_PROFILER_CONFIG"
STEPS: Final = "POSTRUN_GPU_STEPS"  # A:B, of `postrun record --steps`

_engine: Engine | None = None
_of_environment: ProfilingPlan | None = None
_read: str | None = None
_hooks = False


def arm_hooks() -> None:
    """Record the steps that hooks find in the session; no window depends on them."""
    global _hooks
    from ...recording import library as capture_library
    from ...recording.metadata import metadata

    _hooks = True
    _know_of_forks()
    Steps(None, capture_library, metadata).watch()


def plan(config: Any) -> ProfilingPlan:
    """Return the plan of a ProfilerConfig, a file, or a plan. Raise UsageError."""
    if isinstance(config, ProfilingPlan):
        return config
    from ..config_file import plan_of, read_profiler_config

    if isinstance(config, str | os.PathLike):
        return read_profiler_config(config)
    return plan_of(config)


def of_environment(of_script: ProfilingPlan | None = None) -> ProfilingPlan | None:
    """Return the plan of the file, else of the script.

    It includes the shapes and stacks that the environment requests."""
    shapes, stacks = capture_environment.requested_calls()
    return with_calls(_of_file() or of_script, shapes=shapes, stacks=stacks, steps=os.environ.get(STEPS))


def _of_file() -> ProfilingPlan | None:
    """Return the plan of the file; None, with a warning, if it is unusable."""
    global _of_environment, _read
    file = os.environ.get(VARIABLE)
    if not file:
        return None
    if file != _read:
        _read = file
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the recorder has reported it
                _of_environment = plan(file)
        except UsageError as error:
            _of_environment = None
            warnings.warn(f"{VARIABLE}: {error}; nothing is profiled by it", RuntimeWarning, stacklevel=4)
    return _of_environment


def arm(wanted: ProfilingPlan) -> bool:
    """Start the engine for the running session; False if there is nothing to profile."""
    global _engine
    from ...recording import library as capture_library
    from ...recording.metadata import metadata
    from .engine import Engine

    file = capture_library.path()
    if _engine is not None or file is None or not wanted.of_framework:
        return False
    _know_of_forks()
    _engine = Engine(wanted, Path(file).parent, metadata, capture_library)
    _engine.start()
    return True


@cache
def _know_of_forks() -> None:
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_forget)


def disarm() -> None:
    """Close every window."""
    global _engine
    engine, _engine = _engine, None
    if engine is not None:
        engine.close()


def _at_exit() -> None:
    disarm()
    steps = current()
    if steps is not None:
        steps.close()


def _forget() -> None:
    global _engine
    _engine = None
    forget_in_child()
    if _hooks:
        arm_hooks()
