"""The program ``postrun``: parses the command line, dispatches to a command, sets the exit code.

Exit codes: 0 done; 1 an error of ours; 2 wrong usage; 3 done, and --fail-on matched; 4 no usable input; 130 interrupted. Results go to
standard output, progress and messages to standard error. Each command is a file of its own, loaded when it is called.
"""

from __future__ import annotations

import errno
import io
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from typing import Any, NoReturn

import click

from .commands.lazy import LazyGroup
from .commands.parts import commands_of
from .errors import PostrunError, Terminated, database_problem
from .messages import echo, lost

# Name of a command, of its module in commands/, and of the object there -> its short help.
LAZY_COMMANDS = {
    "attach": "Attach a report to a ticket.",
    "compare": "Compare two runs.",
    "demo": "Generate a demo report from a simulated run and a short recorded one.",
    "doctor": "Check that this machine can create reports.",
    "export": "Write the whole run for Perfetto, Chrome's viewer or data frames.",
    "ingest": "Load a run into a store (DuckDB) to report or query later.",
    "inspect": "Summarize trace files of the capture library.",
    "nightly": "Report every new or changed run of a folder or an object store.",
    "nightly digest": "Write the digest of a week from the reports of nights.",
    "nightly prune": "Remove old reports of nights.",
    "record": "Run a command and record it.",
    "report": "Create the report of one run.",
    "rules": "List every rule with its parameters and defaults.",
}


class _Group(LazyGroup):
    """Turns every failure into one clear message and the documented exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command. A result that could not be printed makes a success exit code 1."""
        result, code = None, 0
        try:
            result = self._main(*args, **kwargs)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else bool(error.code)
        if missing := lost():
            echo(f"postrun: {'; '.join(missing)}; a part of the result is not printed", err=True)
            lost()
            code = code or 1
        if code:
            sys.exit(code)
        return result

    def _main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            usage = io.StringIO()
            error.show(file=usage)
            echo(usage.getvalue(), nl=False, err=True)
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
            if problem := database_problem(error):
                echo(f"postrun: {problem}", err=True)
                sys.exit(1)
            echo(f"postrun: internal error: {type(error).__name__}: {error}", err=True)
            if "--verbose" in sys.argv or "-v" in sys.argv:
                echo(traceback.format_exc(), nl=False, err=True)
                sys.exit(1)
            echo("postrun: this is a mistake of postrun, not yours; run again with --verbose and report what it prints", err=True)
            sys.exit(1)


def _advice(error: OSError) -> str:
    """Return advice for a file that cannot be read or written."""
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


@click.group(cls=_Group, lazy=LAZY_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(installed_version("postrun"), prog_name="postrun")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Generate offline performance reports from GPU training traces."""
    from .commands import environment

    environment.leave_recording()
    if not environment.may_set_option():
        return
    commands = commands_of(ctx).values()
    envvars = [str(option.envvar) for command in commands for option in command.params if option.envvar]
    for line in environment.unknown(envvars):
        echo(f"postrun: {line}", err=True)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run :data:`main`; a SIGTERM still removes temporary files.

    A job scheduler ends a job with SIGTERM. Programs that call :data:`main` themselves keep their own handler.
    """
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        main(arguments, prog_name="postrun")
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


if __name__ == "__main__":
    run()
