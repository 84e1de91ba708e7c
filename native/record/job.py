"""Runs and records a job, from its folder to its report.

The recorder is a process with its own session of the C library: it samples the system and writes the job's facts. The environment of the
job and its workers contains the folder that they record to. See docs/record.md.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ... import masked_values, modes
from ...errors import PostrunError
from ...messages import echo
from ..recording.host_name import VARIABLE
from . import child as record_child
from . import facts as record_facts
from . import gpu as record_gpu
from . import params as record_params
from . import profiling as record_profiling
from . import ranks as record_ranks
from .signal_probe import Witness

Summary = Callable[[Path], Iterator[str]]  # describes the recording in a folder, line by line
ANNOTATE: Final = 'Try: annotate the steps of the program with `with postrun.capture.annotate("step", value=i):`'
INTERVALS_MS: Final = (0, 100, 200, 500, 1000, 5000, 60000)
RECORDER: Final = "POSTRUN_RECORDER"  # identifies the recorder for the processes of a job: host and process id
_WAIT_S: Final = 60.0
_WAIT_AFTER_FAILURE_S: Final = 5.0
"""How long the first rank waits for the others before it reports: they may wait for the launcher to notice that this rank failed."""
_POLL_S: Final = 0.1


class RecordingError(PostrunError):
    """Nothing was started (exit code 125, as with env and timeout)."""

    exit_code = 125


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's options of a recording."""

    out: Path | None = None
    interval_ms: int | None = None
    profiler_config: Path | None = None
    shapes: bool = False
    stacks: bool = False
    report: bool = False
    formats: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    files: tuple[Mapping[str, str], ...] = field(default=())
    name: str | None = None
    quiet: bool = False
    redact: tuple[str, ...] = ()
    mode: int = modes.PRIVATE
    hooks: bool = True
    gpu: bool | None = None
    always: bool = False
    window: record_gpu.Window = field(default_factory=record_gpu.Window)


def record(command: Sequence[str], wanted: Wanted, summary: Summary) -> record_child.End:
    """Run a command to its end and record it; return its end. Raise PostrunError."""
    if wanted.redact:
        os.environ[VARIABLE] = ",".join(wanted.redact)  # of this process, of the job, and of the report
    os.environ[modes.VARIABLE] = f"{wanted.mode:04o}"
    outer = dict(os.environ)
    for name in (
        RECORDER,
        record_profiling.CONFIG,
        record_profiling.SHAPES,
        record_profiling.STACKS,
    ):  # the recorder's own session is outside the job, and has no windows
        os.environ.pop(name, None)
    capture = _library()
    file = record_child.find(command[0])
    profiling = record_profiling.profiling_for(
        wanted.profiler_config,
        wanted.interval_ms,
        hooks=wanted.hooks,
        shapes=wanted.shapes,
        stacks=wanted.stacks,
        steps=wanted.window.steps,
    )
    if profiling.disabled:
        if not wanted.quiet:
            _say(profiling.remarks[0])
        record_profiling.run_alone(file, command, {**outer, **profiling.variables})
    where = record_ranks.launched_rank(outer)
    folder, inside = _folder(command, wanted, where, outer)
    blocked = record_child.hold_signals()
    sampled = inside and outer.get(RECORDER, "").rpartition(":")[0] == socket.gethostname()
    samples = bool(profiling.interval_ms) and not sampled and folder.samples()
    gpus = _gpus(wanted, outer)
    for key, value in (_facts(command, wanted, outer, inside) | dict(gpus.facts) | dict(profiling.facts)).items():
        capture.metadata(key, value)
    if wanted.gpu is False:
        os.environ[record_gpu.GPU] = "0"
    session = capture.session(
        folder.path, sample_ms=profiling.interval_ms if samples else 0, gpu=False, profiler_config=profiling.of_system
    )
    try:
        session.__enter__()
        if session.path is not None:
            folder.recorder_writes(session.path)
        profiling.copy(folder.path / record_ranks.MARKS)
    except OSError as error:
        folder.abandon()
        raise RecordingError(f"{folder.path}: {error.strerror or error}; choose another folder with --out, or free some space") from error
    environment = outer | {"POSTRUN_CAPTURE": "1", "POSTRUN_DIR": os.fspath(folder.path), "POSTRUN_FOLLOW_FORK": "1"}
    environment = {key: value for key, value in environment.items() if key not in gpus.dropped} | dict(gpus.variables)
    steps_of_operators = (wanted.shapes or wanted.stacks) and wanted.window.steps is not None  # then --steps is their window
    explicit = wanted.gpu is not None or (wanted.window != record_gpu.Window() and not steps_of_operators)
    environment = profiling.applied(environment, gpus.variables, explicit=explicit)
    if not wanted.hooks:
        environment.pop(record_profiling.HOOKS, None)
    environment[RECORDER] = outer[RECORDER] if sampled else f"{socket.gethostname()}:{os.getpid()}"
    if early := record_child.asked_to_end(0):  # Ctrl-C before the job exists
        _abandon(folder, session)
        return early
    for remark in () if wanted.quiet else (*gpus.remarks, *profiling.remarks):
        _say(remark)
    witness = Witness(record_child.PASSED_ON)
    began = capture.now_ns()
    try:
        child = record_child.start(file, command, environment, blocked, ignored=wanted.window.signal_number)
    except PostrunError:
        witness.close()
        _abandon(folder, session)
        raise
    capture.metadata("job.started_ns", began)
    capture.metadata("job.pid", child)
    with suppress(OSError):  # reported at the end
        capture.flush()
    end = record_child.wait(child, witness)
    witness.close()
    capture.metadata("job.ended_ns", capture.now_ns())
    if end.signal_name is None:
        capture.metadata("job.exit_code", end.exit_code)
    else:
        capture.metadata("job.signal", end.signal_name)
    alone = where.rank is None and not inside
    nobody = not inside and folder.of_nobody(failed=end.exit_code != 0)
    facts, nothing = profiling.of_nobody() if nobody else ({}, "")
    for key, value in facts.items():
        capture.metadata(key, value)
    session.__exit__(None, None, None)
    lost = capture.statistics()["error"]
    remarks = profiling.finish(folder.path, alone=alone)
    folder.ended()
    for remark in remarks:
        _say(remark)
    if nothing and not wanted.quiet:
        _say(nothing)
    if lost:
        _say(f"the recording of the recorder is incomplete ({os.strerror(-lost)})")
    if where.first and not inside and not wanted.quiet and not (where.rank is not None and folder.unfinished()):
        _summarize(folder.path, summary)
    if nobody and not wanted.quiet:
        _say(f"only the machine was recorded. {ANNOTATE}")
    if where.first and not inside:
        _finish(folder, where, wanted, end, blocked)
    return end


def _library() -> ModuleType:
    """Return postrun.capture. Raise RecordingError if it cannot record."""
    from ... import native

    if not native.available():
        raise RecordingError(
            "recording needs the C library, and this installation has none; install postrun again where there is a C compiler, "
            "without POSTRUN_NO_NATIVE"
        )
    from .. import capture

    return capture


def _folder(
    command: Sequence[str], wanted: Wanted, where: record_ranks.LaunchedRank, environment: Mapping[str, str]
) -> tuple[record_ranks.Folder, bool]:
    """Return the folder, and whether another recorder already records the job there."""
    above = environment.get("POSTRUN_DIR") if environment.get(RECORDER) else None
    out = wanted.out.absolute() if wanted.out is not None else None
    if above and (out is None or os.path.normpath(above) == os.path.normpath(out)):
        return record_ranks.Folder(Path(above).absolute(), where, inside=True), True
    if out is None:
        out = record_ranks.default_folder(script_name(command), where).absolute()
    return record_ranks.Folder(out, where), False


def script_name(command: Sequence[str]) -> str:
    """Return a short name of the command: train for ``python train.py``."""
    script = next((one for one in command if re.search(r"\.(py|sh)$", one)), None)
    if script is None and "-m" in command[:-1]:
        script = command[list(command).index("-m") + 1].rpartition(".")[2]
    name = Path(script or command[0]).name
    return re.sub(r"[^\w.-]", "_", re.sub(r"\.(py|sh)$", "", name))[:60].strip(".") or "run"


def _facts(command: Sequence[str], wanted: Wanted, environment: Mapping[str, str], inside: bool) -> dict[str, str]:
    facts = record_facts.facts(command, name=wanted.name, environment=environment)
    if inside:
        facts["job.inside"] = environment.get(RECORDER) or "1"
    hyperparameters = record_params.together(record_params.hosted(record_facts.hosted_hyperparameters()), wanted.files, wanted.params)
    return facts | {f"param.{key}": str(masked_values.mask_value(key, value)[0]) for key, value in hyperparameters.items()}


def _gpus(wanted: Wanted, environment: Mapping[str, str]) -> record_gpu.JobChanges:
    from ... import native

    driver = wanted.gpu is not False and native.gpu_driver()
    return record_gpu.job_changes(
        wanted.gpu, wanted.window, environment, native.library(), explicit=_asks_for_gpus(wanted), driver=driver, always=wanted.always,
        vendor=None if driver else record_gpu.other_gpus(),
    )  # fmt: skip


def _asks_for_gpus(wanted: Wanted) -> bool:
    return wanted.gpu is not None or wanted.window != record_gpu.Window()


def _abandon(folder: record_ranks.Folder, session: Any) -> None:
    """Remove what the recorder wrote before the job was started."""
    session.__exit__(None, None, None)
    if session.path is not None:
        session.path.unlink(missing_ok=True)
    folder.abandon()


def _summarize(folder: Path, summary: Summary) -> None:
    """Print a summary of the recording. No failure changes how the recorder ends."""
    try:
        for line in summary(folder):
            _say(line)
    except Exception as error:
        _say(f"the recording could not be summarized ({type(error).__name__}: {error})")


# -- when the job has ended ------------------------------------------------------------------------------------------------


def _finish(
    folder: record_ranks.Folder, where: record_ranks.LaunchedRank, wanted: Wanted, end: record_child.End, blocked: set[int]
) -> None:
    """Print the recording's folder and report it, in one process per launch."""
    if not wanted.report:
        if not wanted.quiet:
            _say(f"recorded to {_relative(folder.path)}; report it with: postrun report {shlex.quote(_relative(folder.path))}")
        return
    if where.rank is None:
        _report(folder, wanted, blocked)
    else:
        _report_apart(folder, wanted, end, blocked)


def _report(folder: record_ranks.Folder, wanted: Wanted, blocked: set[int]) -> None:
    output = folder.path / "report"
    arguments = [sys.executable, "-P", "-m", "postrun", "report", os.fspath(folder.path), "--output", os.fspath(output)]
    if wanted.formats:
        arguments += ["--format", ",".join(wanted.formats)]
    if wanted.quiet:
        arguments.append("--quiet")
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_THE_REPORT}
    sys.stderr.flush()
    end = record_child.wait(record_child.start(sys.executable, arguments, environment, blocked, stdout=2))
    if end.exit_code != 0:
        why = f"signal {end.signal_name}" if end.signal_name else f"exit code {end.exit_code}"
        _say(f"the report was not made ({why}); try again with: postrun report {shlex.quote(_relative(folder.path))}")


def _report_apart(folder: record_ranks.Folder, wanted: Wanted, end: record_child.End, blocked: set[int]) -> None:
    """Report in a process with its own session.

    A launcher that ends its ranks (mpirun: if one has failed) sends them SIGTERM and soon SIGKILL, which would end the report with the
    recorder. The output goes to a file, as the recorder may end first; otherwise it prints the file at the end.
    """

    def work() -> None:
        if _others_ended(folder, end):
            _report(folder, wanted, blocked)

    try:
        output_file = folder.report_output()
        child = record_child.apart(work, output_file)
    except OSError:  # no resources for another process or its output
        work()
        return
    quoted = shlex.quote(_relative(folder.path))
    going_on = f"asked to end; the report is still being made, in {_relative(folder.path / 'report')} (else: postrun report {quoted})"
    if record_child.outlast(child, lambda: _say(going_on), end.asked):
        with suppress(OSError, ValueError):
            echo(output_file.read_text(encoding="utf-8", errors="replace"), nl=False, err=True)
            output_file.unlink()


_NOT_FOR_THE_REPORT: Final = frozenset(
    {
        "POSTRUN_CAPTURE",
        "POSTRUN_DIR",
        "POSTRUN_FOLLOW_FORK",
        RECORDER,
        "POSTRUN_OUTPUT",
        "POSTRUN_OUT",
        "POSTRUN_QUIET",
        "POSTRUN_NAME",
        record_gpu.INJECTION,
        record_gpu.NVTX,
        record_profiling.CONFIG,
        record_profiling.SHAPES,
        record_profiling.STACKS,
    }
)


def _others_ended(folder: record_ranks.Folder, end: record_child.End) -> bool:
    """Wait for the other ranks; False if a signal requests the end."""
    patience = _WAIT_S if end.exit_code == 0 else _WAIT_AFTER_FAILURE_S
    until = time.monotonic() + patience
    while (others := folder.unfinished()) and time.monotonic() < until:
        if record_child.asked_to_end(_POLL_S):
            _say(f"ended before the report was made; make it with: postrun report {shlex.quote(_relative(folder.path))}")
            return False
    if others:
        ranks = ", ".join(map(str, others[:8])) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
        word = "rank" if len(others) == 1 else "ranks"
        _say(f"{word} {ranks} had not ended after {patience:.0f} s; the report has what was recorded so far")
    return True


def _relative(path: Path) -> str:
    try:
        return os.fspath(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return os.fspath(path)


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody listens
        echo(f"postrun: {text}", err=True)
