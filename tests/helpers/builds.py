"""Builds of postrun and clean environments for tests, without the network.

Builds take scikit-build-core, CMake and Ninja from the environment that runs the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

PURELIB = Path(sysconfig.get_path("purelib"))
MakeEnvironment = Callable[[str], Path]


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Return the output of a command that must succeed, with the tests' tools on PATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTRUN_", "CMAKE_", "SKBUILD_"))}
    environment["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), environment.get("PATH", os.defpath)])
    environment |= variables
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def pip(python: str | Path, *words: str | Path, cwd: Path | None = None, **variables: str) -> None:
    """pip of the test environment, working on the environment of ``python``."""
    options = ("--quiet", "--disable-pip-version-check")
    run(sys.executable, "-P", "-m", "pip", "--python", python, *options, *words, cwd=cwd, **variables)


def build_wheel(source: Path, folder: Path, *, outside: bool = True, optimized: bool = True, **variables: str) -> Path:
    """Return the wheel that ``pip wheel`` makes of a source tree.

    ``outside``: all is compiled outside that tree; else in its build folder, as by ``make wheel``, without compiling again what the
    installation has compiled. Without ``optimized``, all is compiled in about half the time.
    """
    options = ["--no-build-isolation", "--no-deps", "--no-index"]
    if not optimized:
        options.append("--config-settings=cmake.build-type=Debug")
    if outside:
        options.append(f"--config-settings=build-dir={folder / 'build'}")
    pip(sys.executable, "wheel", *options, "-w", folder, source, **variables)
    (wheel,) = folder.glob("*.whl")
    return wheel


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a language in Markdown."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
