"""The settings of the recording in environment variables, set by the recorder or the user."""

from __future__ import annotations

import os
from typing import Any

from . import library as library

_session_lasts = os.environ.get("POSTRUN_CAPTURE") == "1" and library.recording()


def session_lasts() -> bool:
    """Whether a session that POSTRUN_CAPTURE=1 began at import is still recording."""
    return _session_lasts


def session_ended() -> None:
    """Note that the program has ended the session of POSTRUN_CAPTURE=1."""
    global _session_lasts
    _session_lasts = False


def has_profiler_config() -> bool:
    """Whether the job has a profiling configuration, or requests shapes or stacks."""
    return bool(os.environ.get("POSTRUN_PROFILER_CONFIG")) or any(requested_calls())


def requested_calls() -> tuple[bool, bool]:
    """Return whether the job requests shapes, and stacks, of operators."""
    return os.environ.get("POSTRUN_SHAPES") == "1", os.environ.get("POSTRUN_STACKS") == "1"


def has_hooks() -> bool:
    """Whether hooks in frameworks find the steps of the job."""
    return os.environ.get("POSTRUN_HOOKS") == "1"


def gpu() -> str | None:
    """Return "1": GPU activity is recorded; "0": never; else the program decides."""
    return os.environ.get("POSTRUN_GPU")


def gpu_by_windows() -> bool:
    """Whether the job defines windows in which GPU activity is recorded."""
    return any(map(os.environ.get, ("POSTRUN_GPU_STEPS", "POSTRUN_GPU_TIME", "POSTRUN_GPU_SIGNAL")))


def of_recorder() -> bool:
    """Whether `postrun record` runs this program."""
    return bool(os.environ.get("POSTRUN_RECORDER"))


def of_job(options: dict[str, Any]) -> dict[str, Any]:
    """Change options for `postrun record`: the job's folder, and no own sampling."""
    if os.environ.get("POSTRUN_RECORDER") and os.environ.get("POSTRUN_DIR"):
        return {**options, "directory": None, "sample_ms": 0}
    return options
