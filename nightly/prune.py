"""Retention: the reports of an output that are old, many or superseded -> what may be removed, and its removal.

A run whose reports are removed keeps its done-marker, so that the next night does not report it again and its figures stay in the history.
Only a run that is also gone at the source is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ..analysis.toolkit.wording import plural
from ..ingest.object_store.objects import ObjectInfo, Objects
from . import places
from .claims import Claims
from .done_markers import marker, read_row
from .families import family_of
from .model import Row

PRUNED: Final = "The files of this report were removed (postrun nightly prune)."
_LOG: Final = "/postrun.log"
_LATEST: Final = re.compile(r"latest/(report\.(html|pdf|json|md|junit\.xml)|postrun\.log|profiler-reports/[^/]+)")


@dataclass(frozen=True, slots=True)
class Policy:
    """The reports to remove.

    ``before_ns``: of runs that ended before this (Unix time). ``keep``: of each family, all but this many of the newest runs. ``gone``: of
    runs that are no longer at the source. ``most_bytes``: of the oldest runs, until the rest is not larger. ``superseded``: those that a
    newer one of the same run replaced. ``ticketed``: also those that a ticket links to, or a message in ``waiting``, runs by their ids."""

    before_ns: int | None = None
    keep: int | None = None
    gone: frozenset[str] = frozenset()
    most_bytes: int | None = None
    superseded: bool = False
    ticketed: bool = False
    waiting: frozenset[str] = frozenset()

    def keeps(self, row: Row) -> bool:
        """Decide whether a ticket protects the report of a run."""
        return not self.ticketed and (bool(row.tickets) or row.id in self.waiting)


@dataclass(slots=True)
class Reports:
    """The files of one run below an output. ``versions``: by their folder."""

    latest: list[ObjectInfo] = field(default_factory=list)
    versions: dict[str, list[ObjectInfo]] = field(default_factory=dict)

    def all(self) -> list[ObjectInfo]:
        return [*self.latest, *(file for files in self.versions.values() for file in files)]

    def superseded(self, row: Row) -> list[ObjectInfo]:
        """Return the files of other versions than that of ``row``.

        Without a folder the reports were pruned: all that is left. A failed run may have no other report than the one before, so only logs
        of earlier failures count."""
        if row.state == "reported" and row.folder is None:
            return self.all()
        others = [files for version, files in self.versions.items() if version != row.folder]
        return [file for files in others if row.state == "reported" or _only_log(files) for file in files]


@dataclass(frozen=True, slots=True)
class Removal:
    """``files``: what goes of a run, and ``why``. ``complete``: all reports of the run. ``forget``: its done-marker also goes."""

    row: Row
    why: str
    files: tuple[ObjectInfo, ...]
    complete: bool = False
    forget: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Plan:
    """``kept``: ids of runs that the policy names and a ticket protects. ``left``: bytes of the files that stay."""

    removals: tuple[Removal, ...]
    kept: tuple[str, ...]
    left: int

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.removals)


def reports_of(objects: Iterable[ObjectInfo], rows: Mapping[str, Row]) -> dict[str, Reports]:
    """Return the files of each run; a run may be in the folder of another."""
    folders = {places.run_folder(run_id): run_id for run_id in rows}
    runs: dict[str, Reports] = {}
    for info in objects:
        parts = info.path.split("/")
        for depth in range(len(parts) - 1, 0, -1):
            run_id = folders.get("/".join(parts[:depth]))
            if run_id is None:
                continue
            below = "/".join(parts[depth:])
            if places.VERSION_FOLDER.match(below):
                folder = "/".join(parts[: depth + 1])
                runs.setdefault(run_id, Reports()).versions.setdefault(folder, []).append(info)
                break
            if _LATEST.fullmatch(below):
                runs.setdefault(run_id, Reports()).latest.append(info)
                break
    return runs


def plan(rows: Mapping[str, Row], reports: Mapping[str, Reports], policy: Policy, patterns: Sequence[re.Pattern[str]] = ()) -> Plan:
    """Decide what goes, the oldest runs first. ``patterns``: of --family."""
    present = sorted((row for row in rows.values() if row.id in reports or row.id in policy.gone), key=lambda row: (row.at_ns, row.id))
    reasons = _named(present, policy, patterns)
    removals: dict[str, Removal] = {}
    kept = set()
    sizes = {run_id: sum(file.size for file in one.all()) for run_id, one in reports.items()}
    left = sum(sizes.values())
    for row in present:
        files = reports.get(row.id, Reports())
        if row.id in reasons and not policy.keeps(row):
            removals[row.id] = Removal(row, reasons[row.id], tuple(files.all()), True, row.id in policy.gone)
        elif policy.superseded and (old := files.superseded(row)):
            if row.state == "reported":
                removals[row.id] = Removal(row, "replaced by a newer report", tuple(old))
            elif policy.keeps(row):
                kept.add(row.id)
            else:
                removals[row.id] = Removal(row, "log of an earlier failure", tuple(old))
        if row.id in reasons and policy.keeps(row):
            kept.add(row.id)
    left -= sum(one.bytes for one in removals.values())
    most = left if policy.most_bytes is None else policy.most_bytes
    for row in present:
        if left <= most:
            break
        before = removals.get(row.id)
        if (before is not None and before.complete) or _only_log(reports.get(row.id, Reports()).all()):
            continue
        if policy.keeps(row):
            kept.add(row.id)
            continue
        left -= sizes.get(row.id, 0) - (before.bytes if before is not None else 0)
        removals[row.id] = Removal(row, "all reports together are too large", tuple(reports[row.id].all()), True)
    return Plan(tuple(removals.values()), tuple(sorted(kept)), left)


def _only_log(files: Iterable[ObjectInfo]) -> bool:
    """Decide whether files are the logs of failures, which free no space."""
    return all(file.path.endswith(_LOG) for file in files)


def _named(present: Sequence[Row], policy: Policy, patterns: Sequence[re.Pattern[str]]) -> dict[str, str]:
    """Return the runs that age, number or their absence at the source names, and why."""
    reasons: dict[str, str] = {}
    families: dict[str, list[Row]] = {}
    for row in present:
        if row.state == "reported":
            families.setdefault(family_of(row.name, row.id, row.labels, patterns), []).append(row)
        if row.id in policy.gone:
            reasons[row.id] = "gone at the source"
        elif policy.before_ns is not None and (end := ended_ns(row)) is not None and end < policy.before_ns:
            reasons[row.id] = "older than the limit"
    for family, members in families.items():
        for row in members[: -policy.keep] if policy.keep is not None else ():
            reasons.setdefault(row.id, f"{family} has {plural(policy.keep or 0, 'newer run')}")
    return reasons


def ended_ns(row: Row) -> int | None:
    """Return the end of a job, else the time of its report, else its start.

    No job ends after its report: its clock was ahead."""
    end = row.started_ns + row.duration_ns if row.started_ns is not None and row.duration_ns is not None else None
    known = [time for time in (end, row.reported_at_ns) if time is not None]
    return min(known, default=row.started_ns)


def remove(out: Objects, removals: Iterable[Removal]) -> Iterator[Removal]:
    """Remove files; yield what was removed.

    A run that another night works on, or has reported again, is left alone."""
    with Claims(out) as claims:
        for removal in removals:
            row, path = removal.row, places.claim(removal.row.id)
            if not claims.take(path):
                continue
            try:
                if read_row(out, row.id) != row:
                    continue
                if removal.complete and not removal.forget:
                    # First the marker: a removal that ends in between leaves files that --superseded finds.
                    rest = replace(row, folder=None, written=(), warnings=(*row.warnings, PRUNED))
                    out.write(places.done(row.id), marker(rest), content_type="application/json")
                for file in removal.files:
                    out.delete(file.path)
                if removal.forget:
                    out.delete(places.done(row.id))
            finally:
                claims.give_back(path)
                for folder in {file.path.rpartition("/")[0] for file in removal.files} | {places.run_folder(row.id)}:
                    out.remove_empty(folder)
            yield removal
