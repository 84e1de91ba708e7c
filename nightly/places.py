"""The files of a night below its output folder.

index.html index.json index.parquet      of all runs
runs/<id>/done.json                      a Row, written last: all that is known of the run (model.Row.to_json)
runs/<id>/claim.json                     the night that works on it (claims.py)
runs/<id>/<16 digits>-<digits>/          the report's files: a folder per version of the run and of the options, never changed
runs/<id>/latest/                        the files of the newest report, at an address that stays
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import lru_cache
from typing import Final, get_args

from ..ingest.object_store.paths import problem
from ..ingest.object_store.urls import is_url
from ..version import REPORT
from .model import FoundRun, Kind, ReportOptions, Row

RUNS: Final = "runs"
DONE: Final = "done.json"
CLAIM: Final = "claim.json"
LATEST: Final = "latest"
VERSION_FOLDER: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{12}/")  # a report's folder below that of its run
INDEX_FILES: Final = ("index.html", "index.json", "index.parquet")
MOST_MARKER: Final = 4 << 20  # bytes of a done-marker; its longest texts are warnings and labels
_MOST_NAMES: Final = 1000  # files, labels, verdicts and warnings of one run
_NAME: Final = 200  # characters of the name of a rule
_CURRENCY: Final = 10  # characters, as --price-per-gpu-hour accepts
_REPORT_FOLDER: Final = re.compile(r"[0-9a-z]+-[0-9a-z]+")
_KINDS: Final = frozenset(get_args(Kind))
_ROOT_RUN: Final = "_whole"  # folder of the run "."
_LIKE_ROOT_RUN: Final = re.compile(r"_+whole(?:/|$)")


def own_folders(source: str, out: str) -> tuple[str, ...]:
    """Return the folder of the reports if it is below the source."""
    above, below = (url.rstrip("/") + "/" if is_url(url) else os.path.realpath(url).rstrip("/") + "/" for url in (source, out))
    return (below[len(above) : -1],) if below.startswith(above) and below != above else ()


def run_folder(run_id: str) -> str:
    if run_id == ".":
        return f"{RUNS}/{_ROOT_RUN}"
    return f"{RUNS}/{'_' if _LIKE_ROOT_RUN.match(run_id) else ''}{run_id}"


def done(run_id: str) -> str:
    return f"{run_folder(run_id)}/{DONE}"


def claim(run_id: str) -> str:
    return f"{run_folder(run_id)}/{CLAIM}"


def report_folder(run: FoundRun, options: ReportOptions) -> str:
    """Return the folder of a run's report with these options, without a slash."""
    version = hashlib.sha256(f"{REPORT} {options_digest(options)}".encode()).hexdigest()[:12]
    return f"{run_folder(run.id)}/{run.fingerprint[:16]}-{version}"


def latest_folder(run_id: str) -> str:
    """Return the folder that always has the newest report of a run."""
    return f"{run_folder(run_id)}/{LATEST}"


_problem = lru_cache(1024)(problem)


def is_own(row: Row) -> bool:
    """Decide whether the names in a row that was read back could be our own.

    Others may write below an output. Such a row must not lead a link, a deletion or an attachment out of the run's folder."""
    if (row.id != "." and problem(row.id)) or row.kind not in _KINDS:
        return False
    if row.folder is not None:
        above, _, version = row.folder.rpartition("/")
        if above != run_folder(row.id) or not _REPORT_FOLDER.fullmatch(version):
            return False
    if any(len(names) > _MOST_NAMES for names in (row.written, row.warnings, row.tickets, row.labels, row.verdicts)):
        return False
    if len(row.currency or "") > _CURRENCY:
        return False
    return not any(map(_problem, row.written)) and all(len(rule) <= _NAME for rule in row.verdicts)


def options_digest(options: ReportOptions) -> str:
    """Return 12 hex digits that change if the options outdate a report.

    The version of postrun, memory, threads, time limits and permissions do not; neither do the defaults of --max-unpacked,
    --redact and --price-per-gpu-hour."""
    without = {"memory_limit", "threads", "mode", "custom_files", "rule_timeout"}
    without |= {name for name in ("max_unpacked", "redact", "custom_rules", "price_per_gpu_hour") if not getattr(options, name)}
    chosen = {name: getattr(options, name) for name in options.__slots__ if name not in without}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True, default=repr).encode()).hexdigest()[:12]
