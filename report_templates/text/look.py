"""How does a report look: which sections does it show, in which theme, under whose title and logo?"""

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
    """``sections``: names as behind --sections (None: all). ``theme``: that which the HTML starts with; "auto" is that of the reader's
    browser. ``title``: the word over the run's name. Raises UsageError for what does not exist."""

    sections: tuple[str, ...] | None = None
    theme: str = "auto"
    title: str | None = None
    logo: Logo | None = None

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise UsageError(f"{self.theme!r} is no theme; choose from {', '.join(THEMES)}")
        if self.title is not None:
            checked_title(self.title)
        left_out(self.sections)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the sections that are not shown, in the order of the report."""
        return left_out(self.sections)

    @property
    def named(self) -> bool:
        """Sections were asked for by name: each of them then stands in its place, also where it has nothing to show."""
        return any(not word.startswith("-") for word in self.sections or ())


def checked_title(text: str) -> str:
    """The value of --title. Raises UsageError where it says nothing, has control characters, or is too long for one line."""
    shown = " ".join(text.split())
    if any(unicodedata.category(one) == "Cc" for one in shown):
        raise UsageError("the title has control characters; leave them out")
    if not shown:
        raise UsageError("the title is empty; leave it out, or write it like --title 'GPU report'")
    if len(shown) > LONGEST_TITLE:
        raise UsageError(f"the title has {len(shown)} characters; at most {LONGEST_TITLE} stand on one line")
    return shown
