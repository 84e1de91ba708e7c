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
    from .analysis.report import Report as Report
    from .analysis.rules import config as rule_configs
    from .analysis.rules.base import Cost as Cost
    from .analysis.rules.base import Outcome as Outcome
    from .analysis.rules.base import Parameter as Parameter
    from .analysis.rules.base import Rule as Rule
    from .analysis.rules.base import SampleRule as SampleRule
    from .analysis.rules.base import not_evaluated as not_evaluated
    from .analysis.rules.config import ProfilerRule as ProfilerRule
    from .api import IngestOptions as IngestOptions
    from .api import OutputOptions as OutputOptions
    from .api import ReportResult as ReportResult
    from .api import analyze as analyze
    from .api import make_report as make_report
    from .framework_profile import DataloaderProfilingConfig as DataloaderProfilingConfig
    from .framework_profile import DetailedProfilingConfig as DetailedProfilingConfig
    from .framework_profile import FrameworkProfile as FrameworkProfile
    from .framework_profile import HorovodProfilingConfig as HorovodProfilingConfig
    from .framework_profile import PythonProfiler as PythonProfiler
    from .framework_profile import PythonProfilingConfig as PythonProfilingConfig
    from .framework_profile import SMDataParallelProfilingConfig as SMDataParallelProfilingConfig
    from .framework_profile import StepRange as StepRange
    from .framework_profile import TimeRange as TimeRange
    from .framework_profile import cProfileTimer as cProfileTimer
    from .profiler_config import Profiler as Profiler
    from .profiler_config import ProfilerConfig as ProfilerConfig
    from .report_templates.render import render as render

# Name -> module and attribute; loaded at first use, so that the command line's --help stays fast.
_PUBLIC = {
    "Cost": (".analysis.rules.base", "Cost"),
    "DataloaderProfilingConfig": (".framework_profile", "DataloaderProfilingConfig"),
    "DetailedProfilingConfig": (".framework_profile", "DetailedProfilingConfig"),
    "FrameworkProfile": (".framework_profile", "FrameworkProfile"),
    "HorovodProfilingConfig": (".framework_profile", "HorovodProfilingConfig"),
    "IngestOptions": (".api", "IngestOptions"),
    "Outcome": (".analysis.rules.base", "Outcome"),
    "OutputOptions": (".api", "OutputOptions"),
    "Parameter": (".analysis.rules.base", "Parameter"),
    "Profiler": (".profiler_config", "Profiler"),
    "ProfilerConfig": (".profiler_config", "ProfilerConfig"),
    "ProfilerRule": (".analysis.rules.config", "ProfilerRule"),
    "PythonProfiler": (".framework_profile", "PythonProfiler"),
    "PythonProfilingConfig": (".framework_profile", "PythonProfilingConfig"),
    "Report": (".analysis.report", "Report"),
    "ReportResult": (".api", "ReportResult"),
    "Rule": (".analysis.rules.base", "Rule"),
    "SMDataParallelProfilingConfig": (".framework_profile", "SMDataParallelProfilingConfig"),
    "SampleRule": (".analysis.rules.base", "SampleRule"),
    "StepRange": (".framework_profile", "StepRange"),
    "TimeRange": (".framework_profile", "TimeRange"),
    "analyze": (".api", "analyze"),
    "cProfileTimer": (".framework_profile", "cProfileTimer"),
    "make_report": (".api", "make_report"),
    "not_evaluated": (".analysis.rules.base", "not_evaluated"),
    "profiler_requests": (".profiler_requests", None),
    "render": (".report_templates.render", "render"),
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
