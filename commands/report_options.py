"""Which options does a command that makes reports have, and which rules do they choose?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .. import option_values
from ..errors import UsageError
from ..messages import echo
from .parts import CONFIG_FILE, FILE_SETTINGS, Listed, Number, bad_parameter, option

if TYPE_CHECKING:
    from ..analysis.report.model import Report
    from ..analysis.rules.engine.choose import RuleText
    from ..analysis.rules.engine.selection import Selection
    from ..report_templates.text.logo import Logo
    from ..report_templates.text.look import Look


def formats(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    with bad_parameter():
        return option_values.formats(value)


def _redactions(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    with bad_parameter():
        return () if value is None else option_values.redactions(value)


def _mode(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
    """Everything that the command makes has the mode, in its worker processes also."""
    from .. import modes

    with bad_parameter():
        mode = modes.parsed(str(value))
    before = modes.set_umask(mode)
    modes.of_session(mode)
    ctx.call_on_close(lambda: modes.reset(before))


def _memory_size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    with bad_parameter():
        return None if value is None else option_values.memory_size(value)


def _same(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    with bad_parameter():
        return tuple(map(option_values.same, value))


def _clock_offsets(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> dict[str, int]:
    with bad_parameter():
        pairs = [option_values.clock_offset(text) for text in value]
        if twice := [name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place])]:
            raise UsageError(f"{twice[0]} has two offsets; state one")
        return dict(pairs)


def _rules(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter():
        return rule_options.names(value)


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """POSTRUN_SET, and --set of the command line, which stands over it parameter by parameter. The configuration file's tables stand
    below both. What they name is looked at in :func:`selection`, when the rules of --custom-rule are known."""
    of_environment = param.value_from_envvar(ctx) if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE else None
    if not value and not of_environment:
        return (), ()
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter(f" (from the environment variable {param.envvar})"):
        below = rule_options.pairs(of_environment or ())
    with bad_parameter():
        above = rule_options.pairs(value)
    return (below, above) if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE else (above, ())


def _custom_rules(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[RuleText, ...]:
    if not value:
        return ()
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter():
        return rule_options.rule_texts(value)


def _sections(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    from ..report_templates.text.section_names import checked

    with bad_parameter():
        return checked(option_values.words(value))


def _title(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from ..report_templates.text.look import checked_title

    with bad_parameter():
        return checked_title(str(value))


def _logo(ctx: click.Context, param: click.Parameter, value: str | None) -> Logo | None:
    """The picture itself: it is looked at before anything is read. What a configuration file names stands beside that file."""
    if value is None:
        return None
    from ..report_templates.text.logo import read_logo

    path = Path(str(value))
    if param.name and ctx.get_parameter_source(param.name) is ParameterSource.DEFAULT_MAP and ctx.meta.get(CONFIG_FILE):
        path = Path(ctx.meta[CONFIG_FILE]).parent / path
    with bad_parameter():
        return read_logo(path)


def chosen_look(options: dict[str, Any]) -> Look:
    """How the report looks, taken out of ``options``. Raises UsageError."""
    from ..report_templates.text.logo import with_alt
    from ..report_templates.text.look import Look

    names = ("sections", "theme", "title", "logo", "logo_alt")
    sections, theme, title, logo, alt = (options.pop(name) for name in names)
    ctx = click.get_current_context()
    with bad_parameter(_origin(ctx, "logo_alt"), "--logo-alt"):
        logo = with_alt(logo, alt, title)
    return Look(sections, theme, title, logo)


def fail_on_words(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    from ..analysis.rules.engine import choose as rule_options

    with bad_parameter():
        return rule_options.fail_words(value)


REDACT = option("--redact", type=click.UNPROCESSED, callback=_redactions, metavar="LIST",
                help="Which of hosts,users,paths,command to leave out or replace. Secrets are always masked.")  # fmt: skip
MODE = option("--mode", default="0600", show_default=True, expose_value=False, callback=_mode, metavar="MODE",
              help="Permissions of the files, in octal, such as 0640; new folders get the matching search permissions.")  # fmt: skip
FORMAT = option("--format", "formats", type=click.UNPROCESSED, callback=formats, metavar="LIST", default="html,pdf,json",
                show_default=True, help=f"Which of {','.join(option_values.FORMATS)} to write.")  # fmt: skip
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
               help="Page of the PDF.")  # fmt: skip
TIMELINE_EVENTS = option("--timeline-events", type=Number(0, 2_000_000), default=300_000, show_default=True, metavar="N",
                         help="Events that the timeline draws; more are merged with their neighbours. 0: no timeline.")  # fmt: skip
GENERATED_AT = option("--generated-at", metavar="TIME", help="Time of making that the report states (ISO 8601, UTC); the same input then "
                      "gives the same bytes. SOURCE_DATE_EPOCH is respected, too.")  # fmt: skip
LOOK = [
    option("--sections", type=click.UNPROCESSED, callback=_sections, metavar="LIST",
            help="Sections of the HTML and the PDF, such as steps,kernels,rules (default: all); -kernels leaves one out."),
    option("--theme", type=click.Choice(["auto", "light", "dark"], case_sensitive=False), default="auto", show_default=True,
            help="Theme that the HTML starts with; auto: that of the reader's browser."),
    option("--title", callback=_title, metavar="TEXT", help="Title of the report, in place of ProfilerReport."),
    option("--logo", callback=_logo, metavar="FILE", help="PNG, JPEG or SVG to show on the first page; at most 256 KiB."),
    option("--logo-alt", metavar="TEXT", help="What the logo is called for those who do not see it (default: the title)."),
]  # fmt: skip
REPORT_OPTIONS = [
    option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-report"), show_default=True,
            help="Folder to write report.html, report.pdf and report.json to."),
    FORMAT,
    *CHOICE_OF_RULES,
    option("--custom-rule", "custom_rules", multiple=True, type=Listed(r"[\n;]+"), callback=_custom_rules,
            metavar="FILE.py:CLASS[?NAME=VALUE&...]", help="Run a rule of your own, too; may be repeated."),
    option("--rule-timeout", type=Number(1, 86_400 * 30), default=300, show_default=True, metavar="SECONDS",
            help="How long the file of a rule of your own may take to load, and then to judge; after that it failed."),
    option("--fail-on", type=click.UNPROCESSED, callback=fail_on_words, metavar="LIST",
            help="Exit with code 3 when a rule found an issue: issues (any rule), error (a rule failed), or names of rules."),
    TOP,
    option("--histogram", "histograms", multiple=True, metavar="NAME", help="Draw the durations of this annotation; may be repeated."),
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
    callback=_memory_size,
    default="600MB",
    show_default=True,
    help="Bound of the database's memory, such as 2GB.",
)
THREADS = option("--threads", type=Number(1, 1024), help="Threads of the database (default: all cores).")
MAX_UNPACKED = option(
    "--max-unpacked",
    metavar="SIZE",
    callback=_memory_size,
    help="Bound of what a compressed file unpacks to, such as 50GB (default: 20 GB or 200 times its size, whichever is larger).",
)
JOINING = [
    option("--same", multiple=True, type=Listed(r"[\n;]+"), callback=_same, metavar="FILE,FILE[,...]",
           help="These files are of one machine, though they do not state it; may be repeated."),
    option("--clock-offset", "clock_offsets", multiple=True, type=Listed(r"[\n;]+"), callback=_clock_offsets, metavar="FILE=OFFSET",
           help="Add this to the times of a file, such as smi.csv=-2h or trace.json=1.5s (ns, us, ms, s, min, h); may be repeated."),
]  # fmt: skip
STORE_OPTIONS = [MEMORY_LIMIT, THREADS, MAX_UNPACKED, *JOINING]


def chosen_rules(options: dict[str, Any], quiet: bool) -> tuple[Selection, tuple[str, ...]]:
    """The rules that run and the words of --fail-on, taken out of ``options`` before anything is read. Raises UsageError."""
    from ..analysis.rules.engine import choose as rule_options

    ctx = click.get_current_context()
    with bad_parameter(_origin(ctx, "custom_rules"), "--custom-rule"):
        own = rule_options.custom_rules(options.pop("custom_rules"), options.pop("rule_timeout"))
    for rule in own:
        if rule.problem is not None and not quiet:
            echo(f"note: --custom-rule: {rule.name} cannot be run, its verdict is Error: {rule.problem}", err=True)
    below, above = options.pop("settings")
    with bad_parameter(" (from the environment variable POSTRUN_SET)", "--set"):
        settings = rule_options.settings(below, own)
    with bad_parameter(option="--set"):
        settings |= rule_options.settings(above, own)
    return rule_options.chosen(
        options.pop("rules"),
        options.pop("preset"),
        settings=settings,
        of_file=ctx.meta.get(FILE_SETTINGS, {}),
        custom_rules=own,
        fail_on=options.pop("fail_on"),
    )


def _origin(ctx: click.Context, name: str) -> str:
    """Where the value of an option comes from, behind a message; nothing where that is the command line."""
    source = ctx.get_parameter_source(name)
    option = next(one for one in ctx.command.params if one.name == name)
    if source is ParameterSource.ENVIRONMENT:
        return f" (from the environment variable {option.envvar})"
    return f" (from {ctx.meta.get(CONFIG_FILE)})" if source is ParameterSource.DEFAULT_MAP else ""


def fail_if(report: Report, fail_on: tuple[str, ...]) -> None:
    """Leave with exit code 3 where a verdict matches; say what could not be answered."""
    from ..analysis.rules.engine import choose as rule_options

    for line in rule_options.unmatched(report, fail_on):
        echo(f"postrun: --fail-on: {line}", err=True)
    if told := rule_options.matched(report, fail_on):
        echo(f"postrun: --fail-on: {told}", err=True)
        sys.exit(3)
