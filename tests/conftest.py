"""Fixtures, Hypothesis profiles and the marks of slow tests that all tests share."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# A checkout on sys.path would let `import ingest` work here and fail for users: here and in every child process it is off.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"

# "quick" (make test) and "full" (make test-slow) repeat exactly from run to run and do not fail on a slow machine; "search" looks for new
# counterexamples: HYPOTHESIS_PROFILE=search make test-slow. example_counts.py scales tests that set a number of their own.
TOLERANT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("full", derandomize=True, max_examples=50, database=None, **TOLERANT)
settings.register_profile("quick", settings.get_profile("full"), max_examples=10)
settings.register_profile("search", max_examples=2000, **TOLERANT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

SLOW_FIXTURES = frozenset({"shared_data", "node_modules", "swift", "build_tools", "make_environment"})
"""Real traces, a browser, an S3 server, packages built and installed."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that use a slow fixture as slow."""
    if not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)


# Beginnings of the paths of the files that take longest. A process takes file after file: a long one at the end would leave the others
# without work.
LONG = (
    *("packaging/", "nightly/", "real/", "advice/", "native/", "gpu/", "analysis/rules/checks/test_recompiles_torch", "analysis/causes/"),
    *("analysis/efficiency/", "analysis/compare/", "report_templates/", "commands/", "docs/", "test_"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort long files to the front, the many short ones to the end.

    `make test` keeps this order with --no-loadscope-reorder.
    """

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(ROOT / "tests").as_posix()
        return next((number for number, beginning in enumerate(LONG) if path.startswith(beginning)), len(LONG))

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turn garbage collection off during collection, and exclude the tests from it.

    They live to the end: each garbage collection while they are collected looks through all of them in vain, and each report of a night
    ends with a full one.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The checkout that the tests belong to."""
    return ROOT


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that fills a folder of a name, once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built-once"

    def build(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        shared.mkdir(exist_ok=True)
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return build


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return a folder of real trace files; skip if there is none.

    It is $POSTRUN_TEST_DATA, else ``shared/data`` next to the checkout.
    """
    named = os.environ.get("POSTRUN_TEST_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real traces: {folder} is no folder (set POSTRUN_TEST_DATA)")
    return folder


@pytest.fixture(scope="session")
def published_job(shared_data: Path, built_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[[str], Path]:
    """Return a function: name of a published job, AR or ST -> folder of its traces."""
    maker = shared_data / "stragglers" / "make_kineto.py"
    if not maker.is_file():
        pytest.skip("the published jobs are not in the shared data")

    def make(name: str) -> Path:
        command = [sys.executable, maker, maker.with_name(f"trace-{name}.parquet")]
        return built_once(f"published-{name}", lambda folder: subprocess.run([*command, folder], check=True))

    return make


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Return the folder with axe-core and puppeteer-core; skip if one is missing.

    It is $POSTRUN_NODE_MODULES, or ``node_modules`` in the checkout.
    """
    folder = Path(os.environ.get("POSTRUN_NODE_MODULES") or ROOT / "node_modules")
    for package in ("axe-core", "puppeteer-core"):
        if not (folder / package).is_dir():
            pytest.skip(f"no {package} in {folder} (npm install {package}; set POSTRUN_NODE_MODULES)")
    return folder
