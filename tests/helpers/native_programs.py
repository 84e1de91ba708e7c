"""How does a test run a small C program with the recording library, and read what it recorded?

The programs are those of tests/native; they and the library are built in variants, with sanitizers and without. The library's parts
are compiled once for all test processes.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

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
    """Test programs beside a library of their variant, each built when first asked for.

    ``folder`` is this process's own; ``shared`` holds what all test processes use, and is made by the first that asks.
    """

    def __init__(self, root: Path, folder: Path, shared: Path) -> None:
        self.root, self.folder, self.shared = root, folder, shared

    @functools.cache  # noqa: B019
    def parts(self, variant: str) -> dict[str, Path]:
        """Part of the library -> its object file."""
        folder = self.shared / variant
        folder.mkdir(parents=True, exist_ok=True)
        native = self.root / "native" / "src"
        sources = {source.stem: source for room in ROOMS for source in sorted((native / room).glob("*.c"))}
        built = {part: folder / f"{part}.o" for part in sources}
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for part, path in built.items():
                if not path.exists():
                    unfinished = path.with_suffix(".new")
                    self.compile(
                        variant, [sources[part]], unfinished, f"-I{native}", "-std=c11", "-c", "-fPIC", "-fvisibility=hidden", *WARNINGS
                    )
                    unfinished.rename(path)
        return built

    @functools.cache  # noqa: B019
    def library(self, variant: str) -> Path:
        folder = self.folder / variant
        folder.mkdir()
        self.compile(variant, list(self.parts(variant).values()), folder / "libpostrun.so", "-shared", "-Wl,-z,nodelete")
        return folder

    @functools.cache  # noqa: B019
    def program(self, name: str, variant: str) -> Path:
        folder = self.library(variant)
        source = self.root / "tests" / "native" / f"{name}.c"
        flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", f"-L{folder}", "-lpostrun", f"-Wl,-rpath,{folder}"]
        self.compile(variant, [source], folder / name, *flags)
        return folder / name

    def compile(self, variant: str, sources: list[Path], built: Path, *flags: str) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler (cc)")
        command = [compiler, "-std=gnu11" if built.suffix == "" else "-std=c11", "-g", *VARIANTS[variant]]
        command += [f"-I{self.root / 'native' / 'include'}", *map(str, sources), "-o", str(built), *flags, "-pthread", "-ldl", "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode and "sanitize" in done.stderr and "error: " not in done.stderr.replace("cannot find", ""):
            pytest.skip(f"the compiler has no sanitizers: {done.stderr[-200:]}")
        assert done.returncode == 0, done.stderr


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
    told = dict(line.split() for line in done.stdout.splitlines())
    return {key: int(value) for key, value in told.items()}


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prt"))


def read(folder: Path) -> dict[str, Rows]:
    """The tables of the only file."""
    (file,) = files(folder)
    return prt_reader.read(file.read_bytes())


def check_whole(data: bytes) -> None:
    """Blocks without gaps from the header to the end of the file, numbered, names before their use, ended by END."""
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
