"""postrun: offline performance reports from GPU training traces.

``postrun.ingest`` loads trace files into a run store (DuckDB), ``postrun.analysis`` queries it (Polars) and returns a
:class:`postrun.analysis.report.Report`, and ``postrun.report_templates`` renders that as HTML, PDF and JSON. ``postrun.cli`` is the
command line.

From Python: :func:`make_report` writes the files of a report, :func:`analyze` returns only the Report, :func:`run_night` reports all runs
of a folder or an object store; ``rule_configs`` and
``ProfilerRule`` select the rules and their values; a custom rule derives from :class:`Rule`. See docs/rules-api.md.
``ProfilerConfig``, ``FrameworkProfile`` and related classes define what a recording profiles; ``profiler_requests`` has the launcher's
functions. See docs/profiling-configuration.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import profiler_requests as profiler_requests
    from .analysis.report.model import Report as Report
    from .analysis.rules.engine import config as rule_configs
    from .analysis.rules.engine.config import ProfilerRule as ProfilerRule
    from .analysis.rules.evidence.base import Cost as Cost
    from .analysis.rules.evidence.base import Outcome as Outcome
    from .analysis.rules.evidence.base import Parameter as Parameter
    from .analysis.rules.evidence.base import Rule as Rule
    from .analysis.rules.evidence.base import SampleRule as SampleRule
    from .analysis.rules.evidence.base import not_evaluated as not_evaluated
    from .api import IngestOptions as IngestOptions
    from .api import OutputOptions as OutputOptions
    from .api import ReportResult as ReportResult
    from .api import analyze as analyze
    from .api import make_report as make_report
    from .native.profiling.classes import DataloaderProfilingConfig as DataloaderProfilingConfig
    from .native.profiling.classes import DetailedProfilingConfig as DetailedProfilingConfig
    from .native.profiling.classes import FrameworkProfile as FrameworkProfile
    from .native.profiling.classes import HorovodProfilingConfig as HorovodProfilingConfig
    from .native.profiling.classes import PythonProfiler as PythonProfiler
    from .native.profiling.classes import PythonProfilingConfig as PythonProfilingConfig
    from .native.profiling.classes import SMDataParallelProfilingConfig as SMDataParallelProfilingConfig
    from .native.profiling.classes import StepRange as StepRange
    from .native.profiling.classes import TimeRange as TimeRange
    from .native.profiling.classes import cProfileTimer as cProfileTimer
    from .native.profiling.profiler_config import Profiler as Profiler
    from .native.profiling.profiler_config import ProfilerConfig as ProfilerConfig
    from .nightly.api import NightResult as NightResult
    from .nightly.api import run_night as run_night
    from .report_templates.output.render import render as render

# Module -> its public names; loaded at first use, so that the command line's --help stays fast.
_MODULES = {
    ".analysis.report": "Report",
    ".analysis.rules.engine.config": "ProfilerRule",
    ".analysis.rules.evidence.base": "Cost Outcome Parameter Rule SampleRule not_evaluated",
    ".api": "IngestOptions OutputOptions ReportResult analyze make_report",
    ".native.profiling.classes": "DataloaderProfilingConfig DetailedProfilingConfig FrameworkProfile HorovodProfilingConfig PythonProfiler"
    " PythonProfilingConfig SMDataParallelProfilingConfig StepRange TimeRange cProfileTimer",
    ".native.profiling.profiler_config": "Profiler ProfilerConfig",
    ".nightly.api": "NightResult run_night",
    ".report_templates.output.render": "render",
}
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}
_SUBMODULES = ("capture", "errors", "profiler_requests", "rule_configs")
__all__ = ["rule_configs"]  # a literal for type checkers, which see the other names as aliases above
__all__ += [*_PUBLIC, "profiler_requests"]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        value = import_module(f".{name}", __name__)
    elif name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
