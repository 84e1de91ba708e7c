"""Configuration files: which one counts, what they may contain, and the error for a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from postrun.commands import config_file as config
from postrun.errors import UsageError

COMMANDS = {"report": frozenset({"top", "format", "memory_limit"}), "ingest": frozenset({"memory_limit"})}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_own_file_is_preferred_to_pyproject(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.postrun]\ntop = 5\n")
    assert config.find(None, tmp_path) == tmp_path / "pyproject.toml"
    ours = write(tmp_path / "postrun.toml", "top = 6\n")
    assert config.find(None, tmp_path) == ours


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


RULES = {"report": frozenset({"top", "rules", "preset"}), "ingest": frozenset({"memory_limit"})}


def test_a_table_of_rules_reaches_the_commands_that_run_rules(tmp_path: Path) -> None:
    path = write(tmp_path / "postrun.toml", "top = 3\n[rules.HostBound]\nidle_threshold = 30\n")
    assert config.read(path, RULES) == {"report": {"top": 3, "rules": {"HostBound": {"idle_threshold": 30}}}, "ingest": {}}


def test_the_table_of_a_command_stands_over_the_common_one(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[tool.postrun.rules]\nonly = ['A']\n[tool.postrun.report.rules]\nonly = ['B']\n")
    assert config.read(path, RULES)["report"] == {"rules": {"only": ["B"]}}


def test_tables_of_rules_are_words_and_parameters(tmp_path: Path) -> None:
    table = {
        "stepoutlier": {"stddev": 4.5, "mode": "TRAIN"},
        "only": ["StepOutlier", "HostBound"],
        "HostBound": {"enabled": True, "idle_threshold": 30},
        "SyncBound": {"enabled": False},
    }
    assert config.rules(tmp_path / "postrun.toml", table) == (
        ["StepOutlier", "HostBound", "-SyncBound"],
        {"StepOutlier_stddev": 4.5, "StepOutlier_mode": "TRAIN", "HostBound_idle_threshold": 30},
    )
    assert config.rules(tmp_path / "postrun.toml", {"HostBound": {"host_share": 1}}) == (None, {"HostBound_host_share": 1})
    assert config.rules(tmp_path / "postrun.toml", {}) == (None, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rules.HostBond]\nidle_threshold = 3\n", r"\[rules.HostBond\]: 'HostBond' is not a rule \(did you mean HostBound\?\)"),
        (
            "[rules.HostBound]\nidle = 3\n",
            r"\[rules.HostBound\]: 'idle' is not a parameter of HostBound.*idle_threshold, host_share",
        ),
        ("[rules.HostBound]\nidle_threshold = 101\n", r"\[rules.HostBound\]: HostBound_idle_threshold=101.*0 to 100"),
        ("[rules.HostBound]\nenabled = 0\n", r"\[rules.HostBound\] enabled = 0: accepted: true, false"),
        ("[rules]\nHostBound = 30\n", r"rules.HostBound = 30 is not a table"),
        (
            "[rules.HostBound]\nenabled = false\nidle_threshold = 3\n",
            r"\[rules.HostBound\]: HostBound is turned off by enabled = false; leave its values out",
        ),
        (
            "[rules]\nonly = ['StepOutlier']\n[rules.hostbound]\nidle_threshold = 3\n",
            r"\[rules.hostbound\]: HostBound is turned off, because only does not list it",
        ),
        ("[rules.ProfilerReport]\npatience = 3\n", r"\[rules.ProfilerReport\]: its parameters are those of the rules it runs"),
        ("[rules.LoadBalancing]\nthreshold = 50\n", r"a distance, which is never above 1 \(accepted: 0 to 1"),
        ("[rules.BatchSize]\nwindow = 2.5\n", r"window must be a whole number"),
        ("[rules]\nonly = []\n", r"\[rules\] only = \[\] is not a list of rules"),
    ],
)
def test_mistakes_in_tables_of_rules_name_file_key_and_accepted_names(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "postrun.toml", text)
    with pytest.raises(UsageError, match=message) as caught:
        config.rules(path, config.read(path, RULES)["report"]["rules"])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ['set = ["HostBound_idle_threshold=3"]', "[set]\nHostBound_idle_threshold = 3", "[report]\nset = 3"])
def test_single_values_stand_in_tables_of_rules(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"write a table per rule: \[rules.LowGPUUtilization\]"):
        config.read(write(tmp_path / "postrun.toml", text), RULES)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("rules = ['HostBound']\n[rules.HostBound]\nidle_threshold = 3\n", True),
        ("[report]\nrules = ['HostBound']\n[report.rules.HostBound]\nidle_threshold = 3\n", True),
        ("rules = ['HostBound'\n", False),
    ],
)
def test_a_list_of_rules_beside_tables_is_answered_with_only(tmp_path: Path, text: str, hint: bool) -> None:
    with pytest.raises(UsageError, match="not valid TOML") as caught:
        config.read(write(tmp_path / "postrun.toml", text), RULES)
    assert ('write [rules] and below it only = ["StepOutlier"]' in str(caught.value)) == hint
