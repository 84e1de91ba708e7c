"""Facts of a job: its command, node, commit and launcher, as text by key.

Reads only files and the environment; uses no network and starts no program.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ... import masked_values, redaction
from ...version import __version__
from ..recording.host_name import redacted

# Set by launchers and schedulers for their processes; none of these can be a secret.
LAUNCHER_VARIABLES: Final = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES",
    "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION", "SLURM_CPUS_PER_TASK",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "TRAINING_JOB_NAME",
)  # fmt: skip
_OF_HOSTS: Final = frozenset({"MASTER_ADDR", "SLURM_JOB_NODELIST"})
_HOSTED: Final = Path("opt/ml/input/config")
_DMI: Final = Path("sys/devices/virtual/dmi/id")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LARGEST: Final = 1 << 20
_LONGEST: Final = 60_000


def facts(command: Sequence[str], *, name: str | None, environment: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return the job's facts by key. ``root``: the folder of the system's files."""
    resources = _json(root / _HOSTED / "resourceconfig.json")
    kind, source = _instance_type(resources, root)
    hosts = resources.get("hosts")
    try:
        directory = os.getcwd()  # noqa: PTH109 - a folder that is gone raises
    except OSError:
        directory = ""
    job_facts: dict[str, Any] = {
        "job.command": shlex.join(redaction.mask_arguments(command)[0]),
        "job.directory": directory,
        "job.host": socket.gethostname(),
        "job.name": name or environment.get("TRAINING_JOB_NAME"),
        "job.recorder": f"postrun {__version__}, Python {platform.python_version()}",
        "job.memory_bytes": _main_memory(),
        "job.system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "job.git_commit": git_commit(Path(directory)) if directory else None,
        "job.instance_type": kind,
        "job.instance_type_source": source,
        "job.hosts": " ".join(map(str, hosts)) if isinstance(hosts, list) else None,
    }
    if "hosts" in redacted():  # names of other hosts, and only those of this host are replaced
        job_facts["job.hosts"] = None
        environment = {key: value for key, value in environment.items() if key not in _OF_HOSTS}
    job_facts |= {f"job.environment.{key}": environment[key] for key in LAUNCHER_VARIABLES if environment.get(key)}
    return {key: _storable(masked_values.mask_value(key, str(value))[0]) for key, value in job_facts.items() if value}


def _main_memory() -> int | None:
    """Return the bytes of the node's main memory; None if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def hosted_hyperparameters(root: Path = Path("/")) -> dict[str, Any]:
    """Return the hyperparameters of a job of the hosted service; empty elsewhere."""
    return _json(root / _HOSTED / "hyperparameters.json")


def _instance_type(resources: Mapping[str, Any], root: Path) -> tuple[str | None, str | None]:
    """Return the node's type and its source: the service, or the firmware on EC2."""
    kind = resources.get("current_instance_type")
    if isinstance(kind, str) and kind:
        return kind, "resourceconfig.json"
    if first_line(root / _DMI / "sys_vendor") == "Amazon EC2" and (product := first_line(root / _DMI / "product_name")):
        return product, "firmware"
    return None, None


def git_commit(folder: Path) -> str | None:
    """Return the commit that ``folder`` has checked out, from git's files, or None."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_file():  # a worktree, a submodule
            git = parent / (first_line(git) or "").removeprefix("gitdir:").strip()
        head = first_line(git / "HEAD")
        if head is None:
            continue
        if not head.startswith("ref:"):
            return head if _COMMIT.fullmatch(head) else None
        common = first_line(git / "commondir")
        for commit in _commits(head.removeprefix("ref:").strip(), [git] + ([git / common] if common else [])):
            if _COMMIT.fullmatch(commit):
                return commit
        return None
    return None


def _commits(reference: str, folders: Sequence[Path]) -> Iterator[str]:
    for folder in folders:
        yield first_line(folder / reference) or ""
    for folder in folders:
        for line in _text(folder / "packed-refs").splitlines():
            if line.endswith(f" {reference}"):
                yield line.split(" ", 1)[0]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def first_line(path: Path) -> str | None:
    """Return the first line of a file without blanks; None if there is none."""
    lines = _text(path).splitlines()
    return (lines[0].strip() or None) if lines else None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _storable(text: str) -> str:
    """Return a text as a trace file accepts it: UTF-8, without NUL, cut to length."""
    clean = text.replace("\0", " ").encode("utf-8", "backslashreplace")
    return (clean if len(clean) <= _LONGEST else clean[: _LONGEST - 3] + b"...").decode("utf-8", "ignore")
