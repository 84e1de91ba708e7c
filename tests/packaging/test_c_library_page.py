"""Tests that the commands of docs/c-library.md work as they are written there (``page_run``), and that its programs do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from builds import blocks
from postrun import native


def test_the_commands_of_the_page_work_as_written(page_run: Path) -> None:
    output = (page_run / "stdout").read_text(encoding="utf-8")
    assert output.count("200 records, 0 lost") == 4, "by LD_LIBRARY_PATH, by rpath, by CMake, under the recorder"
    assert "postrun_configure" in output or shutil.which("man") is None
    alone, recorded = (json.loads((page_run / place / "report.json").read_bytes()) for place in ("report", "run/report"))
    assert [len(report["steps"]["steps"]) for report in (alone, recorded)] == [50, 50]


def test_the_program_of_the_page_is_that_of_the_manual_page_and_of_the_header(project_root: Path, tmp_path: Path) -> None:
    page = (project_root / "docs" / "c-library.md").read_text(encoding="utf-8")
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
