"""Section "Job statistics": the start, end, and duration of the job and of its training loop."""

from __future__ import annotations

from ...analysis.report.model import Report
from ..blocks import Section, Slice, coded, ring, say
from ..blocks.tables import PDF_ROWS, pairs_table
from ..text.formats import UNKNOWN, duration, moment, percent


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
    blocks = [
        ring(
            "job-statistics-parts",
            say("Before, during and after the training loop."),
            "Parts of the job",
            known,
            ("Part", "Time", f"Of the {what}"),
            middle=(duration(job.duration_ns), "recorded" if job.captured_only else "job"),
        ),
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
