"""The words of the command line: parses them, calls the parts, prints, sets the exit code.

Exit codes: 0 done; 1 an error of ours; 2 wrong usage; 4 no usable input; 130 interrupted. Results go to standard output, progress and
messages to standard error.
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

from .errors import PostrunError, UsageError

if TYPE_CHECKING:
    from .analysis.report import Report
    from .report_templates.pdf import Printer

FORMATS = ("html", "pdf", "json")
_CONFIG_FILE = "postrun.config_file"


def _formats(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    """The words of --format, from the command line or from a list in a configuration file."""
    words = [str(word).strip().lower() for word in (value.split(",") if isinstance(value, str) else value)]
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


def _memory_size(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """The value of --memory-limit, as the database understands it."""
    import re

    if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?B)", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r} is no size; write it like 600MB or 2GB")
    return value


def _configure(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    """Make the configuration file the source of defaults of the command that is being parsed."""
    from .config import find, read

    path = find(value, Path.cwd())
    if path is None:
        return
    commands = {name: _by_long_name(command) for name, command in main.commands.items() if any(p.name == "config" for p in command.params)}
    ctx.meta[_CONFIG_FILE] = path
    given = read(path, {name: frozenset(options) for name, options in commands.items()})
    command = ctx.info_name or ""
    ctx.default_map = {
        str(option.name): [value] if option.multiple and isinstance(value, str) else value
        for key, value in given.get(command, {}).items()
        for option in [commands[command][key]]
    }


def _by_long_name(command: click.Command) -> dict[str, click.Option]:
    """The options that a configuration file may set, by long name with ``_``."""
    options = [p for p in command.params if isinstance(p, click.Option) and p.name != "config"]
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
            show_default=True, help="Which of html,pdf,json to write."),
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
    from .ingest import ingest

    with (
        _printer(options["formats"]) as printer,
        _progress(quiet, verbose) as progress,
        ingest(sources, progress=progress, memory_limit=memory_limit, threads=threads) as store,
    ):
        _write_report(store, progress, printer, quiet=quiet, **options)


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
    from .ingest import ingest
    from .simulate import write_demo

    with _printer(options["formats"]) as printer, _progress(quiet, verbose) as progress:
        progress("simulating a training run", None)
        run = output / "run"
        write_demo(run, seed=seed)
        with ingest([str(run)], progress=progress, memory_limit=memory_limit, threads=threads) as store:
            _write_report(store, progress, printer, quiet=quiet, output=output, **options)


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


def _printer(formats: tuple[str, ...]) -> AbstractContextManager[Printer | None]:
    """The process for the PDF, where one is wanted: it takes a second to load, which it can do while the traces are being read."""
    from .report_templates.pdf import Printer

    return Printer() if "pdf" in formats else nullcontext()


def _write_report(
    store: Any, progress: Callable[[str, float | None], None], printer: Printer | None, *, quiet: bool, output: Path,
    formats: tuple[str, ...], top: int, histograms: tuple[str, ...], paper: str, name: str | None, as_json: bool,
    generated_at: str | None,
) -> None:  # fmt: skip
    from .analysis import analyze
    from .analysis.options import Options
    from .report_templates import render

    progress("analysing", None)
    chosen = Options(top=top, histograms=histograms, generated_at_ns=_generated_at(generated_at), name=name)
    made = analyze(store, chosen)
    written = render(made, output, formats, paper=paper, printer=printer, progress=progress)
    progress("", None)
    stale = [path for kind in FORMATS if kind not in written and (path := output / f"report.{kind}").exists()]
    if as_json:
        _print_json(_summary(made, written))
    elif not quiet:
        click.echo(made.summary.headline)
        for path in written.values():
            click.echo(str(path))
        for warning in made.summary.warnings:
            click.echo(f"note: {warning}", err=True)
        for path in stale:
            click.echo(f"note: {path} is of an earlier report; it was left as it is", err=True)


def _summary(report: Report, written: dict[str, Path]) -> dict[str, Any]:
    return {
        "run": report.run.name,
        "status": report.run.status,
        "headline": report.summary.headline,
        "figures": {tile.key: {"value": tile.number, "unit": tile.unit, "text": tile.value} for tile in report.summary.tiles},
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
