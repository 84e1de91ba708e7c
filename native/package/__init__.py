"""postrun: a training job ends, one command turns what was captured into a report.

The one way through: ``postrun.ingest`` loads trace files into a run store (DuckDB),
``postrun.analysis`` asks it (Polars) and returns a :class:`postrun.analysis.report.Report`,
``postrun.report_templates`` renders that as HTML, PDF and JSON. ``postrun.cli`` is the command line.

From Python: :func:`analyze` makes a Report, :func:`render` writes its files; ``rule_configs`` and ``ProfilerRule`` choose the rules and
their values; a rule of your own derives from :class:`Rule`. See docs/rules-api.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis.report import Report as Report
    from .analysis.rules import config as rule_configs
    from .analysis.rules.base import Cost as Cost
    from .analysis.rules.base import Outcome as Outcome
    from .analysis.rules.base import Parameter as Parameter
    from .analysis.rules.base import Rule as Rule
    from .analysis.rules.base import SampleRule as SampleRule
    from .analysis.rules.base import not_evaluated as not_evaluated
    from .analysis.rules.config import ProfilerRule as ProfilerRule
    from .api import analyze as analyze
    from .report_templates.render import render as render

__version__ = "0.1.0"

# Name -> module and attribute; loaded at first use, so that the command line's --help stays fast.
_PUBLIC = {
    "Cost": (".analysis.rules.base", "Cost"),
    "Outcome": (".analysis.rules.base", "Outcome"),
    "Parameter": (".analysis.rules.base", "Parameter"),
    "ProfilerRule": (".analysis.rules.config", "ProfilerRule"),
    "Report": (".analysis.report", "Report"),
    "Rule": (".analysis.rules.base", "Rule"),
    "SampleRule": (".analysis.rules.base", "SampleRule"),
    "analyze": (".api", "analyze"),
    "not_evaluated": (".analysis.rules.base", "not_evaluated"),
    "render": (".report_templates", "render"),
    "rule_configs": (".analysis.rules.config", None),
}
__all__ = [
    "Cost",
    "Outcome",
    "Parameter",
    "ProfilerRule",
    "Report",
    "Rule",
    "SampleRule",
    "analyze",
    "not_evaluated",
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
