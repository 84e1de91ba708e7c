"""The process of a distributed job that is recorded here, and the state that the recorders of one job share.

A launcher (torchrun, mpirun, srun) may start a recorder per process. They share the job's folder, where each leaves marks in
``.postrun-run/``, which readers of recordings skip: the launch that the folder belongs to, the ranks that have begun and ended, and the
recorder that samples each node.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import PostrunError
from ..recording.host_name import host_name, redacted

MARKS: Final = ".postrun-run"
_RECORDERS: Final = ".recorder"
_COMMAND_ENDED: Final = ".command-ended"
_FAILED: Final = "failed\n"

# Variables of rank, local rank, world size (as the C library reads them), processes on the node, and the identity of a launch.
_FAMILIES: Final = (
    ("torchrun", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    (
        "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    ("mpi", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("slurm", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
)  # fmt: skip


class FolderError(PostrunError):
    """The folder holds another recording, or cannot be written; nothing was started (exit code 125)."""

    exit_code = 125


@dataclass(frozen=True, slots=True)
class LaunchedRank:
    """A process of a launch. ``rank`` None: the only process.

    ``launch``: a text that all processes of a launch share, and no other; empty if the launcher has none. ``attempt``: how often the
    launcher has restarted this rank. ``again``: ``launch`` is unique, so a rank that comes twice was restarted. ``restarts_left``: the
    launcher restarts the ranks when one fails.
    """

    launcher: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    launch: str
    attempt: int = 0
    again: bool = False
    restarts_left: bool = False

    @property
    def first(self) -> bool:
        """Whether this process prints and reports for all."""
        return self.rank in (None, 0)


def launched_rank(environment: Mapping[str, str]) -> LaunchedRank:
    """Read the variables of the innermost launcher (torchrun inside srun)."""
    for launcher, rank, local_rank, world_size, local_size, launch in _FAMILIES:
        number = _number(environment.get(rank))
        # A batch script of SLURM has rank 0 without other ranks: srun creates those, and a step with them.
        if number is None or (launcher == "slurm" and _number(environment.get("SLURM_STEP_ID")) is None):
            continue
        identity = [environment[name] for name in launch if environment.get(name)]
        if launcher == "torchrun" and environment.get("TORCHELASTIC_RUN_ID", "none") != "none":
            identity = identity[:1]  # the master may change when ranks are restarted
        size = _number(environment.get(world_size))
        here = size is not None and size == _number(environment.get(local_size))
        if here:
            identity = [_started_by(rank, environment[rank])]  # the other variables may be the same in the next launch
        if launcher == "torchrun" and not any(name.startswith("TORCHELASTIC_") for name in environment):
            launcher = "launch"  # another launcher that names ranks as torchrun does
        attempt = _number(environment.get("TORCHELASTIC_RESTART_COUNT")) if launcher == "torchrun" else None
        name = "-".join([launcher, *identity]) if identity else ""
        again = len(identity) == 1 and (launcher == "torchrun" or (launcher == "launch" and here))
        restarts = _number(environment.get("TORCHELASTIC_MAX_RESTARTS")) if launcher == "torchrun" else None
        left = (restarts or 0) > (attempt or 0)
        return LaunchedRank(launcher, number, _number(environment.get(local_rank)), size, name, attempt or 0, again, left)
    return LaunchedRank(None, None, None, None, "")


class Folder:
    """The folder of a run, which one recorder joins. Raises FolderError for another run's folder, or if it cannot be created."""

    def __init__(self, path: Path, where: LaunchedRank, *, inside: bool = False) -> None:
        """Join the folder; ``inside``: another recorder already records the job into it."""
        self.path = path
        self.where = where
        self._marks = path / MARKS
        self._created: list[Path] = []
        self._host = re.sub(r"[^\w.-]", "_", host_name())
        self._key = "job" if where.rank is None else f"rank-{where.rank}"
        if where.attempt:
            self._key += f".{where.attempt}"
        try:
            self._join(inside)
        except OSError as error:
            self.abandon()
            failed_path = error.filename2 or error.filename or path
            raise FolderError(f"{failed_path}: cannot be written ({error.strerror or error}); choose another place with --out") from error

    def _join(self, inside: bool) -> None:
        known = self.path.is_dir()
        held = next(self.path.glob("*.prt"), None) if known else None
        if not known:
            self.path.mkdir(parents=True, exist_ok=True)
        self._marks.mkdir(exist_ok=True)
        # A launch without an identity is identified by the process that started it.
        launch = (
            _unnamed(self.where.launch)
            or (self.where.launcher if self.where.rank is not None else "")
            or f"{host_name()}-{os.getpid()}-{time.time_ns()}"
        )
        owner = self._marks / "launch.json"
        fresh = _claim(owner, json.dumps({"launch": launch}) + "\n")
        if fresh:
            self._created.append(owner)
        if not inside:
            if fresh and held is not None:
                self.abandon()
                raise self._taken(held.name)
            if not fresh and _fact(owner, "launch") != launch:
                raise self._taken(held.name if held is not None else "it was begun by another job")
        text = json.dumps({"host": host_name(), "pid": os.getpid()}) + "\n"
        if inside and self.where.rank is None:
            self._key += f".{os.getpid()}"
        first = self._key
        for number in range(1, 1000):
            if _claim(self._marks / self._key, text):
                break
            # A launcher that restarts its ranks counts that, or not (torchrun, when nodes come and go).
            if not inside and not (self.where.again and self._over(self._key, os.listdir(self._marks))):  # noqa: PTH208
                raise self._taken(f"of the same {'rank' if self.where.rank is not None else 'job'}")
            self._key = f"{first.partition('.')[0]}.{self.where.attempt + number}"
        self._created.append(self._marks / self._key)

    def _taken(self, what: str) -> FolderError:
        return FolderError(f"{self.path}: holds a recording already ({what}); give another folder with --out, or remove this one")

    def samples(self) -> bool:
        """Whether this recorder samples the node: local rank 0, else the first to call."""
        if self.where.rank is None:
            return True
        if self.where.local_rank is not None:
            return self.where.local_rank == 0
        mark = self._marks / f"sampler-{self._host}.{self.where.attempt}"
        if _claim(mark):
            self._created.append(mark)
            return True
        return False

    def ended(self) -> None:
        """Mark this rank's recording as complete."""
        with suppress(OSError):
            _claim(self._marks / f"{self._key}.ended")

    def unfinished(self) -> list[int]:
        """Return the other ranks that run, except those whose recorder is dead."""
        names = self._names()
        return sorted(rank for rank, name in _ranks(names).items() if rank != self.where.rank and not self._over(name, names))

    def recorder_writes(self, file: Path) -> None:
        """Mark a trace file as the recorder's own."""
        mark = self._marks / f"{file.name}{_RECORDERS}"
        with suppress(OSError):
            if _claim(mark):
                self._created.append(mark)

    def of_nobody(self, *, failed: bool) -> bool:
        """Mark the end of the command; return whether no process of the job recorded.

        True for one recorder of a launch only, when no process is left that could record; needs a launcher that reports the world size.
        """
        with suppress(OSError):
            _claim(self._marks / f"{self._key}{_COMMAND_ENDED}", _FAILED if failed else "")
            return self._all_commands_ended() and not self._of_job() and _claim(self._marks / "of-nobody")
        return False

    def _all_commands_ended(self) -> bool:
        """Whether all commands have ended and the launcher restarts none of them."""
        if self.where.rank is None:
            return True
        if self.where.world_size is None:
            return False
        names = self._names()
        ranks = _ranks(names)
        ended = [f"{name}{_COMMAND_ENDED}" for name in ranks.values()]
        if self.where.restarts_left and any((self._marks / name).read_text("utf-8") == _FAILED for name in ended if name in names):
            return False
        return all(
            rank in ranks and (f"{ranks[rank]}{_COMMAND_ENDED}" in names or self._over(ranks[rank], names))
            for rank in range(self.where.world_size)
        )

    def _of_job(self) -> bool:
        """Whether a process of the job has a first file (the next end in -2, -3, ...)."""
        names = self._names()
        return any("-" not in file.stem.rpartition(".")[2] and f"{file.name}{_RECORDERS}" not in names for file in self.path.glob("*.prt"))

    def _names(self) -> set[str]:
        with suppress(OSError):
            return set(os.listdir(self._marks))  # noqa: PTH208 - names only
        return set()

    def _over(self, name: str, names: Container[str]) -> bool:
        """Whether the recorder of a mark has ended or is dead."""
        return f"{name}.ended" in names or _dead(self._marks / name)

    def report_output(self) -> Path:
        """Create an empty file for the output of the report. Raise OSError."""
        path = self._marks / f"{self._key}.said"
        path.write_bytes(b"")
        return path

    def abandon(self) -> None:
        """Remove what was created here, if nothing was started."""
        for mark in self._created:
            mark.unlink(missing_ok=True)
        for folder in (self._marks, self.path):
            with suppress(OSError):
                folder.rmdir()


def default_folder(script: str, where: LaunchedRank, base: Path = Path("postrun-runs")) -> Path:
    """Return a run's default folder, named by its time or its launch."""
    if where.rank is None:
        stem = base / f"{script}-{time.strftime('%Y%m%d-%H%M%S')}"
        return next(path for n in range(1, 10_000) if not (path := stem if n == 1 else stem.with_name(f"{stem.name}-{n}")).exists())
    if not where.launch:
        raise FolderError("several processes are recorded, and nothing says which belong together; give all of them the same --out DIR")
    return base / f"{script}-{re.sub(r'[^A-Za-z0-9_.@-]+', '_', _unnamed(where.launch))[:100]}"


def _claim(path: Path, text: str = "") -> bool:
    """Create a file with a text atomically; False if it exists."""
    draft = path.with_name(f".{path.name}.{host_name()}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if not isinstance(error, PermissionError) and draft.exists():  # a file system without links
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                return False
            return True
        raise
    finally:
        with suppress(OSError):
            draft.unlink()
    return True


def _ranks(names: Iterable[str]) -> dict[int, str]:
    """Return the last mark of each rank that has begun."""
    last: dict[int, str] = {}
    for name in sorted(names, key=lambda name: _number(name.rpartition(".")[2]) or 0):
        if match := re.fullmatch(r"rank-(\d+)(\.\d+)?", name):
            last[int(match[1])] = name
    return last


def _dead(mark: Path) -> bool:
    """Whether the recorder of a mark ran on this node and is dead."""
    try:
        if _fact(mark, "host") == host_name():
            os.kill(int(_fact(mark, "pid") or ""), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        pass
    return False


def _fact(mark: Path, key: str) -> str | None:
    try:
        return str(json.loads(mark.read_bytes())[key])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _started_by(variable: str, value: str) -> str:
    """Identify the nearest ancestor process without this variable: it gave the rank."""
    process, wanted = os.getppid(), f"{variable}={value}".encode()
    for _ in range(64):
        status = _bytes(Path(f"/proc/{process}/stat")).rpartition(b")")[2].split()
        if len(status) < 20 or wanted not in _bytes(Path(f"/proc/{process}/environ")).split(b"\0"):
            return f"{process}.{status[19].decode()}" if len(status) >= 20 else str(process)
        process = int(status[1])
    return str(process)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _unnamed(launch: str) -> str:
    """Return a launch, hashed if hosts are redacted: it contains the master's host."""
    return hashlib.sha256(launch.encode()).hexdigest()[:16] if launch and "hosts" in redacted() else launch


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
