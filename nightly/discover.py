"""Which runs are below a prefix? From an ordered listing of objects alone; nothing is opened.

To which run an object belongs follows from its path, so that a listing of any length goes through in one pass and only the runs that the
current path lies in are held. The run's folder, whose path is its id, is

* for the hosted profiler's layout: the folder above ``system/`` or ``framework/``, and above ``profiler-output/`` where that comes before;
* for traces, exports of Nsight Systems (``.sqlite``), recordings (``.prt``) and ``job.json``: the folder they stand in; traces side by
  side are one run. Logs of nvidia-smi and DCGM, told by their names, are of the run in whose folder, or folder ``logs``, they stand;
* for Python profiles (``python_stats``, ``.pstats``, ``.prof``, ``.pyisession``): the folder they stand in, or above the folders that say
  when and of which process they were taken;
* for TensorFlow's profiles outside of that layout: the folder above ``plugins/profile/``; the profiles of all dates are one run.

Folders that only divide a run are left out at the end of it: those of a rank or machine (``rank0``, ``worker-3``, ``node_1``, ``algo-2``,
``ip-10-0-0-7``, or named like the machine in the name of the file), and those of a kind of files (``kineto``, ``traces``, ``profiler``,
``nsys``). A folder with a run may have others below: each is a run of its own. A run store is a run by itself, named by its file, unless it
stands among the traces, exports or recordings of a run, which it was made from; logs of GPUs and Python profiles alone are not those.

Of a file whose name leaves open what it is, its beginning decides (:func:`to_look_at`, ``FoundRun.perhaps``); others look for that.

Left out: what postrun writes itself, checkpoints, hidden files, and everything else.

A run is complete when its end marker is there (hosted layout), when every recorder that began has left its mark (``.postrun-run/``), or
when nothing was written to it for a while.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from ..ingest.object_store.objects import ObjectInfo
from .model import FoundRun, Kind

Role = Literal["hosted", "beside", "end", "trace", "perhaps", "extra", "perhaps extra", "recording", "store", "job", "mark"]
"""What an object is to its run. hosted: metrics or timelines of that layout; beside: its other files; perhaps: what may be a trace; extra,
perhaps extra: what is, and may be, a log of GPUs, a Python profile or a timeline of Horovod."""

_HOSTED: Final = re.compile(
    r"(?:^|/)(?:system/(?:incremental/|training_job_end\.ts$)|framework/(?:pevents/|training_job_end\.ts$)"
    r"|framework/[^/]+/(?:detailed_profiling|cprofile|pyinstrument)/)",
    re.IGNORECASE,
)
_METRICS: Final = re.compile(r"(?:^|/)\d{10}\.[^/]+\.json(?:\.gz|\.zst)?$")
_TIMELINE: Final = re.compile(r"(?:^|/)framework/pevents/.*\.json(?:\.gz|\.zst)?$", re.IGNORECASE)
_TENSORFLOW: Final = re.compile(r"(?:^|/)plugins/profile/[^/]+/[^/]*trace\.json(?:\.gz|\.zst)?$", re.IGNORECASE)
_PYTHON: Final = re.compile(r"(?:^|/)(?:python_stats(?:\.json)?|[^/]*\.(?:pstats?|pyisession))$", re.IGNORECASE)
_PYTHON_DUMP: Final = re.compile(r"(?:^|/)cprofile/(?:.*/)?[^/]*\.prof$", re.IGNORECASE)
_TIMER: Final = "postrun.json"  # Beside a Python profile: its timer, and the rank of its process
# What stands around a Python profile: the process and its window, or both in one name.
_POINT: Final = r"[a-z]+-(?:\d+|\*)-[a-z]+-\d+(?:\.\d+)?"
_WINDOW: Final = re.compile(rf"(?:^|/)(?:[^/]+/{_POINT}_{_POINT}|\d+(?:\.\d+)?_\d+(?:\.\d+)?_[^/]+_-?\d+)$", re.IGNORECASE)
_PART: Final = re.compile(
    r"(?:(?:global[-_]?|local[-_]?)?rank|worker|node|host|machine|algo|gpu|device|process|proc|pid)[-_ =.]?\d+(?:[-_ ]?of[-_ ]?\d+)?"
    r"|ip(?:-\d{1,3}){4}(?:\..*)?"
    r"|kineto|traces?|profiles?|profiling|profiler|(?:torch[-_]?|pytorch[-_]?)?profiler?[-_](?:output|traces?|logs?)|(?:torch|pytorch)[-_]profiler"
    r"|tensorboard|recording|capture|nsys|nsight(?:[-_]systems)?|cprofile|pyinstrument",
    re.IGNORECASE,
)
_TRACE: Final = re.compile(r"trace[^/]*\.json|(?:^|[^a-z])(?:rank|worker)[-_ =.]?\d+[^/]*\.json", re.IGNORECASE)
_TRACE_FOLDER: Final = re.compile(r"(?:^|/)(?:kineto|traces?|[^/]*profiler?[^/]*)(?:/[^/]+)?$", re.IGNORECASE)
_NSIGHT: Final = re.compile(r"nsys|nsight|(?:^|[^a-z])(?:report|rank|worker)[-_ =.]?\d+", re.IGNORECASE)
_HOST: Final = re.compile(r"(?P<host>.+)(?:_\d+\.\d{10,}\.pt\.trace\.json(?:\.gz|\.zst)?|\.\d+\.\d+(?:-\d+)?\.prt)$", re.IGNORECASE)
# Logs of GPU monitors; ``tool``: of nvidia-smi and DCGM, which nothing else is called like.
_GPU_LOG: Final = re.compile(
    r"(?:^|[^a-z])(?:(?P<tool>nvidia[-_]?smi|smi|dcgmi?)|gpus?|dmon)(?:[^a-z].*)?\.(?P<kind>csv|tsv|log|txt|out)(?:\.\d{1,3})?(?:\.gz|\.zst)?$",
    re.IGNORECASE,
)
_LOG_FOLDER: Final = re.compile(r"logs?|gpus?|monitor(?:ing)?|telemetry|metrics|nvidia-smi|smi|dcgm", re.IGNORECASE)
_HOROVOD: Final = re.compile(r"(?:horovod|hvd)[-_.]?timeline[^/.]*(?:\.txt|\.log)?(?:\.gz|\.zst)?$", re.IGNORECASE)
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
    """A run whose objects may still come."""

    root: str
    objects: list[ObjectInfo] = field(default_factory=list)
    perhaps: list[ObjectInfo] = field(default_factory=list)
    extras: list[ObjectInfo] = field(default_factory=list)
    stores: list[ObjectInfo] = field(default_factory=list)
    roles: set[Role] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)

    def add(self, one: ObjectInfo, role: Role) -> None:
        if role == "mark":
            self.marks.add(one.path.rpartition("/")[2])
            return
        self.roles.add(role)
        {"store": self.stores, "perhaps": self.perhaps, "perhaps extra": self.extras}.get(role, self.objects).append(one)


def found_runs(listing: Iterable[ObjectInfo], *, now_ns: int, settle_ns: int, exclude: Sequence[str] = ()) -> Iterator[FoundRun]:
    """The runs in a listing that is ordered by path, inner ones before those they lie in. ``settle_ns``: how long nothing must have been
    written to a run without an end marker; 0 lets all in, whatever the clock of the store says. ``exclude``: folders that are not looked
    into, such as that of the reports."""
    folders: set[str] = set()
    for run in _found(listing, now_ns, settle_ns, exclude):
        folder = _folder_of_logs(run)
        if folder is not None and folder not in folders:
            yield dataclasses.replace(run, id=folder)
            continue
        if "/" not in run.id:
            folders.add(run.id)
        yield run


def _folder_of_logs(run: FoundRun) -> str | None:
    """The one folder of the prefix in which all files of the prefix's own run stand, where they are logs of GPUs: nothing else says that
    the prefix is a run. None of any other run."""
    paths = [one.path for one in (*run.objects, *run.perhaps)]
    if run.id != "." or not all("/" in path and _GPU_LOG.search(path.rpartition("/")[2]) for path in paths):
        return None
    folders = {path.partition("/")[0] for path in paths}
    return folders.pop() if len(folders) == 1 else None


def run_folder_of(path: str) -> str | None:
    """The folder of the run that a trace at ``path`` would be of; None where none is looked for."""
    folder, _, name = path.rpartition("/")
    return None if name.startswith(".") or _hidden(folder) or _without_traces(folder) else _run_folder(folder)


def _found(listing: Iterable[ObjectInfo], now_ns: int, settle_ns: int, exclude: Sequence[str]) -> Iterator[FoundRun]:
    before = now_ns - settle_ns if settle_ns else _ANY_TIME_NS
    left_out = tuple(folder.rstrip("/") + "/" for folder in exclude)
    stack: list[_Open] = []
    for one in listing:
        place = None if one.path.startswith(left_out) else place_of(one.path)
        if place is None:
            continue
        while stack and not _inside(one.path, stack[-1].root):
            yield from _runs(stack.pop(), before)
        root, role = place
        known = stack[-1] if stack and stack[-1].root == root else next((run for run in stack if run.root == root), None)
        if known is None:
            known = _Open(root)
            stack.append(known)
            stack.sort(key=_depth)
        known.add(one, role)
    while stack:
        yield from _runs(stack.pop(), before)


def place_of(path: str) -> tuple[str, Role] | None:
    """The folder of the run that an object belongs to ("." for the prefix itself), and what it is there; None where to none."""
    folder, _, name = path.rpartition("/")
    if ".postrun-run/" in path and (mark := _MARK.match(path)):
        folder = mark["folder"] or ""
        return None if _hidden(folder) else (_run_folder(folder), "mark")
    if not name or name.startswith(".") or _hidden(folder):
        return None
    lower = name.lower()
    metrics = name[:10].isdigit() and _METRICS.search(name) is not None
    if above := _above_hosted(folder, lower == "training_job_end.ts"):
        if lower == "training_job_end.ts":
            return above, "end"
        told = metrics or any(pattern.search(path) for pattern in (_TIMELINE, _TENSORFLOW, _PYTHON, _PYTHON_DUMP))
        return above, "hosted" if told else "beside"
    if lower.endswith(".duckdb"):
        return _run_folder(folder), "store"
    if lower.endswith(".prt"):
        return _run_folder(folder, _host_of(name)), "recording"
    if lower.endswith((".sqlite", ".sqlite.gz", ".sqlite.zst")):
        return None if _without_traces(folder) else (_run_folder(folder), "trace" if _NSIGHT.search(name) else "perhaps")
    if (log := _GPU_LOG.search(name)) is not None and not _without_traces(folder):
        return _log_folder(folder), "extra" if log["tool"] and log["kind"].lower() in ("csv", "tsv") else "perhaps extra"
    if _PYTHON.search(name) or lower.endswith(".prof"):
        role: Role = "perhaps extra" if lower.endswith(".prof") else "extra"
        return None if _without_traces(folder) else (_run_folder(_WINDOW.sub("", folder)), role)
    if lower == _TIMER:
        return _run_folder(_WINDOW.sub("", folder)), "beside"
    if _HOROVOD.search(name):
        return None if _without_traces(folder) else (_run_folder(folder), "perhaps extra")
    if not lower.endswith((".json", ".json.gz", ".json.zst")):
        return None
    if "plugins/profile/" in path:
        profile = _TENSORFLOW.search(path)
        above = path[: profile.start()] if profile else ""
        return (_run_folder(above), "trace") if profile and not _without_traces(above) else None
    if name == "job.json":
        return _run_folder(folder), "job"
    if metrics:
        return _run_folder(folder), "hosted"
    if _NO_TRACE.fullmatch(name) or _without_traces(folder):
        return None
    sure = _TRACE.search(name) or (not lower.endswith(".json") and _TRACE_FOLDER.search(folder))
    return _run_folder(folder, _host_of(name)), "trace" if sure else "perhaps"


def to_look_at(run: FoundRun) -> tuple[ObjectInfo, ...]:
    """Where no name in a run says that it is one: the largest files of each ending, of which one must begin as those of a run do. Else
    nothing. Where run stores stand beside, only of those that a store is made from."""
    sure, perhaps = (("trace",), ("perhaps",)) if run.stores else (("trace", "extra"), ("perhaps", "perhaps extra"))
    roles = [(one, place[1]) for one in run.objects if (place := place_of(one.path))]
    if run.kind != "traces" or any(role in sure for _, role in roles):
        return ()
    files = [one for one, role in roles if role in perhaps]
    by_ending: dict[str, list[ObjectInfo]] = {}
    for one in sorted(files, key=lambda one: -one.size):
        ending = _COMPRESSED.sub("", one.path.lower()).rpartition("/")[2].rpartition(".")[2]
        by_ending.setdefault(ending, []).append(one)
    return tuple(one for listed in by_ending.values() for one in listed[:_LOOKED_AT])


def with_these(run: FoundRun, files: Sequence[ObjectInfo]) -> FoundRun:
    """The run with those of ``run.perhaps`` that belong to it, and without doubt."""
    objects = tuple(sorted([*run.objects, *files], key=lambda one: one.path.encode("utf-8", "surrogateescape")))
    complete = run.complete and all(one.modified_ns <= run.settled_ns for one in files)
    return FoundRun(run.id, run.kind, objects, complete, fingerprint(objects))


def fingerprint(objects: Iterable[ObjectInfo]) -> str:
    """Hex digest over path, size and ETag (the time of writing where the store gives none) of each object, in their order."""
    digest = hashlib.sha256()
    for one in objects:
        version = one.modified_ns if one.etag is None else one.etag
        digest.update(f"{one.path}\0{one.size}\0{version}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _depth(run: _Open) -> int:
    return 0 if run.root == "." else len(run.root)


def _inside(path: str, root: str) -> bool:
    return root == "." or path.startswith(f"{root}/")


# Objects of a folder come one after the other, so that what is asked of their folder is remembered.


@lru_cache(64)
def _hidden(folder: str) -> bool:
    """Whether a part of it begins with a dot, or has no name."""
    return folder.startswith((".", "/")) or "/." in folder or "//" in folder or folder.endswith("/")


@lru_cache(64)
def _without_traces(folder: str) -> bool:
    return _NO_TRACES.search(folder) is not None


@lru_cache(64)
def _above_hosted(folder: str, end: bool) -> str | None:
    """The folder of the run that has the hosted profiler's layout here; None where it is not. ``end``: where an end marker stands."""
    found = _HOSTED.search(f"{folder}/training_job_end.ts" if end else f"{folder}/")
    if found is None:
        return None
    above = folder[: found.start()]
    return _run_folder(above.removesuffix("/profiler-output") if above != "profiler-output" else "")


def hosts_of(run: FoundRun) -> list[str]:
    """The machines that names of the run's files contain."""
    names = (one.path.rpartition("/")[2] for one in (*run.objects, *run.perhaps))
    return list(dict.fromkeys(host for name in names if (host := _host_of(name)) is not None))


def _host_of(name: str) -> str | None:
    return found["host"] if (found := _HOST.match(name)) else None


@lru_cache(64)
def _log_folder(folder: str) -> str:
    """The folder of the run of a log of GPUs: also above the folders that only logs stand in."""
    while folder:
        above, _, last = folder.rpartition("/")
        if not _LOG_FOLDER.fullmatch(last) and not _PART.fullmatch(last):
            break
        folder = above
    return folder or "."


@lru_cache(256)
def _run_folder(folder: str, host: str | None = None) -> str:
    """``folder`` without what only divides a run at its end; ``host``: a machine's name that may be such a part."""
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
    settled_ns = _ANY_TIME_NS if "end" in run.roles or _recorded(run.marks) else before_ns
    found = FoundRun(run.root, kind, tuple(objects), max(one.modified_ns for one in objects) <= settled_ns, "", (), settled_ns)
    yield dataclasses.replace(with_these(found, ()), perhaps=tuple(perhaps), stores=stores, settled_ns=settled_ns)


def _recorded(marks: set[str]) -> bool:
    """Whether every recorder that began has ended; of one that was started again, the last."""
    last: dict[str, tuple[int, str]] = {}
    for name in marks:
        if not name.endswith(".ended"):
            who, _, attempt = name.partition(".")
            last[who] = max(last.get(who, (-1, "")), (int(attempt or 0), name))
    return bool(last) and all(f"{name}.ended" in marks for _, name in last.values())
