"""The C interval algebra stays within its memory for any table, and refuses broken ones (address and undefined-behavior sanitizers)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import c_build
import pytest

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def driver(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("driver") / "driver"
    sources = sorted((project_root / "native" / "src" / "intervals").glob("*.c"))
    c_build.build(
        [project_root / "tests" / "native" / "intervals_driver.c", *sources],
        path,
        *FLAGS,
        *SANITIZERS,
        f"-I{project_root / 'native' / 'src'}",
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_and_broken_tables(driver: Path, seed: int) -> None:
    done = subprocess.run([str(driver), str(seed), "400"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows, refused = (int(part.split()[0]) for part in done.stdout.split(", ")[:2])
    assert rows > 10_000
    assert 20 < refused < 200
