"""The words of `postrun compare`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import option_values
from ..messages import echo, echo_line
from .parts import CONFIG, FILE_SETTINGS, VERBOSITY, bad_parameter, option, print_json, progress_line, with_options
from .report_options import CHOICE_OF_RULES, GENERATED_AT, MODE, PAPER, REDACT, STORE_OPTIONS

if TYPE_CHECKING:
    from ..analysis.report.comparison import Comparison
    from ..analysis.rules.engine.selection import Selection
    from ..analysis.rules.evidence.base import Preset

_FORMATS: Final = ("html", "pdf", "json")
FAIL_WORDS: Final = ("slower", "faster", "verdicts", "kernels", "memory", "changed", "unlike", "undecided")
_SHOWN: Final = 8


def _formats(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    with bad_parameter():
        return option_values.choices(value, _FORMATS, "no format of a comparison")


def _fail_on(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    with bad_parameter():
        return option_values.choices(value, FAIL_WORDS, "nothing to fail on")


_OPTIONS = [
    option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-comparison"), show_default=True,
            help="Folder to write comparison.html, comparison.pdf and comparison.json to."),
    option("--format", "formats", type=click.UNPROCESSED, callback=_formats, metavar="LIST", default="html,pdf,json",
            show_default=True, help=f"Which of {','.join(_FORMATS)} to write."),
    option("--threshold", type=click.FloatRange(0, 1000), default=3.0, show_default=True, metavar="PERCENT",
            help="What changed by less is no change."),
    option("--fail-on", type=click.UNPROCESSED, callback=_fail_on, metavar="LIST",
            help=f"Exit with code 3 for one of {','.join(FAIL_WORDS)}."),
    *CHOICE_OF_RULES,
    PAPER,
    REDACT,
    MODE,
    option("--json", "as_json", is_flag=True, help="Print a summary of the comparison as JSON on standard output."),
    GENERATED_AT,
]  # fmt: skip


@click.command(short_help="Tell what changed from one run to another.")
@click.argument("base")
@click.argument("new")
@with_options(_OPTIONS, [CONFIG], STORE_OPTIONS, VERBOSITY)
def compare(
    base: str, new: str, output: Path, formats: tuple[str, ...], threshold: float, fail_on: tuple[str, ...], paper: str, as_json: bool,
    generated_at: str | None, quiet: bool, verbose: bool, **options: Any,
) -> None:  # fmt: skip
    """Tell what changed from the run BASE to the run NEW: comparison.html, comparison.pdf and comparison.json.

    Each is a trace file, a folder, a run store, or a report.json that postrun wrote (or the folder it is in). Options about rules hold for
    runs that are analysed now.
    """
    made_at = option_values.generated_at(generated_at)
    of_store = {name: options.pop(name) for name in ("memory_limit", "threads", "max_unpacked", "redact", "same", "clock_offsets")}
    selection = _selection(**options)
    from ..report_templates.output.pdf import Printer

    with (
        Printer() if "pdf" in formats else nullcontext() as printer,
        progress_line(quiet, verbose) as progress,
    ):
        from . import compare_inputs

        sides = [compare_inputs.load(given, selection, progress=progress, **of_store) for given in (base, new)]
        progress("comparing", None)
        from ..analysis.assemble import generator
        from ..analysis.compare.build import compare as compared
        from ..analysis.options import Options
        from ..report_templates.output.comparison_page import render_comparison

        made = compared(
            sides[0].report,
            sides[1].report,
            generator=generator(Options(generated_at_ns=made_at)),
            threshold_percent=threshold,
            given=(compare_inputs.shown(base, of_store["redact"]), compare_inputs.shown(new, of_store["redact"])),
            read_from=(sides[0].kind, sides[1].kind),
        )
        progress("printing", None)
        written = render_comparison(made, output, formats, paper=paper, printer=printer)
        progress("", None)
    for side, given in zip(sides, (base, new), strict=True):
        if not quiet and side.path is not None and side.path != given:
            echo_line(f"note: {side.path} was read, not the traces; give their folder to analyse them again", err=True)
    if as_json:
        print_json(_summary(made, written))
    elif not quiet:
        _tell(made, written)
    _fail(made, fail_on)


def _selection(rules: tuple[str, ...] | None, preset: Preset, settings: tuple[tuple[tuple[str, str], ...], ...]) -> Selection:
    """The rules that judge a run that is analysed now. Raises UsageError."""
    from ..analysis.rules.engine import choose as rule_options

    below, above = settings
    with bad_parameter(option="--set"):
        values = {**rule_options.settings(below), **rule_options.settings(above)}
    of_file = click.get_current_context().meta.get(FILE_SETTINGS, {})
    return rule_options.chosen(rules, preset, settings=values, of_file=of_file)[0]


def _tell(made: Comparison, written: dict[str, Path]) -> None:
    for one in made.differences:
        if one.limits:
            echo_line(f"not alike: {one.name}: {one.base} before, {one.new} now. {one.limits[:1].upper()}{one.limits[1:]}.")
    echo_line(made.headline)
    others = [one for one in made.changes if one.area != "step"]
    for change in others[:_SHOWN]:
        echo_line(f"  {change.text}")
    if len(others) > _SHOWN:
        echo(f"  ... and {len(others) - _SHOWN} more")
    for path in written.values():
        echo(str(path))


def _summary(made: Comparison, written: dict[str, Path]) -> dict[str, Any]:
    import dataclasses

    steps = made.steps
    return {
        "base": made.base.name,
        "new": made.new.name,
        "headline": made.headline,
        "verdict": made.verdict,
        "step_time_ns": {"base": steps.base.p50, "new": steps.new.p50, "change_percent": steps.change_percent} if steps else None,
        "differences": [dataclasses.asdict(one) for one in made.differences],
        "changes": [dataclasses.asdict(one) for one in made.changes],
        "written": {kind: str(path) for kind, path in written.items()},
    }


def _fail(made: Comparison, fail_on: Sequence[str]) -> None:
    """Leave with exit code 3 where something matches; say what could not be told."""
    if not fail_on:
        return
    if made.verdict in ("unknown", "undecided") and {"slower", "faster"} & set(fail_on):
        why = f"steps cannot be compared ({made.steps_absent})" if made.steps is None else "there are too few steps to tell"
        echo(f"postrun: --fail-on: {why}, so slower and faster cannot match; --fail-on undecided does", err=True)
    matching = {
        "slower": made.verdict == "slower",
        "faster": made.verdict == "faster",
        "undecided": made.verdict in ("unknown", "undecided"),
        "verdicts": any(one.state == "broken" for one in made.changes),
        "kernels": any(one.area == "kernel" and one.state in ("grown", "added") for one in made.changes),
        "memory": any(one.area == "gpu memory" and one.state == "grown" for one in made.changes),
        "changed": bool(made.changes),
        "unlike": any(one.limits for one in made.differences),
    }
    found = [word for word in fail_on if matching[word]]
    if found:
        echo(f"postrun: --fail-on: {', '.join(found)}", err=True)
        sys.exit(3)
