"""``postrun record``: a command -> its recording, and its exit code."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from .parts import with_options
from .record_options import RECORD_OPTIONS, RecordCommand


@click.command(cls=RecordCommand, short_help="Run a command and record it.", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
@with_options(RECORD_OPTIONS)
def record(command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND and record it: system metrics of the machine,
    metadata of the job, and ranges annotated with postrun.capture.

    Its exit code, signals, input and output pass through. 125: it was not started; 126: it cannot be executed; 127: it was not found.
    """
    from .. import modes
    from ..native.record import child as record_child
    from ..native.record import gpu as record_gpu
    from ..native.record import job as record_job
    from . import recording_summary as record_summary

    wanted = {name: options.pop(name) for name in ("gpu", "steps", "seconds", "window_signal")}
    ctx = click.get_current_context()
    typed = {name for name in wanted if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if options.pop("no_gpu"):
        wanted["gpu"] = "off"
        typed.add("gpu")
    gpu, always, window = record_gpu.chosen(typed, **wanted)
    choice = record_job.Wanted(**options, mode=modes.current(), gpu=gpu, always=always, window=window)
    record_child.leave(record_job.record(command, choice, record_summary.lines))
