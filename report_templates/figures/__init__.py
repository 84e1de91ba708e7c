"""Figures: data -> SVG, by Matplotlib or as text.

Importing Matplotlib reads a ``matplotlibrc`` of the current folder, which can start programs (``text.usetex``). That folder may be a run
that someone else wrote, so Matplotlib is loaded from another folder if it has such a file.
"""

from __future__ import annotations

import os
from pathlib import Path


def _load_matplotlib() -> None:
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(Path(__file__).parent)
        import matplotlib  # noqa: F401
    finally:
        os.fchdir(here)
        os.close(here)


if os.path.lexists("matplotlibrc"):
    _load_matplotlib()
