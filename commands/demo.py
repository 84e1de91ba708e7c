"""``postrun demo``: a simulated training run and its report; a small training recorded on this machine and its report.

``postrun record`` runs :mod:`postrun.commands.example_training` in a process of its own, as it does for a user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import native
from ..errors import PostrunError
from ..messages import echo
from ..simulate.changes import NAMED
from .parts import CONFIG, VERBOSITY, option, progress_line, with_options
from .report import plan_report, print_result
from .report_options import MEMORY_LIMIT, REPORT_OPTIONS, THREADS, fail_if

if TYPE_CHECKING:
    from .report import ReportPlan

NAME: Final = "small training, recorded on this machine"
INTERVAL_MS: Final = 100
_LIMIT_S: Final = 180.0
_PATIENCE_S: Final = 5.0
_MARK: Final = ".postrun-demo"  # marks a folder that a later demo may replace


@click.command(short_help="Generate a demo report from a simulated run and a short recorded one.")
@option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=Path("postrun-demo"), show_default=True,
         help="Folder for the runs and their reports.")  # fmt: skip
@option("--seed", type=int, default=1, show_default=True, help="Seed of the simulated run.")
@option("--change", type=click.Choice(list(NAMED)), metavar="NAME",
         help=f"Plant one change in the simulated run, for `postrun compare` to find: {', '.join(NAMED)}.")  # fmt: skip
@option("--record/--no-record", "recorded", default=True, show_default=True,
         help="Also record a small training on this machine, to recorded/ in the folder.")  # fmt: skip
@with_options(REPORT_OPTIONS[1:], [CONFIG, MEMORY_LIMIT, THREADS], VERBOSITY)
def demo(seed: int, change: str | None, recorded: bool, quiet: bool, verbose: bool, as_json: bool, **options: Any) -> None:
    """Simulate a training run on two nodes with four GPUs each,
    with planted problems, and report it. Then record a small training on this machine, with a planted slow step, and report that to
    recorded/.

    Options hold for both; --name, --histogram, --json and --fail-on for the simulated run only.
    """
    plan, fail_on = plan_report(options, quiet)
    from ..simulate import write_demo

    folder = Path(plan.output.folder)
    with progress_line(quiet, verbose) as progress:
        progress("simulating a training run", None)
        write_demo(folder / "run", seed=seed, changes=NAMED[change] if change else None)
        result = plan.make([folder / "run"], progress)
    print_result(result, plan.options.histograms, quiet=quiet, as_json=as_json)
    if recorded:
        _report_recorded(plan, seed, quiet or as_json, verbose)
    fail_if(result.report, fail_on)


def _report_recorded(plan: ReportPlan, seed: int, quiet: bool, verbose: bool) -> None:
    """Record and report a small training; a failed recording is only a note."""
    folder = Path(plan.output.folder) / "recorded"
    plan = replace(plan, output=replace(plan.output, folder=folder), options=replace(plan.options, name=None, histograms=()))
    with progress_line(quiet, verbose) as progress:
        progress("recording a small training on this machine", None)
        try:
            record_example(folder / "run", seed=seed)
        except NotRecordedError as error:
            progress("", None)
            if not quiet:
                echo(f"note: no training was recorded on this machine: {error}", err=True)
            return
        result = plan.make([folder / "run"], progress)
    if not quiet:
        echo("\nA small training, recorded on this machine:")
    print_result(result, quiet=quiet)


class NotRecordedError(PostrunError):
    """The reason why nothing was recorded; the demo goes on without a recording."""


def record_example(folder: Path, *, seed: int) -> None:
    """Record the example to ``folder``. Raise NotRecordedError."""
    if not native.available():
        raise NotRecordedError("recording needs the C library, and this installation has none (docs/capture.md)")
    from . import example_training as example

    facts = {
        "steps": example.STEPS,
        "batch_size": example.BATCH,
        "hidden_size": example.HIDDEN,
        "learning_rate": example.LEARNING_RATE,
        "momentum": example.MOMENTUM,
        "seed": seed,
    }
    _make_room(folder)
    command = [sys.executable, "-P", "-m", "postrun", "record", "--quiet", "--interval-ms", str(INTERVAL_MS), "--name", NAME]
    command += ["--out", os.fspath(folder.absolute()), *(f"--param={key}={value}" for key, value in facts.items()), "--"]
    command += [sys.executable, "-P", "-m", "postrun.commands.example_training", "--seed", str(seed)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        _, messages = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise NotRecordedError(f"the small training had not ended after {_LIMIT_S:.0f} s and was stopped") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        lines = [line for line in messages.splitlines() if line.strip()]
        raise NotRecordedError(f"the small training failed ({lines[-1] if lines else f'exit code {process.returncode}'})")


def _make_room(folder: Path) -> None:
    mark = folder / _MARK
    try:
        if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
            raise NotRecordedError(f"{folder} is there already and is not of an earlier demo; choose another folder with -o")
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        mark.touch()
    except OSError as error:
        raise NotRecordedError(f"{error.filename or folder}: {error.strerror or error}") from error


def _end(process: subprocess.Popen[str]) -> None:
    """End the recorder and thereby the training: the recorder passes SIGTERM on."""
    process.terminate()
    try:
        process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
