"""The C programs of this folder, built once for all its tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from native_programs import Programs


@pytest.fixture(scope="session")
def programs(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return Programs(project_root, tmp_path_factory.mktemp("programs"), shared / "objects")
