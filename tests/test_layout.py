"""Do the parts of postrun import only what the architecture lets them?"""

from __future__ import annotations

import ast
import graphlib
import importlib
import json
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]["wheel"]
PARTS = tuple(source for source in BUILD["packages"].values() if not source.endswith(".py"))

# Part -> what it must not import, and what of that it may import all the same.
FORBIDDEN: dict[str, tuple[set[str], set[str]]] = {
    "ingest": (
        {"postrun.analysis", "postrun.report_templates", "postrun.cli", "jinja2", "weasyprint", "matplotlib"},
        set(),
    ),
    "analysis": (
        {"postrun.ingest", "postrun.report_templates", "postrun.cli", "jinja2", "weasyprint", "matplotlib"},
        {"postrun.ingest.store", "postrun.ingest.store_tables"},
    ),
    "report_templates": ({"postrun.ingest", "postrun.cli", "duckdb", "polars"}, set()),
    "export": ({"postrun.report_templates", "postrun.cli", "jinja2", "weasyprint", "matplotlib"}, set()),
}


def sources() -> dict[str, Path]:
    """Module name below ``postrun`` -> file, of every module of the package."""
    files = {"postrun.cli": ROOT / "cli.py"}
    for part in PARTS:
        for file in sorted((ROOT / part).rglob("*.py")):
            relative = file.relative_to(ROOT)
            names = relative.with_suffix("").parts
            if relative.parts[:2] == ("native", "package"):
                names = names[2:]
            if names[-1] == "__init__":
                names = names[:-1]
            files[".".join(("postrun", *names))] = file
    return files


SOURCES = sources()


def imported(module: str, source: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module that ``source`` imports, also inside functions and by a literal name."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                below = f"{base}.{alias.name}"
                yield node.lineno, below if below in SOURCES else base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                name = node.args[0].value
                dots = len(name) - len(name.lstrip("."))
                above = package[: len(package) - dots + 1] if dots else []
                yield node.lineno, ".".join([*above, name.lstrip(".")])


def below(name: str, roots: set[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def violations(module: str, source: str, is_package: bool) -> list[str]:
    """What ``source`` imports against FORBIDDEN, as "line: name"."""
    forbidden, allowed = FORBIDDEN.get(module.split(".")[1] if "." in module else "", (set(), set()))
    return [f"{line}: {name}" for line, name in imported(module, source, is_package) if below(name, forbidden) and not below(name, allowed)]


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("postrun.analysis.steps", "from ..ingest import kineto", ["1: postrun.ingest.kineto"]),
        ("postrun.analysis.rules.base", "def f():\n    from ...ingest.kineto import load", ["2: postrun.ingest.kineto"]),
        ("postrun.analysis.steps", "from .. import ingest", ["1: postrun.ingest"]),
        ("postrun.analysis.steps", "from ..ingest.store import Store\nfrom ..ingest import store", []),
        ("postrun.analysis.steps", "import matplotlib.pyplot as plt", ["1: matplotlib.pyplot"]),
        ("postrun.ingest.kineto", "import importlib\nimportlib.import_module('..analysis.steps')", ["2: postrun.analysis.steps"]),
        ("postrun.report_templates.render", "import duckdb, jinja2", ["1: duckdb"]),
    ],
)
def test_the_check_itself_sees_an_import_wherever_it_stands(
    module: str, source: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("postrun.ingest", "postrun.ingest.kineto", "postrun.ingest.store"):
        monkeypatch.setitem(SOURCES, name, ROOT)
    assert violations(module, source, is_package=False) == expected


def test_a_part_imports_only_what_it_may() -> None:
    found = {module: violations(module, file.read_text(encoding="utf-8"), file.name == "__init__.py") for module, file in SOURCES.items()}
    assert {module: lines for module, lines in found.items() if lines} == {}


def absolute_imports(file: Path) -> list[tuple[int, str]]:
    """Line and name of each import of the package by its full name."""
    top = {"postrun", "cli", *PARTS}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [
        (node.lineno, name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.split(".")[0] in top
    ]


def test_inside_the_package_imports_are_relative() -> None:
    """An absolute ``import ingest`` works only in a checkout; an absolute ``import postrun`` hides which part is meant."""
    found = {module: absolute_imports(file) for module, file in SOURCES.items()}
    assert {module: lines for module, lines in found.items() if lines} == {}


def circle(imports: dict[str, set[str]]) -> list[str]:
    """A circle of modules that import each other, also in functions and under TYPE_CHECKING; empty if there is none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []


def test_no_modules_import_each_other() -> None:
    assert circle({"postrun.a": {"postrun.b"}, "postrun.b": {"postrun.a"}}) != []
    imports = {
        module: {name for _, name in imported(module, file.read_text(encoding="utf-8"), file.name == "__init__.py")}
        & SOURCES.keys() - {module}
        for module, file in SOURCES.items()
    }
    assert circle(imports) == []


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
    """Top-level names of the third-party modules that a fresh interpreter in ``folder`` has loaded after ``code``."""
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


def test_test_files_have_unique_names_and_are_no_packages() -> None:
    names = [file.name for file in (ROOT / "tests").rglob("*.py") if file.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))
    assert "__init__.py" not in names
