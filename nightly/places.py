"""Where below the output folder of a night does what of a run stand?

index.html index.json index.parquet      of all runs
runs/<id>/done.json                      a Row, written last: what is known of the run (model.Row.to_json)
runs/<id>/claim.json                     who works on it (claims.py)
runs/<id>/<16 digits>-<digits>/          the report's files: a folder per version of the run and of the options
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from importlib.metadata import version
from typing import Final, get_args

from ..ingest.object_store.paths import problem
from .model import FoundRun, Kind, ReportOptions, Row

RUNS: Final = "runs"
DONE: Final = "done.json"
CLAIM: Final = "claim.json"
VERSION_FOLDER: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{12}/")  # A report's folder below that of its run
INDEX_FILES: Final = ("index.html", "index.json", "index.parquet")
MOST_MARKER: Final = 4 << 20  # Bytes of a done-marker; its longest texts are warnings and labels
_MOST_NAMES: Final = 1000  # Files, labels, verdicts and warnings of one run
_NAME: Final = 200  # Characters of the name of a rule
_REPORT_FOLDER: Final = re.compile(r"[0-9a-z]+-[0-9a-z]+")
_KINDS: Final = frozenset(get_args(Kind))
_WHOLE: Final = "_whole"  # Stands for the run ".", which no path can be named after


def run_folder(run_id: str) -> str:
    return f"{RUNS}/{_WHOLE if run_id == '.' else run_id}"


def done(run_id: str) -> str:
    return f"{run_folder(run_id)}/{DONE}"


def claim(run_id: str) -> str:
    return f"{run_folder(run_id)}/{CLAIM}"


def report_folder(run: FoundRun, options: ReportOptions) -> str:
    """Of the report of this version of the run with these options; without a slash at the end."""
    return f"{run_folder(run.id)}/{run.fingerprint[:16]}-{options_digest(options)}"


_problem = lru_cache(1024)(problem)


def is_own(row: Row) -> bool:
    """Whether the names in a row that was read back could be our own: those of a run, and of report files in the run's folder.

    Others may write below an output. Such a row must not lead a link, a deletion or an attachment elsewhere.
    """
    if (row.id != "." and problem(row.id)) or row.kind not in _KINDS:
        return False
    if row.folder is not None:
        above, _, version = row.folder.rpartition("/")
        if above != run_folder(row.id) or not _REPORT_FOLDER.fullmatch(version):
            return False
    if any(len(names) > _MOST_NAMES for names in (row.written, row.warnings, row.labels, row.verdicts)):
        return False
    return not any(map(_problem, row.written)) and all(len(rule) <= _NAME for rule in row.verdicts)


def options_digest(options: ReportOptions) -> str:
    """12 hex digits: another one means that a report made with other options, or by another version of postrun, is to be made again.
    Memory, threads and permissions change no report; neither do the defaults of --max-unpacked and --redact."""
    without = {"memory_limit", "threads", "mode"}
    without |= {name for name in ("max_unpacked", "redact") if not getattr(options, name)}
    chosen = {name: getattr(options, name) for name in options.__slots__ if name not in without}
    text = json.dumps({"version": version("postrun"), **chosen}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
