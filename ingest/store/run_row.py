"""What is known about the run as a whole: its name, status, times and description? -> ``run``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .limits import PARAMETERS, cut_values
from .registry import ReadResult
from .store import Store

STATUSES: Final = ("completed", "failed", "stopped", "partial", "unknown")
_SUFFIXES: Final = re.compile(
    r"(\.pt)?(\.trace)?\.json(\.gz|\.zst)?$|\.(csv|tsv|log|txt)(\.gz|\.zst)?$|\.(prt|sqlite)$|\.(gz|zst)$",
    re.IGNORECASE,
)
_LARGEST_JOB: Final = 16 << 20


def read_job(store: Store, path: Path, source: int) -> dict[str, Any]:
    """The job information beside traces (name, framework, instance_type, status, hyperparameters, labels, resources).

    What is no JSON object, of the wrong kind or of an unknown name is noted and left out.
    """
    try:
        with path.open("rb") as file:
            job = json.loads(file.read(_LARGEST_JOB))
        problem = None if isinstance(job, dict) else "it is no JSON object"
    except (ValueError, RecursionError) as error:
        problem = f"it is no valid JSON ({error})"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
    if problem is not None:
        text = f"The job information was left out: {problem}. Correct the file or remove it."
        store.note("warning", "job_not_read", text, source=source, file=path.name)
        return {}
    if unknown := sorted(key for key in job if key not in _JOB):
        shown = ", ".join(key[:60] for key in unknown[:8]) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
        text = f"Members of the job information that are not known were left out: {shown}. Known are {', '.join(_JOB)}."
        store.note("info", "job_field_unknown", text, count=len(unknown), source=source, file=path.name)
    known: dict[str, Any] = {}
    for key, kind in _JOB.items():
        value = job.get(key)
        if value is None:
            continue
        if isinstance(value, kind) and (key != "status" or value in STATUSES):
            known[key] = value
        else:
            expected = f"one of {', '.join(STATUSES)}" if key == "status" else _KIND_NAMES[kind]
            store.note("warning", "job_field", f"{key} of the job information is not {expected}; left out.", source=source, file=path.name)
    return known


_JOB: Final[dict[str, type]] = {
    "name": str, "framework": str, "instance_type": str, "status": str, "hyperparameters": dict, "labels": dict, "resources": list,
}  # fmt: skip
_KIND_NAMES: Final[dict[type, str]] = {str: "a text", dict: "an object", list: "a list"}


def write_run(
    store: Store,
    results: Sequence[ReadResult],
    *,
    job: Mapping[str, Any],
    name: str,
    framework: str | None,
    metadata: Mapping[str, Any],
    ended: bool,
    times: tuple[int | None, int | None] = (None, None),
) -> None:
    """The one row of ``run``. ``ended``: the source has end markers. Without ``status`` in ``job`` the run is partial where a file broke
    off, completed where it has end markers, else unknown. Start and end: ``times``, those of the job's recorders; where they do not say,
    of the events with absolute times, if there are any."""
    timed = [result for result in results if result.first_ns is not None]
    absolute = [result for result in timed if not result.relative] or timed
    partial = any(result.partial for result in results)
    resources = {str(place): value for place, value in enumerate(job.get("resources", []))}
    described: dict[str, dict[str, Any]] = {"resources": resources, "metadata": dict(metadata)}
    described |= {key: dict(job.get(key, {})) for key in ("hyperparameters", "labels")}
    for key, values in described.items():
        described[key], left_out = cut_values(values)
        if left_out:
            text = f"The job has more than {PARAMETERS:,} {key}, the limit; the further ones were left out."
            store.note("warning", "limit_reached", text, count=left_out)
    store.insert(
        "run",
        {
            "name": job.get("name") or name,
            "status": _status(store, job.get("status"), partial, ended),
            "started_ns": times[0] or min((result.first_ns for result in absolute if result.first_ns is not None), default=None),
            "ended_ns": times[1] or max((result.last_ns for result in absolute if result.last_ns is not None), default=None),
            "framework": job.get("framework") or framework,
            "instance_type": job.get("instance_type"),
            "resources": _json(list(described["resources"].values())),
            "hyperparameters": _json(described["hyperparameters"]),
            "labels": _json(described["labels"]),
            "metadata": _json(described["metadata"]),
            "job_started_ns": times[0],
            "job_ended_ns": times[1],
        },
    )


def common_metadata(all_metadata: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What every trace says in the same way: the metadata of the run, not of one rank."""
    entries = list(all_metadata)
    if not entries:
        return {}
    return {key: value for key, value in entries[0].items() if all(other.get(key) == value for other in entries[1:])}


def agreed_metadata(all_metadata: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What any recording says and no other one says otherwise: processes of a run tell different things of it."""
    found: dict[str, Any] = {}
    contradicted = set()
    for metadata in all_metadata:
        contradicted |= {key for key, value in metadata.items() if found.setdefault(key, value) != value}
    return {key: value for key, value in found.items() if key not in contradicted}


def told_last(parts: Iterable[tuple[bytes | None, int, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """What each recording says in the end. ``parts``: of files, the recording that each is a part of, which part, and what it says; a later
    part says all again, and what has changed. Files of which that is not known (None) are recordings of their own."""
    found: dict[object, dict[str, Any]] = {}
    for place, (session, _, metadata) in enumerate(sorted(parts, key=lambda part: part[1])):
        found.setdefault(place if session is None else session, {}).update(metadata)
    return list(found.values())


def name_of(paths: Sequence[Path]) -> str:
    """A run's name from where it was found: the file's, the folder's, or that of the folder that all paths share."""
    absolute = [path.absolute() for path in paths]
    if len(absolute) == 1:
        only = absolute[0]
        return (only.name if only.is_dir() else _SUFFIXES.sub("", only.name)) or str(only)
    shared = absolute[0].parent
    while not all(path.is_relative_to(shared) for path in absolute):
        shared = shared.parent
    return shared.name or "run"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _status(store: Store, of_job: str | None, partial: bool, ended: bool) -> str:
    """The status of the run. A completed job is reported as partial if --max-unpacked left out a part of its files."""
    status = of_job or ("partial" if partial else "completed" if ended else "unknown")
    limited = "SELECT 1 FROM ingest_note WHERE code = 'unpacked_limit'"
    return "partial" if status == "completed" and store.connection.execute(limited).fetchall() else status
