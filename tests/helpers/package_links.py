"""The package as a folder, for mypy and import-linter, which cannot follow an editable installation.

``python tests/helpers/package_links.py`` writes symbolic links in build/typing/postrun/, as pyproject.toml maps the
folders for wheels. An empty module replaces the compiled extension, because import-linter reads Python files only.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "typing"


def lay_out(folder: Path) -> None:
    """Write ``folder`` again as real top folders of the package with links in them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]["wheel"]
    left_out = set(build["exclude"])
    shutil.rmtree(folder, ignore_errors=True)
    sources = build["packages"] | {place: source for source, place in build["force-include"].items()}
    for path, source in sources.items():
        if (ROOT / source).is_file():
            link(folder / path, ROOT / source)
            continue
        for entry in sorted((ROOT / source).iterdir()):
            if f"{path}/{entry.name}" not in left_out and entry.name != "__pycache__":
                link(folder / path / entry.name, entry)
    (folder / "postrun" / "native" / "_native.py").touch()


def link(path: Path, source: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(source)


if __name__ == "__main__":
    lay_out(FOLDER)
