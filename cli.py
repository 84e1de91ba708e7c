"""The words of the command line: parses them, calls the parts, prints, sets the exit code.

Exit codes: 0 done; 1 an error of ours; 2 wrong usage; 3 done, and --fail-on matched; 4 no usable input; 130 interrupted. Results go to
standard output, progress and messages to standard error.
"""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from . import option_values
from .command_parts import CONFIG, VERBOSITY, commands_of, option, print_json, progress_line, with_options
from .errors import PostrunError, Terminated
from .lazy_commands import LazyGroup
from .messages import echo, echo_line, show
from .record_options import RECORD_OPTIONS, RecordCommand
from .report_options import MEMORY_LIMIT, MODE, REDACT, REPORT_OPTIONS, STORE_OPTIONS, THREADS, chosen_look, chosen_rules, fail_if

if TYPE_CHECKING:
    from .analysis.report import Report
    from .analysis.rules.base import Preset
    from .analysis.rules.selection import Selection
    from .report_templates.look import Look
    from .report_templates.pdf import Printer


LAZY_COMMANDS = {
    "attach": ("tickets.command:attach", "Put a report on a ticket."),
    "compare": ("compare_command:compare", "Tell what changed from one run to another."),
    "export": ("export.command:export", "Write the whole run for Perfetto, Chrome's viewer or data frames."),
    "nightly": ("nightly.command:nightly", "Report every new or changed run of a folder or an object store."),
}
"""Name -> where the command stands, and its short help: a module of these is loaded when its command is called."""
CHANGES = ("loading", "kernel", "fp32", "added-kernel", "vanished-kernel", "slow-link", "pageable")
"""Names of simulate.changes.NAMED, which is loaded when the demo is made."""


class _Group(LazyGroup):
    """Turns every failure into one clear message and the documented exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # A job scheduler ends a job with SIGTERM: leave as for any other exit, so that temporary files go.
        signal.signal(signal.SIGTERM, _terminated)
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            show(error)
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _interrupted()
        except PostrunError as error:
            echo(f"postrun: {error}", err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            echo(f"postrun: {where}{error.strerror or error}; {_advice(error)}", err=True)
            sys.exit(1)
        except Exception as error:
            if type(error) is RuntimeError and "interrupted" in str(error):  # how the database answers to Ctrl-C
                _interrupted()
            if problem := _machine_problem(error):
                echo(f"postrun: {problem}", err=True)
                sys.exit(1)
            echo(f"postrun: internal error: {type(error).__name__}: {error}", err=True)
            if "--verbose" in sys.argv or "-v" in sys.argv:
                echo(traceback.format_exc(), nl=False, err=True)
                sys.exit(1)
            echo("postrun: this is a mistake of postrun, not yours; run again with --verbose and report what it prints", err=True)
            sys.exit(1)


def _advice(error: OSError) -> str:
    """What to do where a file cannot be read or written."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS):
        return "choose another place with -o"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "check its permissions, or choose another place with -o"
    return "choose another place with -o, or free some space"


def _terminated(*_: object) -> NoReturn:
    raise Terminated(128 + signal.SIGTERM)


def _interrupted() -> NoReturn:
    echo("postrun: interrupted", err=True)
    sys.exit(128 + signal.SIGINT)


def _machine_problem(error: Exception) -> str | None:
    """What the user can do about an error of the database that the machine causes: a full disk, too little memory. None: it is ours."""
    kind, reason = type(error).__name__, str(error).splitlines()[0] if str(error) else ""
    if kind == "OutOfMemoryException":
        return f"the database needs more memory ({reason}); give it more with --memory-limit, such as 2GB, or free space for TMPDIR"
    if kind == "IOException" and type(error).__module__.partition(".")[0] in {"duckdb", "_duckdb"}:
        return f"the database cannot read or write its file ({reason}); free some space, set TMPDIR, or choose another place with -o"
    return None


@click.group(cls=_Group, lazy=LAZY_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(installed_version("postrun"), prog_name="postrun")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A training job ends; one command turns what was captured into a report."""
    from . import environment

    environment.leave_recording()
    if not environment.given():
        return
    commands = commands_of(ctx).values()
    envvars = [str(option.envvar) for command in commands for option in command.params if option.envvar]
    for line in environment.unknown(envvars):
        echo(f"postrun: {line}", err=True)


@main.command(short_help="Write the report of one run.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@with_options(REPORT_OPTIONS, [CONFIG], STORE_OPTIONS, VERBOSITY)
def report(sources: tuple[str, ...], quiet: bool, verbose: bool, **options: Any) -> None:
    """Write report.html, report.pdf and report.json of one run.

    SOURCE is a trace file, a folder (searched through; unknown files are listed in the report), a run store that `postrun ingest` made, or
    a URL of any of them (s3://bucket/prefix, gs://, az://).
    """
    selection, fail_on = chosen_rules(options, quiet)
    look = chosen_look(options)
    of_store = {name: options.pop(name) for name in ("memory_limit", "threads", "max_unpacked", "redact")}
    from .ingest import ingest

    with (
        _printer(options["formats"]) as printer,
        progress_line(quiet, verbose) as progress,
        ingest(sources, progress=progress, **of_store) as store,
    ):
        made = _write_report(store, progress, printer, quiet=quiet, selection=selection, look=look, **options)
    fail_if(made, fail_on)


@main.command(short_help="Load a run into a store (DuckDB) to report or query later.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), default=Path("run.duckdb"), show_default=True,
         help="Run store to write; an existing file is replaced.")  # fmt: skip
@option("--name", help="Name of the run.")
@option("--json", "as_json", is_flag=True, help="Print a summary as JSON on standard output.")
@with_options([REDACT, MODE], [CONFIG], STORE_OPTIONS, VERBOSITY)
def ingest(
    sources: tuple[str, ...],
    output: Path,
    name: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **of_store: Any,
) -> None:
    """Load SOURCE... into a run store (a DuckDB file); `postrun report run.duckdb` continues from there."""
    from .ingest import ingest as load
    from .ingest import summary

    with (
        progress_line(quiet, verbose) as progress,
        load(sources, output, progress=progress, name=name, **of_store) as store,
    ):
        loaded = summary(store)
    if as_json:
        print_json({"store": str(output), **loaded})
    elif not quiet:
        counts = ", ".join(f"{count} {table.replace('_', ' ')}s" for table, count in loaded["rows"].items() if count)
        echo_line(f"{output}: {counts or 'nothing'}")
        for note in loaded["notes"]:
            echo_line(f"  {note['severity']}: {note['message']}", err=True)


@main.command(short_help="Report a simulated training run, and a real small one that is recorded now.")
@option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-demo"), show_default=True,
         help="Folder for the runs and their reports.")  # fmt: skip
@option("--seed", type=int, default=1, show_default=True, help="Another seed gives another run.")
@option("--change", type=click.Choice(CHANGES), metavar="NAME",
         help=f"Plant one change in the simulated run, for `postrun compare` to find: {', '.join(CHANGES)}.")  # fmt: skip
@option("--record/--no-record", "recorded", default=True, show_default=True,
         help="Also record a small training on this machine, to recorded/ in the folder.")  # fmt: skip
@with_options(REPORT_OPTIONS[1:], [CONFIG, MEMORY_LIMIT, THREADS], VERBOSITY)
def demo(
    output: Path, seed: int, change: str | None, recorded: bool, quiet: bool, verbose: bool, memory_limit: str, threads: int | None,
    redact: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Simulate a training run on two nodes with four GPUs each, with planted problems, and report it. Then record a small training on this
    machine, with a planted slow step, and report that to recorded/.

    Options hold for both; --name, --histogram, --json and --fail-on for the simulated run only.
    """
    selection, fail_on = chosen_rules(options, quiet)
    options["look"] = chosen_look(options)
    from .ingest import ingest
    from .simulate import write_demo
    from .simulate.changes import NAMED

    with _printer(options["formats"]) as printer, progress_line(quiet, verbose) as progress:
        progress("simulating a training run", None)
        run = output / "run"
        write_demo(run, seed=seed, changes=NAMED[change] if change else None)
        with ingest([str(run)], progress=progress, memory_limit=memory_limit, threads=threads, redact=redact) as store:
            made = _write_report(store, progress, printer, quiet=quiet, output=output, selection=selection, **options)
    if recorded:
        store_options = {"memory_limit": memory_limit, "threads": threads, "redact": redact}
        silent = quiet or options["as_json"]
        options |= {"name": None, "histograms": (), "as_json": False, "selection": selection}
        _recorded(output / "recorded", seed, silent, verbose, store_options, options)
    fail_if(made, fail_on)


def _recorded(output: Path, seed: int, quiet: bool, verbose: bool, store_options: dict[str, Any], options: dict[str, Any]) -> None:
    """The second half of the demo: what cannot be recorded is a note, never an error."""
    from .demo_recording import NotRecordedError, record_example
    from .ingest import ingest

    run = output / "run"
    with progress_line(quiet, verbose) as progress:
        progress("recording a small training on this machine", None)
        try:
            record_example(run, seed=seed)
        except NotRecordedError as error:
            progress("", None)
            if not quiet:
                echo(f"note: no training was recorded on this machine: {error}", err=True)
            return
        progress("", None)
        with _printer(options["formats"]) as printer, ingest([str(run)], progress=progress, **store_options) as store:
            if not quiet:
                echo("\nA small training, recorded on this machine:")
            _write_report(store, progress, printer, quiet=quiet, output=output, **options)


@main.command(cls=RecordCommand, short_help="Run a command and record it.", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
@with_options(RECORD_OPTIONS)
def record(command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND and record it: system metrics of the machine, what is known of the job, and what it annotates with postrun.capture.

    Its exit code, signals, input and output pass through. 125: it was not started; 126: it cannot be executed; 127: it was not found.
    """
    from . import modes, record_child, record_gpu, record_job

    wanted = {name: options.pop(name) for name in ("gpu", "steps", "seconds", "window_signal")}
    ctx = click.get_current_context()
    typed = {name for name in wanted if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if options.pop("no_gpu"):
        wanted["gpu"] = "off"
        typed.add("gpu")
    gpu, always, window = record_gpu.chosen(typed, **wanted)
    choice = record_job.Wanted(**options, mode=modes.current(), gpu=gpu, always=always, window=window)
    record_child.leave(record_job.record(command, choice))


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
            echo_line(f"postrun: {error}", err=True)
            continue
        found.append(one)
        if not as_json:
            echo("\n".join([*([""] if number else []), *listed(one)]))
    if as_json:
        print_json(found[0] if len(places) == 1 and not places[0].is_dir() else found)
    if refused:
        sys.exit(refused.exit_code)


@main.command(short_help="Check that this machine can make reports.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON on standard output.")
def doctor(as_json: bool) -> None:
    """Check that this machine can make reports: Pango, fonts, versions, disk. Exit code 1 where something is missing."""
    from .doctor import checks

    found = checks()
    if as_json:
        print_json([{"name": c.name, "state": c.state, "detail": c.detail, "remedy": c.remedy} for c in found])
    else:
        for check in found:
            mark = {"ok": "✓", "warning": "!", "missing": "✕"}[check.state]
            echo(f"{mark} {check.name}: {check.detail}" + (f"\n    mend it with: {check.remedy}" if check.remedy else ""))
    if any(check.state == "missing" for check in found):
        sys.exit(1)


_preset_shown = option("--preset", type=click.Choice(["documented", "service"], case_sensitive=False),
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
        print_json(rule_texts.as_data())
        return
    for line in rule_texts.listed(preset):
        echo(line)


@rules.command("explain", short_help="Tell all of one rule.")
@click.argument("name")
@_preset_shown
@click.pass_context
def explain(ctx: click.Context, name: str, preset: Preset | None) -> None:
    """Tell all of the rule NAME: what it checks, when it finds an issue, what it needs, what to do."""
    from . import rule_texts

    outer = ctx.parent.params.get("preset") if ctx.parent else None
    for line in rule_texts.explained(name, preset or outer or "documented"):
        echo(line)


def _printer(formats: tuple[str, ...]) -> AbstractContextManager[Printer | None]:
    """The process for the PDF, where one is wanted: it takes a second to load, which it can do while the traces are being read."""
    from .report_templates.pdf import Printer

    return Printer() if "pdf" in formats else nullcontext()


def _write_report(
    store: Any, progress: Callable[[str, float | None], None], printer: Printer | None, *, quiet: bool, output: Path,
    formats: tuple[str, ...], top: int, histograms: tuple[str, ...], paper: str, name: str | None, as_json: bool,
    generated_at: str | None, selection: Selection, timeline_events: int, look: Look,
) -> Report:  # fmt: skip
    from . import report_words, timelines
    from .analysis import analyze
    from .analysis.options import Options
    from .report_templates.render import PLACES, render

    progress("analysing", None)
    made_at = option_values.generated_at(generated_at)
    ctx = click.get_current_context(silent=True)
    of_file = ctx is not None and ctx.get_parameter_source("histograms") is ParameterSource.DEFAULT_MAP  # of many runs
    options = Options(
        top=top, histograms=histograms, histograms_if_present=of_file, generated_at_ns=made_at, name=name, selection=selection
    )
    made = analyze(store, options)
    for name_of_file in () if quiet else (one for one in histograms if one not in made.annotations.histograms):
        echo_line(f"note: histogram = {name_of_file!r} of the configuration: no annotated range of this run has this name", err=True)
    progress("drawing", None)
    timeline = timelines.timeline_for(store, made, formats, 0 if "timeline" in look.left_out else timeline_events)
    written = render(made, output, formats, paper=paper, printer=printer, progress=progress, timeline=timeline, look=look)
    progress("", None)
    stale = [path for kind, place in PLACES.items() if kind not in written and (path := output / place).exists()]
    if as_json:
        print_json(report_words.summary(made, written))
        for line in report_words.failures(made) if not quiet else ():
            echo_line(f"note: {line}", err=True)
    elif not quiet:
        echo_line(made.summary.headline)
        for line in report_words.verdict_lines(made):
            echo_line(line)
        for path in written.values():
            echo(str(path))
        for warning in made.summary.warnings:
            echo_line(f"note: {warning}", err=True)
        for path in stale:
            echo_line(f"note: {path} is of an earlier report; it was left as it is", err=True)
    return made


if __name__ == "__main__":
    main()
