"""Report -> HTML, PDF, JSON. Computes nothing that is not formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .render import render as render

__all__ = ["render"]


def __getattr__(name: str) -> Any:
    """:func:`render`, imported when it is first used: it needs Matplotlib and Jinja, which take their time."""
    if name != "render":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .render import render

    globals()["render"] = render
    return render
