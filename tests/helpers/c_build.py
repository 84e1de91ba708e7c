"""Compile C for tests with Ninja: sources and flags -> a program, library or object files, compiled again only after a change.

The objects are kept in build/test-objects, one folder per set of sources and flags, for later runs and for all test processes.
"""

from __future__ import annotations

import fcntl
import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "test-objects"
SHARED = ("-g", "-fPIC", "-shared", "-fvisibility=hidden")


def build(sources: Sequence[Path], built: Path, *flags: str, compiler: str = "cc") -> Path:
    """Build ``built`` from C sources and object files.

    Sources that a test writes are compiled in the folder of ``built``. Skips if the compiler, Ninja or a sanitizer is missing.
    """
    kept = KEPT if all(source.is_relative_to(ROOT) for source in sources) else built.parent / "objects"
    shutil.copy2(objects(tuple(sources), built.name, flags, compiler, kept) / built.name, built)
    return built


@cache
def objects(sources: tuple[Path, ...], name: str, flags: tuple[str, ...], compiler: str = "cc", kept: Path = KEPT) -> Path:
    """Build ``name`` in the folder of its sources and flags, and return the folder."""
    missing = {"clang": "no clang (apt-get install clang libclang-rt-dev)"}
    if shutil.which(compiler) is None:
        pytest.skip(missing.get(compiler, f"no C compiler ({compiler})"))
    ninja = shutil.which("ninja", path=Path(sys.executable).parent) or shutil.which("ninja")
    if ninja is None:
        pytest.skip("no ninja (pip install postrun[test])")
    key = hashlib.sha256(repr((sources, name, flags, compiler)).encode()).hexdigest()[:16]
    folder = kept / f"{name}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    arguments = shlex.join(flags).replace("$", "$$")
    lines = [
        f"rule compile\n  command = {compiler} {arguments} -MMD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc",
        f"rule link\n  command = {compiler} $in -o $out {arguments} -pthread -ldl -lm",
    ]
    linked = []
    for source in sources:
        if source.suffix == ".c":
            linked.append(object_name(source))
            lines.append(f"build {linked[-1]}: compile {_path(source)}")
        else:
            linked.append(_path(source))
    lines.append(f"build {name}: link {' '.join(linked)}\n")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "build.ninja").write_text("\n".join(lines))
        done = subprocess.run([ninja, "-C", str(folder), "-v"], capture_output=True, text=True)
    errors = done.stdout + done.stderr
    if done.returncode and any(
        words in errors for words in ("cannot find -l", "cannot find lib", "libclang_rt.", "unsupported option '-fsanitize")
    ):
        pytest.skip(f"the compiler has no such sanitizers: {errors[-200:]}")
    assert done.returncode == 0, errors
    return folder


def object_name(source: Path) -> str:
    """Name the object of src/gpu/nvtx.c gpu-nvtx.o."""
    return f"{source.parent.name}-{source.stem}.o"


def write_changed(path: Path, text: str) -> None:
    """Write a file atomically if its text is new, so that users are not recompiled."""
    if not path.exists() or path.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)


def _path(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")
