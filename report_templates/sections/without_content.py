"""Section "Nothing to show": the sections without content, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from ..blocks import Section, say
from ..text.formats import plural

ID = "without-content"


def without_content(made: Sequence[Section]) -> list[Section]:
    """``made``, the appendix last, with the sections that are one sentence gathered in one section before it. Each keeps its id there, so
    that what leads to it finds the reason."""
    empty = tuple(section for section in made if section.empty)
    if not empty:
        return list(made)
    what = plural(len(empty), "section has", "sections have")
    gathered = Section(ID, "Nothing to show", say("{} nothing to show in this run.", what))
    gathered.facts["sections"] = empty
    kept = [section for section in made if not section.empty]
    return [*kept[:-1], gathered, kept[-1]]
