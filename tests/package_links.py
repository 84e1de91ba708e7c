"""Where does mypy find the package? It cannot follow an editable installation, so this lays the package out by symbolic links.

``python tests/package_links.py`` writes build/typing/postrun/ from the mapping in pyproject.toml that wheels are built by.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "typing"


def lay_out() -> None:
    """Makes FOLDER anew: each folder of the package is real, each entry in it a link into the checkout."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]["wheel"]
    left_out = set(build["exclude"])
    shutil.rmtree(FOLDER, ignore_errors=True)
    sources = build["packages"] | {place: source for source, place in build["force-include"].items()}
    for place, source in sources.items():
        if (ROOT / source).is_file():
            link(FOLDER / place, ROOT / source)
            continue
        for entry in sorted((ROOT / source).iterdir()):
            if f"{place}/{entry.name}" not in left_out and entry.name != "__pycache__":
                link(FOLDER / place / entry.name, entry)


def link(place: Path, source: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(source)


if __name__ == "__main__":
    lay_out()
