"""Fixtures that the packaging tests build once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from builds import PURELIB, MakeEnvironment, blocks, build_wheel, pip, run
from postrun import native


@pytest.fixture(scope="session")
def build_tools() -> None:
    """Skip if scikit-build-core, CMake or Ninja are not installed with the tests."""
    for module in ("scikit_build_core", "cmake", "ninja"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (make test installs it; or pip install --group build)")


@pytest.fixture(scope="session")
def compiler(build_tools: None) -> str:
    """Return the C compiler; skip without one, or without Python headers."""
    executable = next((path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip("no C compiler (apt-get install gcc)")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("no Python.h (apt-get install python3-dev)")
    return executable


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> MakeEnvironment:
    """Make environments with postrun's dependencies but without postrun."""

    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("environment") / name
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        python = folder / "bin" / "python"
        site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        # A folder named in a .pth file is searched last and its own .pth files are not read: our editable postrun stays out.
        (site / "dependencies.pth").write_text(f"{PURELIB}\n")
        return python

    return make


@pytest.fixture(scope="session")
def sdist(build_tools: None, project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of this checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-P", "-c", code, cwd=project_root)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive's tree, unpacked."""
    folder = tmp_path_factory.mktemp("unpacked")
    run("tar", "-xzf", sdist, "-C", folder)
    (tree,) = folder.iterdir()
    return tree


@pytest.fixture(scope="session")
def wheel(compiler: str, project_root: Path, built_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The wheel of this checkout, with the C side."""
    folder = built_once("wheel", lambda folder: build_wheel(project_root, folder, outside=False))
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def rebuilt(compiler: str, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build a wheel of a copy of the source archive's tree; return it and that tree.

    Its build folder is ``build`` next to the wheel."""
    folder = tmp_path_factory.mktemp("rebuilt")
    shutil.copytree(unpacked, folder / "postrun")
    return build_wheel(folder / "postrun", folder), folder / "postrun"


@pytest.fixture(scope="session")
def wheel_without_native(build_tools: None, project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout as a machine without a C compiler builds it."""
    return build_wheel(project_root, tmp_path_factory.mktemp("pure"), POSTRUN_NO_NATIVE="1", CC="/nonexistent/cc")


@pytest.fixture(scope="session")
def installed(wheel: Path, make_environment: MakeEnvironment) -> Path:
    """Python of an environment into which the wheel was installed."""
    python = make_environment("wheel")
    pip(python, "install", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture(scope="session")
def page_run(compiler: str, project_root: Path, built_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return a folder in which the commands of docs/c-library.md ran.

    They ran one after the other. ``stdout`` has their output; the library is installed in ``home/.local``.
    """
    for tool in ("cc", "bash", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    if not native.available():
        pytest.skip("the C library was not built")
    page = (project_root / "docs" / "c-library.md").read_text(encoding="utf-8")

    def fill(folder: Path) -> None:
        for source in ("native", "examples"):
            shutil.copytree(project_root / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("user", "home"):
            (folder / name).mkdir()
        (project,) = blocks(page, "cmake")
        (folder / "user" / "CMakeLists.txt").write_text(project, encoding="utf-8")
        script = "set -eux\n" + "\n".join(blocks(page, "sh"))
        if shutil.which("man") is None:
            script = 'man() { test -s "$1"; }\n' + script
        hidden = ("POSTRUN_", "PKG_CONFIG", "LD_LIBRARY", "CMAKE_")
        known = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        known |= {"CMAKE_BUILD_TYPE": "Debug"}  # not optimized, which takes half the time
        known |= {"HOME": str(folder / "home"), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}"}
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=known, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "stdout").write_text(done.stdout, encoding="utf-8")

    return built_once("c-library-page", fill)
