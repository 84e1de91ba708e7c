"""Index of all runs: the data of index.json and of its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..analysis.toolkit.wording import count
from .history import Family, Finding, Settings
from .model import Row

FEW_ALONE: Final = 3  # that are alone in their family, at which a note says that nothing is compared with them


@dataclass(frozen=True, slots=True)
class Index:
    """The data of index.json and the page. ``rows``: the newest, newest first; ``failed``: of all runs. ``added``: the columns ADDED, by
    id. ``alone``: of all runs, those whose family has no other run. ``base_url``: template of addresses (addresses.py); None: relative.
    ``new``: the regressions that alarm (news.py). ``gone``: ids of the runs gone from the source; ``dropped``: ids of the
    runs without a report that left the index with this write, because no night finds them anymore. ``left_out``: a line for each file
    that nights do not read (not_read.py)."""

    generated_at_ns: int
    version: str
    place: str
    total: int
    states: Mapping[str, int]
    rows: tuple[Row, ...]
    added: Mapping[str, Mapping[str, Any]]
    findings: tuple[Finding, ...]
    failed: tuple[Row, ...]
    families: tuple[Family, ...]
    families_total: int
    alone: tuple[str, ...]
    settings: Settings
    base_url: str | None = None
    new: tuple[Finding, ...] = ()
    gone: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def alone_told(self) -> tuple[str, str] | None:
        """Describe the runs that are compared with no other, and advise; None for few."""
        if len(self.alone) < FEW_ALONE:
            return None
        named = ", ".join(self.alone[:FEW_ALONE])
        named += f" and {count(len(self.alone) - FEW_ALONE)} more" if len(self.alone) > FEW_ALONE else ""
        return (
            f"{count(len(self.alone))} runs have no comparable run: {named}",
            "if they belong to one job, group them with --family REGEX or a label family in job.json",
        )

    @property
    def regressions(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.kind == "regression")
