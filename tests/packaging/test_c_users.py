"""Tests of C programs that use postrun, by pkg-config and by CMake, from a wheel and from ``cmake --install``."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from builds import run

PROGRAM = """
#include <postrun.h>
#include <stdio.h>
int main(void) {
    printf("%d.%d.%d %s\\n", POSTRUN_VERSION_MAJOR, POSTRUN_VERSION_MINOR, POSTRUN_VERSION_PATCH, postrun_version());
    return 0;
}
"""

CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.18...3.31)
project(user LANGUAGES C)
find_package(postrun 0.1 REQUIRED CONFIG)
add_executable(user user.c)
target_link_libraries(user PRIVATE postrun::postrun)
"""


@dataclass(frozen=True)
class Installation:
    """Where one installation of the library keeps its pkg-config and its CMake files."""

    pkgconfig: Path
    cmake: Path


@pytest.fixture(scope="module")
def from_wheel(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    code = "from postrun import native; print(native.cmake_dir())"
    cmake = Path(run(installed, "-P", "-c", code, cwd=tmp_path_factory.mktemp("cwd")).strip())
    return Installation(cmake.parent.parent / "pkgconfig", cmake)


@pytest.fixture(scope="module")
def from_cmake(page_run: Path) -> Installation:
    prefix = page_run / "home" / ".local"
    assert not [file for file in prefix.rglob("*") if "python" in file.name.lower() or file.suffix == ".py"]
    (pkgconfig,) = prefix.rglob("pkgconfig")
    (cmake,) = prefix.rglob("cmake/postrun")
    return Installation(pkgconfig, cmake)


@pytest.fixture(params=["from_wheel", "from_cmake"])
def installation(request: pytest.FixtureRequest) -> Installation:
    installation = request.getfixturevalue(request.param)
    assert isinstance(installation, Installation)
    return installation


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source = tmp_path / "user.c"
    source.write_text(PROGRAM)
    return source


def assert_one_version(output: str) -> None:
    """The compiled header and the loaded library have the same version."""
    match = re.fullmatch(r"(\d+\.\d+\.\d+) (\d+\.\d+\.\d+)\n", output)
    assert match is not None, output
    assert match[1] == match[2]


def test_by_pkg_config(installation: Installation, program: Path, compiler: str) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config (apt-get install pkg-config)")
    search = {"PKG_CONFIG_PATH": str(installation.pkgconfig)}
    flags = run("pkg-config", "--cflags", "--libs", "postrun", **search).split()
    libdir = run("pkg-config", "--variable=libdir", "postrun", **search).strip()
    built = program.with_suffix("")
    run(compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", program, "-o", built, *flags, f"-Wl,-rpath,{libdir}")
    assert_one_version(run(built))


def test_by_find_package(installation: Installation, program: Path, compiler: str) -> None:
    folder = program.parent
    (folder / "CMakeLists.txt").write_text(CMAKE_PROJECT)
    options = (f"-Dpostrun_DIR={installation.cmake}", f"-DCMAKE_C_COMPILER={compiler}")
    run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", *options)
    run("cmake", "--build", folder / "build")
    assert_one_version(run(folder / "build" / "user"))


def test_the_header_is_valid_c_plus_plus(project_root: Path, tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (apt-get install g++)")
    source = tmp_path / "user.cpp"
    source.write_text("#include <postrun.h>\nint main() { return postrun_version() == nullptr; }\n")
    run(compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", project_root / "native" / "include", source)
