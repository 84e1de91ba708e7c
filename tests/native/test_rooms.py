"""The folders of native/src depend on each other in one direction, and their sources are the ones that CMake builds."""

from __future__ import annotations

import re
from pathlib import Path

ROOMS = {
    "format": set(),
    "core": {"format"},
    "gpu": {"core", "format"},
    "sampler": {"core", "gpu"},
    "session": {"core", "format", "gpu"},
    "reader": {"format"},
    "scan": set(),
}
"""Folder -> folders whose headers it may include."""
PUBLIC = {"postrun.h"}


def test_includes_follow_the_order_of_the_rooms(project_root: Path) -> None:
    source = project_root / "native" / "src"
    assert {path.name for path in source.iterdir()} == set(ROOMS)
    for path in source.glob("*/*.[ch]"):
        for header in re.findall(r'^#include "(.+)"', path.read_text("utf-8"), re.MULTILINE):
            room, separator, _ = header.rpartition("/")
            if separator:
                assert room in ROOMS[path.parent.name], f"{path.parent.name}/{path.name} includes {header}"
                assert (source / header).is_file()
            else:
                assert header in PUBLIC or (path.parent / header).is_file(), f"{path.parent.name}/{path.name} includes {header}"


def test_cmake_builds_every_source(project_root: Path) -> None:
    listed = re.findall(r"\bsrc/\w+/\w+\.c\b", (project_root / "native" / "CMakeLists.txt").read_text("utf-8"))
    assert {*listed} == {f"src/{path.parent.name}/{path.name}" for path in (project_root / "native" / "src").glob("*/*.c")}
