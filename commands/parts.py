"""Parts that all commands share: kinds of options, the origin of a wrong value, defaults from a file, progress, JSON.

Imports click only: `postrun --help` is quick.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..errors import UsageError
from ..messages import echo, echo_line, escaped_json, overwrite
from .lazy import LazyGroup

CONFIG_FILE = "postrun.config_file"
_CONFIG_NOTES = "postrun.config_notes"
_SOURCES = "postrun.sources"
_GATED = "postrun.gated"
_KEPT_NOTE = "postrun.kept_note"
FILE_SETTINGS = "postrun.file_settings"


@contextmanager
def bad_parameter(origin: str = "", option: str | None = None) -> Iterator[None]:
    """Convert a UsageError to one that names the option (in a callback: its option)."""
    try:
        yield
    except UsageError as error:
        raise click.BadParameter(f"{error}{origin}", param_hint=f"'{option}'" if option else None) from error


def parsed(parse: Callable[[Any], Any], absent: Any = None) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Make ``parse`` an option's callback; ``absent`` is returned for no value."""

    def callback(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        with bad_parameter():
            return absent if value is None or value == () else parse(value)

    return callback


def commands_of(ctx: click.Context) -> dict[str, click.Command]:
    """Return all commands by name."""
    root = ctx.find_root().command
    if isinstance(root, LazyGroup):
        return root.all_commands(ctx)
    return dict(root.commands) if isinstance(root, click.Group) else {}


def configure(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    """Make the configuration file the default source of the command being parsed."""
    from .config_file import THRESHOLDS, find, read, restrict
    from .config_file import rules as rules_of

    notes: list[str] = ctx.meta.setdefault(_CONFIG_NOTES, [])
    path = find(value, Path.cwd(), ctx.meta.get(_SOURCES, ()), notes)
    if path is None:
        return
    commands = {
        name: _by_long_name(command) for name, command in commands_of(ctx).items() if any(p.name == "config" for p in command.params)
    }
    ctx.meta[CONFIG_FILE] = path
    command = ctx.info_name or ""
    defaults = read(path, {name: frozenset(options) for name, options in commands.items()}).get(command, {})
    if value is None:
        notes.append(f"using ./{path.name}")
        defaults, refused = restrict(path, defaults)
        notes += refused
        if ctx.meta.get(_GATED) and not THRESHOLDS.isdisjoint(defaults):
            ctx.meta[_KEPT_NOTE] = f"using ./{path.name}"
    if isinstance(defaults.get("rules"), dict):
        defaults["rules"], ctx.meta[FILE_SETTINGS] = rules_of(path, defaults["rules"])
    ctx.default_map = {
        str(option.name): [value] if option.multiple and isinstance(value, str) else value
        for key, value in defaults.items()
        if value is not None
        for option in [commands[command][key]]
    }


def _by_long_name(command: click.Command) -> dict[str, click.Option]:
    """The options that a configuration file may set, by long name with ``_``."""
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in ("config", "settings")]
    return {next(o for o in option.opts if o.startswith("--"))[2:].replace("-", "_"): option for option in options}


class _ConfigOption(click.Option):
    """--config: an eager option that needs the command's arguments before they are read."""

    def handle_parse_result(self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]) -> tuple[Any, list[str]]:
        values = [opts.get(str(p.name)) for p in ctx.command.params if isinstance(p, click.Argument)]
        texts = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
        ctx.meta[_SOURCES] = [one for one in texts if isinstance(one, str)]
        gates = [p.consume_value(ctx, opts) for p in ctx.command.params if p.name == "fail_on"]
        ctx.meta[_GATED] = any(value and source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT) for value, source in gates)
        return super().handle_parse_result(ctx, opts, args)


def _quiet(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """Print the notes about the configuration file, which is read before ``--quiet``.

    ``--quiet`` keeps the note on a found file that can change the result of ``--fail-on``: a gate must not turn green silently.
    """
    kept = ctx.meta.pop(_KEPT_NOTE, None)
    for line in ctx.meta.pop(_CONFIG_NOTES, ()):
        if not value or line == kept:
            echo_line(f"note: {line}", err=True)
    return value


class _Option(click.Option):
    """An option that names the source of a wrong value: the environment or the configuration file."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as error:
            source = ctx.get_parameter_source(self.name) if self.name else None
            if source is ParameterSource.ENVIRONMENT:
                origin = f"the environment variable {self.envvar}"
            elif source is ParameterSource.DEFAULT_MAP:
                origin = str(ctx.meta.get(CONFIG_FILE))
            else:
                raise
            raise click.BadParameter(f"{error.message} (from {origin})", error.ctx, error.param, error.param_hint) from error


class _ListOption(_Option):
    """An option with a list of words; each occurrence adds words."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        self.multiple = True  # only for the parser: the value from other sources remains one text
        super().add_to_parser(parser, ctx)
        self.multiple = False


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Define an option that the environment sets as POSTRUN_<LONG_NAME> or ``envvar``.

    With the metavar LIST it may be repeated; its value is then a list of texts, see :func:`postrun.option_values.words`.
    """
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    settings = {"envvar": "POSTRUN_" + long[2:].replace("-", "_").upper(), **settings}
    kind = _ListOption if settings.get("metavar") == "LIST" else _Option
    return click.option(*names, cls=kind, show_envvar=False, **settings)


class Listed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """Text of an option that may be repeated; ``split`` separates the values in an environment variable."""

    name = "text"

    def __init__(self, split: str) -> None:
        self.split = split

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def split_envvar_value(self, rv: str) -> list[str]:
        import re

        return [text.strip() for text in re.split(self.split, rv) if text.strip()]


class Number(click.IntRange):
    """An integer in a range that error messages name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number from {self.min} to {self.max}", param, ctx)


def with_options(*groups: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


CONFIG = click.option(
    "--config", cls=_ConfigOption, type=click.Path(path_type=Path), is_eager=True, expose_value=False, callback=configure,
    envvar="POSTRUN_CONFIG", metavar="FILE", help="TOML file with defaults (else display and threshold settings of postrun.toml, or "
    "[tool.postrun] in pyproject.toml, of the current folder).",
)  # fmt: skip
VERBOSITY = [
    option("--quiet", "-q", is_flag=True, callback=_quiet, help="Print nothing but errors (and --json)."),
    option("--verbose", "-v", is_flag=True, help="Print details, and a traceback on an internal error."),
]


def print_json(value: Any) -> None:
    import json

    echo(escaped_json(json.dumps(value, ensure_ascii=False, indent=2)))


class _Echo(logging.Handler):
    """Log records as messages on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(self.format(record), err=True)


@contextmanager
def progress_line(quiet: bool, verbose: bool) -> Iterator[Callable[[str, float | None], None]]:
    """Yield a function that shows progress.

    It rewrites one line on a terminal, prints lines with --verbose, and is silent otherwise. With --verbose standard error also gets the
    traceback of each failure that leaves only a note.
    """
    log, handler = logging.getLogger("postrun.ingest"), _Echo()
    level = log.level
    terminal = sys.stderr.isatty() and not quiet
    width = 0

    def show(text: str, fraction: float | None) -> None:
        nonlocal width
        if fraction is not None:
            text = f"{text} {fraction:.0%}"
        if terminal:
            width = overwrite(text, width)
        elif verbose and text:
            echo_line(text, err=True)

    if verbose:
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
    try:
        yield show
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        if terminal and width:
            overwrite("", width)
