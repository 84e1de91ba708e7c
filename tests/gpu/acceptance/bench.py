"""The means of a case: programs run with a time limit, checks that are collected, figures, and examples that are kept."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import traces

RECORDER_VARIABLES = ("POSTRUN_", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "TEARDOWN_CUPTI")
ATTACH_MS, ATTACH_MS_STUB = 2000, 500  # until a recorder that the driver has loaded records, generously
PARALLEL_JOBS = 5  # processes that use the GPU at the same time, in cases that measure no time
ERROR_LINES = 6  # of a failed program's standard error, kept in the reason


class Failed(Exception):  # noqa: N818 - a verdict, not a defect of the suite
    """The case ends here: the recording is wrong or missing."""


class Skipped(Exception):  # noqa: N818 - a verdict
    """The case cannot run on this machine."""


@dataclass(frozen=True)
class Tools:
    """The programs and paths that were built for the cases; text, so that it goes to the case's process as JSON."""

    python: str
    site: str | None  # folder with the package postrun; None: this Python has it installed
    library: str  # libpostrun.so
    programs: dict[str, str]  # name -> path of the built program
    sources: str  # folder of the workloads
    stub: dict[str, str] | None = None  # environment of the stub libraries, or None: a real device
    cupti: str | None = None  # libcupti of this Python's packages, for programs that have none of their own
    scale: float = 1.0  # repetitions and waits, relative to the criteria of the suite

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Done:
    """A program that has ended."""

    name: str
    code: int
    seconds: float
    output: str
    errors: str
    folder: Path
    ended_ns: int  # when it had ended, in ns since the Unix epoch
    report: dict[str, Any] = field(default_factory=dict)  # the JSON object in the last line of its output

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.prt"))

    def tables(self, *names: str) -> traces.Tables:
        """Return the rows of all trace files, by default of all tables."""
        files = self.files()
        if not files:
            raise Failed(f"{self.name}: no trace file was written; it printed: {tail(self.errors) or 'nothing'}")
        return traces.read(files, names)

    def rows(self, table: str) -> int:
        return traces.count(self.files(), table)


def tail(text: str, lines: int = ERROR_LINES) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-lines:])[-1500:]


def exit_name(code: int) -> str:
    """An exit code as Python gives it, with the name of the signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


@dataclass
class Bench:
    """One case on one machine."""

    tools: Tools
    folder: Path
    out: Path  # of the suite
    seconds: float  # that the case may take
    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def scaled(self, number: float, least: int = 1) -> int:
        """A number of repetitions, smaller with the stub libraries."""
        return max(least, round(number * self.tools.scale))

    def require(self, problems: Iterable[str], about: str = "") -> None:
        """Collects the problems of a check: any problem fails the case."""
        self.failures += [f"{about}: {problem}" if about else problem for problem in problems]

    def has(self, module: str) -> bool:
        """Whether Python workloads can import it: never with the stub libraries."""
        return self.tools.stub is None and importlib.util.find_spec(module) is not None

    def demand(self, condition: bool, problem: str) -> None:
        self.require([] if condition else [problem])

    # ------------------------------------------------------------ programs

    def environment(self, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(RECORDER_VARIABLES)}
        fixed = {
            "POSTRUN_DIR": str(folder),
            "POSTRUN_REDACT": "hosts",  # examples are published
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            "MALLOC_PERTURB_": "165",
            "TOKENIZERS_PARALLELISM": "false",
        }
        if self.tools.site:
            fixed["PYTHONPATH"] = os.pathsep.join(filter(None, [self.tools.site, os.environ.get("PYTHONPATH")]))
        return clean | fixed | (self.tools.stub or {}) | dict(variables)

    def run(self, name: str, command: Sequence[object], *, limit: float = 120, expect: int | None = 0, **variables: str) -> Done:
        """Run a program into its own folder. Raise Failed for a hang or a wrong exit code.

        ``expect``: the exit code; None: any.
        """
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        limit = min(limit, max(1.0, self.left()))
        if str(command[0]) != self.tools.python:
            variables = self.cupti() | variables
        begun = time.monotonic()
        log, errors = folder / "output.txt", folder / "errors.txt"
        with log.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                [str(part) for part in command], stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=folder,
                env=self.environment(folder, variables),
            )  # fmt: skip
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = None
        ended_ns = time.time_ns()
        done = Done(
            name, -signal.SIGKILL if code is None else code, time.monotonic() - begun, _text(log), _text(errors), folder, ended_ns
        )  # fmt: skip
        if code is None:
            raise Failed(f"{name}: did not end within {limit:.0f} s; it printed: {tail(done.errors) or 'nothing'}")
        lines = [line for line in done.output.splitlines() if line.startswith("{")]
        if lines:
            done.report = json.loads(lines[-1])
        if expect is not None and code != expect:
            raise Failed(f"{name}: {exit_name(code)} instead of {expect}: {tail(done.errors) or 'it printed nothing'}")
        return done

    def workload(self, name: str, *arguments: object, limit: float = 120, expect: int | None = 0, **variables: str) -> Done:
        """Runs a mode of the program ``workload``, which begins sessions itself."""
        return self.run(name, [self.tools.programs["workload"], *arguments], limit=limit, expect=expect, **variables)

    def plain(self, name: str, *arguments: object, expect: int | None = 0) -> Done:
        """Runs a mode of the program ``plain``, into which the driver loads the recorder."""
        attach_ms = ATTACH_MS_STUB if self.tools.stub else ATTACH_MS
        return self.run(name, [self.tools.programs["plain"], attach_ms, *arguments], expect=expect, **self.injection())

    def script(self, name: str, file: str, *arguments: object, limit: float = 120, expect: int | None = 0, **variables: str) -> Done:
        """Runs a Python workload."""
        source = Path(self.tools.sources) / file
        return self.run(name, [self.tools.python, "-P", source, *arguments], limit=limit, expect=expect, **variables)

    def together(self, jobs: Mapping[str, Any], at_once: int = PARALLEL_JOBS) -> dict[str, Done]:
        """Run callables at the same time; a Failed of one becomes a failure of the case."""
        finished: dict[str, Done] = {}
        with ThreadPoolExecutor(at_once) as pool:
            futures = {name: pool.submit(job) for name, job in jobs.items()}
            for name, future in futures.items():
                try:
                    finished[name] = future.result()
                except Failed as failure:
                    self.failures.append(str(failure))
        return finished

    def cupti(self) -> dict[str, str]:
        """Return the variable that names a CUPTI, if the CUDA toolkit has none."""
        return {"POSTRUN_CUPTI": self.tools.cupti} if self.tools.cupti else {}

    def injection(self) -> dict[str, str]:
        """Return variables with which the CUDA driver loads the recorder into a program."""
        return {"CUDA_INJECTION64_PATH": self.tools.library, "POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1"}

    # ------------------------------------------------------------ examples

    def keep(self, done: Done, name: str) -> None:
        """Keep a program's only trace file as an example, with its counts and sums."""
        files = done.files()
        if len(files) != 1:
            self.figures[f"{name}: not kept"] = f"{len(files)} files"
            return
        self.examples.append({"name": name, "file": str(files[0]), "expected": traces.summary(done.tables())})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
