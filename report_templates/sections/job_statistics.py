"""Section "Job statistics": the start, end, and duration of the job and of its training loop, and its goodput."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from ...analysis.report.goodput import Goodput
from ...analysis.report.model import Report
from ...analysis.run.goodput import HOUR_NS
from ..blocks import Figure, Only, Section, Slice, coded, ring, say
from ..blocks.tables import PDF_ROWS, pairs_table
from ..text.formats import UNKNOWN, duration, moment, percent, plural, scaled, significant
from .actions import gpu_time

# Name of each part of the goodput, and its color.
GOODPUT_PARTS: Final = {
    "initialization": ("Initialization", "host"),
    "productive": ("Productive steps", "computation"),
    "slow_excess": ("Slow-step excess", "sync"),
    "data_wait": ("Data wait", "loading"),
    "checkpoint": ("Checkpoint", "memory"),
    "evaluation": ("Evaluation", "communication"),
    "lost_steps": ("Lost steps", "idle"),
    "restart_gap": ("Restart gap", "idle"),
    "between_steps": ("Between steps", "other"),
    "tail": ("After the last step", "other"),
    "not_recorded": ("Not recorded", "idle"),
}


def job_statistics(report: Report) -> Section:
    job = report.job_statistics
    relative = report.run.relative_times
    what = "recorded time" if job.captured_only else "job"
    took = "was" if job.captured_only else "took"
    more = coded(f" {job.absent}") if job.absent else ""
    if job.loop_ns is not None and job.captured_only:
        more = say(
            "{} These are parts of what was recorded: how long the initialization and the finalization of the job took is not known.", more
        )
    if job.loop_ns is not None:
        lead = say(
            "The {} {} {}: {} in the training loop, {} before it, and {} after it.{}",
            what,
            took,
            duration(job.duration_ns),
            percent(job.loop_percent),
            duration(job.initialization_ns),
            duration(job.finalization_ns),
            more,
        )
    elif job.duration_ns is not None:
        lead = say("The {} {} {}.{}", what, took, duration(job.duration_ns), more)
    else:
        lead = coded(job.absent or "No event of this run records when the job began or ended.")
    goodput = report.goodput if report.goodput is not None and report.goodput.percent is not None else None
    if goodput:
        lead += _usage(goodput)
    elif report.goodput is not None and report.goodput.parts and report.goodput.absent:  # of a job that was recorded in part
        lead += coded(f" {report.goodput.absent}")
    parts = (
        ("Before the first step" if job.captured_only else "Initialization", "host", job.initialization_ns, job.initialization_percent),
        ("Training loop", "computation", job.loop_ns, job.loop_percent),
        ("After the last step" if job.captured_only else "Finalization", "other", job.finalization_ns, job.finalization_percent),
    )
    within = ", within the recording" if job.captured_only else ""
    known = [Slice(name, meaning, share, (duration(time),)) for name, meaning, time, share in parts if share is not None]
    times = [
        ("Start time", moment(job.started_at_ns, relative=relative)),
        ("End time", moment(job.ended_at_ns, relative=relative)),
        ("Recorded time" if job.captured_only else "Job duration", duration(job.duration_ns)),
        ("Training loop start", moment(job.loop_started_at_ns, relative=relative)),
        ("Training loop end", moment(job.loop_ended_at_ns, relative=relative)),
    ]
    if not known:
        times += [
            ("Training loop duration", duration(job.loop_ns)),
            (f"Initialization time{within}", duration(job.initialization_ns)),
            (f"Finalization time{within}", duration(job.finalization_ns)),
        ]
    parts_ring = ring(
        "job-statistics-parts",
        say("Before, during and after the training loop."),
        "Parts of the job",
        known,
        ("Part", "Time", f"Of the {what}"),
        middle=(duration(job.duration_ns), "recorded" if job.captured_only else "job"),
    )
    blocks = [
        *((Only("html", goodput_ring(goodput)), Only("pdf", parts_ring)) if goodput else (parts_ring,)),
        pairs_table(
            "job-statistics-times",
            "Job statistics",
            [pair for pair in times if pair[1] != UNKNOWN],
            ("What", "Value"),
            kind="number",
            sortable=False,
            pdf_rows=0 if known else PDF_ROWS,  # the appendix has the times, and the parts add up to them
        ),
    ]
    return Section("job-statistics", "Job statistics", lead, blocks, compact=True)


def _usage(work: Goodput) -> Markup:
    """Write the goodput, with GPU-hours, cost and energy if they are known."""
    hours = "" if work.gpu_hours is None else f" of {gpu_time(work.gpu_hours * HOUR_NS, work.gpus)}"
    cost = "" if work.cost is None else f"{significant(work.cost)}\u00a0{work.currency}"
    energy = "" if work.energy_joules is None else scaled(work.energy_joules, "J")
    more = ", ".join(filter(None, (cost, energy)))
    return say(" Goodput is {}{}{}.", percent(work.percent), hours, f" ({more})" if more else "")


def goodput_ring(work: Goodput) -> Figure | None:
    """Draw the parts of the wall time; times are means over the ranks.

    The PDF has no room for it."""
    slices = []
    for part in work.parts:
        if part.time_ns:
            label, meaning = GOODPUT_PARTS[part.name]
            hours = () if part.gpu_hours is None else (gpu_time(part.gpu_hours * HOUR_NS, work.gpus),)
            slices.append(Slice(label, meaning, part.percent or 0.0, (duration(part.time_ns / work.ranks), *hours)))
    unknown = [GOODPUT_PARTS[part.name][0].lower() for part in work.parts if part.time_ns is None]
    notes = [
        f"Mean of {plural(work.ranks, 'rank')}." if work.ranks > 1 else "",
        f"{plural(work.restarts, 'restart')}." if work.restarts else "",
        f"Not known for the job: {', '.join(unknown)}; their time is in other parts." if unknown else "",
    ]
    return ring(
        "job-statistics-goodput",
        say("The wall time of the job; goodput is the share of productive steps."),
        "Parts of the job",
        slices,
        ("Part", "Time", *(() if work.gpu_hours is None else ("GPU time",)), "Of the job"),
        middle=(percent(work.percent), "goodput"),
        html_note=" ".join(filter(None, notes)) or None,
    )
