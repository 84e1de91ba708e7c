"""The words of the command line: parses them, calls the parts, prints, sets the exit code.

Exit codes: 0 done; 1 an error of ours; 2 wrong usage; 3 done, and --fail-on matched; 4 no usable input; 130 interrupted. Results go to
standard output, progress and messages to standard error.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from . import option_values
from .errors import PostrunError, Terminated, UsageError

if TYPE_CHECKING:
    from .analysis.report import Report
    from .analysis.rules.base import Preset
    from .analysis.rules.selection import Selection
    from .report_templates.pdf import Printer
    from .rule_options import RuleText

_CONFIG_FILE = "postrun.config_file"
_FILE_SETTINGS = "postrun.file_settings"


class _Group(click.Group):
    """Turns every failure into one clear message and the documented exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # A job scheduler ends a job with SIGTERM: leave as for any other exit, so that temporary files go.
        signal.signal(signal.SIGTERM, _terminated)
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


def _terminated(*_: object) -> NoReturn:
    raise Terminated(128 + signal.SIGTERM)


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


def _formats(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    with _bad_parameter():
        return option_values.formats(value)


def _memory_size(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    with _bad_parameter():
        return option_values.memory_size(value)


def _rules(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    from . import rule_options

    with _bad_parameter():
        return rule_options.names(value)


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """POSTRUN_SET, and --set of the command line, which stands over it parameter by parameter. The configuration file's tables stand
    below both. What they name is looked at in :func:`_selection`, when the rules of --custom-rule are known."""
    of_environment = param.value_from_envvar(ctx) if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE else None
    if not value and not of_environment:
        return (), ()
    from . import rule_options

    with _bad_parameter(f" (from the environment variable {param.envvar})"):
        below = rule_options.pairs(of_environment or ())
    with _bad_parameter():
        above = rule_options.pairs(value)
    return (below, above) if ctx.get_parameter_source("settings") is ParameterSource.COMMANDLINE else (above, ())


def _custom_rules(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[RuleText, ...]:
    if not value:
        return ()
    from . import rule_options

    with _bad_parameter():
        return rule_options.rule_texts(value)


def _fail_on(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    from . import rule_options

    with _bad_parameter():
        return rule_options.fail_words(value)


def _formats_if_given(ctx: click.Context, param: click.Parameter, value: Any) -> tuple[str, ...]:
    return () if value is None else _formats(ctx, param, value)


def _parameters(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if not value:
        return ()
    from . import record_params

    with _bad_parameter():
        return tuple(record_params.pair(text) for text in value)


def _gpu_window(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from . import record_gpu

    read = {"steps": record_gpu.steps, "seconds": record_gpu.seconds, "window_signal": record_gpu.signal_name}[str(param.name)]
    with _bad_parameter():
        return read(value)


def _parameter_files(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[dict[str, str], ...]:
    if not value:
        return ()
    from . import record_params

    with _bad_parameter():
        return tuple(record_params.of_file(Path(text)) for text in value)


@contextmanager
def _bad_parameter(origin: str = "", option: str | None = None) -> Iterator[None]:
    """A UsageError inside becomes one that names the option (in a callback of one: this option)."""
    try:
        yield
    except UsageError as error:
        raise click.BadParameter(f"{error}{origin}", param_hint=f"'{option}'" if option else None) from error


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
    """An option that the environment can set as POSTRUN_<LONG_NAME>, or as ``envvar`` says."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    settings = {"envvar": "POSTRUN_" + long[2:].replace("-", "_").upper(), **settings}
    return click.option(*names, cls=_Option, show_envvar=False, **settings)


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


class _Number(click.IntRange):
    """A whole number in a range, which every message about it names."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no whole number from {self.min} to {self.max}", param, ctx)


class _Interval(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """An interval of the system sampler."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from .record_job import INTERVALS_MS

        if str(value) not in map(str, INTERVALS_MS):
            self.fail(f"{value!r} is no interval of the sampler; choose from {', '.join(map(str, INTERVALS_MS))}", param, ctx)
        return int(value)


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
            show_default=True, help=f"Which of {','.join(option_values.FORMATS)} to write."),
    _option("--rules", "rules", type=click.UNPROCESSED, callback=_rules, metavar="LIST",
            help="Rules that run, such as CPUBottleneck,StepOutlier (default: all); -StepOutlier turns one off."),
    _option("--preset", type=click.Choice(["documented", "service"], case_sensitive=False), default="documented", show_default=True,
            help="Defaults of the rules' parameters: the documented ones, or those the hosted service runs with."),
    _option("--set", "settings", multiple=True, type=_Listed(r"[\s,;]+"), callback=_settings, metavar="RULE_PARAMETER=VALUE",
            help="Set a parameter of a rule, such as LowGPUUtilization_patience=100; may be repeated."),
    _option("--custom-rule", "custom_rules", multiple=True, type=_Listed(r"[\n;]+"), callback=_custom_rules,
            metavar="FILE.py:CLASS[?NAME=VALUE&...]", help="Run a rule of your own, too; may be repeated."),
    _option("--rule-timeout", type=_Number(1, 86_400 * 30), default=300, show_default=True, metavar="SECONDS",
            help="How long the file of a rule of your own may take to load, and then to judge; after that it failed."),
    _option("--fail-on", type=click.UNPROCESSED, callback=_fail_on, metavar="LIST",
            help="Exit with code 3 when a rule found an issue: issues (any rule), error (a rule failed), or names of rules."),
    _option("--top", type=_Number(1, 1000), default=15, show_default=True, help="Rows in tables and figures of the top kernels."),
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
    _option("--threads", type=_Number(1, 1024), help="Threads of the database (default: all cores)."),
]
_record_options = [
    _option("--out", "-o", type=click.Path(file_okay=False, path_type=Path),
            help="Folder of the recording, new or empty (default: postrun-runs/NAME-TIME)."),
    _option("--interval-ms", type=_Interval(), metavar="MS", default=500, show_default=True,
            help="How often the system is sampled: 100, 200, 500, 1000, 5000 or 60000 ms; 0: never."),
    _option("--gpu/--no-gpu", default=None,
            help="Record the GPUs: their samples, and what runs on them; --no-gpu: neither (default: where there are NVIDIA GPUs)."),
    _option("--steps", envvar="POSTRUN_GPU_STEPS", callback=_gpu_window, metavar="A:B",
            help="Record what runs on GPUs in steps A to B-1 only, as the program annotates them."),
    _option("--seconds", envvar="POSTRUN_GPU_TIME", callback=_gpu_window, metavar="A:B",
            help="The same from A to B seconds after the program began to record."),
    _option("--window-signal", envvar="POSTRUN_GPU_SIGNAL", callback=_gpu_window, metavar="USR1|USR2",
            help="The same from one signal to the next."),
    _option("--param", "params", multiple=True, type=_Listed(r"[\n;]+"), callback=_parameters, metavar="KEY=VALUE",
            help="A hyperparameter of the job; may be repeated."),
    _option("--params", "files", multiple=True, type=_Listed(r"[\n;]+"), callback=_parameter_files, metavar="FILE",
            help="A JSON or TOML file of hyperparameters; may be repeated. --param counts before it."),
    _option("--report", is_flag=True, help="Write a report to the folder report/ of the recording when the job has ended."),
    _option("--format", "formats", type=click.UNPROCESSED, callback=_formats_if_given, metavar="LIST",
            help="Formats of --report, as of postrun report."),
    _option("--name", help="Name of the run in the report."),
    _option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
]  # fmt: skip


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
    from . import environment

    environment.leave_recording()
    envvars = [str(option.envvar) for command in main.commands.values() for option in command.params if option.envvar]
    for line in environment.unknown(envvars):
        click.echo(f"postrun: {line}", err=True)


@main.command(short_help="Write the report of one run.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_with(_report_options, [_config], _store_options, _verbosity)
def report(sources: tuple[str, ...], quiet: bool, verbose: bool, memory_limit: str, threads: int | None, **options: Any) -> None:
    """Write report.html, report.pdf and report.json of one run.

    SOURCE is a trace file, a folder (searched through; unknown files are listed in the report), or a run store that `postrun ingest` made.
    """
    selection, fail_on = _selection(options, quiet)
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


@main.command(short_help="Report a simulated training run, and a real small one that is recorded now.")
@_option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-demo"), show_default=True,
         help="Folder for the runs and their reports.")  # fmt: skip
@_option("--seed", type=int, default=1, show_default=True, help="Another seed gives another run.")
@_option("--record/--no-record", "recorded", default=True, show_default=True,
         help="Also record a small training on this machine, to recorded/ in the folder.")  # fmt: skip
@_with(_report_options[1:], [_config], _store_options, _verbosity)
def demo(
    output: Path, seed: int, recorded: bool, quiet: bool, verbose: bool, memory_limit: str, threads: int | None, **options: Any
) -> None:
    """Simulate a training run on two nodes with four GPUs each, with planted problems, and report it. Then record a small training on this
    machine, with a planted slow step, and report that to recorded/.

    Options hold for both; --name, --histogram, --json and --fail-on for the simulated run only.
    """
    selection, fail_on = _selection(options, quiet)
    from .ingest import ingest
    from .simulate import write_demo

    with _printer(options["formats"]) as printer, _progress(quiet, verbose) as progress:
        progress("simulating a training run", None)
        run = output / "run"
        write_demo(run, seed=seed)
        with ingest([str(run)], progress=progress, memory_limit=memory_limit, threads=threads) as store:
            made = _write_report(store, progress, printer, quiet=quiet, output=output, selection=selection, **options)
    if recorded:
        store_options = {"memory_limit": memory_limit, "threads": threads}
        silent = quiet or options["as_json"]
        options |= {"name": None, "histograms": (), "as_json": False, "selection": selection}
        _recorded(output / "recorded", seed, silent, verbose, store_options, options)
    _fail_if(made, fail_on)


def _recorded(output: Path, seed: int, quiet: bool, verbose: bool, store_options: dict[str, Any], options: dict[str, Any]) -> None:
    """The second half of the demo: what cannot be recorded is a note, never an error."""
    from .demo_recording import NotRecordedError, record_example
    from .ingest import ingest

    run = output / "run"
    with _progress(quiet, verbose) as progress:
        progress("recording a small training on this machine", None)
        try:
            record_example(run, seed=seed)
        except NotRecordedError as error:
            progress("", None)
            if not quiet:
                click.echo(f"note: no training was recorded on this machine: {error}", err=True)
            return
        progress("", None)
        with _printer(options["formats"]) as printer, ingest([str(run)], progress=progress, **store_options) as store:
            if not quiet:
                click.echo("\nA small training, recorded on this machine:")
            _write_report(store, progress, printer, quiet=quiet, output=output, **options)


@main.command(short_help="Run a command and record it.", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
@_with(_record_options)
def record(command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND and record it: system metrics of the machine, what is known of the job, and what it annotates with postrun.capture.

    Its exit code, signals, input and output pass through. 125: it was not started; 126: it cannot be executed; 127: it was not found.
    """
    from . import record_child, record_gpu, record_job

    wanted = {name: options.pop(name) for name in ("gpu", "steps", "seconds", "window_signal")}
    ctx = click.get_current_context()
    typed = {name for name in wanted if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    gpu, window = record_gpu.chosen(typed, **wanted)
    record_child.leave(record_job.record(command, record_job.Wanted(**options, gpu=gpu, window=window)))


@main.command(short_help="Show what trace files of the capture library hold.")
@click.argument("places", type=click.Path(path_type=Path), metavar="FILE_OR_FOLDER...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output: an object for one file, else a list.")
def inspect(places: tuple[Path, ...], as_json: bool) -> None:
    """Show what trace files of the capture library hold, or all of a folder, one after the other: tables, processes, threads, names and
    times, and what is lost."""
    from .inspect_trace import contents, files, listed

    paths, found, refused = files(places), [], None
    for number, path in enumerate(paths):
        try:
            one = contents(path)
        except PostrunError as error:
            if len(paths) == 1:
                raise
            refused = error
            click.echo(f"postrun: {error}", err=True)
            continue
        found.append(one)
        if not as_json:
            click.echo("\n".join([*([""] if number else []), *listed(one)]))
    if as_json:
        _print_json(found[0] if len(places) == 1 and not places[0].is_dir() else found)
    if refused:
        sys.exit(refused.exit_code)


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


class _RulesGroup(click.Group):
    """``postrun rules HostBound`` is answered with what was meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            from .analysis.rules.catalogue import PROFILER_REPORT
            from .analysis.rules.selection import known

            meant = {one.lower(): one for one in (PROFILER_REPORT, *known())}.get(args[0].lower())
            if meant:
                raise click.UsageError(f"write: postrun rules explain {meant}", ctx)
            raise click.UsageError(f"{args[0]!r} is no command of postrun rules; write: postrun rules explain NAME", ctx)
        return super().resolve_command(ctx, args)


@main.group("rules", cls=_RulesGroup, invoke_without_command=True, short_help="List every rule with its parameters and defaults.")
@_preset_shown
@click.option("--json", "as_json", is_flag=True, help="Print the rules as JSON on standard output.")
@click.pass_context
def rules(ctx: click.Context, preset: Preset | None, as_json: bool) -> None:
    """List every rule: what it checks, its parameters and their defaults. `postrun rules explain NAME` tells all of one."""
    if ctx.invoked_subcommand is not None:
        return
    from . import rule_texts

    if as_json:
        _print_json(rule_texts.as_data())
        return
    for line in rule_texts.listed(preset):
        click.echo(line)


@rules.command("explain", short_help="Tell all of one rule.")
@click.argument("name")
@_preset_shown
@click.pass_context
def explain(ctx: click.Context, name: str, preset: Preset | None) -> None:
    """Tell all of the rule NAME: what it checks, when it finds an issue, what it needs, what to do."""
    from . import rule_texts

    outer = ctx.parent.params.get("preset") if ctx.parent else None
    for line in rule_texts.explained(name, preset or outer or "documented"):
        click.echo(line)


def _printer(formats: tuple[str, ...]) -> AbstractContextManager[Printer | None]:
    """The process for the PDF, where one is wanted: it takes a second to load, which it can do while the traces are being read."""
    from .report_templates.pdf import Printer

    return Printer() if "pdf" in formats else nullcontext()


def _write_report(
    store: Any, progress: Callable[[str, float | None], None], printer: Printer | None, *, quiet: bool, output: Path,
    formats: tuple[str, ...], top: int, histograms: tuple[str, ...], paper: str, name: str | None, as_json: bool,
    generated_at: str | None, selection: Selection,
) -> Report:  # fmt: skip
    from . import report_words
    from .analysis import analyze
    from .analysis.options import Options
    from .report_templates import render
    from .report_templates.render import PLACES

    progress("analysing", None)
    made_at = option_values.generated_at(generated_at)
    made = analyze(store, Options(top=top, histograms=histograms, generated_at_ns=made_at, name=name, selection=selection))
    written = render(made, output, formats, paper=paper, printer=printer, progress=progress)
    progress("", None)
    stale = [path for kind, place in PLACES.items() if kind not in written and (path := output / place).exists()]
    if as_json:
        _print_json(report_words.summary(made, written))
        for line in report_words.failures(made) if not quiet else ():
            click.echo(f"note: {line}", err=True)
    elif not quiet:
        click.echo(made.summary.headline)
        for line in report_words.verdict_lines(made):
            click.echo(line)
        for path in written.values():
            click.echo(str(path))
        for warning in made.summary.warnings:
            click.echo(f"note: {warning}", err=True)
        for path in stale:
            click.echo(f"note: {path} is of an earlier report; it was left as it is", err=True)
    return made


def _selection(options: dict[str, Any], quiet: bool) -> tuple[Selection, tuple[str, ...]]:
    """The rules that run and the words of --fail-on, taken out of ``options`` before anything is read. Raises UsageError."""
    from . import rule_options

    ctx = click.get_current_context()
    with _bad_parameter(_origin(ctx, "custom_rules"), "--custom-rule"):
        own = rule_options.custom_rules(options.pop("custom_rules"), options.pop("rule_timeout"))
    for rule in own:
        if rule.problem is not None and not quiet:
            click.echo(f"note: --custom-rule: {rule.name} cannot be run, its verdict is Error: {rule.problem}", err=True)
    below, above = options.pop("settings")
    with _bad_parameter(" (from the environment variable POSTRUN_SET)", "--set"):
        settings = rule_options.settings(below, own)
    with _bad_parameter(option="--set"):
        settings |= rule_options.settings(above, own)
    return rule_options.chosen(
        options.pop("rules"),
        options.pop("preset"),
        settings=settings,
        of_file=ctx.meta.get(_FILE_SETTINGS, {}),
        own=own,
        fail_on=options.pop("fail_on"),
    )


def _origin(ctx: click.Context, name: str) -> str:
    """Where the value of an option comes from, behind a message; nothing where that is the command line."""
    source = ctx.get_parameter_source(name)
    option = next(one for one in ctx.command.params if one.name == name)
    if source is ParameterSource.ENVIRONMENT:
        return f" (from the environment variable {option.envvar})"
    return f" (from {ctx.meta.get(_CONFIG_FILE)})" if source is ParameterSource.DEFAULT_MAP else ""


def _fail_if(report: Report, fail_on: tuple[str, ...]) -> None:
    """Leave with exit code 3 where a verdict matches; say what could not be answered."""
    from . import rule_options

    for line in rule_options.unmatched(report, fail_on):
        click.echo(f"postrun: --fail-on: {line}", err=True)
    if told := rule_options.matched(report, fail_on):
        click.echo(f"postrun: --fail-on: {told}", err=True)
        sys.exit(3)


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
