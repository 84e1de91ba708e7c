"""Is the code laid out, linted and typed as the house wants it?"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


def check(root: Path, *command: str) -> None:
    """Runs ``python -m COMMAND`` in the checkout; its own output is the failure's message. Skips where it is not installed."""
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (pip install postrun[test])")
    done = subprocess.run([sys.executable, "-m", *command], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_ruff_finds_nothing(project_root: Path) -> None:
    check(project_root, "ruff", "check", "--output-format=concise", ".")


def test_ruff_would_not_reformat(project_root: Path) -> None:
    check(project_root, "ruff", "format", "--check", ".")


def test_mypy_strict_finds_nothing(project_root: Path) -> None:
    subprocess.run([sys.executable, "tests/package_links.py"], cwd=project_root, check=True)
    check(project_root, "mypy")
