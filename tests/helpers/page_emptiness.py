"""PDF -> how empty each of its pages is: cells of the text block without ink, of 48 rows and 30 columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from PIL import Image

_DPI: Final = 70
_ROWS, _COLUMNS = 48, 30
_INK: Final = 245  # luminance below which a pixel is ink
_MARGIN_MM: Final = 14.0


def emptiness(pdf: Path) -> list[float]:
    """Return the share of empty cells of each page, from 0 to 1.

    A cell is empty if neither it nor the cell on its left or right has ink, so that the gaps between words are not empty. The gaps between
    lines of a table count: compare pages with each other. Requires pdftoppm.
    """
    with TemporaryDirectory() as folder:
        subprocess.run(["pdftoppm", "-gray", "-r", str(_DPI), str(pdf), f"{folder}/page"], check=True)
        return [_of_page(np.asarray(Image.open(page))) for page in sorted(Path(folder).glob("page*.pgm"))]


def _of_page(pixels: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> float:
    margin = round(_MARGIN_MM / 25.4 * _DPI)
    block = pixels[margin:-margin, margin:-margin] < _INK
    ink = np.array([[cell.any() for cell in np.array_split(row, _COLUMNS, axis=1)] for row in np.array_split(block, _ROWS, axis=0)])
    near = ink.copy()
    near[:, 1:] |= ink[:, :-1]
    near[:, :-1] |= ink[:, 1:]
    return float(1 - near.mean())


if __name__ == "__main__":
    for number, share in enumerate(emptiness(Path(sys.argv[1])), 1):
        print(f"{number:3} {share:6.1%}")
