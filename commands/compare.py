"""The words of `postrun compare`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import option_values
from ..analysis.toolkit.wording import percent, signed_percent
from ..messages import echo, echo_line
from .parts import CONFIG, FILE_SETTINGS, VERBOSITY, option, parsed, print_json, progress_line, with_options
from .report_options import BRAND, CHOICE_OF_RULES, GENERATED_AT, MODE, PAPER, REDACT, STORE_OPTIONS, checked_settings, chosen_look

if TYPE_CHECKING:
    from ..analysis.report.comparison import Comparison, Difference

_FORMATS: Final = ("html", "pdf", "json", "md", "junit")
FAIL_WORDS: Final = ("slower", "faster", "verdicts", "kernels", "memory", "changed", "unlike", "undecided")
_MAX_CHANGES: Final = 8
_MAX_IGNORED: Final = 5


_formats = parsed(lambda value: option_values.choices(value, _FORMATS, "not a format of a comparison"))
_fail_on = parsed(lambda value: option_values.choices(value, FAIL_WORDS, "nothing to fail on"), absent=())
_OPTIONS = [
    option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-comparison"), show_default=True,
            help="Folder to write the files of the comparison to."),
    option("--format", "formats", type=click.UNPROCESSED, callback=_formats, metavar="LIST", default="html,pdf,json",
            show_default=True, help=f"Which of {','.join(_FORMATS)} to write."),
    option("--baseline", "baselines", multiple=True, metavar="RUN",
            help="Further run of the code of BASE; may be repeated. A change must then exceed the spread of the base runs."),
    option("--threshold", type=click.FloatRange(0, 1000), default=3.0, show_default=True, metavar="PERCENT",
            help="Ignore changes smaller than this."),
    option("--fail-on", type=click.UNPROCESSED, callback=_fail_on, metavar="LIST",
            help=f"Exit with code 3 for one of {','.join(FAIL_WORDS)}."),
    *CHOICE_OF_RULES,
    PAPER,
    *BRAND,
    REDACT,
    MODE,
    option("--json", "as_json", is_flag=True, help="Print a summary of the comparison as JSON on standard output."),
    GENERATED_AT,
]  # fmt: skip


@click.command(short_help="Compare two runs.")
@click.argument("base")
@click.argument("new")
@with_options(_OPTIONS, [CONFIG], STORE_OPTIONS, VERBOSITY)
def compare(
    base: str, new: str, baselines: tuple[str, ...], output: Path, formats: tuple[str, ...], threshold: float, fail_on: tuple[str, ...],
    paper: str, as_json: bool, generated_at: str | None, quiet: bool, verbose: bool, **options: Any,
) -> None:  # fmt: skip
    """Compare the run NEW with the run BASE in comparison.html, comparison.pdf
    and comparison.json; --format md also writes a text for pull requests,
    and junit one for CI systems.

    Each is a trace file, a folder, a run store, or a report.json that postrun wrote (or the folder it is in). Options about rules apply to
    runs that are analyzed now.
    """
    made_at = option_values.generated_at(generated_at)
    of_store = {name: options.pop(name) for name in ("memory_limit", "threads", "max_unpacked", "redact", "same", "clock_offsets")}
    from ..analysis.rules.engine import choose as rule_options

    settings = checked_settings(options.pop("settings"))
    of_file = click.get_current_context().meta.get(FILE_SETTINGS, {})
    look = chosen_look(options)
    selection, _ = rule_options.chosen(**options, settings=settings, of_file=of_file)
    from ..report_templates.output.pdf import Printer

    with (
        Printer() if "pdf" in formats else nullcontext() as printer,
        progress_line(quiet, verbose) as progress,
    ):
        from . import compare_inputs

        sources = (base, new, *baselines)
        sides = [compare_inputs.load(given, selection, progress, of_store) for given in sources]
        names = [compare_inputs.display_name(given, of_store["redact"]) for given in sources]
        progress("comparing", None)
        from ..analysis.assemble import generator
        from ..analysis.compare.build import compare as compared
        from ..analysis.options import Options
        from ..report_templates.output.comparison_page import render_comparison

        comparison = compared(
            sides[0].report,
            sides[1].report,
            generator=generator(Options(generated_at_ns=made_at)),
            threshold_percent=threshold,
            given=(names[0], names[1]),
            read_from=(sides[0].kind, sides[1].kind),
            baselines=[(side.report, name, side.kind) for side, name in zip(sides[2:], names[2:], strict=True)],
        )
        progress("printing", None)
        notes: list[str] = []
        written = render_comparison(comparison, output, formats, paper=paper, printer=printer, look=look, notes=notes)
        progress("", None)
    for note in () if quiet else notes:
        echo_line(f"note: {note}", err=True)
    for side, source in zip(sides, sources, strict=True):
        if not quiet and side.path is not None and side.path != source:
            echo_line(f"note: {side.path} was read, not the traces; give their folder to analyze them again", err=True)
        if not quiet and side.ignored:
            fields = f"{', '.join(side.ignored[:_MAX_IGNORED])}{' ...' if len(side.ignored) > _MAX_IGNORED else ''}"
            echo_line(f"note: {side.path}: fields that this version of postrun does not know are left out: {fields}", err=True)
    if as_json:
        print_json(_summary(comparison, written))
    elif not quiet:
        _tell(comparison, written)
    _fail(comparison, fail_on)


def _tell(comparison: Comparison, written: dict[str, Path]) -> None:
    different = comparison.different_programs
    if not different:
        _tell_limits(comparison.differences)
    change = comparison.judgment.percent if comparison.judgment else None
    echo_line(f"verdict: {comparison.verdict}{'' if change is None else f' ({signed_percent(change)})'}")
    echo_line(comparison.headline)
    if comparison.details:
        echo_line(comparison.details)
    if different:
        _tell_limits(comparison.differences[1:])  # the first one is the programs
        for row in comparison.percentages:
            base, new = ("unknown" if value is None else percent(value) for value in (row.base_percent, row.new_percent))
            echo_line(f"  {row.name}, percent of {row.of}: {base} in base, {new} in new")
    others = [] if different else [one for one in comparison.changes if one.area != "step"]
    for change_ in others[:_MAX_CHANGES]:
        echo_line(f"  {change_.text}")
    if len(others) > _MAX_CHANGES:
        echo(f"  ... and {len(others) - _MAX_CHANGES} more")
    for path in written.values():
        echo(str(path))


def _tell_limits(differences: Iterable[Difference]) -> None:
    for row in differences:
        if row.limits:
            echo_line(f"not alike: {row.name}: {row.base} before, {row.new} now. {row.limits[:1].upper()}{row.limits[1:]}.")


def _summary(comparison: Comparison, written: dict[str, Path]) -> dict[str, Any]:
    import dataclasses

    steps = comparison.steps
    return {
        "base": comparison.base.name,
        "new": comparison.new.name,
        "baselines": [side.name for side in comparison.baselines],
        "headline": comparison.headline,
        "details": comparison.details,
        "verdict": comparison.verdict,
        "judgment": dataclasses.asdict(comparison.judgment) if comparison.judgment else None,
        "step_time_ns": {"base": steps.base.p50, "new": steps.new.p50, "change_percent": steps.change_percent} if steps else None,
        "differences": [dataclasses.asdict(one) for one in comparison.differences],
        "changes": [dataclasses.asdict(one) for one in comparison.changes],
        "written": {kind: str(path) for kind, path in written.items()},
    }


def _fail(comparison: Comparison, fail_on: Sequence[str]) -> None:
    """Exit with code 3 if something matches; print which words cannot match."""
    if not fail_on:
        return
    # A gate without evidence must not pass.
    unjudged = comparison.verdict == "cannot say" and comparison.steps is None and not comparison.different_programs
    if comparison.different_programs and {"slower", "faster", "verdicts"} & set(fail_on):
        echo(
            "postrun: --fail-on: the runs execute different programs, so slower, faster and verdicts cannot match; --fail-on unlike does",
            err=True,
        )
    elif unjudged and {"slower", "faster"} & set(fail_on):
        why = f"steps cannot be compared ({comparison.steps_absent})"
        echo(f"postrun: --fail-on: {why}, so it is not known whether the run is slower; --fail-on kernels compares kernels", err=True)
    elif comparison.verdict == "cannot say" and {"slower", "faster"} & set(fail_on):
        by_runs = comparison.judgment is not None and comparison.judgment.runs_percent is not None
        why = "the base runs vary too much" if by_runs else "the steps are too few, or vary too much"
        echo(f"postrun: --fail-on: {why}, so slower and faster cannot match; --fail-on undecided does", err=True)
    matching = {
        "slower": comparison.verdict == "slower" or unjudged,
        "faster": comparison.verdict == "faster",
        "undecided": comparison.verdict == "cannot say",
        "verdicts": any(one.state == "broken" for one in comparison.changes),
        "kernels": any(one.area == "kernel" and one.state in ("grown", "added") for one in comparison.changes),
        "memory": any(one.area == "gpu memory" and one.state == "grown" for one in comparison.changes),
        "changed": bool(comparison.changes) or comparison.different_programs,
        "unlike": any(one.limits for one in comparison.differences),
    }
    matched = [word for word in fail_on if matching[word]]
    if matched:
        echo(f"postrun: --fail-on: {', '.join(matched)}", err=True)
        sys.exit(3)
