"""Section "Dashboard": the thirteen panels of the hosted dashboard in their documented form, from the figures of the other sections."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from ..blocks import Figure, Section, say

# Number and title of each panel, and the figures that are it.
_PANELS: Final = (
    (1, "GPU active time", ("system-usage-gpu-active",)),
    (2, "GPU utilization over time", ("system-usage-gpu-over-time",)),
    (3, "CPU active time", ("system-usage-cpu-active",)),
    (4, "CPU utilization over time", ("system-usage-cpu-over-time",)),
    (5, "Time spent by all GPU kernels", ("kernels-time",)),
    (6, "Time spent by the top GPU kernels", ("kernels-time-top",)),
    (7, "Launch counts of all GPU kernels", ("kernels-launches",)),
    (8, "Launch counts of the top GPU kernels", ("kernels-launches-top",)),
    (9, "Step time distribution", ("steps-distribution",)),
    (10, "Kernel precision distribution", ("precision-all",)),
    (11, "GPU activity distribution", ("activity-time",)),
    (12, "GPU memory operations distribution", ("memory-operations-time",)),
    (13, "Histograms of annotated ranges", ("annotations-histograms",)),
)


def dashboard(sections: Sequence[Section]) -> Section | None:
    """Make the section; None without data for any panel."""
    figures = {figure.id: figure for section in sections for figure in section.figures.values()}
    figures |= {figure.below.id: figure.below for figure in figures.values() if figure.below}
    panels = [(number, title, _copy(figures[id]) if id in figures else None) for number, title, (id,) in _PANELS]
    known = [panel for panel in panels if panel[2] is not None]
    if not known:
        return None
    missing = [title for _, title, figure in panels if figure is None]
    section = Section("dashboard", "Dashboard", say("The {} panels of the hosted dashboard, in its form.", len(_PANELS)))
    section.facts["panels"] = known
    section.facts["missing"] = say("Without data in this run: {}.", ", ".join(missing)) if missing else None
    return section


def _copy(figure: Figure) -> Figure:
    """Return the figure under an id of its own."""
    legend = dataclasses.replace(figure.legend, id=f"dashboard-{figure.legend.id}", legend=True) if figure.legend else None
    return dataclasses.replace(figure, id=f"dashboard-{figure.id}", legend=legend, below=None)
