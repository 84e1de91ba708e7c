"""Rules from the command line, the environment and a configuration file: which run, with which values, and what a verdict ends in."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from postrun.analysis.rules.engine import choose as rule_options
from postrun.analysis.rules.engine import selection
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.analysis.rules.evidence.base import Outcome, Parameter, Parameters, Rule
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.cli import main
from postrun.simulate import write_demo
from report_stub import RulesAlone

# The documented table: rule, parameter -> default of the presets "documented" and "service".
DEFAULTS: dict[tuple[str, str], tuple[object, object]] = {
    ("BatchSize", "cpu_threshold_p95"): (70, 70), ("BatchSize", "gpu_threshold_p95"): (70, 70),
    ("BatchSize", "gpu_memory_threshold_p95"): (70, 70), ("BatchSize", "patience"): (100, 1000), ("BatchSize", "window"): (500, 500),
    ("CPUBottleneck", "threshold"): (50, 50), ("CPUBottleneck", "gpu_threshold"): (10, 10), ("CPUBottleneck", "cpu_threshold"): (90, 90),
    ("CPUBottleneck", "patience"): (100, 1000), ("GPUMemoryIncrease", "increase"): (10, 5), ("GPUMemoryIncrease", "patience"): (100, 1000),
    ("GPUMemoryIncrease", "window"): (500, 10), ("IOBottleneck", "threshold"): (50, 50), ("IOBottleneck", "gpu_threshold"): (70, 10),
    ("IOBottleneck", "io_threshold"): (50, 50), ("IOBottleneck", "patience"): (1000, 1000), ("LoadBalancing", "threshold"): (0.5, 0.24),
    ("LoadBalancing", "patience"): (10, 1000), ("LowGPUUtilization", "threshold_p95"): (70, 70),
    ("LowGPUUtilization", "threshold_p5"): (10, 10), ("LowGPUUtilization", "patience"): (1000, 1000),
    ("LowGPUUtilization", "window"): (500, 500), ("MaxInitializationTime", "threshold"): (20, 20),
    ("StepOutlier", "stddev"): (5, 3), ("StepOutlier", "mode"): (None, None), ("StepOutlier", "n_outliers"): (10, 10),
    ("Dataloader", "min_threshold"): (70, 70), ("Dataloader", "max_threshold"): (200, 200), ("Dataloader", "patience"): (10, 10),
    ("HostBound", "idle_threshold"): (20, 20), ("HostBound", "host_share"): (50, 50), ("ExposedCommunication", "threshold"): (10, 10),
    ("InputBound", "threshold"): (20, 20), ("InputBound", "patience"): (10, 10),
    ("HostPreprocessing", "threshold"): (5, 5),
    ("LowPrecision", "threshold"): (30, 30), ("PageableCopies", "threshold"): (1, 1), ("SyncBound", "threshold"): (10, 10),
    ("ShortKernels", "short_us"): (10, 10), ("ShortKernels", "count_threshold"): (50, 50), ("ShortKernels", "time_threshold"): (10, 10),
    ("StragglerRank", "threshold"): (10, 10), ("StragglerRank", "explained"): (50, 50),
    ("StageImbalance", "threshold"): (10, 10), ("StageImbalance", "explained"): (50, 50),
    ("WorkImbalance", "threshold"): (5, 5), ("WorkImbalance", "between"): (25, 25), ("HostPauses", "threshold"): (2, 2),
    ("SlowCollectives", "link_threshold"): (40, 40), ("SlowCollectives", "peer_threshold"): (70, 70),
    ("ExposedCopies", "threshold"): (10, 10), ("ExposedCopies", "bucket_threshold"): (1, 1), ("UnfusedElementwise", "threshold"): (10, 10),
    ("UnfusedAttention", "threshold"): (5, 5),
    ("LowOccupancy", "threshold"): (5, 5), ("LowOccupancy", "filled"): (25, 25), ("LowOccupancy", "short_us"): (10, 10),
    ("LayoutConversions", "threshold"): (10, 10), ("InefficientMatmul", "threshold"): (5, 5),
    ("Recompiles", "threshold"): (5, 5), ("Recompiles", "first_steps"): (3, 3),
}  # fmt: skip
DOCUMENTED = [
    "CPUBottleneck", "IOBottleneck", "LowGPUUtilization", "StepOutlier", "GPUMemoryIncrease", "BatchSize", "MaxInitializationTime",
    "LoadBalancing", "OverallSystemUsage", "Dataloader", "OverallFrameworkMetrics",
]  # fmt: skip
TRACE = [
    "HostBound", "InputBound", "HostPreprocessing", "ExposedCommunication", "LowPrecision", "PageableCopies", "SyncBound", "ShortKernels",
    "StragglerRank", "StageImbalance", "WorkImbalance", "HostPauses", "SlowCollectives", "ExposedCopies", "UnfusedElementwise",
    "UnfusedAttention", "LowOccupancy", "LayoutConversions",
    "InefficientMatmul", "Recompiles",
]  # fmt: skip

# Rules whose verdict is known without asking postrun.
CUSTOM = """
class Rule:
    def __init__(self, base_trial, limit=1, word="a"):
        self.limit, self.word = limit, word
    def invoke_for_timerange(self, start, end, sys_events=None, framework_events=None):
        return self.verdict()

class Always(Rule):
    def verdict(self):
        return True

class Never(Rule):
    def verdict(self):
        return False

class Fails(Rule):
    def verdict(self):
        raise ValueError("no luck")

class Limited(Rule):
    def verdict(self):
        return self.limit == 7 and self.word == "b"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    write_demo(folder, steps=3)
    store = folder / "run.duckdb"
    done = CliRunner().invoke(main, ["ingest", str(sorted((folder / "kineto").iterdir())[0]), "-o", str(store)])
    assert done.exit_code == 0, done.output
    return store


@pytest.fixture(scope="module")
def rules_alone(store: Path) -> Iterator[RulesAlone]:
    stub = RulesAlone(store)
    yield stub
    stub.close()


@pytest.fixture
def with_whole_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of rules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(CUSTOM, encoding="utf-8")
    return tmp_path


@pytest.fixture
def here(with_whole_reports: Path, rules_alone: RulesAlone, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Do the same with reports that contain rules only."""
    monkeypatch.setattr("postrun.api.make_report", rules_alone)
    return with_whole_reports


def report(store: Path, *arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["report", str(store), "-o", "out", "--format", "json", *arguments], env=env)


def rules_of(done: Result, code: int = 0) -> dict[str, dict[str, Any]]:
    """The rules in the report that was written, by name, in its order."""
    assert done.exit_code == code, done.output
    loaded = json.loads(Path("out/report.json").read_text("utf-8"))
    return {result["rule"]: result for result in loaded["rules"]}


def refused(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Return the message of a run that is refused before its input is read."""
    done = CliRunner().invoke(main, ["report", "absent.json", *arguments], env=env)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not Path("postrun-report").exists()
    return done.stderr


# -- which rules run ---------------------------------------------------------------------------------------------------------


def test_all_rules_run_where_nothing_is_said(store: Path, with_whole_reports: Path) -> None:
    assert list(rules_of(report(store))) == ["ProfilerReport", *DOCUMENTED, *TRACE]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("stepoutlier, CPUBOTTLENECK", ["CPUBottleneck", "StepOutlier"]),
        ("ProfilerReport", ["ProfilerReport", *DOCUMENTED]),
        ("profilerreport,-StepOutlier", ["ProfilerReport", *(name for name in DOCUMENTED if name != "StepOutlier")]),
        ("-StepOutlier", ["ProfilerReport", *(name for name in (*DOCUMENTED, *TRACE) if name != "StepOutlier")]),
        ("-ProfilerReport", TRACE),
        ("ProfilerReport,HostBound", ["ProfilerReport", *DOCUMENTED, "HostBound"]),
    ],
)
def test_rules_are_chosen_by_name(store: Path, here: Path, words: str, expected: list[str]) -> None:
    assert list(rules_of(report(store, "--rules", words))) == expected
    assert list(rules_of(report(store, env={"POSTRUN_RULES": words}))) == expected


def test_a_list_may_be_given_in_several_options(store: Path, here: Path) -> None:
    assert list(rules_of(report(store, "--rules", "HostBound,SyncBound", "--rules", "StepOutlier"))) == [
        "StepOutlier",
        "HostBound",
        "SyncBound",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('rules = ["HostBound", "SyncBound"]', ["HostBound", "SyncBound"]),
        ('rules = "HostBound,SyncBound"', ["HostBound", "SyncBound"]),
        ('[rules]\nonly = ["HostBound", "SyncBound", "StepOutlier"]\n[rules.StepOutlier]\nenabled = false', ["HostBound", "SyncBound"]),
        ('[report]\nrules = ["HostBound"]', ["HostBound"]),
        ('[report.rules]\nonly = ["HostBound"]', ["HostBound"]),
        ("[rules.ProfilerReport]\nenabled = false", None),
    ],
)
def test_a_file_chooses_rules(store: Path, here: Path, text: str, expected: list[str] | None) -> None:
    (here / "own.toml").write_text(text, encoding="utf-8")
    named = ("--config", "own.toml")
    if expected is None:
        assert "ProfilerReport" in refused(*named)
    else:
        assert list(rules_of(report(store, *named))) == expected
        assert list(rules_of(report(store, *named, env={"POSTRUN_RULES": "LowPrecision"}))) == ["LowPrecision"]
        line = ("--rules", "PageableCopies")
        assert list(rules_of(report(store, *named, *line, env={"POSTRUN_RULES": "LowPrecision"}))) == ["PageableCopies"]


def test_demo_takes_the_same_options(here: Path) -> None:
    done = CliRunner().invoke(main, ["demo", "-o", "demo", "--format", "json", "--rules", "Nonsense"])
    assert done.exit_code == 2
    assert not Path("demo").exists()


# -- with which values -------------------------------------------------------------------------------------------------------


def test_the_preset_comes_from_line_environment_and_file(store: Path, here: Path) -> None:
    def patience(*arguments: str, **env: str) -> int:
        results = rules_of(report(store, "--rules", "CPUBottleneck", *arguments, env=env))["CPUBottleneck"]["parameters"]["patience"]
        assert isinstance(results, int)
        return results

    assert patience() == 100
    (here / "pyproject.toml").write_text('[tool.postrun]\npreset = "service"\n', encoding="utf-8")
    assert patience() == 1000
    assert patience(POSTRUN_PRESET="documented") == 100
    assert patience("--preset", "Service", POSTRUN_PRESET="documented") == 1000


def test_values_are_overridden_one_by_one(store: Path, here: Path) -> None:
    (here / "postrun.toml").write_text(
        "[rules.LowGPUUtilization]\npatience = 11\nwindow = 12\nthreshold_p5 = 1.5\n[rules.stepoutlier]\nmode = 'EVAL'\n", encoding="utf-8"
    )
    results = rules_of(
        report(
            store, "--set", "lowgpuutilization_patience=31", "--set", "LowGPUUtilization_scan_interval_us=32",
            env={"POSTRUN_SET": "LowGPUUtilization_window=21, LowGPUUtilization_patience=22"},
        )
    )  # fmt: skip
    low = results["LowGPUUtilization"]
    assert low["parameters"] == {"threshold_p95": 70, "threshold_p5": 1.5, "patience": 31, "window": 21, "scan_interval_us": 32}
    assert low["changed_parameters"] == {"threshold_p5": 1.5, "patience": 31, "window": 21, "scan_interval_us": 32}
    assert results["StepOutlier"]["parameters"]["mode"] == "EVAL"


@pytest.mark.parametrize("text", ["A_x=1 B_y=2", "A_x=1,B_y=2", "A_x=1; B_y=2", " A_x=1\nB_y=2\n"])
def test_the_environment_holds_several_values(here: Path, text: str) -> None:
    text = text.replace("A_x", "HostBound_idle_threshold").replace("B_y", "SyncBound_threshold").replace("=2", "=200")
    message = refused(env={"POSTRUN_SET": text})
    assert "SyncBound_threshold=200: threshold must be a valid percentile!" in message
    assert "POSTRUN_SET" in message


def test_values_of_a_file_for_rules_that_the_line_leaves_out_are_kept_for_later(store: Path, here: Path) -> None:
    (here / "postrun.toml").write_text("[rules.HostBound]\nidle_threshold = 3\n", encoding="utf-8")
    assert "HostBound" not in rules_of(report(store, "--rules", "SyncBound"))
    assert "HostBound" not in rules_of(report(store, env={"POSTRUN_RULES": "-HostBound"}))
    assert rules_of(report(store, "--rules", "HostBound"))["HostBound"]["parameters"]["idle_threshold"] == 3


def test_the_name_of_the_sum_before_a_parameter_changes_nothing(store: Path, here: Path) -> None:
    arguments = ("--set", "ProfilerReport_LowGPUUtilization_patience=5", "--set", "LowGPUUtilization_window=7.0")
    low = rules_of(report(store, "--rules", "ProfilerReport", *arguments))["LowGPUUtilization"]
    assert (low["parameters"]["patience"], low["parameters"]["window"]) == (5, 7)


# -- mistakes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("--rules", "StepOutlyer"), ("--rules", "did you mean StepOutlier?", "ProfilerReport, CPUBottleneck")),
        (("--rules", "-StepOutlyer"), ("did you mean StepOutlier?",)),
        (("--rules", " , "), ("nothing is named",)),
        (("--preset", "hosted"), ("documented", "service")),
        (("--set", "LowGPUUtilization_patiense=3"), ("--set", "did you mean patience?", "threshold_p95, threshold_p5, patience, window")),
        (("--set", "LowGPU_patience=3"), ("'LowGPU' is not a rule",)),
        (("--set", "LowGPUUtilization=3"), ("names no parameter",)),
        (("--set", "LowGPUUtilization_patience"), ("sets nothing", "LowGPUUtilization_patience=100")),
        (("--set", "LowGPUUtilization_patience=0"), ("patience must be a positive integer!", "above 0")),
        (("--set", "LowGPUUtilization_patience=nan"), ("patience must be a number",)),
        (("--set", "LowGPUUtilization_threshold_p5=101"), ("threshold_p5 must be a valid percentile!", "0 to 100")),
        (("--set", "StepOutlier_mode=TRAINING"), ("TRAIN, EVAL, PREDICT, GLOBAL",)),
        (("--rules", "CPUBottleneck", "--set", "StepOutlier_stddev=3"), ("StepOutlier is turned off", "on: CPUBottleneck")),
        (("--rules", "-StepOutlier", "--set", "StepOutlier_stddev=3"), ("StepOutlier is turned off",)),
        (("--fail-on", "CPUBottlenek"), ("--fail-on", "did you mean CPUBottleneck?", "issues, error")),
        (("--fail-on", ","), ("nothing is named",)),
        (
            ("--rules", "CPUBottleneck", "--fail-on", "StepOutlier"),
            ("StepOutlier: this rule is turned off", "issues, error, CPUBottleneck"),
        ),
        (("--custom-rule", "own.py"), ("names no class", "checks.py:SlowSteps")),
        (("--custom-rule", "own.py:Always?limit"), ("'limit' in", "sets nothing")),
        (("--custom-rule", "absent.py:Always"), ("absent.py", "--custom-rule")),
        (("--custom-rule", "http://host/own.py:Always"), ("not a file of this machine",)),
        (("--custom-rule", ".:Always"), ("cannot be read", "give the path of a Python file")),
        (("--custom-rule", "own.py:Always", "--set", "Always_limits=3"), ("not a parameter of Always (did you mean limit?)",)),
        (("--custom-rule", "own.py:Always", "--fail-on", "Alway"), ("issues, error, Always",)),
        (("--set", "idle_threshold=5"), ("write HostBound_idle_threshold",)),
        (("--set", "stddev=5"), ("write StepOutlier_stddev",)),
        (("--set", "ProfilerReport_patience=5"), ("ProfilerReport has no parameters of its own", "LowGPUUtilization_patience")),
        (("--set", "ProfilerReport_LowGPU_patience=5"), ("'LowGPU' is not a rule",)),
        (("--set", "LoadBalancing_threshold=50"), ("never above 1", "0 to 1")),
        (("--set", "LowGPUUtilization_window=2.5"), ("=2.5: window must be a whole number",)),
        (("--set", "Dataloader_patience=0.5"), ("patience must be a whole number",)),
        (("--rules", "-"), ("'-' names no rule", "--rules -StepOutlier")),
        (("--rule-timeout", "0"), ("not a whole number from 1 to",)),
        (("--top", "abc"), ("'abc' is not a whole number from 1 to 1000",)),
        (("--custom-rule", "own.py:Always?limits=3"), ("limits", "limit")),
        (("--format", "json,xml"), ("xml is not a report format", "html,pdf,json,md,junit,rule-json")),
    ],
)
def test_mistakes_are_told_before_anything_is_read(here: Path, arguments: tuple[str, ...], messages: tuple[str, ...]) -> None:
    text = " ".join(refused(*arguments).split())
    for message in messages:
        assert message in text


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("POSTRUN_RULES", "Nonsense"), ("POSTRUN_PRESET", "x"), ("POSTRUN_SET", "Nonsense_x=1"), ("POSTRUN_CUSTOM_RULE", "own.py"),
        ("POSTRUN_FAIL_ON", ", ,"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_environment_names_the_variable(here: Path, variable: str, value: str) -> None:
    assert variable in refused(env={variable: value})
    if variable == "POSTRUN_SET":
        assert variable in refused("--set", "HostBound_idle_threshold=3", env={variable: value})


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ('rules = ["Nonsense"]', ("'Nonsense' is not a rule", "postrun.toml")),
        ("rules = 3", ("not a list of names", "postrun.toml")),
        ("[rules.Nonsense]\npatience = 3", ("[rules.Nonsense]", "'Nonsense' is not a rule", "accepted: ProfilerReport")),
        ("[rules.CPUBottleneck]\npatiense = 3", ("[rules.CPUBottleneck]", "did you mean patience?", "accepted: threshold")),
        ("[rules.CPUBottleneck]\npatience = 'x'", ("[rules.CPUBottleneck]", "patience must be a number")),
        ("[rules.CPUBottleneck]\npatience = true", ("[rules.CPUBottleneck]", "patience must be a number")),
        ("[rules.CPUBottleneck]\nthreshold = 101", ("valid percentile", "0 to 100")),
        ("[rules.CPUBottleneck]\nenabled = 'no'", ("enabled", "true, false")),
        ("[rules]\nCPUBottleneck = false", ("rules.CPUBottleneck", "[rules.CPUBottleneck]", "enabled = false")),
        ("[rules]\nonly = 'CPUBottleneck'", ("[rules] only", "not a list of rules")),
        ("[rules]\nonly = ['Nonsense']", ("'Nonsense' is not a rule", "postrun.toml")),
        ("set = ['CPUBottleneck_patience=3']", ("'set'", "[rules.LowGPUUtilization]")),
        ("set = {CPUBottleneck_patience = 3}", ("'set'", "[rules.LowGPUUtilization]")),
        ("[report]\nset = ['CPUBottleneck_patience=3']", ("'report.set'", "[rules.LowGPUUtilization]")),
        ("fail_on = 'Nonsense'", ("'Nonsense' is not a rule",)),
        ("preset = 'x'", ("postrun.toml",)),
        ("custom_rule = 'own.py'", ("names no class", "postrun.toml")),
        ("[rule.CPUBottleneck]\npatience = 3", ("table [rule] is none", "rules")),
    ],
)
def test_a_mistake_in_a_file_names_the_file(here: Path, text: str, messages: tuple[str, ...]) -> None:
    (here / "postrun.toml").write_text(text, encoding="utf-8")
    lines = " ".join(refused("--config", "postrun.toml").split())
    for message in messages:
        assert message in lines


# -- rules of one's own ------------------------------------------------------------------------------------------------------


def test_own_rules_come_from_line_environment_and_file(store: Path, here: Path) -> None:
    def verdicts(*arguments: str, **env: str) -> dict[str, str]:
        results = rules_of(report(store, "--rules", "HostBound", *arguments, env=env))
        return {name: result["verdict"] for name, result in results.items() if name != "HostBound"}

    expected = {"Always": "IssuesFound", "Never": "NoIssuesFound"}
    assert verdicts("--custom-rule", "own.py:Always", "--custom-rule", "own.py:Never") == expected
    assert verdicts(POSTRUN_CUSTOM_RULE=f"{here / 'own.py'}:Always; own.py:Never") == expected
    (here / "postrun.toml").write_text('custom_rule = ["own.py:Always", "own.py:Never"]\n', encoding="utf-8")
    assert verdicts("--config", "postrun.toml") == expected
    assert verdicts("--config", "postrun.toml", "--custom-rule", "own.py:Fails", POSTRUN_CUSTOM_RULE="own.py:Never") == {"Fails": "Error"}


def test_parameters_of_own_rules(store: Path, here: Path) -> None:
    arguments = ("own.py:Limited?limit=7&word=b", "own.py:Limited?limit=7", "own.py:Limited")
    results = rules_of(report(store, "--rules", "HostBound", *(word for one in arguments for word in ("--custom-rule", one))))
    assert {name: result["verdict"] for name, result in results.items() if name != "HostBound"} == {
        "Limited": "IssuesFound", "Limited-2": "NoIssuesFound", "Limited-3": "NoIssuesFound",
    }  # fmt: skip
    assert results["Limited"]["parameters"]["limit"] == 7
    assert results["Limited"]["parameters"]["word"] == "b"


def test_parameters_of_own_rules_of_postruns_kind_are_checked(store: Path, here: Path) -> None:
    (here / "kind.py").write_text(
        "import postrun\n"
        "class Wide(postrun.Rule):\n"
        "    name, category, checks, condition, advice = 'Wide', 'custom', 'c', 'c', 'a'\n"
        "    parameters = (postrun.Parameter('share', '%', 5, 5, 'percentile', 'a share'),)\n"
        "    def evaluate(self, run, parameters):\n"
        "        verdict = 'IssuesFound' if parameters['share'] == 12.5 else 'NoIssuesFound'\n"
        "        return postrun.Outcome(verdict, finding='found')\n",
        encoding="utf-8",
    )
    assert "share must be a valid percentile!" in refused("--custom-rule", "kind.py:Wide?share=101")
    assert "it has: share" in refused("--custom-rule", "kind.py:Wide?shares=3")
    assert rules_of(report(store, "--custom-rule", "kind.py:Wide?share=12.5"))["Wide"]["verdict"] == "IssuesFound"
    assert rules_of(report(store, "--custom-rule", "kind.py:Wide"))["Wide"]["verdict"] == "NoIssuesFound"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Mine(:\n", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import absent_module\nclass Mine: pass\n", "ModuleNotFoundError: No module named 'absent_module' (broken.py, line 1)"),
        ("class Other: pass\n", "ValueError: broken.py has no class Mine; it has: Other"),
        ("raise SystemExit(3)\n", "SystemExit: 3 (broken.py, line 1)"),
        (
            "import postrun\nclass Mine(postrun.Rule):\n    parameters = (postrun.Parameter('a', '', 1, 1, 'share', 'a'),)\n",
            "ValueError: the parameter a has the kind 'share'; accepted: percentile, positive, text (broken.py, line 3)",
        ),
    ],
)
def test_what_fails_in_a_rule_file_is_the_verdict_of_the_rule(store: Path, here: Path, text: str, reason: str) -> None:
    (here / "broken.py").write_text(text, encoding="utf-8")
    arguments = ("--rules", "HostBound", "--custom-rule", "broken.py:Mine")
    done = report(store, *arguments)
    mine = rules_of(done)["Mine"]
    assert (mine["verdict"], mine["reason"]) == ("Error", reason)
    assert done.stderr == f"note: --custom-rule: Mine cannot be run, its verdict is Error: {reason}\n"
    assert f"  Mine failed: {reason}\n" in done.stdout
    assert report(store, *arguments, "--fail-on", "error").exit_code == 3


def test_a_constructor_that_fails_is_told_with_json_too(store: Path, here: Path) -> None:
    text = "class Mine:\n    def __init__(self, trial):\n        raise OSError('none')\n    def invoke(self, step): pass\n"
    (here / "broken.py").write_text(text, encoding="utf-8")
    done = report(store, "--rules", "HostBound", "--custom-rule", "broken.py:Mine", "--json")
    assert json.loads(done.stdout)["rules"]["Mine"] == "Error"
    assert done.stderr == "note: Mine failed: OSError: none (broken.py, line 3)\n"


NAMED = """
import postrun
class MeanG(postrun.Rule):
    name = "MeanGPU"
    parameters = (postrun.Parameter("limit", "%", 5, 5, "percentile", "a limit"),)
    def evaluate(self, run, parameters):
        return postrun.Outcome("IssuesFound" if parameters["limit"] == 7 else "NoIssuesFound", finding="found")
"""


@pytest.mark.parametrize("name", ["MeanGPU", "meang"])
def test_an_own_rule_has_the_name_that_its_class_declares_and_answers_to_both(store: Path, here: Path, name: str) -> None:
    (here / "named.py").write_text(NAMED, encoding="utf-8")
    arguments = ("--rules", "HostBound", "--custom-rule", "named.py:MeanG", "--fail-on", name)
    assert rules_of(report(store, *arguments))["MeanGPU"]["verdict"] == "NoIssuesFound"
    assert rules_of(report(store, *arguments, "--set", f"{name}_limit=7"), 3)["MeanGPU"]["changed_parameters"] == {"limit": 7}
    assert rules_of(report(store, *arguments, env={"POSTRUN_SET": f"{name}_limit=7"}), 3)["MeanGPU"]["parameters"]["limit"] == 7
    message = " ".join(refused(*arguments[2:], "--set", f"{name}_limit=101").split())
    assert "--set" in message
    assert "limit must be a valid percentile!" in message
    listed = " ".join(refused("--custom-rule", "named.py:MeanG", "--fail-on", "Nonsense").split())
    assert "issues, error, MeanGPU, MeanG" in listed


@pytest.mark.parametrize("where", ["", "    def invoke_for_timerange(self, start, end):\n"])
def test_an_endless_loop_in_a_rule_file_ends(store: Path, here: Path, where: str) -> None:
    loop = "{0}while True:\n{0}    try: pass\n{0}    except Exception: pass\n"
    text = f"class Mine:\n    def __init__(self, trial): pass\n{where}{loop.format('        ' if where else '    ')}"
    (here / "endless.py").write_text(text, encoding="utf-8")
    before = signal.getsignal(signal.SIGALRM)
    results = rules_of(report(store, "--rules", "HostBound", "--custom-rule", "endless.py:Mine", "--rule-timeout", "1"))["Mine"]
    assert results["verdict"] == "Error"
    assert results["reason"].startswith("RuleTimeout: stopped after 1 s; --rule-timeout")
    assert "endless.py, line" in results["reason"]
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_a_rule_prints_is_cut_and_the_rest_counted(store: Path, here: Path) -> None:
    text = "class Mine:\n    def __init__(self, trial): pass\n    def invoke(self, step): pass\nfor n in range(250): print('line', n)\n"
    (here / "loud.py").write_text(text, encoding="utf-8")
    lines = report(store, "--rules", "HostBound", "--custom-rule", "loud.py:Mine").stderr.splitlines()
    # lines 100 to 249 are of 8 characters and a line end
    assert lines == [*(f"line {n}" for n in range(100)), "note: loud.py printed more: 150 lines (1,350 characters) are left out here"]


# -- what a verdict ends in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "fail_on", "code", "message"),
    [
        (("Always", "Never"), "issues", 3, "Always found issues"),
        (("Never",), "issues", 0, None),
        (("Fails",), "issues", 0, ("Fails failed, so it is not known whether there is an issue; --fail-on error matches rules that fail",)),
        (("Fails", "Never"), "fails,never", 0, ("Fails failed, so it is not known",)),
        (("Never",), "NEVER,Never", 0, None),
        (("Fails", "Always"), "error", 3, "Fails failed"),
        (("Fails", "Always"), "Error,ALWAYS", 3, "Always found issues; Fails failed"),
        (("Always", "Never"), "never", 0, None),
        (("Never",), "error,issues,IOBottleneck", 0, ("IOBottleneck was not evaluated (no I/O wait samples in this run)",)),
    ],
)
def test_fail_on(store: Path, here: Path, ours: tuple[str, ...], fail_on: str, code: int, message: str | tuple[str] | None) -> None:
    arguments = ["--rules", "IOBottleneck", *(word for name in ours for word in ("--custom-rule", f"own.py:{name}"))]
    done = report(store, *arguments, "--fail-on", fail_on, "--quiet")
    assert rules_of(done, code)["IOBottleneck"]["verdict"] == "NotEvaluated"
    if isinstance(message, tuple):  # only the beginning, of the one line
        assert done.stderr.startswith(f"postrun: --fail-on: {message[0]}")
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == (f"postrun: --fail-on: {message}\n" if message else "")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("POSTRUN_FAILON", "did you mean POSTRUN_FAIL_ON?"),
        ("POSTRUN_CUSTOM_RULES", "did you mean POSTRUN_CUSTOM_RULE?"),
        ("POSTRUN_HOUSE_OF_MINE", "such as POSTRUN_TOP"),
    ],
)
def test_an_unknown_variable_is_told(store: Path, here: Path, name: str, message: str) -> None:
    done = report(store, "--rules", "HostBound", "--quiet", env={name: "issues", "POSTRUN_UPDATE_GOLDEN": "1", "POSTRUN_FORMAT": "json"})
    assert done.exit_code == 0
    assert done.stderr.startswith(f"postrun: the environment variable {name} is unknown and counts for nothing (")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_fail_on_comes_from_line_environment_and_file(store: Path, here: Path) -> None:
    custom_rules = (
        "--rules",
        "IOBottleneck",
        "--custom-rule",
        "own.py:Always",
        "--custom-rule",
        "own.py:Never",
        "--config",
        "postrun.toml",
    )
    for value in ('"Never,Always"', '["Never", "Always"]'):
        (here / "postrun.toml").write_text(f"fail_on = {value}\n", encoding="utf-8")
        assert report(store, *custom_rules).exit_code == 3
    assert report(store, *custom_rules, env={"POSTRUN_FAIL_ON": "Never,error"}).exit_code == 0
    assert report(store, *custom_rules, "--fail-on", "issues", env={"POSTRUN_FAIL_ON": "Never"}).exit_code == 3


def test_the_sum_of_the_rules_can_be_named(store: Path, here: Path) -> None:
    results = rules_of(report(store, "--rules", "ProfilerReport"))
    code = 3 if results["ProfilerReport"]["verdict"] == "IssuesFound" else 0
    assert report(store, "--rules", "ProfilerReport", "--fail-on", "profilerreport").exit_code == code


def test_the_terminal_shows_verdicts_and_findings(store: Path, with_whole_reports: Path) -> None:
    custom_rules = ("--custom-rule", "own.py:Always", "--custom-rule", "own.py:Never", "--custom-rule", "own.py:Fails")
    lines = report(store, "--rules", "IOBottleneck", *custom_rules).stdout.splitlines()
    assert lines[1] == "Rules: 1 issue, 1 error, 1 passed, 1 not evaluated"
    assert lines[2].startswith("  1. Look at what Always found")
    assert lines[3].startswith("  Fails failed: ValueError: no luck")
    assert lines[4:] == ["out/report.json"]


def test_rules_that_only_inform_are_counted_apart(store: Path, here: Path) -> None:
    arguments = ("--rules", "OverallSystemUsage,IOBottleneck", "--custom-rule", "own.py:Never")
    assert report(store, *arguments).stdout.splitlines()[1] == "Rules: 1 passed, 1 informational, 1 not evaluated"
    assert json.loads(report(store, *arguments, "--json").stdout)["rule_counts"] == {
        "issues": 0, "failed": 0, "fine": 1, "informing": 1, "not_evaluated": 1,
    }  # fmt: skip


def test_at_most_three_findings_are_shown(store: Path, here: Path) -> None:
    custom_rules = [word for _ in range(5) for word in ("--custom-rule", "own.py:Always")]
    lines = report(store, "--rules", "IOBottleneck", *custom_rules).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == ["1.", "2.", "3."]


def test_the_summary_as_json_has_verdicts_and_findings(store: Path, here: Path) -> None:
    done = report(store, "--rules", "IOBottleneck", "--custom-rule", "own.py:Always", "--json", "--fail-on", "issues")
    assert done.exit_code == 3
    summary = json.loads(done.stdout)
    assert summary["rules"] == {"IOBottleneck": "NotEvaluated", "Always": "IssuesFound"}
    assert [(one["rank"], one["rule"], one["cost_ns"]) for one in summary["findings"]] == [(1, "Always", None)]


def test_junit_and_rule_files(store: Path, with_whole_reports: Path) -> None:
    custom_rules = ("--rules", "IOBottleneck", "--custom-rule", "own.py:Always", "--fail-on", "Always")
    done = CliRunner().invoke(main, ["report", str(store), "-o", "out", "--format", "junit,rule-json", *custom_rules])
    assert done.exit_code == 3
    assert done.stdout.splitlines()[-2:] == ["out/report.junit.xml", "out/profiler-reports"]
    assert sorted(path.name for path in Path("out").iterdir()) == ["profiler-reports", "report.junit.xml"]
    root = ET.parse("out/report.junit.xml").getroot()
    assert {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")} == {
        "IOBottleneck": ["skipped"], "Always": ["failure"],
    }  # fmt: skip
    written = {path.name: json.loads(path.read_text("utf-8")) for path in Path("out/profiler-reports").iterdir()}
    lines = written["IOBottleneck.json"]["RuleParameters"].split("\n")
    assert sorted(lines) == ["gpu_threshold:70", "io_threshold:50", "patience:1000", "threshold:50"]
    assert written["Always.json"]["RuleTriggered"] > 0
    later = report(store, "--rules", "IOBottleneck")
    for name in ("report.junit.xml", "profiler-reports"):
        assert f"note: out/{name} is of an earlier report" in later.stderr


# -- postrun rules -----------------------------------------------------------------------------------------------------------


def listed(*arguments: str) -> Result:
    done = CliRunner().invoke(main, ["rules", *arguments])
    assert done.exit_code == 0, done.output
    return done


def test_every_rule_is_listed_with_its_defaults() -> None:
    lines = listed().stdout.splitlines()
    assert max(map(len, lines)) <= 100
    results: dict[tuple[str, str], tuple[str, str]] = {}
    rules = []
    for line in lines:
        words = line.split()
        if line and not line.startswith(" ") and len(words) == 2 and words[1].startswith("("):
            rules.append(words[0])
        elif line.startswith("    ") and words[0] != "parameter":
            results[rules[-1], words[0]] = (words[-2], words[-1])
    assert rules == [*DOCUMENTED, *TRACE]
    assert results == {key: tuple("none" if value is None else str(value) for value in both) for key, both in DEFAULTS.items()}


def test_one_preset_alone() -> None:
    line = next(line for line in listed("--preset", "service").stdout.splitlines() if "increase" in line and line.startswith("    "))
    assert line.split() == ["increase", "percentage", "points", "5"]


def test_rules_as_json() -> None:
    loaded = json.loads(listed("--json").stdout)
    assert [rule["rule"] for rule in loaded] == [*DOCUMENTED, *TRACE]
    actual = {
        (rule["rule"], parameter["name"]): (parameter["documented"], parameter["service"])
        for rule in loaded
        for parameter in rule["parameters"]
        if parameter["name"] != "scan_interval_us"
    }
    assert actual == DEFAULTS
    assert all(rule["checks"] and rule["condition"] and rule["advice"] and rule["needs"] for rule in loaded)
    assert {parameter["name"] for rule in loaded for parameter in rule["parameters"] if parameter["documented"] == 60_000_000} == {
        "scan_interval_us"
    }


@pytest.mark.parametrize("rule", [*DOCUMENTED, *TRACE, "ProfilerReport"])
def test_every_rule_is_explained(rule: str) -> None:
    text = listed("explain", rule.lower()).stdout
    assert text.startswith(f"{rule} (")
    assert max(map(len, text.splitlines())) <= 100
    assert "`" not in text.partition("Parameters")[0]
    for heading in ("Checks", "Issue when", "Parameters", "Advice"):
        assert heading in text
    for (name, parameter), _ in DEFAULTS.items():
        assert name != rule or parameter in text


def test_the_condition_has_the_numbers_of_the_preset() -> None:
    assert "70% (threshold_p95)" in " ".join(listed("explain", "LowGPUUtilization").stdout.split())
    for arguments in (("--preset", "service", "explain", "LoadBalancing"), ("explain", "LoadBalancing", "--preset", "service")):
        assert "0.24 (threshold)" in " ".join(listed(*arguments).stdout.split())


@pytest.mark.parametrize("preset", ["documented", "service"])
@pytest.mark.parametrize("rule", [*DOCUMENTED, *TRACE])
def test_every_parameter_of_a_condition_shows_its_number(rule: str, preset: str) -> None:
    """Only the phase of StepOutlier and evaluation windows are in no condition."""
    text = " ".join(listed("explain", rule, "--preset", preset).stdout.split())
    output = text.partition(f"Issue when ({preset} defaults)")[2].partition(" Parameters ")[0]
    defaults = {parameter: values for (name, parameter), values in DEFAULTS.items() if name == rule and parameter != "mode"}
    assert defaults or RULES[rule].informs
    assert len(re.findall(r"\(\w+\)", output)) >= len(defaults)
    for parameter, values in defaults.items():
        value = re.escape(str(values[preset == "service"]))
        assert re.search(rf"(?<!\S){value}(%|( µs| samples| steps| minutes| percentage points)?) \({parameter}\)", output), (
            parameter,
            output,
        )


def test_a_rule_without_explain_is_answered_with_what_was_meant() -> None:
    for word, message in (("hostbound", "write: postrun rules explain HostBound"), ("Nonsense", "write: postrun rules explain NAME")):
        done = CliRunner().invoke(main, ["rules", word])
        assert done.exit_code == 2
        assert message in done.stderr


def test_several_rules_are_explained_in_their_order() -> None:
    joined = CliRunner().invoke(main, ["rules", "explain", "StepOutlier", "hostbound", "StepOutlier"])
    alone = [CliRunner().invoke(main, ["rules", "explain", name]).stdout for name in ("StepOutlier", "HostBound")]
    assert joined.stdout == "\n".join(alone)


@pytest.mark.parametrize("names", [["LowGPU"], ["HostBound", "LowGPU"]])
def test_a_rule_that_does_not_exist_is_not_explained(names: list[str]) -> None:
    done = CliRunner().invoke(main, ["rules", "explain", *names])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "accepted: ProfilerReport, CPUBottleneck" in done.stderr


@pytest.mark.parametrize("arguments", [["rules"], ["rules", "explain", "StepOutlier"]])
def test_rules_are_listed_without_what_a_report_needs(arguments: list[str]) -> None:
    code = (
        f"import sys\nfrom postrun.cli import main\nmain({arguments!r})\n"
        "print(sorted({'duckdb', 'matplotlib', 'weasyprint', 'pyarrow'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


# -- without the command line ------------------------------------------------------------------------------------------------


class UnderScored(Rule):
    name = "Under_Scored"
    category = "custom"
    parameters = (Parameter("limit", "steps", 1, 2, "positive", "how many"),)

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        raise NotImplementedError


def test_a_rule_of_a_package_may_have_an_underscore_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "installed", lambda: {"Under_Scored": UnderScored})
    arguments = rule_options.settings(rule_options.pairs(["under_scored_limit=7"]))
    assert arguments == {"Under_Scored_limit": 7}
    chosen, fail_on = rule_options.chosen(
        ["Under_Scored"], "documented", settings=arguments, of_file={"HostBound_host_share": 1}, fail_on=["UNDER_SCORED"]
    )
    assert [(one.rule.name, one.parameters["limit"], one.parameters.changed) for one in chosen.rules] == [("Under_Scored", 7, ("limit",))]
    assert fail_on == ("Under_Scored",)


def test_every_rule_says_itself_what_it_needs() -> None:
    assert [name for name, rule in RULES.items() if rule.needs == Rule.needs] == []
    assert [name for name, rule in RULES.items() if rule.informs] == ["OverallSystemUsage", "OverallFrameworkMetrics"]


def test_a_title_without_a_cost_is_the_advice_without_its_full_stop(store: Path, here: Path) -> None:
    done = report(store, "--rules", "OverallSystemUsage", "--custom-rule", "own.py:Always")
    assert "  1. Look at what Always found\n" in done.stdout
    assert [finding["title"] for finding in json.loads(Path("out/report.json").read_text("utf-8"))["findings"]] == [
        "Look at what Always found"
    ]
