"""Pytest plugin that writes the processor time of each test, with its fixtures and child processes, to a file.

Wall times mislead on a loaded machine. A shared fixture counts for the first test that requests it. See docs/development.md.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from pathlib import Path

import pytest


def cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", type=Path, default=Path("cpu-times.tsv"), help="File to write: seconds, tab, test.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = cpu_seconds()
    result = yield
    path: Path = item.config.getoption("--cpu-times")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    with path.with_name(path.name + worker).open("a", encoding="utf-8") as file:
        file.write(f"{cpu_seconds() - before:.3f}\t{item.nodeid}\n")
    return result
