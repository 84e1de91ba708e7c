"""The look of a report: its sections, theme, title, and logo."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from ...errors import UsageError
from .logo import Logo
from .section_names import left_out

THEMES: Final = ("auto", "light", "dark")
TITLE: Final = "ProfilerReport"
LONGEST_TITLE: Final = 80


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a report. Raises UsageError for unknown sections and themes.

    ``sections``: words of --sections (None: all). ``theme``: the first theme of the HTML; "auto" is that of the reader's browser.
    ``title``: the word above the run's name. ``dashboard``: whether the PDF ends with the panels of the hosted dashboard.
    """

    sections: tuple[str, ...] | None = None
    theme: str = "auto"
    title: str | None = None
    logo: Logo | None = None
    dashboard: bool = False

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise UsageError(f"{self.theme!r} is not a theme; choose from {', '.join(THEMES)}")
        if self.title is not None:
            checked_title(self.title)
        left_out(self.sections)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the omitted sections, in the order of the report."""
        return left_out(self.sections)

    @property
    def named(self) -> bool:
        """Whether sections are requested by name, which are then in order even if empty."""
        return any(not word.startswith("-") for word in self.sections or ())


def checked_title(text: str) -> str:
    """Return the value of --title. Raise UsageError if it is not one line of text."""
    title = " ".join(text.split())
    if any(unicodedata.category(one) == "Cc" for one in title):
        raise UsageError("the title has control characters; leave them out")
    if not title:
        raise UsageError("the title is empty; leave it out, or write it like --title 'GPU report'")
    if len(title) > LONGEST_TITLE:
        raise UsageError(f"the title has {len(title)} characters; at most {LONGEST_TITLE} stand on one line")
    return title
