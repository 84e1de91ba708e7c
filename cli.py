"""The words of the command line: parses them, calls the parts, prints, sets the exit code.

Exit codes: 0 done; 1 an error of ours; 2 wrong usage; 3 done, and --fail-on matched; 4 no usable input; 130 interrupted. Results go to
standard output, progress and messages to standard error.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from .errors import PostrunError, UsageError

if TYPE_CHECKING:
    from .analysis.report import Report
    from .analysis.rules.base import Parameter, Rule
    from .analysis.rules.custom import Guarded
    from .analysis.rules.selection import Selection
    from .report_templates.pdf import Printer

FORMATS = ("html", "pdf", "json", "junit", "rule-json")
_CONFIG_FILE = "postrun.config_file"
_FILE_SETTINGS = "postrun.file_settings"
_FINDINGS_SHOWN = 3


def _words(value: Any) -> list[str]:
    """The words of a list with commas, from the command line or the environment, or of a list in a configuration file."""
    if not isinstance(value, str | list | tuple):
        raise click.BadParameter(f"{value!r} is no list of names")
    return [word for one in (value.split(",") if isinstance(value, str) else value) if (word := str(one).strip())]


def _formats(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    """The words of --format."""
    words = [word.lower() for word in _words(value)]
    wrong = [word for word in words if word not in FORMATS]
    if wrong or not words:
        raise click.BadParameter(f"{', '.join(wrong) or 'nothing'} is no report format; choose from {','.join(FORMATS)}")
    return tuple(dict.fromkeys(words))


class _Group(click.Group):
    """Turns every failure into one clear message and the documented exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # A job scheduler ends a job with SIGTERM: leave as for any other exit, so that temporary files go.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _interrupted()
        except PostrunError as error:
            click.echo(f"postrun: {error}", err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"postrun: {where}{error.strerror or error}; choose another place with -o, or free some space", err=True)
            sys.exit(1)
        except Exception as error:
            if type(error) is RuntimeError and "interrupted" in str(error):  # how the database answers to Ctrl-C
                _interrupted()
            if problem := _machine_problem(error):
                click.echo(f"postrun: {problem}", err=True)
                sys.exit(1)
            click.echo(f"postrun: internal error: {type(error).__name__}: {error}", err=True)
            if "--verbose" in sys.argv or "-v" in sys.argv:
                raise
            click.echo("postrun: this is a mistake of postrun, not yours; run again with --verbose and report what it prints", err=True)
            sys.exit(1)


def _interrupted() -> NoReturn:
    click.echo("postrun: interrupted", err=True)
    sys.exit(128 + signal.SIGINT)


def _machine_problem(error: Exception) -> str | None:
    """What the user can do about an error of the database that the machine causes: a full disk, too little memory. None: it is ours."""
    kind, reason = type(error).__name__, str(error).splitlines()[0] if str(error) else ""
    if kind == "OutOfMemoryException":
        return f"the database needs more memory ({reason}); give it more with --memory-limit, such as 2GB, or free space for TMPDIR"
    if kind == "IOException" and type(error).__module__.partition(".")[0] in {"duckdb", "_duckdb"}:
        return f"the database cannot read or write its file ({reason}); free some space, set TMPDIR, or choose another place with -o"
    return None


def _rules(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...] | None:
    """The words of --rules; every name is that of a rule, after a minus or not."""
    if value is None:
        return None
    from .analysis.rules import selection

    words = _words(value)
    if not words:
        raise click.BadParameter("nothing is named; write it like --rules CPUBottleneck,StepOutlier or --rules -StepOutlier")
    with _bad_parameter():
        for word in words:
            selection.select([word.removeprefix("-")])
    return tuple(words)


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, Any]:
    """--set of the command line over POSTRUN_SET, parameter by parameter. The configuration file's tables stand below both."""
    found: dict[str, Any] = {}
    if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE:
        with _bad_parameter(f" (from the environment variable {param.envvar})"):
            found |= _parsed_settings(param.value_from_envvar(ctx) or ())
    with _bad_parameter():
        return found | _parsed_settings(value)


def _parsed_settings(texts: Iterable[str]) -> dict[str, Any]:
    """ "LowGPUUtilization_patience=100" as name and value. Raises UsageError."""
    found = {}
    for text in texts:
        from .analysis.rules import selection

        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} sets nothing; write it like LowGPUUtilization_patience=100")
        rule, parameter = selection.setting(name.strip())
        found[f"{rule.name}_{parameter.name}"] = selection.checked(rule, parameter, value.strip())
    return found


def _fail_on(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    """The words of --fail-on; which rules run is known later."""
    words = () if value is None else tuple(_words(value))
    if value is not None and not words:
        raise click.BadParameter("nothing is named; write it like --fail-on issues or --fail-on CPUBottleneck,StepOutlier")
    return words


def _custom_rules(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[Guarded, ...]:
    """The rules of --custom-rule FILE.py:CLASS?NAME=VALUE&NAME=VALUE, loaded."""
    found: list[Guarded] = []
    for text in value:
        place, _, query = text.partition("?")
        source, colon, name = place.rpartition(":")
        if not colon or not source or not name:
            raise click.BadParameter(f"{text!r} names no class; write it like checks.py:SlowSteps or checks.py:SlowSteps?limit=3")
        given: dict[str, str] = {}
        for pair in filter(None, query.split("&")):
            key, equals, given[key] = pair.partition("=")
            if not equals or not key:
                raise click.BadParameter(f"{pair!r} in {text!r} sets nothing; write it like checks.py:SlowSteps?limit=3")
        with _bad_parameter():
            found.append(_loaded(source, name, given, {rule.name.lower() for rule in found}))
    return tuple(found)


def _loaded(source: str, name: str, given: dict[str, str], taken: set[str]) -> Guarded:
    """The class ``name`` of the file ``source`` as a rule whose name no other rule has. Raises UsageError."""
    from .analysis.rules import custom, selection
    from .analysis.rules.base import Parameters
    from .analysis.rules.catalogue import PROFILER_REPORT

    taken = taken | {known.lower() for known in (PROFILER_REPORT, "issues", "error", *selection.known())}
    shown, number = name, 1
    while shown.lower() in taken:
        number += 1
        shown = f"{name}-{number}"
    rule = custom.load(source, name, given, name=shown)
    if not isinstance(rule, custom.Guarded) or type(rule).__name__ == custom.broken("", "").__name__:
        nothing: Any = None  # a rule that could not be loaded looks at no run: its answer is why
        raise UsageError(f"{source}: {rule.evaluate(nothing, Parameters({})).reason}")
    return rule


@contextmanager
def _bad_parameter(origin: str = "") -> Iterator[None]:
    """A UsageError inside becomes one that names the option."""
    try:
        yield
    except UsageError as error:
        raise click.BadParameter(f"{error}{origin}") from error


def _memory_size(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """The value of --memory-limit, as the database understands it."""
    import re

    if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?B)", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r} is no size; write it like 600MB or 2GB")
    return value


def _configure(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    """Make the configuration file the source of defaults of the command that is being parsed."""
    from .config import find, read
    from .config import rules as rules_of

    path = find(value, Path.cwd())
    if path is None:
        return
    commands = {name: _by_long_name(command) for name, command in main.commands.items() if any(p.name == "config" for p in command.params)}
    ctx.meta[_CONFIG_FILE] = path
    command = ctx.info_name or ""
    given = read(path, {name: frozenset(options) for name, options in commands.items()}).get(command, {})
    if isinstance(given.get("rules"), dict):
        given["rules"], ctx.meta[_FILE_SETTINGS] = rules_of(path, given["rules"])
    ctx.default_map = {
        str(option.name): [value] if option.multiple and isinstance(value, str) else value
        for key, value in given.items()
        if value is not None
        for option in [commands[command][key]]
    }


def _by_long_name(command: click.Command) -> dict[str, click.Option]:
    """The options that a configuration file may set, by long name with ``_``."""
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in ("config", "settings")]
    return {next(o for o in option.opts if o.startswith("--"))[2:].replace("-", "_"): option for option in options}


class _Option(click.Option):
    """An option whose wrong value is traced back to the environment or the configuration file it came from."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as error:
            source = ctx.get_parameter_source(self.name) if self.name else None
            if source is ParameterSource.ENVIRONMENT:
                origin = f"the environment variable {self.envvar}"
            elif source is ParameterSource.DEFAULT_MAP:
                origin = str(ctx.meta.get(_CONFIG_FILE))
            else:
                raise
            raise click.BadParameter(f"{error.message} (from {origin})", error.ctx, error.param, error.param_hint) from error


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that the environment can set as POSTRUN_<LONG_NAME>."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    return click.option(*names, cls=_Option, envvar="POSTRUN_" + long[2:].replace("-", "_").upper(), show_envvar=False, **settings)


class _Listed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """Text of an option that may be repeated; ``split`` divides it where it comes from the environment."""

    name = "text"

    def __init__(self, split: str) -> None:
        self.split = split

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def split_envvar_value(self, rv: str) -> list[str]:
        import re

        return [text.strip() for text in re.split(self.split, rv) if text.strip()]


_config = click.option(
    "--config", type=click.Path(path_type=Path), is_eager=True, expose_value=False, callback=_configure, envvar="POSTRUN_CONFIG",
    help="TOML file with defaults (else postrun.toml, or [tool.postrun] in pyproject.toml).",
)  # fmt: skip
_verbosity = [
    _option("--quiet", "-q", is_flag=True, help="Print nothing but errors (and --json)."),
    _option("--verbose", "-v", is_flag=True, help="Say more; show a traceback on an internal error."),
]
_report_options = [
    _option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-report"), show_default=True,
            help="Folder to write report.html, report.pdf and report.json to."),
    _option("--format", "formats", type=click.UNPROCESSED, callback=_formats, metavar="LIST", default="html,pdf,json",
            show_default=True, help=f"Which of {','.join(FORMATS)} to write."),
    _option("--rules", "rules", type=click.UNPROCESSED, callback=_rules, metavar="LIST",
            help="Rules that run, such as CPUBottleneck,StepOutlier (default: all); -StepOutlier turns one off."),
    _option("--preset", type=click.Choice(["documented", "service"], case_sensitive=False), default="documented", show_default=True,
            help="Defaults of the rules' parameters: the documented ones, or those the hosted service runs with."),
    _option("--set", "settings", multiple=True, type=_Listed(r"[\s,;]+"), callback=_settings, metavar="RULE_PARAMETER=VALUE",
            help="Set a parameter of a rule, such as LowGPUUtilization_patience=100; may be repeated."),
    _option("--custom-rule", "custom_rules", multiple=True, type=_Listed(r"[\n;]+"), callback=_custom_rules,
            metavar="FILE.py:CLASS[?NAME=VALUE&...]", help="Run a rule of your own, too; may be repeated."),
    _option("--fail-on", type=click.UNPROCESSED, callback=_fail_on, metavar="LIST",
            help="Exit with code 3 when a rule found an issue: issues (any rule), error (a rule failed), or names of rules."),
    _option("--top", type=click.IntRange(1, 1000), default=15, show_default=True, help="Rows in tables and figures of the top kernels."),
    _option("--histogram", "histograms", multiple=True, metavar="NAME", help="Draw the durations of this annotation; may be repeated."),
    _option("--paper", type=click.Choice(["A4", "Letter"], case_sensitive=False), default="A4", show_default=True, help="Page of the PDF."),
    _option("--name", help="Name of the run in the report."),
    _option("--json", "as_json", is_flag=True, help="Print a summary of the run as JSON on standard output."),
    _option("--generated-at", metavar="TIME", help="Time of making that the report states (ISO 8601, UTC); the same input then gives the "
            "same bytes. SOURCE_DATE_EPOCH is respected, too."),
]  # fmt: skip
_store_options = [
    _option(
        "--memory-limit",
        metavar="SIZE",
        callback=_memory_size,
        default="600MB",
        show_default=True,
        help="Bound of the database's memory, such as 2GB.",
    ),
    _option("--threads", type=click.IntRange(1, 1024), help="Threads of the database (default: all cores)."),
]


def _with(*groups: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(installed_version("postrun"), prog_name="postrun")
def main() -> None:
    """A training job ends; one command turns what was captured into a report."""


@main.command(short_help="Write the report of one run.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_with(_report_options, [_config], _store_options, _verbosity)
def report(sources: tuple[str, ...], quiet: bool, verbose: bool, memory_limit: str, threads: int | None, **options: Any) -> None:
    """Write report.html, report.pdf and report.json of one run.

    SOURCE is a trace file, a folder (searched through; unknown files are listed in the report), or a run store that `postrun ingest` made.
    """
    selection, fail_on = _selection(options)
    from .ingest import ingest

    with (
        _printer(options["formats"]) as printer,
        _progress(quiet, verbose) as progress,
        ingest(sources, progress=progress, memory_limit=memory_limit, threads=threads) as store,
    ):
        made = _write_report(store, progress, printer, quiet=quiet, selection=selection, **options)
    _fail_if(made, fail_on)


@main.command(short_help="Load a run into a store (DuckDB) to report or query later.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), default=Path("run.duckdb"), show_default=True,
         help="Run store to write; an existing file is replaced.")  # fmt: skip
@_option("--name", help="Name of the run.")
@_option("--json", "as_json", is_flag=True, help="Print a summary as JSON on standard output.")
@_with([_config], _store_options, _verbosity)
def ingest(
    sources: tuple[str, ...],
    output: Path,
    name: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    memory_limit: str,
    threads: int | None,
) -> None:
    """Load SOURCE... into a run store (a DuckDB file); `postrun report run.duckdb` continues from there."""
    from .ingest import ingest as load
    from .ingest import summary

    with (
        _progress(quiet, verbose) as progress,
        load(sources, output, progress=progress, name=name, memory_limit=memory_limit, threads=threads) as store,
    ):
        loaded = summary(store)
    if as_json:
        _print_json({"store": str(output), **loaded})
    elif not quiet:
        counts = ", ".join(f"{count} {table.replace('_', ' ')}s" for table, count in loaded["rows"].items() if count)
        click.echo(f"{output}: {counts or 'nothing'}")
        for note in loaded["notes"]:
            click.echo(f"  {note['severity']}: {note['message']}", err=True)


@main.command(short_help="Simulate a training run and report it.")
@_option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-demo"), show_default=True,
         help="Folder for the simulated run and its report.")  # fmt: skip
@_option("--seed", type=int, default=1, show_default=True, help="Another seed gives another run.")
@_with(_report_options[1:], [_config], _store_options, _verbosity)
def demo(output: Path, seed: int, quiet: bool, verbose: bool, memory_limit: str, threads: int | None, **options: Any) -> None:
    """Simulate a training run on two nodes with four GPUs each, with planted problems, and report it."""
    selection, fail_on = _selection(options)
    from .ingest import ingest
    from .simulate import write_demo

    with _printer(options["formats"]) as printer, _progress(quiet, verbose) as progress:
        progress("simulating a training run", None)
        run = output / "run"
        write_demo(run, seed=seed)
        with ingest([str(run)], progress=progress, memory_limit=memory_limit, threads=threads) as store:
            made = _write_report(store, progress, printer, quiet=quiet, output=output, selection=selection, **options)
    _fail_if(made, fail_on)


@main.command(short_help="Check that this machine can make reports.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON on standard output.")
def doctor(as_json: bool) -> None:
    """Check that this machine can make reports: Pango, fonts, versions, disk. Exit code 1 where something is missing."""
    from .doctor import checks

    found = checks()
    if as_json:
        _print_json([{"name": c.name, "state": c.state, "detail": c.detail, "remedy": c.remedy} for c in found])
    else:
        for check in found:
            mark = {"ok": "✓", "warning": "!", "missing": "✕"}[check.state]
            click.echo(f"{mark} {check.name}: {check.detail}" + (f"\n    mend it with: {check.remedy}" if check.remedy else ""))
    if any(check.state == "missing" for check in found):
        sys.exit(1)


_preset_shown = _option("--preset", type=click.Choice(["documented", "service"], case_sensitive=False),
                        help="Show the defaults of this preset only.")  # fmt: skip


@main.group("rules", invoke_without_command=True, short_help="List every rule with its parameters and defaults.")
@_preset_shown
@click.option("--json", "as_json", is_flag=True, help="Print the rules as JSON on standard output.")
@click.pass_context
def rules(ctx: click.Context, preset: str | None, as_json: bool) -> None:
    """List every rule: what it checks, its parameters and their defaults. `postrun rules explain NAME` tells all of one."""
    if ctx.invoked_subcommand is not None:
        return
    presets = [preset] if preset else ["documented", "service"]
    if as_json:
        _print_json([_rule_json(rule) for rule in _every_rule()])
        return
    for rule in _every_rule():
        click.echo(f"{rule.name} ({rule.category})")
        click.echo(_wrapped(rule.checks, "  "))
        for line in _parameter_lines(rule.parameters, presets):
            click.echo(f"    {line}")
        click.echo()
    from .analysis.rules.base import SCAN_INTERVAL
    from .analysis.rules.profiler_report import CHECKS

    shared = f"Every rule has {SCAN_INTERVAL.name} = {SCAN_INTERVAL.documented} {SCAN_INTERVAL.unit}, too: {SCAN_INTERVAL.meaning}."
    click.echo(_wrapped(f"ProfilerReport stands for all system and framework rules. {CHECKS}"))
    click.echo(_wrapped(shared))
    click.echo(_wrapped("Set a parameter with --set RULE_PARAMETER=VALUE; see the whole of a rule with: postrun rules explain NAME"))


@rules.command("explain", short_help="Tell all of one rule.")
@click.argument("name")
@_preset_shown
@click.pass_context
def explain(ctx: click.Context, name: str, preset: str | None) -> None:
    """Tell all of the rule NAME: what it checks, when it finds an issue, what it needs, what to do."""
    from .analysis.rules import profiler_report, selection
    from .analysis.rules.catalogue import DOCUMENTED, PROFILER_REPORT

    outer = ctx.parent.params.get("preset") if ctx.parent else None
    chosen = preset or outer or "documented"
    if name.lower() == PROFILER_REPORT.lower():
        ran = ", ".join(rule.name for rule in DOCUMENTED)
        paragraphs = {
            "Checks": profiler_report.CHECKS,
            "Issue when": profiler_report.CONDITION + ".",
            "Runs": ran + ".",
            "Parameters": "Those of the rules it runs, each named RULE_PARAMETER.",
            "Advice": profiler_report.ADVICE,
        }
        click.echo(f"{PROFILER_REPORT} (report)")
        for title, text in paragraphs.items():
            click.echo(f"\n{title}\n{_wrapped(text, '  ')}")
        return
    rule = next((one for one in _every_rule() if one.name.lower() == name.lower()), None) or selection.find(name)
    values = {parameter.name: parameter for parameter in rule.all_parameters()}
    click.echo(f"{rule.name} ({rule.category})")
    click.echo(f"\nChecks\n{_wrapped(rule.checks, '  ')}")
    if rule.condition:
        click.echo(f"\nIssue when ({chosen} defaults)\n{_wrapped(_with_numbers(rule.condition, values, chosen) + '.', '  ')}")
    click.echo("\nParameters")
    for parameter, line in zip(values.values(), _parameter_lines(tuple(values.values()), ["documented", "service"])[1:], strict=True):
        click.echo(f"  {line}\n{_wrapped(parameter.meaning, '      ')}")
    click.echo(f"\nNeeds\n{_wrapped(_needs(rule), '  ')}")
    if rule.advice:
        click.echo(f"\nAdvice\n{_wrapped(rule.advice, '  ')}")
    if rule.parameters:
        first = rule.parameters[0]
        click.echo(f"\nSet with\n  --set {rule.name}_{first.name}={first.default('documented')}")


def _every_rule() -> list[type[Rule]]:
    """The rules in the order in which they run, those of installed packages among them."""
    from .analysis.rules.selection import known

    return list(known().values())


def _rule_json(rule: type[Rule]) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "category": rule.category,
        "checks": rule.checks,
        "condition": rule.condition,
        "advice": rule.advice,
        "needs": _needs(rule),
        "parameters": [
            {
                "name": parameter.name,
                "unit": parameter.unit,
                "documented": parameter.documented,
                "service": parameter.service,
                "meaning": parameter.meaning,
                "choices": list(parameter.choices),
            }
            for parameter in rule.all_parameters()
        ],
    }


def _parameter_lines(parameters: Sequence[Parameter], presets: Sequence[str]) -> list[str]:
    """An aligned table: a heading, and a line for each parameter with its unit and the default of each preset."""
    if not parameters:
        return []
    rows = [["parameter", "unit", *presets]]
    for parameter in parameters:
        defaults = [parameter.documented if preset == "documented" else parameter.service for preset in presets]
        rows.append([parameter.name, parameter.unit, *("none" if value is None else str(value) for value in defaults)])
    widths = [max(26, *(len(row[0]) for row in rows)), max(22, *(len(row[1]) for row in rows))]
    return [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}" + "".join(f"{value:>12}" for value in row[2:]) for row in rows]


def _with_numbers(condition: str, parameters: dict[str, Parameter], preset: str) -> str:
    """The condition with the default behind the first mention of each parameter (of names that are also words: where they are marked)."""
    for name, parameter in parameters.items():
        value = parameter.documented if preset == "documented" else parameter.service
        unit = f" {parameter.unit}" if parameter.unit in ("%", "µs", "minutes") else ""
        told = f"{name} (none)" if value is None else f"{name} ({value}{unit})"
        mention = f"`{name}`" if f"`{name}`" in condition else name
        if "_" in name or mention != name:
            condition = condition.replace(mention, told, 1)
    return condition


_NEEDS = {
    "system": "System metrics: samples of GPU and CPU utilisation, of memory and of I/O wait.",
    "framework": "Steps: annotations of training steps, from torch.profiler or the hosted profiler's framework metrics.",
    "trace": "A profiler trace with the activity of the GPUs, such as one of torch.profiler with CUDA activity.",
    "custom": "What the rule itself reads of the run.",
    "BatchSize": "Samples of GPU utilisation, GPU memory and CPU utilisation.",
    "CPUBottleneck": "Samples of GPU utilisation and of every core's utilisation; kernel activity stands in for the first.",
    "IOBottleneck": "Samples of GPU utilisation and of every core's I/O wait; kernel activity stands in for the first.",
    "GPUMemoryIncrease": "Samples of GPU memory.",
    "LowGPUUtilization": "Samples of GPU utilisation; kernel activity stands in for them.",
    "LoadBalancing": "Samples of the utilisation of two GPUs or more; kernel activity stands in for them.",
    "MaxInitializationTime": "Step annotations, in a capture that began with the job.",
    "OverallFrameworkMetrics": "Steps, phases or operators of the framework.",
    "Dataloader": "Intervals of data loader processes, or num_workers, and the number of cores.",
    "HostBound": "A profiler trace with the activity of the GPUs and the launch calls of the host.",
    "SyncBound": "A profiler trace with the activity of the GPUs and the calls of the host.",
    "StragglerRank": "Profiler traces of several ranks, with steps.",
}


def _needs(rule: type[Rule]) -> str:
    """What a run must have for the rule to be evaluated."""
    return _NEEDS.get(rule.name) or _NEEDS[rule.category]


def _wrapped(text: str, margin: str = "") -> str:
    import textwrap

    return textwrap.fill(text.replace("`", ""), 98, initial_indent=margin, subsequent_indent=margin)


def _printer(formats: tuple[str, ...]) -> AbstractContextManager[Printer | None]:
    """The process for the PDF, where one is wanted: it takes a second to load, which it can do while the traces are being read."""
    from .report_templates.pdf import Printer

    return Printer() if "pdf" in formats else nullcontext()


def _write_report(
    store: Any, progress: Callable[[str, float | None], None], printer: Printer | None, *, quiet: bool, output: Path,
    formats: tuple[str, ...], top: int, histograms: tuple[str, ...], paper: str, name: str | None, as_json: bool,
    generated_at: str | None, selection: Selection,
) -> Report:  # fmt: skip
    from .analysis import analyze
    from .analysis.options import Options
    from .report_templates import render
    from .report_templates.render import PLACES

    progress("analysing", None)
    chosen = Options(top=top, histograms=histograms, generated_at_ns=_generated_at(generated_at), name=name, selection=selection)
    made = analyze(store, chosen)
    written = render(made, output, formats, paper=paper, printer=printer, progress=progress)
    progress("", None)
    stale = [path for kind, place in PLACES.items() if kind not in written and (path := output / place).exists()]
    if as_json:
        _print_json(_summary(made, written))
    elif not quiet:
        click.echo(made.summary.headline)
        for line in _verdict_lines(made):
            click.echo(line)
        for path in written.values():
            click.echo(str(path))
        for warning in made.summary.warnings:
            click.echo(f"note: {warning}", err=True)
        for path in stale:
            click.echo(f"note: {path} is of an earlier report; it was left as it is", err=True)
    return made


def _selection(options: dict[str, Any]) -> tuple[Selection, tuple[str, ...]]:
    """The rules that run and the words of --fail-on, taken out of ``options`` before anything is read. Raises UsageError."""
    from .analysis.rules.selection import Chosen, Selection, effective, select

    words, preset, settings = options.pop("rules") or (), options.pop("preset"), options.pop("settings")
    custom, fail_on = options.pop("custom_rules"), options.pop("fail_on")
    of_file = click.get_current_context().meta.get(_FILE_SETTINGS, {})
    on = [word for word in words if not word.startswith("-")]
    off = [word.removeprefix("-") for word in words if word.startswith("-")]
    wanted = select(on or None, preset=preset, settings={**of_file, **settings})
    dropped = select(off) if off else Selection((), False)
    without = {chosen.rule.name for chosen in dropped.rules}
    kept = [chosen for chosen in wanted.rules if chosen.rule.name not in without]
    running = [chosen.rule.name for chosen in kept]
    for key in settings:
        rule = key.partition("_")[0]
        if rule not in running:
            raise UsageError(f"--set {key}: {rule} is turned off; leave it out, or turn the rule on (on: {', '.join(running) or 'none'})")
    own = [Chosen(rule, effective(type(rule), preset, rule.given)) for rule in custom]
    chosen = Selection((*kept, *own), wanted.summarised and not dropped.summarised, preset)
    return chosen, _known_to_run(fail_on, chosen)


def _known_to_run(fail_on: tuple[str, ...], selection: Selection) -> tuple[str, ...]:
    """The words of --fail-on as the report names the rules. Raises UsageError for a rule that does not exist or does not run."""
    from .analysis.rules.catalogue import PROFILER_REPORT
    from .analysis.rules.selection import select

    running = [chosen.label or chosen.rule.name for chosen in selection.rules] + [PROFILER_REPORT] * selection.summarised
    accepted = {word.lower(): word for word in ("issues", "error", *running)}
    for word in fail_on:
        if word.lower() in accepted:
            continue
        try:
            select([word])
        except UsageError as error:
            raise UsageError(f"--fail-on: {error}, issues, error") from error
        raise UsageError(f"--fail-on {word}: this rule is turned off; accepted: {', '.join(accepted.values())}")
    return tuple(accepted[word.lower()] for word in fail_on)


def _fail_if(report: Report, fail_on: tuple[str, ...]) -> None:
    """Leave with exit code 3 where a verdict matches. What is not evaluated does not match."""
    issues = [
        result.rule
        for result in report.rules
        if result.verdict == "IssuesFound" and (result.rule in fail_on or ("issues" in fail_on and result.category != "report"))
    ]
    failed = [result.rule for result in report.rules if result.verdict == "Error" and "error" in fail_on]
    if issues or failed:
        told = [f"{', '.join(issues)} found issues"] * bool(issues) + [f"{', '.join(failed)} failed"] * bool(failed)
        click.echo(f"postrun: --fail-on: {'; '.join(told)}", err=True)
        sys.exit(3)


def _verdict_lines(report: Report) -> Iterator[str]:
    """How many rules said what, and the findings that cost most."""
    from .analysis.wording import duration, percent, plural

    rules = [result for result in report.rules if result.category != "report"]
    if not rules:
        return
    counts = {word: sum(result.verdict == word for result in rules) for word in ("IssuesFound", "Error", "NoIssuesFound", "NotEvaluated")}
    told = [plural(counts["IssuesFound"], "issue")]
    if counts["Error"]:
        told.append(f"{counts['Error']} failed")
    told += [f"{counts['NoIssuesFound']} fine", f"{counts['NotEvaluated']} not evaluated"]
    yield f"Rules: {', '.join(told)}"
    for finding in report.findings[:_FINDINGS_SHOWN]:
        cost = [duration(finding.cost_ns)] if finding.cost_ns is not None else []
        if finding.cost_percent is not None:
            cost.append(f"{percent(finding.cost_percent)} of {finding.base}")
        where = f" ({finding.where})" if finding.where else ""
        yield f"  {finding.rank}. {finding.title.rstrip('.')}{where}" + (f": {', '.join(cost)}" if cost else "")
    for result in rules:
        if result.verdict == "Error":
            yield f"  {result.rule} failed: {result.reason}"


def _summary(report: Report, written: dict[str, Path]) -> dict[str, Any]:
    import dataclasses

    return {
        "run": report.run.name,
        "status": report.run.status,
        "headline": report.summary.headline,
        "figures": {tile.key: {"value": tile.number, "unit": tile.unit, "text": tile.value} for tile in report.summary.tiles},
        "rules": {result.rule: result.verdict for result in report.rules},
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "warnings": list(report.summary.warnings),
        "notes": len(report.data_quality),
        "written": {kind: str(path) for kind, path in written.items()},
    }


def _generated_at(text: str | None) -> int | None:
    """--generated-at or SOURCE_DATE_EPOCH in nanoseconds; None where neither is given."""
    import os
    from datetime import UTC, datetime

    if text is None:
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if not epoch:
            return None
        if not epoch.isdigit():
            raise UsageError(f"SOURCE_DATE_EPOCH is {epoch!r}; it must be whole seconds since 1970")
        return int(epoch) * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--generated-at {text!r} is no time; write it like 2026-11-21T06:40:00") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


@contextmanager
def _progress(quiet: bool, verbose: bool) -> Iterator[Callable[[str, float | None], None]]:
    """A function that shows what is being done: one line rewritten on a terminal, plain lines with --verbose, else nothing."""
    terminal = sys.stderr.isatty() and not quiet
    width = 0

    def show(text: str, fraction: float | None) -> None:
        nonlocal width
        if fraction is not None:
            text = f"{text} {fraction:.0%}"
        if terminal:
            click.echo("\r" + text.ljust(width)[:120], nl=False, err=True)
            width = len(text)
        elif verbose and text:
            click.echo(text, err=True)

    try:
        yield show
    finally:
        if terminal and width:
            click.echo("\r" + " " * min(width, 120) + "\r", nl=False, err=True)


if __name__ == "__main__":
    main()
