"""Runs below a prefix: an ordered listing of objects -> runs. No object is opened.

An object's path decides which run it belongs to. A listing of any length therefore takes one pass, and only the runs whose folders contain
the current path are in memory. A run's folder, whose path is its id, is

* for the hosted profiler's layout: the folder above ``system/`` or ``framework/``, or above a ``profiler-output/`` in front of them;
* for traces, exports of Nsight Systems (``.sqlite``), recordings (``.prt``) and ``job.json``: their folder; traces next to each other are
  one run. Logs of nvidia-smi and DCGM, which are recognized by name, belong to the run in whose folder, or ``logs`` folder, they are;
* for Python profiles (``python_stats``, ``.pstats``, ``.prof``, ``.pyisession``): their folder, or the one above the folders that are named
  after the time and the process of a profile;
* for logs of torch.compile (``dedicated_log_torch_trace_*.log``): their folder;
* for TensorFlow's profiles outside of that layout: the folder above ``plugins/profile/``; the profiles of all dates are one run.

Folders that only divide a run are not part of its path: those of a rank or machine (``rank0``, ``worker-3``, ``node_1``, ``algo-2``,
``ip-10-0-0-7``, or the machine in the name of the file), and those of a kind of files (``kineto``, ``traces``, ``profiler``, ``nsys``). A
run below the folder of another one is a run of its own. A run store is a run by itself, named by its file, unless it is next to traces,
exports or recordings, from which it was made; logs of GPUs and Python profiles alone do not count as such.

If a name leaves the format open, the beginning of the file decides; callers read it (:func:`to_look_at`, ``FoundRun.perhaps``).

Files that postrun writes, checkpoints, hidden files, and all other files are left out.

A run is complete when its end marker exists (hosted layout), when every recorder that began has left its mark (``.postrun-run/``), or when
no file of it has been written for a while.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from ..ingest.object_store.folder import is_local
from ..ingest.object_store.objects import ObjectInfo
from .model import FoundRun, Kind

Role = Literal["hosted", "beside", "end", "trace", "perhaps", "extra", "perhaps extra", "recording", "store", "job", "mark"]
"""The part of an object in its run. hosted: metrics or timelines of that layout; ``beside``: its other files; perhaps: a possible trace;
extra and perhaps extra: a certain and a possible log of GPUs, Python profile or timeline of Horovod."""

_HOSTED: Final = re.compile(
    r"(?:^|/)(?:system/(?:incremental/|training_job_end\.ts$)|framework/(?:pevents/|training_job_end\.ts$)"
    r"|framework/[^/]+/(?:detailed_profiling|cprofile|pyinstrument)/)",
    re.IGNORECASE,
)
_METRICS: Final = re.compile(r"(?:^|/)\d{10}\.[^/]+\.json(?:\.gz|\.zst)?$")
_TIMELINE: Final = re.compile(r"(?:^|/)framework/pevents/.*\.json(?:\.gz|\.zst)?$", re.IGNORECASE)
_TENSORFLOW: Final = re.compile(r"(?:^|/)plugins/profile/[^/]+/[^/]*trace\.json(?:\.gz|\.zst)?$", re.IGNORECASE)
_PYTHON: Final = re.compile(r"(?:^|/)(?:python_stats(?:\.json)?|[^/]*\.(?:pstats?|pyisession))$", re.IGNORECASE)
_PYTHON_ENDINGS: Final = ("python_stats", "python_stats.json", ".pstat", ".pstats", ".pyisession", ".prof")
_PYTHON_DUMP: Final = re.compile(r"(?:^|/)cprofile/(?:.*/)?[^/]*\.prof$", re.IGNORECASE)
_TIMER: Final = "postrun.json"  # next to a Python profile: its timer, and the rank of its process
# The folders around a Python profile: the process and its window, or both in one name.
_POINT: Final = r"[a-z]+-(?:\d+|\*)-[a-z]+-\d+(?:\.\d+)?"
_WINDOW: Final = re.compile(rf"(?:^|/)(?:[^/]+/{_POINT}_{_POINT}|\d+(?:\.\d+)?_\d+(?:\.\d+)?_[^/]+_-?\d+)$", re.IGNORECASE)
_PART: Final = re.compile(
    r"(?:(?:global[-_]?|local[-_]?)?rank|worker|node|host|machine|algo|gpu|device|process|proc|pid)[-_ =.]?\d+(?:[-_ ]?of[-_ ]?\d+)?"
    r"|ip(?:-\d{1,3}){4}(?:\..*)?"
    r"|kineto|traces?|profiles?|profiling|profiler|(?:torch[-_]?|pytorch[-_]?)?profiler?[-_](?:output|traces?|logs?)|(?:torch|pytorch)[-_]profiler|torch[-_]traces?"
    r"|tensorboard|recording|capture|nsys|nsight(?:[-_]systems)?|cprofile|pyinstrument",
    re.IGNORECASE,
)
_TRACE: Final = re.compile(r"trace[^/]*\.json|(?:^|[^a-z])(?:rank|worker)[-_ =.]?\d+[^/]*\.json", re.IGNORECASE)
_TRACE_FOLDER: Final = re.compile(r"(?:^|/)(?:kineto|traces?|[^/]*profiler?[^/]*)(?:/[^/]+)?$", re.IGNORECASE)
_NSIGHT: Final = re.compile(r"nsys|nsight|(?:^|[^a-z])(?:report|rank|worker)[-_ =.]?\d+", re.IGNORECASE)
_HOST: Final = re.compile(r"(?P<host>.+)(?:_\d+\.\d{10,}\.pt\.trace\.json(?:\.gz|\.zst)?|\.\d+\.\d+(?:-\d+)?\.prt)$", re.IGNORECASE)
# Logs of GPU monitors; ``tool``: nvidia-smi or DCGM, whose names are unambiguous.
_GPU_LOG: Final = re.compile(
    r"(?:^|[^a-z])(?:(?P<tool>nvidia[-_]?smi|smi|dcgmi?)|gpus?|dmon)(?:[^a-z].*)?\.(?P<kind>csv|tsv|log|txt|out)(?:\.\d{1,3})?(?:\.gz|\.zst)?$",
    re.IGNORECASE,
)
_LOG_FOLDER: Final = re.compile(r"logs?|gpus?|monitor(?:ing)?|telemetry|metrics|nvidia-smi|smi|dcgm", re.IGNORECASE)
_HOROVOD: Final = re.compile(r"(?:horovod|hvd)[-_.]?timeline[^/.]*(?:\.txt|\.log)?(?:\.gz|\.zst)?$", re.IGNORECASE)
_TORCH_TRACE: Final = re.compile(r"dedicated_log_torch_trace_.*\.log(?:\.gz|\.zst)?$")  # of torch.compile
_NO_TRACE: Final = re.compile(
    r"(?:report|done|claim|index(?:\..*)?|package|package-lock|metadata|manifest|metrics|summary|settings|environment|state|args|arguments"
    r"|params|parameters|hparams|hyperparameters|results?|vocab|merges|tokenizer.*|special_tokens_map|added_tokens|.*config"
    r"|.*\.index|.*_state|launch)\.json(?:\.gz|\.zst)?",
    re.IGNORECASE,
)
_NO_TRACES: Final = re.compile(
    r"(?:^|/)(?:profiler-reports|checkpoints?|checkpoint[-_]\d+|ckpts?|global_step\d+|node_modules|site-packages|__pycache__)"
    r"(?:/|$)",
    re.IGNORECASE,
)
_MARK: Final = re.compile(r"(?:^|(?P<folder>.*)/)\.postrun-run/(?P<name>(?:rank-\d+|job)(?:\.\d+)?(?:\.ended)?)$")
_COMPRESSED: Final = re.compile(r"\.(?:gz|zst)$")
_LOOKED_AT: Final = 3
_ANY_TIME_NS: Final = 2**64


@dataclass(slots=True)
class _Open:
    """A run whose objects may still follow in the listing. ``above``: the beginning of their paths."""

    root: str
    objects: list[ObjectInfo] = field(default_factory=list)
    perhaps: list[ObjectInfo] = field(default_factory=list)
    extras: list[ObjectInfo] = field(default_factory=list)
    stores: list[ObjectInfo] = field(default_factory=list)
    above: str = field(init=False)
    roles: set[Role] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.above = "" if self.root == "." else f"{self.root}/"

    def add(self, file: ObjectInfo, role: Role) -> None:
        if role == "mark":
            self.marks.add(file.path.rpartition("/")[2])
            return
        self.roles.add(role)
        if role == "store":
            self.stores.append(file)
        elif role == "perhaps":
            self.perhaps.append(file)
        elif role == "perhaps extra":
            self.extras.append(file)
        else:
            self.objects.append(file)


def found_runs(listing: Iterable[ObjectInfo], *, now_ns: int, settle_ns: int, exclude: Sequence[str] = ()) -> Iterator[FoundRun]:
    """Yield the runs in a listing that is ordered by path, inner ones first.

    ``settle_ns``: how long a run without an end marker must be unchanged; 0 accepts all, whatever the store's clock. ``exclude``: folders
    that are not searched, such as that of the reports."""
    folders: set[str] = set()
    for run in _nested(listing, now_ns, settle_ns, exclude):
        folder = _folder_of_logs(run)
        if folder is not None and folder not in folders:
            yield dataclasses.replace(run, id=folder)
            continue
        if "/" not in run.id:
            folders.add(run.id)
        yield run


def _folder_of_logs(run: FoundRun) -> str | None:
    """Return the only folder that contains files of the prefix's own run.

    Applies only if all these files are logs of GPUs: nothing else indicates that the prefix is a run. None for other runs."""
    paths = [one.path for one in (*run.objects, *run.perhaps)]
    if run.id != "." or not all("/" in path and _GPU_LOG.search(path.rpartition("/")[2]) for path in paths):
        return None
    folders = {path.partition("/")[0] for path in paths}
    return folders.pop() if len(folders) == 1 else None


def run_folder_of(path: str) -> str | None:
    """Return the run's folder of a trace at ``path``; None if it is skipped."""
    folder, _, name = path.rpartition("/")
    return None if name.startswith(".") or _hidden(folder) or _without_traces(folder) else _run_folder(folder)


def _nested(listing: Iterable[ObjectInfo], now_ns: int, settle_ns: int, exclude: Sequence[str]) -> Iterator[FoundRun]:
    before = now_ns - settle_ns if settle_ns else _ANY_TIME_NS
    left_out = tuple(folder.rstrip("/") + "/" for folder in exclude)
    stack: list[_Open] = []
    for file in listing:
        location = place_of(file.path)
        if location is None or file.path.startswith(left_out):
            continue
        while stack and not file.path.startswith(stack[-1].above):
            yield from _runs(stack.pop(), before)
        root, role = location
        known = stack[-1] if stack and stack[-1].root == root else next((run for run in stack if run.root == root), None)
        if known is None:
            known = _Open(root)
            stack.append(known)
            stack.sort(key=lambda run: 0 if run.root == "." else len(run.root))
        known.add(file, role)
    while stack:
        yield from _runs(stack.pop(), before)


def place_of(path: str) -> tuple[str, Role] | None:
    """Return the folder of an object's run and its role; None without a run.

    The folder is "." for the prefix itself."""
    folder, _, name = path.rpartition("/")
    if ".postrun-run/" in path and (mark := _MARK.match(path)):
        folder = mark["folder"] or ""
        return None if _hidden(folder) else (_run_folder(folder), "mark")
    if not name or name.startswith(".") or _hidden(folder):
        return None
    kind, metrics, sure, host = _of_name(name)
    if above := _above_hosted(folder, kind == "end"):
        if kind == "end":
            return above, "end"
        recognized = metrics or any(pattern.search(path) for pattern in (_TIMELINE, _TENSORFLOW, _PYTHON, _PYTHON_DUMP))
        return above, "hosted" if recognized else "beside"
    if kind is None or kind == "end":
        return None
    if kind == "store":
        return _run_folder(folder), "store"
    if kind == "recording":
        return _run_folder(folder, host), "recording"
    if kind == "timer":
        return _run_folder(_WINDOW.sub("", folder)), "beside"
    if kind == "json":
        if "plugins/profile/" in path:
            profile = _TENSORFLOW.search(path)
            above = path[: profile.start()] if profile else ""
            return (_run_folder(above), "trace") if profile and not _without_traces(above) else None
        if name == "job.json":
            return _run_folder(folder), "job"
        if metrics:
            return _run_folder(folder), "hosted"
        if _is_no_trace(name) or _without_traces(folder):
            return None
        sure = sure or (not name.lower().endswith(".json") and _TRACE_FOLDER.search(folder) is not None)
        return _run_folder(folder, host), "trace" if sure else "perhaps"
    if _without_traces(folder):
        return None
    if kind == "sqlite":
        return _run_folder(folder), "trace" if sure else "perhaps"
    if kind == "log":
        return _log_folder(folder), "extra" if sure else "perhaps extra"
    if kind == "python":
        return _run_folder(_WINDOW.sub("", folder)), "extra" if sure else "perhaps extra"
    return _run_folder(folder), "extra" if sure else "perhaps extra"


_OfName = tuple[Literal["end", "store", "recording", "sqlite", "log", "python", "timer", "json", "text"] | None, bool, bool, str | None]


@lru_cache(4096)
def _of_name(name: str) -> _OfName:
    """Return what the name of a file shows.

    These are its kind, whether it has hosted metrics, whether the kind is certain, and the machine.

    Many runs have files of the same names, so the results are cached. text: logs of torch.compile and Horovod's timelines."""
    lower = name.lower()
    metrics = name[:10].isdigit() and _METRICS.search(name) is not None
    if lower == "training_job_end.ts":
        return "end", metrics, True, None
    if lower.endswith(".duckdb"):
        return "store", metrics, True, None
    if lower.endswith(".prt"):
        return "recording", metrics, True, _host_of(name)
    if lower.endswith((".sqlite", ".sqlite.gz", ".sqlite.zst")):
        return "sqlite", metrics, _NSIGHT.search(name) is not None, None
    of_gpus = "smi" in lower or "dcgm" in lower or "gpu" in lower or "dmon" in lower  # faster than the expression
    if of_gpus and (log := _GPU_LOG.search(name)) is not None:
        return "log", metrics, bool(log["tool"]) and log["kind"].lower() in ("csv", "tsv"), None
    if lower.endswith(_PYTHON_ENDINGS) and (_PYTHON.search(name) or lower.endswith(".prof")):
        return "python", metrics, not lower.endswith(".prof"), None
    if _TORCH_TRACE.match(name):
        return "text", metrics, True, None
    if lower == _TIMER:
        return "timer", metrics, True, None
    if ("horovod" in lower or "hvd" in lower) and _HOROVOD.search(name):
        return "text", metrics, False, None
    if lower.endswith((".json", ".json.gz", ".json.zst")):
        return "json", metrics, _TRACE.search(name) is not None, _host_of(name)
    return None, metrics, False, None


@lru_cache(4096)
def _is_no_trace(name: str) -> bool:
    return _NO_TRACE.fullmatch(name) is not None


def to_look_at(run: FoundRun) -> tuple[ObjectInfo, ...]:
    """Return the files whose beginnings decide whether this is a run.

    If no name is that of a trace, these are the largest files of each ending, one of which must begin like a run's file. Next to run
    stores, only files from which a store is made count."""
    sure, perhaps = (("trace",), ("perhaps",)) if run.stores else (("trace", "extra"), ("perhaps", "perhaps extra"))
    roles = ((one, place[1]) for one in run.objects if (place := place_of(one.path)))
    files = []
    for file, role in roles if run.kind == "traces" else ():
        if role in sure:
            return ()
        if role in perhaps:
            files.append(file)
    by_ending: dict[str, list[ObjectInfo]] = {}
    for file in sorted(files, key=lambda one: -one.size):
        ending = _COMPRESSED.sub("", file.path.lower()).rpartition("/")[2].rpartition(".")[2]
        by_ending.setdefault(ending, []).append(file)
    return tuple(one for listed in by_ending.values() for one in listed[:_LOOKED_AT])


def with_these(run: FoundRun, files: Sequence[ObjectInfo]) -> FoundRun:
    """Return the run with those files of ``run.perhaps`` that belong to it."""
    if not files and run.fingerprint:
        return FoundRun(run.id, run.kind, run.objects, run.complete, run.fingerprint, recording=run.recording)
    objects = tuple(sorted([*run.objects, *files], key=lambda one: one.path.encode("utf-8", "surrogateescape")))
    complete = run.complete and all(one.modified_ns <= run.settled_ns for one in files)
    return FoundRun(run.id, run.kind, objects, complete, fingerprint(objects), recording=run.recording)


def fingerprint(objects: Iterable[ObjectInfo], *, inodes: bool = False) -> str:
    """Return a hex digest over path, size and ETag (or time of writing), in order.

    Of local files the time of writing counts, which a copy keeps. ``inodes``: also their inodes, as in reports of earlier versions."""
    digest = hashlib.sha256()
    for file in objects:
        version = file.modified_ns if file.etag is None or (not inodes and is_local(file)) else file.etag
        digest.update(f"{file.path}\0{file.size}\0{version}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def is_of(run: FoundRun, digest: str) -> bool:
    """Decide whether a fingerprint is that of the run, also one of earlier versions."""
    return digest == run.fingerprint or (any(map(is_local, run.objects[:1])) and digest == fingerprint(run.objects, inodes=True))


# The objects of a folder follow each other, so the results for their folder are cached.


@lru_cache(64)
def _hidden(folder: str) -> bool:
    """Decide whether a part of the path begins with a dot or is empty."""
    return folder.startswith((".", "/")) or "/." in folder or "//" in folder or folder.endswith("/")


@lru_cache(64)
def _without_traces(folder: str) -> bool:
    return _NO_TRACES.search(folder) is not None


@lru_cache(64)
def _above_hosted(folder: str, end: bool) -> str | None:
    """Return the run's folder of the hosted layout. ``end``: it has an end marker."""
    match = _HOSTED.search(f"{folder}/training_job_end.ts" if end else f"{folder}/")
    if match is None:
        return None
    above = folder[: match.start()]
    return _run_folder(above.removesuffix("/profiler-output") if above != "profiler-output" else "")


def hosts_of(run: FoundRun) -> list[str]:
    """List the machines that the names of the run's files contain."""
    names = (one.path.rpartition("/")[2] for one in (*run.objects, *run.perhaps))
    return list(dict.fromkeys(host for name in names if (host := _host_of(name)) is not None))


def _host_of(name: str) -> str | None:
    return match["host"] if (match := _HOST.match(name)) else None


@lru_cache(64)
def _log_folder(folder: str) -> str:
    """Return the run's folder of a log of GPUs, above folders of logs alone."""
    while folder:
        above, _, last = folder.rpartition("/")
        if not _LOG_FOLDER.fullmatch(last) and not _PART.fullmatch(last):
            break
        folder = above
    return folder or "."


@lru_cache(256)
def _run_folder(folder: str, host: str | None = None) -> str:
    """Remove dividing folders at the end, also one that is named after ``host``."""
    while folder:
        above, _, last = folder.rpartition("/")
        if last != host and not _PART.fullmatch(last):
            break
        folder = above
    return folder or "."


def _runs(run: _Open, before_ns: int) -> Iterator[FoundRun]:
    kind: Kind | None = None
    if "hosted" in run.roles:
        kind = "hosted"
    elif "recording" in run.roles:
        kind = "recording"
    elif run.roles & {"trace", "perhaps"} or (run.roles & {"extra", "perhaps extra"} and not run.stores):
        kind = "traces"
    stores: tuple[FoundRun, ...] = ()
    if kind is None or (kind == "traces" and "trace" not in run.roles):
        stores = tuple(FoundRun(one.path, "store", (one,), one.modified_ns <= before_ns, fingerprint((one,))) for one in run.stores)
    if kind is None:
        yield from stores
        return
    objects, perhaps = run.objects, [*run.perhaps, *run.extras]
    if kind == "traces" and not run.roles & {"trace", "extra"}:
        objects, perhaps = [*objects, *perhaps], []
    elif kind == "traces":
        objects, perhaps = [*objects, *run.perhaps], run.extras
    recorded = _recorded(run.marks)
    settled_ns = _ANY_TIME_NS if "end" in run.roles or recorded else before_ns
    complete = max(one.modified_ns for one in objects) <= settled_ns
    result = FoundRun(run.root, kind, tuple(objects), complete, "", (), settled_ns, recording=bool(run.marks) and not recorded)
    yield dataclasses.replace(with_these(result, ()), perhaps=tuple(perhaps), stores=stores, settled_ns=settled_ns)


def _recorded(marks: set[str]) -> bool:
    """Decide whether the last attempt of every recorder has ended."""
    last: dict[str, tuple[int, str]] = {}
    for name in marks:
        if not name.endswith(".ended"):
            who, _, attempt = name.partition(".")
            last[who] = max(last.get(who, (-1, "")), (int(attempt or 0), name))
    return bool(last) and all(f"{name}.ended" in marks for _, name in last.values())
