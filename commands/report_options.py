"""The options of the commands that make reports, and the rules and the look that they select."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .. import option_values
from ..errors import UsageError
from ..messages import echo
from .parts import CONFIG_FILE, FILE_SETTINGS, Listed, Number, bad_parameter, option, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..analysis.report.model import Report
    from ..analysis.rules.engine.choose import RuleText
    from ..analysis.rules.engine.custom import Guarded
    from ..analysis.rules.engine.selection import Selection
    from ..report_templates.text.logo import Logo
    from ..report_templates.text.look import Look


def _mode(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
    """Apply the mode to all files of the command and of its worker processes."""
    from .. import modes

    with bad_parameter():
        mode = modes.parsed(str(value))
    before = modes.set_umask(mode)
    modes.of_session(mode)
    ctx.call_on_close(lambda: modes.reset(before))


_same = parsed(lambda texts: tuple(map(option_values.same, texts)), absent=())


@partial(parsed, absent={})
def _clock_offsets(texts: Sequence[str]) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for name, offset_ns in map(option_values.clock_offset, texts):
        if name in offsets:
            raise UsageError(f"{name} has two offsets; state one")
        offsets[name] = offset_ns
    return offsets


@partial(parsed, absent={})
def _peaks(texts: Sequence[str]) -> dict[str, float]:
    from ..analysis.efficiency.peaks import checked_peaks

    pairs = [option_values.peak(word) for text in texts for word in option_values.words(text)]
    twice = next((name for name, _ in pairs if [name for name, _ in pairs].count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} has two peaks; state one")
    return checked_peaks(dict(pairs))


@parsed
def _rules(value: Any) -> tuple[str, ...] | None:
    from ..analysis.rules.engine import choose as rule_options

    return rule_options.names(value)


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the settings of POSTRUN_SET, and those of --set, which override them.

    Both override the tables of the configuration file. :func:`checked_settings` checks the names later, with the rules of --custom-rule.
    """
    of_environment = param.value_from_envvar(ctx) if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE else None
    if not value and not of_environment:
        return (), ()
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter(f" (from the environment variable {param.envvar})"):
        below = rule_options.pairs(of_environment or ())
    with bad_parameter():
        above = rule_options.pairs(value)
    return (below, above) if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE else (above, ())


def _custom_rules(ctx: click.Context, param: click.Parameter, texts: Sequence[str] | None) -> tuple[RuleText, ...]:
    """Parse the rules; a configuration file names their files relative to itself."""
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter():
        return rule_options.rule_texts(texts or (), _folder_of(ctx, param))


@parsed
def _sections(value: Any) -> tuple[str, ...] | None:
    from ..report_templates.text.section_names import checked

    return checked(option_values.words(value))


@parsed
def _title(value: Any) -> str:
    from ..report_templates.text.look import checked_title

    return checked_title(str(value))


def _logo(ctx: click.Context, param: click.Parameter, value: str | None) -> Logo | None:
    """Read the image; a configuration file names it relative to itself."""
    if value is None:
        return None
    from ..report_templates.text.logo import read_logo

    with bad_parameter():
        return read_logo(_folder_of(ctx, param) / str(value))


def _folder_of(ctx: click.Context, param: click.Parameter) -> Path:
    """Return the folder that paths of an option are relative to."""
    of_file = param.name and ctx.get_parameter_source(param.name) is ParameterSource.DEFAULT_MAP and ctx.meta.get(CONFIG_FILE)
    return Path(ctx.meta[CONFIG_FILE]).parent if of_file else Path()


def chosen_look(options: dict[str, Any]) -> Look:
    """Return the look of the pages and remove its options. Raise UsageError.

    A command with the options of BRAND alone has no choice of sections.
    """
    from ..report_templates.text.logo import with_alt
    from ..report_templates.text.look import Look

    theme, title, logo, alt = (options.pop(name) for name in ("theme", "title", "logo", "logo_alt"))
    ctx = click.get_current_context()
    with bad_parameter(_origin(ctx, "logo_alt"), "--logo-alt"):
        logo = with_alt(logo, alt, title)
    return Look(options.pop("sections", None), theme, title, logo, options.pop("dashboard", False))


@partial(parsed, absent=())
def fail_on_words(value: Any) -> tuple[str, ...]:
    from ..analysis.rules.engine import choose as rule_options

    return rule_options.fail_words(value)


REDACT = option("--redact", type=click.UNPROCESSED, callback=parsed(option_values.redactions, absent=()), metavar="LIST",
                help="Remove or replace hosts,users,paths,command. Secrets are always masked.")  # fmt: skip
MODE = option("--mode", default="0600", show_default=True, expose_value=False, callback=_mode, metavar="MODE",
              help="Permissions of the files, in octal, such as 0640; new folders get the matching search permissions.")  # fmt: skip
FORMAT = option("--format", "formats", type=click.UNPROCESSED, callback=parsed(option_values.formats), metavar="LIST",
                default="html,pdf,json", show_default=True, help=f"Which of {','.join(option_values.FORMATS)} to write.")  # fmt: skip
CHOICE_OF_RULES = [
    option("--rules", "rules", type=click.UNPROCESSED, callback=_rules, metavar="LIST",
            help="Rules that run, such as CPUBottleneck,StepOutlier (default: all); -StepOutlier turns one off."),
    option("--preset", type=click.Choice(["documented", "service"], case_sensitive=False), default="documented", show_default=True,
            help="Defaults of the rules' parameters: the documented ones, or those the hosted service runs with."),
    option("--set", "settings", multiple=True, type=Listed(r"[\s,;]+"), callback=_settings, metavar="RULE_PARAMETER=VALUE",
            help="Set a parameter of a rule, such as LowGPUUtilization_patience=100; may be repeated."),
]  # fmt: skip
TOP = option("--top", type=Number(1, 1000), default=15, show_default=True, help="Rows in tables and figures of the top kernels.")
PAPER = option("--paper", type=click.Choice(["A4", "Letter"], case_sensitive=False), default="A4", show_default=True,
               help="Page size of the PDF.")  # fmt: skip
TIMELINE_EVENTS = option("--timeline-events", type=Number(0, 2_000_000), default=300_000, show_default=True, metavar="N",
                         help="Maximum events in the timeline; the rest are merged with their neighbors. 0: no timeline.")  # fmt: skip
PEAK = option("--peak", "peaks", multiple=True, type=Listed(r"[\s,;]+"), callback=_peaks, metavar="TYPE=TFLOPS",
              help="Peak of the GPUs, such as bf16=989 or memory=3350 (GB/s), instead of the published one; may be repeated.")  # fmt: skip
GENERATED_AT = option("--generated-at", metavar="TIME", help="Timestamp to print (ISO 8601, UTC), for reproducible output. "
                      "SOURCE_DATE_EPOCH also works.")  # fmt: skip
BRAND = [
    option("--theme", type=click.Choice(["auto", "light", "dark"], case_sensitive=False), default="auto", show_default=True,
            help="Theme of the HTML; auto: follow the browser."),
    option("--title", callback=_title, metavar="TEXT", help="Title next to the name of the product, such as 'GPU report'."),
    option("--logo", callback=_logo, metavar="FILE", help="PNG, JPEG or SVG to show on the first page; at most 256 KiB."),
    option("--logo-alt", metavar="TEXT", help="Alternative text of the logo (default: the title)."),
]  # fmt: skip
LOOK = [
    option("--sections", type=click.UNPROCESSED, callback=_sections, metavar="LIST",
            help="Sections of the HTML and the PDF, such as steps,kernels,rules (default: all); -kernels leaves one out."),
    option("--dashboard", is_flag=True, help="End the PDF with the panels of the hosted dashboard, which the HTML has folded."),
    *BRAND,
]  # fmt: skip
CUSTOM_RULES = [
    option("--custom-rule", "custom_rules", multiple=True, type=Listed(r"[\n;]+"), callback=_custom_rules,
            metavar="FILE.py:CLASS[?NAME=VALUE&...]", help="Also run a custom rule; may be repeated."),
    option("--rule-timeout", type=Number(1, 86_400 * 30), default=300, show_default=True, metavar="SECONDS",
            help="Time limit for loading and for evaluating each custom rule."),
]  # fmt: skip
REPORT_OPTIONS = [
    option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-report"), show_default=True,
            help="Folder to write report.html, report.pdf and report.json to."),
    FORMAT,
    *CHOICE_OF_RULES,
    *CUSTOM_RULES,
    option("--fail-on", type=click.UNPROCESSED, callback=fail_on_words, metavar="LIST",
            help="Exit with code 3 when a rule found an issue: issues (any rule), error (a rule failed), or names of rules."),
    TOP,
    option("--histogram", "histograms", multiple=True, metavar="NAME", help="Draw the durations of this annotation; may be repeated."),
    PEAK,
    TIMELINE_EVENTS,
    PAPER,
    *LOOK,
    REDACT,
    MODE,
    option("--name", help="Name of the run in the report."),
    option("--json", "as_json", is_flag=True, help="Print a summary of the run as JSON on standard output."),
    GENERATED_AT,
]  # fmt: skip
MEMORY_LIMIT = option(
    "--memory-limit",
    metavar="SIZE",
    callback=parsed(option_values.memory_size),
    default="600MB",
    show_default=True,
    help="Database memory limit, such as 2GB.",
)
THREADS = option("--threads", type=Number(1, 1024), help="Database threads (default: all cores).")
MAX_UNPACKED = option(
    "--max-unpacked",
    metavar="SIZE",
    callback=parsed(option_values.memory_size),
    help="Size limit of a decompressed file, such as 50GB (default: 20 GB or 200 times its size, whichever is larger).",
)
JOINING = [
    option("--same", multiple=True, type=Listed(r"[\n;]+"), callback=_same, metavar="FILE,FILE[,...]",
           help="These files belong to one node, which they do not state; may be repeated."),
    option("--clock-offset", "clock_offsets", multiple=True, type=Listed(r"[\n;]+"), callback=_clock_offsets, metavar="FILE=OFFSET",
           help="Add this to the times of a file, such as smi.csv=-2h or trace.json=1.5s (ns, us, ms, s, min, h); may be repeated."),
]  # fmt: skip
STORE_OPTIONS = [MEMORY_LIMIT, THREADS, MAX_UNPACKED, *JOINING]


def checked_settings(settings: Sequence[Sequence[tuple[str, str]]], custom: Sequence[Guarded] = ()) -> dict[str, Any]:
    """Check the values of --set against the rules. Raise UsageError."""
    from ..analysis.rules.engine import choose as rule_options

    below, above = settings
    with bad_parameter(" (from the environment variable POSTRUN_SET)", "--set"):
        values = rule_options.settings(below, custom)
    with bad_parameter(option="--set"):
        return values | rule_options.settings(above, custom)


def size_of(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Parse a size as an option's callback: "4GB" -> bytes."""
    from ..ingest.store.limits import size_in_bytes

    with bad_parameter():
        return None if value is None else size_in_bytes(value)


def loaded_rules(texts: Sequence[RuleText], limit_s: float, quiet: bool) -> tuple[Guarded, ...]:
    """Load the rules of --custom-rule; print which cannot be run."""
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter(_origin(click.get_current_context(), "custom_rules"), "--custom-rule"):
        custom = rule_options.custom_rules(texts, limit_s)
    for rule in custom:
        if rule.problem is not None and not quiet:
            echo(f"note: --custom-rule: {rule.name} cannot be run, its verdict is Error: {rule.problem}", err=True)
    return custom


def chosen_rules(options: dict[str, Any], quiet: bool) -> tuple[Selection, tuple[str, ...]]:
    """Return the rules that run and the words of --fail-on. Raise UsageError.

    Removes their options from ``options``, before any input is read.
    """
    from ..analysis.rules.engine import choose as rule_options

    ctx = click.get_current_context()
    custom = loaded_rules(options.pop("custom_rules"), options.pop("rule_timeout"), quiet)
    return rule_options.chosen(
        options.pop("rules"),
        options.pop("preset"),
        settings=checked_settings(options.pop("settings"), custom),
        of_file=ctx.meta.get(FILE_SETTINGS, {}),
        custom_rules=custom,
        fail_on=options.pop("fail_on"),
    )


def _origin(ctx: click.Context, name: str) -> str:
    """Describe the source of an option's value for a message; "" for the command line."""
    source = ctx.get_parameter_source(name)
    option = next(one for one in ctx.command.params if one.name == name)
    if source is ParameterSource.ENVIRONMENT:
        return f" (from the environment variable {option.envvar})"
    return f" (from {ctx.meta.get(CONFIG_FILE)})" if source is ParameterSource.DEFAULT_MAP else ""


def fail_if(report: Report, fail_on: tuple[str, ...]) -> None:
    """Exit with code 3 if a verdict matches; print which words cannot match."""
    from ..analysis.rules.engine import choose as rule_options

    for line in rule_options.unmatched(report, fail_on):
        echo(f"postrun: --fail-on: {line}", err=True)
    if matched := rule_options.matched(report, fail_on):
        echo(f"postrun: --fail-on: {matched}", err=True)
        sys.exit(3)
