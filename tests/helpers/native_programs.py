"""Runs small C programs with the recording library and reads what they recorded: program and arguments -> its figures and tables.

The programs are those of tests/native; they and the library are built in variants, with sanitizers and without.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import c_build
import prt_reader
import pytest

VARIANTS = {
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
    "plain": ["-O2"],
}
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wvla", "-Werror"]
ROOMS = ["format", "core", "gpu", "sampler", "session"]  # of native/src: all that the library has

Rows = list[dict[str, Any]]


class Programs:
    """Test programs next to a library of their variant, each built when first used. ``folder`` is this process's own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder

    def parts(self, variant: str) -> dict[str, Path]:
        """Part of the library -> its object file."""
        return {source.stem: self._kept(variant) / c_build.object_name(source) for source in self._sources()}

    @functools.cache  # noqa: B019
    def library(self, variant: str) -> Path:
        """The folder of the library."""
        folder = self.folder / variant
        folder.mkdir()
        shutil.copy2(self._kept(variant) / "libpostrun.so", folder)
        return folder

    @functools.cache  # noqa: B019
    def program(self, name: str, variant: str) -> Path:
        """The program in the folder of the library."""
        folder = self.library(variant)
        flags = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", f"-L{self._kept(variant)}", "-lpostrun", "-Wl,-rpath,$ORIGIN")
        self.compile(variant, [self.root / "tests" / "native" / f"{name}.c"], folder / name, *flags)
        return folder / name

    def compile(self, variant: str, sources: Sequence[Path], built: Path, *flags: str) -> None:
        """Compile and link sources; the objects are kept."""
        c_build.build(sources, built, "-std=gnu11", "-g", *VARIANTS[variant], f"-I{self.root / 'native' / 'include'}", *flags)

    def _sources(self) -> list[Path]:
        return [source for room in ROOMS for source in sorted((self.root / "native" / "src" / room).glob("*.c"))]

    def _kept(self, variant: str) -> Path:
        flags = ("-std=c11", *c_build.SHARED, *VARIANTS[variant], *WARNINGS, "-Wl,-z,nodelete")
        folders = (f"-I{self.root / 'native' / folder}" for folder in ("src", "include"))
        return c_build.objects(tuple(self._sources()), "libpostrun.so", (*flags, *folders))


def environment(**more: str) -> dict[str, str]:
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "POSTRUN_", "MPI_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(ranks)}
    return clean | {"TSAN_OPTIONS": "halt_on_error=1 die_after_fork=0 atexit_sleep_ms=0", "ASAN_OPTIONS": "detect_leaks=1"} | more


def call(program: Path, *arguments: object, timeout: float = 300, **more: str) -> dict[str, int]:
    """Runs it; what it tells."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment(**more), cwd=program.parent)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip() or "cannot be tried here")
    if "unexpected memory mapping" in done.stderr or "ptrace" in done.stderr:
        pytest.skip(f"the sanitizer does not run here: {done.stderr[:200]}")
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-500:]}{done.stderr[-3000:]}"
    values = dict(line.split() for line in done.stdout.splitlines())
    return {key: int(value) for key, value in values.items()}


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prt"))


def read(folder: Path) -> dict[str, Rows]:
    """The tables of the only file."""
    (file,) = files(folder)
    return prt_reader.read(file.read_bytes())


def check_whole(data: bytes) -> None:
    """Check numbered blocks without gaps, names before their use, and END."""
    at, known = 64, set()
    blocks = prt_reader.blocks(data)
    for number, block in enumerate(blocks):
        assert block.sequence == number
        assert data[at : at + 4] == b"PRBK"
        at += 48 + int.from_bytes(data[at + 8 : at + 12], "little")
        if block.table == "strings":
            known |= set(block.column(1) or [])
        if block.table in ("annotation", "counter"):
            assert {name for name in block.column(1) or [] if name != 987654} <= known
    assert at == len(data)
    assert [block.table for block in blocks].count("end") == 1
    assert blocks[-1].table == "end"
    assert blocks[0].table == "clock"
