"""Finds the files of a run and recognizes their formats by their first bytes and names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InputError, UsageError
from .chrome_trace.head import TRACE_HEAD_BYTES, read_head
from .gpu_logs.recognize import recognizes_dcgm, recognizes_smi
from .hosted.system_metrics import recognizes_system_metrics
from .hosted.timelines import recognizes_pevents
from .nsys.schema import HEAD as SQLITE
from .nsys.schema import other_database
from .object_store.urls import is_url
from .packed import PACKED
from .prt.format import MAGIC
from .python_profiles.reader import recognizes_dump, recognizes_tree
from .store import format_names as names
from .store.reader_failures import described
from .tensorflow.recognize import recognizes_tensorflow
from .torch_trace.recognize import recognizes_torch_trace


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file. ``recognizes(head, path)``: whether a file is one, by its decompressed beginning and its path with slashes.

    ``not_read``: for formats that are known but not read, the next step for the user.
    """

    name: str
    recognizes: Callable[[bytes, str], bool]
    not_read: str | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file. ``format``: None if it is unknown. ``problem``: why it cannot be read at all. ``by_path``: a source of its own, not one
    in a folder. ``real``: the path without links when the file was listed; None if the file itself is not read."""

    path: Path
    bytes: int | None
    format: Format | None
    problem: str | None
    by_path: bool
    real: str | None = None

    @property
    def readable(self) -> bool:
        return self.format is not None and self.format.not_read is None and self.problem is None

    @property
    def moved(self) -> bool:
        """Whether the path leads elsewhere since the file was listed."""
        return self.real is not None and os.path.realpath(self.path) != self.real


_LEADS_OUT: Final = "a link that leads out of the given folder and is not followed; to include it, give it as a SOURCE of its own"
_PIPE: Final = "a pipe or device, which can be read only once: write it to a file first, and give that"
_STREAMS: Final = frozenset({stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK})
_TRACE_KEYS: Final = re.compile(
    rb'"(traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|displayTimeUnit|record_shapes)"\s*:'
)
_EVENT_ARRAY: Final = re.compile(rb'\[\s*(\{[^{}]{0,2000}"ph"\s*:|\{[^{}]{0,2000}\{)')
_REPORT: Final = re.compile(rb'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"generator"\s*:\s*\{\s*"name"\s*:\s*"postrun"')
_TRACE_NAME: Final = re.compile(r"trace[^/]*\.json(\.gz|\.zst)?$", re.IGNORECASE)


def _is_trace(head: bytes, path: str) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _TRACE_KEYS.search(text) is not None or (_TRACE_NAME.search(path) is not None and len(head) < TRACE_HEAD_BYTES)
    if text.startswith(b"["):
        return _EVENT_ARRAY.match(text) is not None and b'"ph"' in text
    return False


def _named(pattern: str) -> Callable[[bytes, str], bool]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda head, path: compiled.search(path) is not None


# First match decides.
FORMATS: Final[tuple[Format, ...]] = (
    Format(names.RUN_STORE, lambda head, path: head[8:12] == b"DUCK"),
    *(Format(name, recognizes, step) for name, recognizes, step in PACKED),
    Format(names.END_MARKER, _named(r"/training_job_end\.ts$")),
    Format(names.JOB, lambda head, path: path.endswith("/job.json") and b'"ph"' not in head),
    Format(
        names.REPORT,
        lambda head, path: _REPORT.match(head) is not None,
        "this is a report; give the traces or the run store it was made from",
    ),
    Format(names.SYSTEM_METRICS, recognizes_system_metrics),
    Format(names.TIMELINE, recognizes_pevents),
    Format(names.TENSORFLOW_TIME, _named(r"/detailed_profiling/.*_\d+_\d+\.metadata$")),
    Format(names.TENSORFLOW, recognizes_tensorflow),
    Format(
        "TensorFlow profile data",
        _named(r"/detailed_profiling/.*\.(pb|metadata|profile-empty)$|/[^/]*\.tfevents\.[^/]*$|/plugins/profile/[^/]+/[^/]+\.pb$"),
        "of a TensorFlow profile its .trace.json.gz is read",
    ),
    Format(names.PYTHON_BESIDE, _named(r"/python_stats\.html$|/(cprofile|pyinstrument)/[^/]+/[^/]+/postrun\.json$")),
    Format(names.PYTHON_STATS, recognizes_dump),
    Format(names.PYTHON_TREE, recognizes_tree),
    Format("hosted raw capture", _named(r"\.smpraw$"), "the format of .smpraw files is not published; give the job's rule-output folder"),
    Format(
        names.NSIGHT_REPORT,
        _named(r"\.(nsys-rep|qdrep|qdstrm)$"),
        "only its exports are read; make one with `nsys export --type sqlite --output REPORT.sqlite REPORT.nsys-rep` and give that",
    ),
    Format("SQLite database", other_database, "no table of an Nsight Systems export is in it, and no other databases are read"),
    Format(names.NSIGHT, lambda head, path: head.startswith(SQLITE)),
    Format(names.CAPTURE, lambda head, path: head.startswith(MAGIC) or path.lower().endswith(".prt")),
    Format(names.TORCH_TRACE, recognizes_torch_trace),
    Format(names.NVIDIA_SMI, recognizes_smi),
    Format(names.DCGM, recognizes_dcgm),
    Format(names.TRACE, _is_trace),
)

KNOWN: Final = (
    "PyTorch profiler traces (.json, .json.gz, .json.zst), folders of the hosted profiler (system metrics, framework timelines),"
    " TensorFlow traces (.trace.json.gz), timelines of Horovod,"
    " results of cProfile (python_stats, .pstats, .prof) and Pyinstrument (JSON),"
    " exports of Nsight Systems (.sqlite), logs of nvidia-smi and CSV files of DCGM, logs of torch.compile (TORCH_TRACE),"
    " recordings of the capture library (.prt) and run stores (.duckdb)"
)


def format_of(path: Path) -> Format | None:
    """Return the format of a file, None if it is unknown; OSError if it is unreadable."""
    head = read_head(path)
    name = path.absolute().as_posix()
    for known in FORMATS:
        if known.recognizes(head, name):
            return known
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") and _is_trace(read_head(path, TRACE_HEAD_BYTES), name):
        return FORMATS[-1]
    return None


def find_files(paths: Sequence[str | Path], exclude: Path | None = None, linked: Iterable[str] = ()) -> list[InputFile]:
    """List every file at ``paths`` with its format; folders in sorted order.

    A link inside a folder is followed only if its real path is below one of ``paths`` or in ``linked``, real paths of files; another link
    is a file with a problem. Hidden files and folders, sockets and pipes inside folders, and the file ``exclude`` are left out; a file or
    folder reached twice is listed once. Raises InputError for a path that does not exist, UsageError for a URL.
    """
    files: list[InputFile] = []
    seen: set[tuple[int, int]] = set()
    left_out = _key(exclude) if exclude is not None else None
    within = frozenset([*linked, *(os.path.realpath(path) for path in paths if not is_url(path))])
    for name in paths:
        if is_url(name):
            raise UsageError(f"{name}: this is a URL; ingest() copies its objects first")
        path = Path(name)
        if str(name) == "-" and not os.path.lexists(path):
            raise InputError("-: standard input is not read; write it to a file first, as with `zcat trace.json.gz > FILE`, and give that")
        if not os.path.lexists(path):
            raise InputError(f"{path}: no such file or folder; check the path")
        for file in _walk(path, within) if path.is_dir() else [_look(path, os.path.realpath(path), by_path=True)]:
            key = None if file.problem == _LEADS_OUT else _key(file.path)
            if key is None or (key not in seen and (file.by_path or key != left_out)):
                files.append(file)
            if key is not None:
                seen.add(key)
    return files


def _key(path: Path) -> tuple[int, int] | None:
    """Return device and inode, equal for paths to one file; None if unknown."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _walk(folder: Path, within: frozenset[str]) -> Iterator[InputFile]:
    visited: set[tuple[int, int]] = set()
    problems: list[OSError] = []
    for folder_path, folders, files in os.walk(folder, followlinks=True, onerror=problems.append):
        key, real = _key(Path(folder_path)), os.path.realpath(folder_path)
        if key is None or key in visited or not _is_within(real, within):
            folders.clear()
            continue
        visited.add(key)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [name for name in folders if not _is_within(_real(folder_path, real, name), within)]:
            folders.remove(name)
            yield InputFile(Path(folder_path) / name, None, None, _LEADS_OUT, by_path=False)
        for name in sorted(files):
            if name.startswith("."):
                continue
            target = _real(folder_path, real, name)
            if _is_within(target, within):
                yield _look(Path(folder_path) / name, target, by_path=False)
            else:
                yield InputFile(Path(folder_path) / name, None, None, _LEADS_OUT, by_path=False)
    for problem in problems:
        yield InputFile(Path(str(problem.filename)), None, None, f"the folder cannot be searched ({problem.strerror})", by_path=False)


def _real(folder: str, real_folder: str, name: str) -> str:
    """Return the real path of the entry ``name`` of a folder."""
    path = os.path.join(folder, name)  # noqa: PTH118 - as os.walk gives it
    return os.path.realpath(path) if os.path.islink(path) else os.path.join(real_folder, name)  # noqa: PTH114, PTH118


def _is_within(real: str, within: frozenset[str]) -> bool:
    """Whether a real path is one of ``within`` or below one of them."""
    while real not in within:
        above = real.rpartition("/")[0] or "/"
        if above == real:
            return False
        real = above
    return True


def _look(path: Path, real: str, *, by_path: bool) -> InputFile:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return InputFile(path, None, None, _PIPE if stat.S_IFMT(status.st_mode) in _STREAMS else "no ordinary file", by_path)
        return InputFile(path, status.st_size, format_of(path), None, by_path, real)
    except OSError as error:
        return InputFile(path, None, None, f"cannot be read ({error.strerror or type(error).__name__})", by_path)
    except Exception as error:  # a defect in the test of a format costs this file
        return InputFile(path, None, None, f"cannot be recognized ({described(error)})", by_path)
