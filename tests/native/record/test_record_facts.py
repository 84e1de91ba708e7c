"""Facts about a job without its services: parameters, commit, machine, hosted job; from files in the documented layout."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.errors import UsageError
from postrun.native.record.facts import facts, git_commit, hosted_hyperparameters
from postrun.native.record.job import script_name
from postrun.native.record.params import flat, hosted, of_file, pair, together


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


# -- parameters ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", '{"lr": 0.1, "model": {"layers": [1, 2], "name": "a b", "bias": true}, "seed": null, "empty": {}}'),
        ("p.toml", 'lr = 0.1\nseed = "null"\nempty = {}\n[model]\nlayers = [1, 2]\nname = "a b"\nbias = true\n'),
        ("p.params", 'lr = 0.1\nseed = "null"\nempty = {}\nmodel = {layers = [1, 2], name = "a b", bias = true}\n'),
        ("p.cfg", '\ufeff{"lr": 0.1, "model": {"layers": [1, 2], "name": "a b", "bias": true}, "seed": null, "empty": {}}'),
    ],
)
def test_a_file_of_either_kind_flat_or_nested(name: str, text: str, tmp_path: Path) -> None:
    actual = of_file(write(tmp_path / name, text))
    assert actual == {
        "lr": "0.1", "model.layers": "[1, 2]", "model.name": "a b", "model.bias": "true", "seed": "null", "empty": "{}",
    }  # fmt: skip


_KEYS = st.text("abc", min_size=1, max_size=3)
_TREES = st.recursive(
    st.integers() | st.text(max_size=5) | st.booleans(), lambda inner: st.dictionaries(_KEYS, inner, max_size=4), max_leaves=20
)


def _leaves(value: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    return [
        one
        for key, inner in value.items()
        for one in (_leaves(inner, (*above, key)) if isinstance(inner, dict) and inner else [(".".join((*above, key)), inner)])
    ]


@given(st.dictionaries(_KEYS, _TREES, max_size=4))
def test_every_value_is_kept_under_the_keys_that_lead_to_it(tree: dict[str, Any]) -> None:
    assert list(flat(tree)) == [(key, one if isinstance(one, str) else json.dumps(one)) for key, one in _leaves(tree)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.json", "{", "no valid JSON: .* in line 1, column 2"),
        ("p.json", "3", "holds a number, not an object"),
        ("p.toml", "a = 1\nb =\n", "no valid TOML: .*line 2"),
        ("p.txt", "a: 1", "no valid JSON or TOML"),
        ("p.json", '{"a\\u0000": 1}', "control characters"),
        ("p.json", '{"' + "k" * 201 + '": 1}', "too long"),
        ("p.json", '{"a": "\\ud800"}', "not UTF-8"),
        ("p.json", "[" * 100_000, "nested too deep|no valid JSON"),
    ],
)
def test_a_wrong_file_is_told_with_the_place(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        of_file(write(tmp_path / name, text))
    assert str(caught.value).startswith(str(tmp_path / name))


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UsageError, match="not UTF-8 \\(byte 7\\)"):
        of_file(tmp_path / "p.json")


def test_pairs_and_what_counts_before_what() -> None:
    assert pair(" lr =a=b ") == ("lr", "a=b ")
    assert pair("empty=") == ("empty", "")
    assert together({"a": "1", "b": "1", "c": "1"}, [{"b": "2", "c": "2"}], [("c", "3")]) == {"a": "1", "b": "2", "c": "3"}


def test_those_of_a_hosted_job_are_json_once_more() -> None:
    values = {"lr": "0.1", "opt": '"adam"', "sagemaker_region": '"x"', "bad": '"open', "n": 3}
    assert hosted(values) == {"lr": "0.1", "opt": "adam", "bad": '"open', "n": "3"}


# -- the machine -----------------------------------------------------------------------------------------------------------


def test_an_ec2_machine_says_what_it_is_and_another_does_not(tmp_path: Path) -> None:
    dmi = tmp_path / "sys/devices/virtual/dmi/id"
    write(dmi / "sys_vendor", "Amazon EC2\n")
    write(dmi / "product_name", "p4d.24xlarge\n")
    actual = facts(["true"], name=None, environment={}, root=tmp_path)
    assert (actual["job.instance_type"], actual["job.instance_type_source"]) == ("p4d.24xlarge", "firmware")
    write(dmi / "sys_vendor", "QEMU\n")
    assert "job.instance_type" not in facts(["true"], name=None, environment={}, root=tmp_path)


def test_a_hosted_job_says_its_machines_and_parameters(tmp_path: Path) -> None:
    config = tmp_path / "opt/ml/input/config"
    write(
        config / "resourceconfig.json",
        '{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "current_instance_type": "ml.p3.2xlarge"}',
    )
    write(config / "hyperparameters.json", '{"epochs": "3"}')
    actual = facts(["true"], name=None, environment={"TRAINING_JOB_NAME": "job-7"}, root=tmp_path)
    assert (actual["job.instance_type"], actual["job.hosts"], actual["job.name"]) == ("ml.p3.2xlarge", "algo-1 algo-2", "job-7")
    assert hosted_hyperparameters(tmp_path) == {"epochs": "3"}
    write(config / "resourceconfig.json", "[not json")
    assert "job.instance_type" not in facts(["true"], name=None, environment={}, root=tmp_path)


def test_only_what_launchers_say_is_taken_from_the_environment() -> None:
    actual = facts(["a", "b c"], name=None, environment={"SLURM_JOB_ID": "7", "SECRET_TOKEN": "x", "RANK": "0"})
    assert {key for key in actual if key.startswith("job.environment.")} == {"job.environment.SLURM_JOB_ID", "job.environment.RANK"}
    assert actual["job.command"] == "a 'b c'"
    assert "x" not in actual.values()


# -- the commit ------------------------------------------------------------------------------------------------------------


def test_the_commit_is_what_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")

    def say(*arguments: str, folder: Path = tmp_path / "repo") -> str:
        return subprocess.run([git, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    inner = tmp_path / "repo" / "deep" / "er"
    inner.mkdir(parents=True)
    assert git_commit(inner) is None
    say("init", "-q", "-b", "main/x")
    assert git_commit(inner) is None, "no commit yet"
    say("commit", "-q", "--allow-empty", "-m", "one")
    assert git_commit(inner) == say("rev-parse", "HEAD")
    say("worktree", "add", "-q", "../tree", "-b", "other")
    say("commit", "-q", "--allow-empty", "-m", "two", folder=tmp_path / "tree")
    assert git_commit(tmp_path / "tree") == say("rev-parse", "other") != git_commit(inner)
    say("pack-refs", "--all")
    assert git_commit(inner) == say("rev-parse", "HEAD")
    assert git_commit(tmp_path / "tree") == say("rev-parse", "other")
    say("checkout", "-q", "--detach")
    assert git_commit(inner) == say("rev-parse", "HEAD")
    (tmp_path / "repo" / ".git" / "HEAD").write_text("rubbish", "utf-8")
    assert git_commit(inner) is None


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "src/train.py", "--x"], "train"),
        (["torchrun", "--nproc-per-node", "2", "my run.py"], "my_run"),
        (["python", "-m", "pkg.train", "a"], "train"),
        (["./run.sh"], "run"),
        (["/bin/sleep", "1"], "sleep"),
        (["..."], "run"),
        (["python", "-m"], "python"),
    ],
)
def test_a_run_is_called_after_its_script(command: list[str], name: str) -> None:
    assert script_name(command) == name
