"""The C programs of this folder, built once for all its tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_programs import Programs


@pytest.fixture(scope="session")
def programs(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(project_root, tmp_path_factory.mktemp("programs"))
