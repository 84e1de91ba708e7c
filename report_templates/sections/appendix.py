"""Section of the files, options, and versions behind the report, and of definitions of terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...analysis.report.model import Report
from ..blocks import Section, Texts, line_of, say
from ..blocks.tables import Col, pairs_table, table
from ..text.formats import count, moment, plural, size

DEFINITIONS = (
    ("span", "Time from the first to the last event of a device, as one process saw it."),
    ("busy", "Length of the union of all activity on the device, over all streams."),
    ("computation", "Length of the union of the kernels that are not communication."),
    ("communication", "Length of the union of the collective and point-to-point kernels."),
    ("exposed", "Not covered by computation. Span = computation + exposed communication + exposed memory operations + idle."),
    ("overlap", "Communication that computation covers, in percent of communication."),
    ("idle", "Span − busy."),
    ("kernel time", "Durations of kernels summed, so kernels that run at the same time count twice."),
    ("of profile", "A kernel's summed time in percent of (span of the profile x devices)."),
    ("launch latency", "Start of the kernel − return of its launch call. Negative latencies are counted separately."),
    ("host wait", "A gap before a kernel whose launch ended after the kernel before it did."),
    ("kernel wait", "A gap below 30 µs before a kernel whose launch was ready."),
    ("step time", "From the end of the device work of one step to that of the next; the host's duration if there is none."),
    ("percentile", "p95 is the value that 95% of the values do not exceed; linear interpolation between order statistics."),
    ("deviation", "Standard deviation of the whole population."),
    ("active", "A utilization sample above 0%."),
    ("derived", "Estimated from kernel activity, because the quantity itself was not sampled."),
    ("precision", "The arithmetic of a kernel, by the types of its operator's inputs, else by its name; otherwise unknown."),
    ("roof", "Least time that the peaks of the GPU allow for the operations and bytes of an operator."),
    ("MFU, HFU", "Operations of the model in the measured time, in percent of the dense peak; HFU also counts those that are repeated."),
    ("bandwidth", "Bytes by summed duration, in units of 10⁹ bytes per second."),
    ("KiB, MiB, GiB", "1024, 1024² and 1024³ bytes."),
)

_OF_ANY_RUN: Final = frozenset({"step time", "percentile", "deviation", "active", "derived", "KiB, MiB, GiB"})  # the others are of GPUs


def add_left_out(section: Section, names: Sequence[str]) -> None:
    """List the sections that the user omitted."""
    if names:
        section.lead += say(" Sections left out: {}; report.json contains their data.", ", ".join(names))


def add_of_training(section: Section, names: Sequence[str]) -> None:
    """List the sections that do not apply because the run is inference."""
    if names:
        section.lead += say(" The run is inference: sections on training do not apply ({}).", ", ".join(names))


def appendix(report: Report) -> Section:
    lead = say(
        "Written by {} {} on {} from {}.",
        report.generator.name,
        report.generator.version,
        moment(report.generator.generated_at_ns),
        plural(len(report.run.sources), "input file"),
    )
    # The chapter of rules lists those that were selected.
    options = [(str(key), _plain(setting)) for key, setting in report.options.items() if key != "rules" or not report.rules]
    options += [("masked", note.message.partition(": ")[2]) for note in report.data_quality if note.code == "values_masked"]
    versions = list({report.generator.name: report.generator.version, **report.generator.versions}.items())
    lines = [
        (caption, line_of(pairs, longest=2000)) for caption, pairs in (("Options in effect", options), ("Versions", versions)) if pairs
    ]
    blocks = [
        table(
            "appendix-files",
            "Input files",
            report.run.sources,
            Col("File", lambda source: source.path, kind="name", limit=120),
            Col("Format", lambda source: source.format),
            Col("Size", lambda source: source.bytes, size),
            Col("Events", lambda source: source.events, count),
            Col("SHA-256", lambda source: source.sha256, html_only=True),
            Col("SHA-256 (first 16 hex)", lambda source: (source.sha256 or "")[:16], pdf_only=True),
            pdf_rows=5,
        ),
        Texts("lines_of", lines),
        Texts("definitions", [pair for pair in DEFINITIONS if report.time_breakdown or pair[0] in _OF_ANY_RUN]),
        pairs_table("appendix-options", "Options in effect", options, ("Option", "Value"), limit=200, pdf_rows=0),
        pairs_table("appendix-versions", "Versions", versions, ("Library", "Version"), pdf_rows=0),
    ]
    return Section("appendix", "Files, options, and definitions", lead, blocks)


def _plain(setting: object) -> str:
    if isinstance(setting, (list, tuple)):
        return ", ".join(str(item) for item in setting) or "none"
    if isinstance(setting, dict):
        return ", ".join(f"{key} = {value}" for key, value in setting.items()) or "none"
    return "none" if setting is None else str(setting)
