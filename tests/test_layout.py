"""The layout of the package: the import contract in pyproject.toml, public names, and what the command line loads."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from functools import cache
from pathlib import Path

import pytest
from package_links import lay_out
from postrun.ingest.joining.merge import _tables as joined_tables
from postrun.ingest.store.schema import EVENTS

ROOT = Path(__file__).resolve().parent.parent
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]["wheel"]
PARTS = tuple(source for source in BUILD["packages"].values() if not source.endswith(".py"))


def sources() -> dict[str, Path]:
    """Module name below ``postrun`` -> file, of every module of the package."""
    files = {"postrun.cli": ROOT / "cli.py"}
    for part in PARTS:
        for file in sorted((ROOT / part).rglob("*.py")):
            relative = file.relative_to(ROOT)
            names = relative.with_suffix("").parts
            if names[-1] == "__init__":
                names = names[:-1]
            files[".".join(("postrun", *names))] = file
    return files


SOURCES = sources()


LINT_IMPORTS = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]  # of the editable installation
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))
"""


def lint_imports(config: Path, package: Path) -> subprocess.CompletedProcess[str]:
    """Check the import contracts in ``config`` over the package in a folder."""
    command = [sys.executable, "-P", "-c", LINT_IMPORTS, config]
    environment = {**os.environ, "PYTHONPATH": os.fspath(package), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=package)


WHERE_TO_READ = "\nWhich package may import which, and where a new folder is entered: docs/development.md, Layout"


def test_modules_import_only_what_the_contract_allows(tmp_path: Path) -> None:
    lay_out(tmp_path)
    done = lint_imports(ROOT / "pyproject.toml", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr + WHERE_TO_READ


BROKEN = {
    "analysis/steps/times.py": ("def f(): from ...ingest.kineto import reader", "analysis and export know the store of ingest alone"),
    "analysis/toolkit/intervals.py": ("from ..steps import times", "the parts of analysis"),
    "ingest/kineto/rows.py": ("if TYPE_CHECKING: from . import reader", "no circle of files or folders"),
    "ingest/nsys/events.py": ("from ... import cli", "the parts of postrun"),
    "nightly/night.py": ("import click", "only the command line imports click"),
    "report_templates/figures/svg.py": ("import matplotlib.pyplot", "figures are written as text: Matplotlib only brings fonts"),
    "report_templates/output/render.py": ("import duckdb", "pages see the report, not the store"),
}
"""File -> a line that it must not contain, and the contract that the line breaks."""


def test_the_contract_sees_imports_in_functions_and_for_types(tmp_path: Path) -> None:
    lay_out(tmp_path / "links")
    shutil.copytree(tmp_path / "links", tmp_path / "copy", ignore=shutil.ignore_patterns("src", "__pycache__"))
    for file, (line, _) in BROKEN.items():
        with (tmp_path / "copy" / "postrun" / file).open("a", encoding="utf-8") as out:
            out.write(f"\n{line}\n")
    done = lint_imports(ROOT / "pyproject.toml", tmp_path / "copy")
    assert done.returncode == 1
    assert [name for _, name in BROKEN.values() if f"{name} BROKEN" not in done.stdout] == []


CHANGED = re.compile(
    r"\b(?:UPDATE|DELETE\s+FROM|TRUNCATE|MERGE\s+INTO|INSERT\s+OR\s+\w+\s+INTO)\s+([\w.\"]+|\{.*?\}(?![\w.]))", re.IGNORECASE
)
CHANGED_BY_NAME = {
    "ingest/derive/limit_rows.py": ["{table}"],  # further nodes: tables without events
    "ingest/joining/merge.py": ["{table}", "{table}", "{table}"],  # _tables(): without those of events
    "ingest/partial.py": ["{table}"],  # device and profile_window, of a trace whose reader failed
    "ingest/reading.py": ["{table}", "{table}"],  # a failed reader: tables without events
    "ingest/store/conceal.py": ["{table}"],  # texts: text, name and tables without events
    "ingest/store/tables.py": ["{table}", "{stored_name(table)}"],  # emptied: all tables; remove_source: a failed reader
}
"""Files with statements that change or delete rows of a table by a variable, with the tables they are."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def texts_of(file: Path) -> list[str]:
    """All texts of a Python or SQL file; values in f-strings as in the source."""
    if file.suffix == ".sql":
        return [re.sub("--.*", "", file.read_text(encoding="utf-8"))]
    texts = []
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}" for part in node.values]  # type: ignore[attr-defined]
            texts.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return texts


def test_no_statement_changes_events_that_were_written() -> None:
    by_name: dict[str, list[str]] = {}
    for file in (file for part in PARTS for suffix in ("py", "sql") for file in sorted((ROOT / part).rglob(f"*.{suffix}"))):
        changed = [name for text in texts_of(file) for name in CHANGED.findall(text)]
        name = file.relative_to(ROOT).as_posix()
        assert [table for table in changed if "raw." in table or table.strip('"') in EVENTS] == [], name
        if dynamic := [table for table in changed if table.startswith("{")]:
            by_name[name] = dynamic
    assert by_name == CHANGED_BY_NAME


def test_tables_that_joining_changes_have_no_events() -> None:
    for column in ("node", "process"):
        assert not {table for table in joined_tables(column) if table.startswith("raw.") or table in EVENTS}


def test_no_row_number_of_the_database_is_a_key() -> None:
    by_file = {
        file.relative_to(ROOT).as_posix(): [text for text in texts_of(file) if re.search(r"\browid\b", text, re.IGNORECASE)]
        for part in PARTS for suffix in ("py", "sql") for file in sorted((ROOT / part).rglob(f"*.{suffix}"))
    }  # fmt: skip
    assert {name: texts for name, texts in by_file.items() if texts} == {
        "ingest/partial.py": ["ORDER BY rowid"],  # of own small tables, in the order in which they were filled
        "ingest/nsys/schema.py": ["SELECT max(rowid) FROM {_quoted(table)}", "SELECT max(rowid) FROM "],  # estimate of rows in SQLite
    }


def absolute_imports(file: Path) -> list[tuple[int, str]]:
    """Line and name of each import of the package by its full name."""
    top = {"postrun", "cli", *PARTS}
    return [
        (node.lineno, name)
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.split(".")[0] in top
    ]


def test_inside_the_package_imports_are_relative() -> None:
    """Absolute imports work only in a checkout, or hide the imported part."""
    actual = {module: absolute_imports(file) for module, file in SOURCES.items()}
    assert {module: lines for module, lines in actual.items() if lines} == {}


PUBLIC = (
    "postrun.analysis.report.Report", "postrun.api.make_report", "postrun.capture.session", "postrun.errors.InputError",
    "postrun.ingest.store.Store", "postrun.profiler_requests.profiler_requests", "postrun.rule_configs.ProfilerRule",
)  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_can_be_imported(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_the_old_name_of_the_capture_library_can_stay_in_a_script() -> None:
    import postrun
    import postrun.capture as smprof
    import postrun.rule_configs

    assert postrun.capture is smprof
    assert postrun.rule_configs.ProfilerRule is postrun.ProfilerRule


REPORT_MODULES = """
import json, sys
print(json.dumps({name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}), file=sys.stderr)
"""


def loaded_by(code: str, folder: Path) -> set[str]:
    """Return the third-party modules that a new interpreter loads for ``code``.

    Top-level names; the interpreter runs in ``folder``.
    """
    command = [sys.executable, "-P", "-c", code + REPORT_MODULES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    files: dict[str, str] = json.loads(done.stderr.splitlines()[-1])
    installed = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    return {name.split(".")[0] for name, file in files.items() if file.startswith(installed)}


@pytest.mark.parametrize(
    "code",
    [
        "import postrun.cli",
        "from postrun.cli import main\nmain(['--help'], standalone_mode=False)",
    ],
    ids=["import", "--help"],
)
def test_the_command_line_starts_with_click_alone(code: str, tmp_path: Path) -> None:
    # A bare interpreter of the same installation loads whatever .pth files bring; that is not ours.
    assert loaded_by(code, tmp_path) - loaded_by("", tmp_path) <= {"click", "postrun"}


def test_no_module_of_the_package_has_more_than_500_lines() -> None:
    lengths = {file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES.values()}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_test_files_have_unique_names_and_are_no_packages() -> None:
    names = [file.name for file in (ROOT / "tests").rglob("*.py") if file.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))
    assert "__init__.py" not in names
