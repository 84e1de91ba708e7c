"""The capture API: a training script records itself with a session, and annotations in it::

    from postrun import capture

    with capture.session("traces"):
        for i, batch in enumerate(loader):
            with capture.annotate("step", value=i):
                train(batch)

or, for scripts of the hosted profiler, ``import postrun.capture as smprof``: SMProfiler, Config, annotate, annotation_begin and
annotation_end are here. See docs/capture.md.

Outside a session every call does nothing and costs almost nothing. All functions may be called from any thread.
"""

from __future__ import annotations

import atexit as _atexit
import os

from ..recording import environment as _environment
from ..recording import library as _library
from ..recording.decorators import decorated as _decorated
from ..recording.gpu import gpu_start, gpu_stop, gpu_window
from ..recording.library import (
    Annotation,
    Range,
    annotate,
    begin,
    counter,
    end,
    flush,
    now_ns,
    path,
    range_begin,
    range_end,
    recording,
    statistics,
)
from ..recording.metadata import metadata
from ..recording.torch import torch_trace_handler
from ..recording.workers import stop_in_workers as _stop_in_workers
from . import profiling as _profiling
from .session import record_framework as _record_framework
from .session import session
from .smprofiler import Config, SMProfiler

__all__ = [
    "Annotation",
    "Config",
    "Range",
    "SMProfiler",
    "annotate",
    "annotation_begin",
    "annotation_end",
    "begin",
    "counter",
    "end",
    "flush",
    "gpu_start",
    "gpu_stop",
    "gpu_window",
    "metadata",
    "now_ns",
    "path",
    "recording",
    "session",
    "statistics",
    "torch_trace_handler",
]

annotation_begin = range_begin
annotation_end = range_end


_library.set_decorator(_decorated)
if _environment.session_lasts():
    _atexit.register(_record_framework)
_stop_in_workers()
os.register_at_fork(before=_stop_in_workers)
_profiling.arm_by_environment()
