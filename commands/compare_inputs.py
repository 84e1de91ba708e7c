"""What are the two runs of `postrun compare`: traces to analyse, or reports that are there already?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError, UsageError
from ..redaction import mask_text

if TYPE_CHECKING:
    from ..analysis.report.model import Report
    from ..analysis.rules.engine.selection import Selection

_REPORT: Final = "report.json"
_HEAD: Final = 4096
TRACES: Final = "traces"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A report, and the report.json that it was read from; None: it was made from traces."""

    report: Report
    path: str | None

    @property
    def kind(self) -> str:
        return TRACES if self.path is None else _REPORT


def load(
    given: str,
    selection: Selection,
    *,
    memory_limit: str,
    threads: int | None,
    max_unpacked: str | None = None,
    redact: tuple[str, ...] = (),
    same: tuple[tuple[str, ...], ...] = (),
    clock_offsets: Mapping[str, int] | None = None,
    progress: Callable[[str, float | None], None],
) -> Loaded:
    """The report of ``given``: a report.json that postrun wrote, or a folder with one; else what `postrun report` reads. Raises
    InputError and UsageError."""
    found = report_file(Path(given)) if "://" not in given else None
    for option, value in (("--redact", redact), ("--same", same), ("--clock-offset", clock_offsets)):
        if found is not None and value:
            raise UsageError(f"{found}: {option} cannot change a report that is there already; give the traces of both runs")
    if found is not None:
        return Loaded(_read(found), str(found))
    from ..analysis import analyze
    from ..analysis.options import Options
    from ..ingest import ingest

    of_store: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "max_unpacked": max_unpacked, "redact": redact}
    with ingest([given], progress=progress, same=same, clock_offsets=clock_offsets, **of_store) as store:
        progress("analysing", None)
        return Loaded(analyze(store, Options(generated_at_ns=0, selection=selection)), None)


def shown(given: str, redact: tuple[str, ...]) -> str:
    """What a comparison calls the place of a run."""
    return Path(given.rstrip("/")).name if redact else mask_text(given)[0]


def report_file(given: Path) -> Path | None:
    """The report.json that is meant: ``given`` itself, or the one in the folder ``given``. None where there is none."""
    path = given / _REPORT if given.is_dir() else given
    if not path.name.endswith(".json") or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD).lstrip()
    # A trace may be gigabytes long: its beginning tells it from a report.
    return path if head.startswith(b"{") and b'"schema_version"' in head and b'"generator"' in head else None


def _read(path: Path) -> Report:
    from ..analysis.report.load import is_report, report_of

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: is no whole report.json ({error}); make it again with postrun report") from error
    if not is_report(data):
        raise InputError(f"{path}: is no report.json of postrun; give a report.json, trace files or a run store")
    try:
        return report_of(data)
    except ValueError as error:
        raise InputError(f"{path}: {error}; make it again with postrun report") from error
