"""Section "Nothing to show": the sections without content, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from ..blocks import Section, say
from ..text.formats import plural

ID = "without-content"


def without_content(sections: Sequence[Section]) -> list[Section]:
    """Gather the sections without content in a section before the appendix.

    Each keeps its id there, so that links to it lead to the reason.
    """
    empty = tuple(section for section in sections if section.empty)
    if not empty:
        return list(sections)
    what = plural(len(empty), "section has", "sections have")
    gathered = Section(ID, "Nothing to show", say("{} nothing to show in this run.", what))
    gathered.facts["sections"] = empty
    kept = [section for section in sections if not section.empty]
    return [*kept[:-1], gathered, kept[-1]]
