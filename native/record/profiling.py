"""Changes to the environment of a job: for finding its steps, and for --profiler-config.

The processes of the job read the copy of the file in the recording's folder, which a variable names. Python processes get a start-up hook,
in a folder put first on PYTHONPATH, which finds the steps of programs that do not import postrun: see hooks/startup.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from ...errors import UsageError
from ..profiling.plan import ProfilingPlan, with_calls
from . import gpu as record_gpu
from .child import CommandError
from .ranks import MARKS

CONFIG: Final = "POSTRUN_PROFILER_CONFIG"
SHAPES: Final = "POSTRUN_SHAPES"  # 1: the window of operators records shapes
STACKS: Final = "POSTRUN_STACKS"  # 1: it records Python stacks and modules
HOOKS: Final = "POSTRUN_HOOKS"
ROTATE: Final = "POSTRUN_ROTATE_S"
STARTUP: Final = Path(__file__).parents[1] / "hooks" / "startup"
_INTERVAL_MS: Final = 500
_NOBODY: Final = "no process of the job annotated steps or trained with PyTorch"


@dataclass(frozen=True, slots=True)
class Profiling:
    """``interval_ms``: of the sampler. ``hooks``: find steps. ``file``: the user's. ``remarks``: for the user; ``facts``: to record."""

    interval_ms: int = _INTERVAL_MS
    hooks: bool = False
    plan: ProfilingPlan | None = None
    file: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def disabled(self) -> bool:
        """Whether nothing is to be recorded."""
        return self.plan is not None and self.plan.disabled

    @property
    def of_system(self) -> ProfilingPlan | None:
        """Return the part of the plan that the recorder itself follows."""
        if self.plan is None:
            return None
        return ProfilingPlan(sample_ms=self.plan.sample_ms, cpu_seconds=self.plan.cpu_seconds, rotate_s=self.plan.rotate_s)

    def copy(self, folder: Path) -> None:
        """Copy the file for the processes of the job. Raise OSError."""
        if self.file is not None:
            copy = self._copied(folder)
            draft = copy.with_name(f".{copy.name}.{os.getpid()}")
            draft.write_bytes(self.file.read_bytes())
            draft.replace(copy)

    def applied(self, environment: Mapping[str, str], of_gpus: Mapping[str, str], *, explicit: bool) -> dict[str, str]:
        """Return the environment of the job.

        If only some steps profile kernels, all GPU activity is recorded only if ``explicit``.
        """
        variables = dict(environment)
        if self.hooks:
            variables[HOOKS] = "1"
        if self.hooks or (self.plan is not None and self.plan.of_framework):
            others = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != os.fspath(STARTUP)]
            variables["PYTHONPATH"] = os.pathsep.join([os.fspath(STARTUP), *others])
        for name in (SHAPES, STACKS):
            variables.pop(name, None)
        if self.plan is None:
            return variables
        variables |= {name: value for name, value in self.variables.items() if name != CONFIG}
        if self.file is not None:
            variables[CONFIG] = os.fspath(self._copied(Path(variables["POSTRUN_DIR"]) / MARKS))
        if self.plan.rotate_s is not None:
            variables[ROTATE] = str(self.plan.rotate_s)
        if self.plan.detailed is not None and not explicit:
            for name in (record_gpu.GPU, record_gpu.INJECTION, record_gpu.WINDOWS):
                if name in of_gpus:
                    variables.pop(name, None)
        return variables

    def finish(self, folder: Path, *, alone: bool) -> tuple[str, ...]:
        """Name the timelines of killed processes; ``alone``: no other rank runs."""
        places = [folder] if self.plan is None or not self.plan.local_path else [folder, Path(self.plan.local_path)]
        places = [place for place in places if (place / "framework" / "pevents").is_dir()]
        if not places:
            return ()
        from ..profiling.engine.timeline_writer import finish_leftovers_of_host

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            for root in places:
                finish_leftovers_of_host(root, only_dead=not alone or root != folder)
        return tuple(str(one.message) for one in caught)

    def of_nobody(self) -> tuple[dict[str, str], str]:
        """Return the facts and the remark for a job that recorded no window."""
        if self.plan is None or not self.plan.of_framework:
            return {}, ""
        from ..profiling.engine.engine import asked, named, windows

        asked_windows = windows(self.plan)
        facts = {f"profiling.{kind}": asked(window) for kind, window in asked_windows.items()}
        recorded = {f"profiling.{kind}.recorded": f"nothing: {_NOBODY}" for kind in asked_windows}
        return facts | recorded, f"{named(list(asked_windows))} recorded nothing: {_NOBODY}"

    def _copied(self, folder: Path) -> Path:
        suffix = self.file.suffix.lower() if self.file is not None else ""
        return folder / f"profiler-config{suffix if suffix in ('.json', '.toml') else ''}"


def profiling_for(
    file: Path | None,
    interval_ms: int | None,
    *,
    hooks: bool = False,
    shapes: bool = False,
    stacks: bool = False,
    steps: str | None = None,
) -> Profiling:
    """Return the profiling of a job. Raise UsageError for a wrong file.

    ``shapes``, ``stacks``: of operators, in the file's window for them, else in ``steps`` (``A:B``), else in the default window.
    """
    calls = {name: "1" for name, is_asked in ((SHAPES, shapes), (STACKS, stacks)) if is_asked}
    if file is None:
        often_ms = _INTERVAL_MS if interval_ms is None else interval_ms
        return Profiling(often_ms, hooks, with_calls(None, shapes=shapes, stacks=stacks, steps=steps), variables=calls)
    from ..profiling.config_file import read_profiler_config

    file = file.absolute()
    if file.exists() and not file.is_file():  # a pipe can be read only once, so it cannot be copied for the job
        raise UsageError(f"{file}: is not a regular file; save the configuration to a file and give that")
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always", UserWarning)
        plan = read_profiler_config(file)
    plan = with_calls(plan, shapes=shapes, stacks=stacks, steps=steps) or plan
    variables = {CONFIG: os.fspath(file)} | calls
    if plan.disabled:
        remark = f"{file} disables the profiler: the command runs, and nothing is recorded"
        return Profiling(0, plan=plan, file=file, variables=variables, remarks=(remark,))
    remarks = tuple(f"{file}: {doubt.message}" for doubt in doubts)
    if interval_ms is not None and plan.sample_ms not in (None, interval_ms):
        often = f"every {interval_ms} ms" if interval_ms else "never"
        remarks += (f"the system is sampled {often}, as --interval-ms says, and not every {plan.sample_ms} ms, as {file} does",)
    facts = {"profiling.config": os.fspath(file)}
    often_ms = interval_ms if interval_ms is not None else plan.sample_ms or _INTERVAL_MS
    return Profiling(often_ms, hooks, plan, file, variables, remarks, facts)


def run_alone(file: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace the recorder by the command. Raise CommandError."""
    try:
        os.execve(file, list(command), environment)
    except OSError as error:
        raise CommandError(f"{file}: cannot be executed ({error.strerror})", 126) from None
