"""Messages of the command line: names with control characters never reach the terminal as such."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.messages import escaped, escaped_json, escaped_line

HOSTILE = "esc\x1b]0;t\x07\x1b[31m\x9b2J\x7f\u202eEVIL\u2066"
VISIBLE = "esc\\x1b]0;t\\x07\\x1b[31m\\x9b2J\\x7f\\u202eEVIL\\u2066"
UNSAFE = [*(chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))), *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that nothing can be read from, whose names command a terminal."""
    source = tmp_path / "source"
    source.mkdir()
    (source / f"{HOSTILE}.json").write_text("no trace", encoding="utf-8")
    (source / f"{HOSTILE}.prt").write_bytes(b"no recording")
    (source / os.fsdecode(b"latin\x9b1.json")).write_text("no trace", encoding="utf-8")
    return source


COMMANDS = {
    "report": ("report", "{source}", "-o", "out"),
    "ingest": ("ingest", "{source}", "-o", "out.duckdb"),
    "export": ("export", "{source}", "--format", "chrome", "-o", "out.json"),
    "compare": ("compare", "{source}", "{source}", "-o", "out"),
    "inspect": ("inspect", "{source}"),
    "nightly": ("nightly", "{source}", "--out", "out", "--dry-run"),
    "named": ("report", "{source}/" + HOSTILE + ".absent"),
    "option": ("report", "{source}", f"--{HOSTILE}"),
    "value": ("report", "{source}", "--paper", HOSTILE),
    "config": ("report", "{source}", "--config", f"{HOSTILE}.toml"),
}


def unsafe_in(text: str) -> list[str]:
    return [character for character in UNSAFE if character in text]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_message_has_a_control_character(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [word.format(source=folder) for word in COMMANDS[command]], color=True)
    assert done.exit_code in (2, 4), done.output
    assert "EVIL" in done.output or command == "nightly"
    assert unsafe_in(done.output) == []
    if command in ("named", "config", "inspect"):
        assert VISIBLE in done.output


@pytest.mark.parametrize("command", ["report", "inspect"])
def test_a_terminal_gets_no_control_character_of_a_name(folder: Path, tmp_path: Path, command: str) -> None:
    """Check also the progress line: a carriage return is its only control."""
    ours, theirs = pty.openpty()
    words = [word.format(source=folder) for word in COMMANDS[command]]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "postrun.cli", *words], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    os.close(ours)
    assert process.wait(60) == 4
    text = output.decode("utf-8")
    assert VISIBLE in text
    assert unsafe_in(text.replace("\r", "")) == []


def test_json_for_a_terminal_has_no_control_character(tmp_path: Path) -> None:
    recording = next((Path(__file__).parent.parent / "data/small_training/run").glob("*.prt"))
    named = tmp_path / f"{HOSTILE}.prt"
    named.write_bytes(recording.read_bytes())
    done = CliRunner().invoke(main, ["inspect", "--json", str(named)], color=True)
    assert done.exit_code == 0
    assert unsafe_in(done.output) == []
    assert json.loads(done.output)["path"] == str(named)


def test_json_with_escapes_is_the_same_data() -> None:
    value = {"name": HOSTILE + "\u2028\udc9b\n", "list": ["\x9b", "\x00"]}
    text = escaped_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert unsafe_in(text) == []
    assert json.loads(text) == value


def test_text_of_people_stays() -> None:
    text = "tab\tline\n17.1\u00a0ms, 3,803 µs → 网络 🚀 עברית e\u0301 \u200d"
    assert escaped(text) == text
    assert escaped_line("a\nb\tc") == "a\\nb\\tc"


@pytest.mark.parametrize("character", [*UNSAFE, "\u2028", "\u2029", "\u200e", "\u200f", "\u061c", "\udc9b"])
def test_unsafe_characters_become_visible(character: str) -> None:
    output = escaped(f"a{character}b")
    assert output.isascii()
    assert output.isprintable()
    assert output.startswith("a\\")


def test_a_traceback_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError(HOSTILE)

    monkeypatch.setattr("postrun.ingest.ingest", fails)
    monkeypatch.setattr(sys, "argv", ["postrun", "--verbose"])
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--verbose"], color=True)
    assert done.exit_code == 1
    assert "Traceback (most recent call last)" in done.output
    assert done.output.count(VISIBLE) == 2
    assert unsafe_in(done.output) == []


def test_a_newline_in_a_name_forges_no_message(tmp_path: Path) -> None:
    (tmp_path / "a\npostrun: forged\n::warning::forged.prt").write_bytes(b"no recording")
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--verbose"])
    assert done.exit_code == 4
    assert "a\\npostrun: forged\\n::warning::forged.prt" in done.output
    assert not [line for line in done.output.splitlines() if line.startswith(("postrun: forged", "::"))]
    (tmp_path / "b.prt").write_bytes(b"no recording")
    done = CliRunner().invoke(main, ["inspect", str(tmp_path)])
    assert not [line for line in done.output.splitlines() if line.startswith(("postrun: forged", "::"))]
