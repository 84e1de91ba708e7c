"""The C programs of this folder, built once for all its tests; the variants with sanitizers are slow tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_programs import Programs

SANITIZED = frozenset({"address", "thread", "sanitized"})


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests of sanitized programs as slow."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if not SANITIZED.isdisjoint(value for value in parameters.values() if isinstance(value, str)):
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def programs(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(project_root, tmp_path_factory.mktemp("programs"))
