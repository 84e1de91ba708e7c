"""Report -> the sections of the page, in the order of their chapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...analysis.report.model import Report
from ...analysis.timeline.model import Timeline
from ..blocks import Section, say
from ..sections.annotated_ranges import annotated_ranges
from ..sections.appendix import add_left_out, add_of_training, appendix
from ..sections.collectives import collectives
from ..sections.dashboard import dashboard
from ..sections.data_quality import data_quality
from ..sections.efficiency import efficiency
from ..sections.framework import framework
from ..sections.gpu_memory import gpu_memory
from ..sections.idle import idle
from ..sections.information import information
from ..sections.iterations import iterations
from ..sections.job_statistics import job_statistics
from ..sections.kernels import kernels
from ..sections.launches import launch_configurations, launch_queue, launches
from ..sections.memory_operations import memory_operations
from ..sections.modules import modules
from ..sections.operators import operators
from ..sections.python_profile import python_profile
from ..sections.rank_comparison import rank_comparison
from ..sections.rules import findings, rules
from ..sections.run_marks import time_marks
from ..sections.shares import activity, categories, precision
from ..sections.slow_steps import slow_steps
from ..sections.step_breakdown import step_breakdown
from ..sections.steps import steps
from ..sections.summary import summary
from ..sections.system_usage import system_usage
from ..sections.time_breakdown import time_breakdown
from ..text.formats import plural
from ..text.look import Look
from ..timeline.section import timeline as timeline_section

# In the order of the chapters; the template of a section is templates/sections/<id with _>.html.j2.
SECTIONS: Final[tuple[Callable[[Report], Section], ...]] = (
    findings, time_breakdown, categories, precision, activity, job_statistics, steps, step_breakdown, slow_steps, iterations,
    rank_comparison, collectives, kernels, launch_configurations, operators, efficiency, modules, launches, launch_queue, idle, framework,
    annotated_ranges, python_profile, system_usage, gpu_memory, memory_operations, rules, information, data_quality, appendix,
)  # fmt: skip
_TIMELINE_BEFORE: Final = "rules"


# Sections that an inference does not have, unless the user names them.
_OF_TRAINING: Final = ("job-statistics", "steps", "step-breakdown", "slow-steps")
_OF_INFERENCE: Final = "iterations"  # a training has no such section, unless the user names it


@dataclass(frozen=True, slots=True)
class Context:
    """The data of the templates: the report, its sections, the panels of the dashboard, and the look."""

    report: Report
    summary: Section
    sections: tuple[Section, ...]
    look: Look = field(default_factory=Look)
    dashboard: Section | None = None


def name_of(build: Callable[[Report], Section]) -> str:
    """Return the id of the section that ``build`` makes, before it is made."""
    return "annotations" if build.__name__ == "annotated_ranges" else build.__name__.replace("_", "-")


def context(
    report: Report, progress: Callable[[str, float | None], None], timeline: Timeline | None = None, look: Look | None = None
) -> Context:
    """Make all sections for HTML and PDF, with their figures; skip omitted sections.

    The timeline is followed by the sections without content, as one section, and the appendix, unless ``look`` names the sections.
    """
    look = look or Look()
    without = look.left_out
    of_training = _OF_TRAINING if _kind(report) == "inference" and not look.named else ()
    of_inference = (_OF_INFERENCE,) if _kind(report) == "training" and not report.iteration_kinds and not look.named else ()
    chosen = [build for build in SECTIONS if name_of(build) not in (*without, *of_training, *of_inference)]
    sections = []
    for number, build in enumerate(chosen):
        progress("drawing", number / len(chosen))
        sections.append(build(report))
    if timeline is not None and "timeline" not in without:
        position = next((i for i, one in enumerate(sections) if one.id == _TIMELINE_BEFORE), len(sections) - 1)
        sections.insert(position, timeline_section(timeline, time_marks(report, timeline.origin_ns), report.job_statistics.apart_ns))
    panels = None if look.named else dashboard(sections)
    if not look.named:
        sections = _gathered(sections)
    add_left_out(sections[-1], without)
    add_of_training(sections[-1], [name for name in of_training if name not in without])
    first = summary(report, rules="rules" not in without)
    return Context(report, first, tuple(sections), look, panels)


def _kind(report: Report) -> str | None:
    return report.program.kind if report.program is not None else None


def _gathered(sections: Sequence[Section]) -> list[Section]:
    """Gather the sections without content in a section before the appendix.

    Each keeps its id there, so that links to it lead to the reason.
    """
    empty = tuple(section for section in sections if section.empty)
    if not empty:
        return list(sections)
    what = plural(len(empty), "section has", "sections have")
    gathered = Section("without-content", "Not in this report", say("{} no data in this run.", what))
    gathered.facts["sections"] = empty
    kept = [section for section in sections if not section.empty]
    return [*kept[:-1], gathered, kept[-1]]
