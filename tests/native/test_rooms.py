"""Rules for the C sources: folders depend on each other in one direction, CMake builds all files, and atomics name their partners."""

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
    "intervals": {"format"},
    "series": set(),
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


def test_every_release_and_acquire_names_its_partner(project_root: Path) -> None:
    for path in (project_root / "native").rglob("*.[ch]"):
        lines = path.read_text("utf-8").splitlines()
        for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False), 1):
            if re.search(r"memory_order_(acquire|release|acq_rel)", line):
                named = "pairs with " in line or before.strip().startswith("/* pairs with ")
                assert named, f"{path.name}:{number} does not name the access that it pairs with"
