"""Name, status, times and description of a run: job information, metadata and results of readers -> ``run``."""

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
    """Read the job information next to traces: the members of ``_JOB``.

    A file that is not a JSON object, unknown members, and values of the wrong type are noted and left out.
    """
    try:
        with path.open("rb") as file:
            job = json.loads(file.read(_LARGEST_JOB))
        problem = None if isinstance(job, dict) else "it is no JSON object"
    except (ValueError, RecursionError) as error:
        problem = f"it is not valid JSON ({error})"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
    if problem is not None:
        text = f"The job information was left out: {problem}. Correct the file or remove it."
        store.note("warning", "job_not_read", text, source=source, file=path.name)
        return {}
    if unknown := sorted(key for key in job if key not in _JOB):
        listed = ", ".join(key[:60] for key in unknown[:8]) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
        text = f"Members of the job information that are not known were left out: {listed}. Known are {', '.join(_JOB)}."
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
    """Insert the row of ``run``.

    Without ``status`` in ``job``, the run is partial if a file broke off, completed if it ``ended`` (has end markers), else unknown.
    Start and end are those of the job's recorders (``times``), else of the events with absolute times, if there are any.
    """
    timed = [result for result in results if result.first_ns is not None]
    absolute = [result for result in timed if not result.relative] or timed
    partial = any(result.partial for result in results)
    resources = {str(index): value for index, value in enumerate(job.get("resources", []))}
    described: dict[str, dict[str, Any]] = {"resources": resources, "metadata": dict(metadata)}
    described |= {key: dict(job.get(key, {})) for key in ("hyperparameters", "labels")}
    for key, values in described.items():
        described[key], left_out = cut_values(values)
        if left_out:
            text = f"The job has more than {PARAMETERS:,} {key}, the limit; the others were left out."
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
    """Return the entries that all metadata share: those of the run, not of a rank."""
    entries = list(all_metadata)
    if not entries:
        return {}
    return {key: value for key, value in entries[0].items() if all(entry.get(key) == value for entry in entries[1:])}


def agreed_metadata(all_metadata: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries that no recording contradicts; each may have different ones."""
    agreed: dict[str, Any] = {}
    contradicted = set()
    for metadata in all_metadata:
        contradicted |= {key for key, value in metadata.items() if agreed.setdefault(key, value) != value}
    return {key: value for key, value in agreed.items() if key not in contradicted}


def latest_metadata(parts: Iterable[tuple[bytes | None, int, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the metadata of each recording after its last part.

    ``parts``: recording, number and metadata of each file. A later part repeats all metadata with their changes. A file of an unknown
    recording (None) is a recording of its own.
    """
    recordings: dict[object, dict[str, Any]] = {}
    for index, (session, _, metadata) in enumerate(sorted(parts, key=lambda part: part[1])):
        recordings.setdefault(index if session is None else session, {}).update(metadata)
    return list(recordings.values())


def name_of(paths: Sequence[Path]) -> str:
    """Name a run after its file or folder, or the folder that all paths share."""
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
    """Return the status; --max-unpacked makes a completed run with losses partial."""
    status = of_job or ("partial" if partial else "completed" if ended else "unknown")
    limited = "SELECT 1 FROM ingest_note WHERE code = 'unpacked_limit'"
    return "partial" if status == "completed" and store.connection.execute(limited).fetchall() else status
