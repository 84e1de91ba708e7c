"""Tests that the commands of docs/c-library.md work as they are written there, one after the other, and that its programs do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from postrun import native


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def page(project_root: Path) -> str:
    return (project_root / "docs" / "c-library.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_work_as_written(page: str, compiler: str, project_root: Path, tmp_path: Path) -> None:
    for tool in ("cc", "bash", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    if not native.available():
        pytest.skip("the C library was not built")
    for folder in ("native", "examples"):
        shutil.copytree(project_root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "user").mkdir()
    (project,) = blocks(page, "cmake")
    (tmp_path / "user" / "CMakeLists.txt").write_text(project, encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    script = "set -eux\n" + "\n".join(blocks(page, "sh"))
    if shutil.which("man") is None:
        script = 'man() { test -s "$1"; }\n' + script
    known = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "PKG_CONFIG", "LD_LIBRARY", "CMAKE_"))}
    known["CMAKE_BUILD_TYPE"] = "Debug"  # not optimized, which takes half the time
    path = f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={**known, "HOME": str(home), "PATH": path}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("200 records, 0 lost") == 4, "by LD_LIBRARY_PATH, by rpath, by CMake, under the recorder"
    assert "postrun_configure" in done.stdout or shutil.which("man") is None
    alone, recorded = (json.loads((tmp_path / place / "report.json").read_bytes()) for place in ("report", "run/report"))
    assert [len(report["steps"]["steps"]) for report in (alone, recorded)] == [50, 50]


def test_the_program_of_the_page_is_that_of_the_manual_page_and_of_the_header(page: str, project_root: Path, tmp_path: Path) -> None:
    header = (project_root / "native" / "include" / "postrun.h").read_text(encoding="utf-8")
    functions = set(re.findall(r"^POSTRUN_API .*?\b(postrun_\w+|InitializeInjection\w*)\(", header, flags=re.MULTILINE))
    assert len([name for name in functions if name.startswith("postrun_")]) == 22
    assert {name for name in functions if not name.startswith("postrun_")} == {"InitializeInjection", "InitializeInjectionNvtx2"}
    manual = (project_root / "native" / "man" / "postrun.3").read_text(encoding="utf-8")
    assert {name for name in functions if name not in page} == {name for name in functions if name not in manual} == set()
    compiler = shutil.which("cc")
    if compiler is None or not native.available():
        pytest.skip("no C compiler, or the C library was not built")
    (program,) = blocks(page, "c")
    source, lib = tmp_path / "page.c", native.include_dir().parent / "lib"
    source.write_text(program, encoding="utf-8")
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", source, f"-I{native.include_dir()}", f"-L{lib}", "-lpostrun"]
    subprocess.run([*map(str, command), f"-Wl,-rpath,{lib}", "-o", str(tmp_path / "page")], check=True)
    assert subprocess.run([tmp_path / "page"], cwd=tmp_path).returncode == 0
    assert len(list((tmp_path / "postrun-traces").glob("*.prt"))) == 1
