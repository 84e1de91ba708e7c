"""postrun: a training job ends, one command turns what was captured into a report.

The one way through: ``postrun.ingest`` loads trace files into a run store (DuckDB),
``postrun.analysis`` asks it (Polars) and returns a :class:`postrun.analysis.report.Report`,
``postrun.report_templates`` renders that as HTML, PDF and JSON. ``postrun.cli`` is the command line.

From Python: :func:`make_report` writes the files of a report, :func:`analyze` returns the Report alone; ``rule_configs`` and
``ProfilerRule`` choose the rules and their values; a rule of your own derives from :class:`Rule`. See docs/rules-api.md.
``ProfilerConfig``, ``FrameworkProfile`` and their like say what a recording profiles; ``profiler_requests`` has the launcher's side of
them. See docs/profiling-configuration.md.
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
    from .report_templates.output.render import render as render

# Name -> module and attribute; loaded at first use, so that the command line's --help stays fast.
_PUBLIC = {
    "Cost": (".analysis.rules.evidence.base", "Cost"),
    "DataloaderProfilingConfig": (".native.profiling.classes", "DataloaderProfilingConfig"),
    "DetailedProfilingConfig": (".native.profiling.classes", "DetailedProfilingConfig"),
    "FrameworkProfile": (".native.profiling.classes", "FrameworkProfile"),
    "HorovodProfilingConfig": (".native.profiling.classes", "HorovodProfilingConfig"),
    "IngestOptions": (".api", "IngestOptions"),
    "Outcome": (".analysis.rules.evidence.base", "Outcome"),
    "OutputOptions": (".api", "OutputOptions"),
    "Parameter": (".analysis.rules.evidence.base", "Parameter"),
    "Profiler": (".native.profiling.profiler_config", "Profiler"),
    "ProfilerConfig": (".native.profiling.profiler_config", "ProfilerConfig"),
    "ProfilerRule": (".analysis.rules.engine.config", "ProfilerRule"),
    "PythonProfiler": (".native.profiling.classes", "PythonProfiler"),
    "PythonProfilingConfig": (".native.profiling.classes", "PythonProfilingConfig"),
    "Report": (".analysis.report", "Report"),
    "ReportResult": (".api", "ReportResult"),
    "Rule": (".analysis.rules.evidence.base", "Rule"),
    "SMDataParallelProfilingConfig": (".native.profiling.classes", "SMDataParallelProfilingConfig"),
    "SampleRule": (".analysis.rules.evidence.base", "SampleRule"),
    "StepRange": (".native.profiling.classes", "StepRange"),
    "TimeRange": (".native.profiling.classes", "TimeRange"),
    "analyze": (".api", "analyze"),
    "cProfileTimer": (".native.profiling.classes", "cProfileTimer"),
    "make_report": (".api", "make_report"),
    "not_evaluated": (".analysis.rules.evidence.base", "not_evaluated"),
    "profiler_requests": (".profiler_requests", None),
    "render": (".report_templates.output.render", "render"),
    "rule_configs": (".rule_configs", None),
}
__all__ = [
    "Cost",
    "DataloaderProfilingConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "HorovodProfilingConfig",
    "IngestOptions",
    "Outcome",
    "OutputOptions",
    "Parameter",
    "Profiler",
    "ProfilerConfig",
    "ProfilerRule",
    "PythonProfiler",
    "PythonProfilingConfig",
    "Report",
    "ReportResult",
    "Rule",
    "SMDataParallelProfilingConfig",
    "SampleRule",
    "StepRange",
    "TimeRange",
    "analyze",
    "cProfileTimer",
    "make_report",
    "not_evaluated",
    "profiler_requests",
    "render",
    "rule_configs",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    loaded = import_module(module, __name__)
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
