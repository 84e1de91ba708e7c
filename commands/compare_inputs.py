"""The two runs of `postrun compare`: traces are analyzed; an existing report.json is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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
    """A report. ``path``: the report.json that it was read from; None: it was made from traces. ``ignored``: the fields of the file that
    this version of postrun does not know."""

    report: Report
    path: str | None
    ignored: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return TRACES if self.path is None else _REPORT


def load(
    source: str,
    selection: Selection,
    progress: Callable[[str, float | None], None],
    of_store: Mapping[str, Any],
) -> Loaded:
    """Return the report of ``source``. Raise InputError and UsageError.

    ``source`` is a report.json, a folder that contains one, or any input of `postrun report`. ``of_store``: arguments of ``ingest``.
    """
    path = report_file(Path(source)) if "://" not in source else None
    if path is not None:
        for option, name in (("--redact", "redact"), ("--same", "same"), ("--clock-offset", "clock_offsets")):
            if of_store[name]:
                raise UsageError(f"{path}: {option} cannot change a report that is there already; give the traces of both runs")
        report, ignored = _read(path)
        return Loaded(report, str(path), ignored)
    from ..analysis import analyze
    from ..analysis.options import Options
    from ..ingest import ingest

    with ingest([source], progress=progress, **of_store) as store:
        progress("analyzing", None)
        return Loaded(analyze(store, Options(generated_at_ns=0, selection=selection)), None)


def display_name(source: str, redact: tuple[str, ...]) -> str:
    """Return the name of a run's input as a comparison shows it."""
    return Path(source.rstrip("/")).name if redact else mask_text(source)[0]


def report_file(source: Path) -> Path | None:
    """Return the report.json at or in ``source``, or None."""
    path = source / _REPORT if source.is_dir() else source
    if not path.name.endswith(".json") or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD).lstrip()
    # A trace can be gigabytes long: its beginning is enough to distinguish it from a report.
    return path if head.startswith(b"{") and b'"schema_version"' in head and b'"generator"' in head else None


def _read(path: Path) -> tuple[Report, tuple[str, ...]]:
    """Return the report in a file, and the fields that it does not take from there."""
    from ..analysis.report.load import is_report, report_of

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: is not a whole report.json ({error}); make it again with postrun report") from error
    if not is_report(data):
        raise InputError(f"{path}: is no report.json of postrun; give a report.json, trace files or a run store")
    try:
        report = report_of(data)
    except ValueError as error:
        raise InputError(f"{path}: {error}; make it again with postrun report") from error
    return report, tuple(sorted(set(_unknown(data, report.to_dict()))))


def _unknown(data: Any, known: Any, above: str = "") -> Iterator[str]:
    """Yield the keys of ``data`` that ``known`` lacks, without positions in lists."""
    if isinstance(data, Mapping) and isinstance(known, Mapping):
        for key, value in data.items():
            if key in known:
                yield from _unknown(value, known[key], f"{above}{key}.")
            else:
                yield f"{above}{key}"
    elif isinstance(data, list) and isinstance(known, list | tuple):
        for value, of in zip(data, known, strict=False):
            yield from _unknown(value, of, above)
