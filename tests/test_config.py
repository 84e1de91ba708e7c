"""Configuration files: which one counts, what they may say, what a mistake in one is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest
from postrun import config
from postrun.errors import UsageError

COMMANDS = {"report": frozenset({"top", "format", "memory_limit"}), "ingest": frozenset({"memory_limit"})}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_own_file_is_preferred_to_pyproject(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.postrun]\ntop = 5\n")
    assert config.find(None, tmp_path) == tmp_path / "pyproject.toml"
    own = write(tmp_path / "postrun.toml", "top = 6\n")
    assert config.find(None, tmp_path) == own


def test_pyproject_without_our_table_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.other]\ntop = 5\n")
    assert config.find(None, tmp_path) is None


def test_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such configuration file"):
        config.find(tmp_path / "absent.toml", tmp_path)


def test_common_keys_reach_every_command_that_has_them(tmp_path: Path) -> None:
    path = write(tmp_path / "postrun.toml", 'top = 20\nmemory-limit = "2GB"\n[ingest]\nmemory_limit = "1GB"\n')
    assert config.read(path, COMMANDS) == {"report": {"top": 20, "memory_limit": "2GB"}, "ingest": {"memory_limit": "1GB"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topp = 3\n", "unknown key 'topp'; possible: format, memory-limit, top"),
        ("[report]\ntopp = 3\n", "unknown key 'report.topp'"),
        ("[reports]\ntop = 3\n", r"table \[reports\] is none of postrun's commands"),
        ("top = \n", "not valid TOML"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "postrun.toml", text)
    with pytest.raises(UsageError, match=message) as caught:
        config.read(path, COMMANDS)
    assert str(path) in str(caught.value)
