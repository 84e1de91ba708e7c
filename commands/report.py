"""``postrun report``, and what every command that makes a report shares: options -> ReportPlan -> files and printed summary."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .. import option_values
from ..messages import echo, echo_line
from .parts import CONFIG, VERBOSITY, print_json, progress_line, with_options
from .report_options import REPORT_OPTIONS, STORE_OPTIONS, chosen_look, chosen_rules, fail_if

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..analysis import Options
    from ..analysis.rules.engine.selection import Selection
    from ..api import IngestOptions, OutputOptions, ReportResult


@click.command(short_help="Create the report of one run.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@with_options(REPORT_OPTIONS, [CONFIG], STORE_OPTIONS, VERBOSITY)
def report(sources: tuple[str, ...], quiet: bool, verbose: bool, as_json: bool, **options: Any) -> None:
    """Write report.html, report.pdf and report.json of one run.

    SOURCE is a trace file, a folder (searched through; unknown files are listed in the report), a run store that `postrun ingest` made, or
    a URL of any of them (s3://bucket/prefix, gs://, az://).
    """
    plan, fail_on = plan_report(options, quiet)
    with progress_line(quiet, verbose) as progress:
        result = plan.make(sources, progress)
    print_result(result, plan.options.histograms, quiet=quiet, as_json=as_json)
    fail_if(result.report, fail_on)


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The arguments of :func:`postrun.api.make_report`, except the source."""

    output: OutputOptions
    selection: Selection
    options: Options
    ingest_options: IngestOptions

    def make(self, sources: Sequence[str | Path], progress: Callable[[str, float | None], None]) -> ReportResult:
        """Make the report of the run in ``sources``."""
        from .. import api

        return api.make_report(
            sources, self.output, selection=self.selection, options=self.options, ingest_options=self.ingest_options, progress=progress
        )


def plan_report(options: dict[str, Any], quiet: bool) -> tuple[ReportPlan, tuple[str, ...]]:
    """Check REPORT_OPTIONS; return the plan and the rules of --fail-on."""
    selection, fail_on = chosen_rules(options, quiet)
    look = chosen_look(options)
    from ..analysis import Options
    from ..api import IngestOptions, OutputOptions

    # A configuration file serves many runs: a run without the annotation is normal.
    of_file = click.get_current_context().get_parameter_source("histograms") is ParameterSource.DEFAULT_MAP
    plan = ReportPlan(
        OutputOptions(options["output"], options["formats"], options["paper"], look, options["timeline_events"]),
        selection,
        Options(
            top=options["top"],
            histograms=options["histograms"],
            histograms_if_present=of_file,
            generated_at_ns=option_values.generated_at(options["generated_at"]),
            name=options["name"],
            peaks=options["peaks"],
            price_per_gpu_hour=options["price_per_gpu_hour"],
        ),
        IngestOptions(**{field.name: options[field.name] for field in dataclasses.fields(IngestOptions) if field.name in options}),
    )
    return plan, fail_on


def print_result(result: ReportResult, histograms: Sequence[str] = (), *, quiet: bool, as_json: bool = False) -> None:
    """Print headline, verdicts and files, or a JSON summary; print notes."""
    from . import report_words

    report = result.report
    notes = [
        f"histogram = {name!r} of the configuration: no annotated range of this run has this name"
        for name in histograms
        if name not in report.annotations.histograms
    ]
    notes += result.notes
    if as_json:
        print_json(report_words.summary(report, result.written))
        notes += report_words.failures(report)
    elif not quiet:
        echo_line(report.summary.headline)
        for line in report_words.verdict_lines(report):
            echo_line(line)
        for path in result.written.values():
            echo(str(path))
        notes += report.summary.warnings
        notes += [f"{path} is of an earlier report; it was left as it is" for path in result.stale]
    for note in () if quiet else notes:
        echo_line(f"note: {note}", err=True)
