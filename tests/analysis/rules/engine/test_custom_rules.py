"""Rules from outside postrun get what the contract promises, and cannot stop a report."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from judging import report_of_rules
from postrun.analysis import Options, analyze
from postrun.analysis.report import RuleResult
from postrun.analysis.rules.engine import config, trial
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.analysis.rules.engine.config import ProfilerRule, selection
from postrun.analysis.rules.engine.conversion import plain
from postrun.analysis.rules.engine.custom import installed, load
from postrun.analysis.rules.engine.selection import Chosen, Selection, effective, find, select, setting
from postrun.analysis.rules.evidence.base import Cost, Outcome, Parameter, Rule
from postrun.errors import Terminated, UsageError
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
SECOND = 1_000_000_000
T0 = 1_700_000_040  # seconds; a full minute
ORIGIN = T0 * SECOND
BEGIN = "from smdebug.rules.rule import Rule\nfrom smdebug.exceptions import RuleEvaluationConditionMet\n\n\nclass Mine(Rule):\n"


def sampled(make_store: MakeStore, minutes: int = 4, **tables: Any) -> Store:
    """Sample two GPUs of a node every 10 s, from 20 s after the full minute.

    GPU 0 has its number of sample, GPU 1 always 50%."""
    rows = []
    for number in range(minutes * 6 - 2):
        at = ORIGIN + (20 + 10 * number) * SECOND
        rows += [{"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": at, "value": float(number)}]
        rows += [{"node": 0, "metric": "gpu_utilization", "unit": 1, "time_ns": at + 1000, "value": 50.0}]
    return make_store(run=[{"name": "test run"}], sample=rows, **tables)


def judged(store: Store, *rules: Any, **more: Any) -> RuleResult:
    """The result of the last rule; the report as a whole is valid JSON."""
    report = report_of_rules(store, Options(selection=selection(list(rules), **more), generated_at_ns=0))
    json.loads(report.to_json())
    return report.rules[-1]


def write(folder: Path, text: str, name: str = "my_rule.py") -> str:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def attached(folder: Path, text: str, *, rule: str = "Mine", parameters: dict[str, Any] | None = None, **more: Any) -> ProfilerRule:
    return ProfilerRule.custom(source=write(folder, text), rule_to_invoke=rule, rule_parameters=parameters, **more)


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    """Nothing that a rule file brought stays behind."""
    before, modules, path = sys.stdout, set(sys.modules), list(sys.path)
    yield
    assert sys.stdout is before
    assert sys.path == path
    assert [name for name in set(sys.modules) - modules if name.startswith(("smdebug", "postrun_rule_file", "beside"))] == []


# -- the contract ----------------------------------------------------------------------------------------------------------

HIGH = (
    BEGIN
    + '''    """GPUs above a limit.

    More of it.
    """

    def __init__(self, base_trial, limit=10, scan_interval_us=60 * 1000 * 1000):
        super().__init__(base_trial)
        self.limit = float(limit)
        self.seen = []
        self.report["RuleParameters"] = f"limit:{self.limit}"

    def invoke_at_step(self, step):
        pass

    def invoke_for_timerange(self, timestamp_start, timestamp_end, sys_events=None, framework_events=None):
        events = self.base_trial.get_system_metrics(timestamp_start, timestamp_end)
        self.seen.append([timestamp_start, timestamp_end, len(events)])
        self.report["Details"]["windows"] = self.seen
        high = [event for event in events if event.dimension == "GPUUtilization" and event.name == "gpu0" and event.value > self.limit]
        self.report["Datapoints"] += len(events)
        self.report["Violations"] += len(high)
        self.report["RuleTriggered"] += bool(high)
        return bool(high)
'''
)


def test_a_rule_file_is_asked_window_by_window(make_store: MakeStore, tmp_path: Path) -> None:
    result = judged(sampled(make_store), attached(tmp_path, HIGH))
    # 22 samples: 4 in the first minute, which start at 20 s, then 6 each; values 0..21, above 10 starting with the 12th, in window 3
    minute = 60 * 1_000_000
    start = T0 * 1_000_000
    windows = [[start, start + minute, 8], [start + minute, start + 2 * minute, 12], [start + 2 * minute, start + 3 * minute, 12]]
    windows += [[start + 3 * minute, start + 4 * minute, 12]]
    assert result.details["report"]["Details"]["windows"] == windows
    assert (result.rule, result.category, result.verdict, result.reason) == ("Mine", "custom", "IssuesFound", None)
    assert (result.windows, result.windows_triggered, result.triggered, result.violations, result.datapoints) == (4, 2, 2, 11, 44)
    assert result.first_ns == ORIGIN + 120 * SECOND
    assert result.last_ns == ORIGIN + (20 + 10 * 21) * SECOND + 1001  # where the run ends
    assert result.details["windows"] == [
        {"index": i, "start_ns": ORIGIN + 60 * i * SECOND, "end_ns": ORIGIN + 60 * (i + 1) * SECOND} for i in (2, 3)
    ]
    assert result.finding == "Mine triggered in 2 of 4 evaluation windows of 1 min."
    assert result.checks == "GPUs above a limit."
    assert result.parameters == {"limit": 10, "scan_interval_us": 60_000_000}
    assert [(row.name, row.value, row.default, row.changed) for row in result.parameter_table] == [
        ("limit", 10, 10, False),
        ("scan_interval_us", 60_000_000, 60_000_000, False),
    ]


@pytest.mark.parametrize("value", [15, "15", 15.0])
def test_rule_parameters_reach_the_constructor_and_the_report(value: Any, make_store: MakeStore, tmp_path: Path) -> None:
    rule = attached(tmp_path, HIGH, parameters={"limit": value, "scan_interval_us": 30_000_000}, name="High")
    result = judged(sampled(make_store), rule)
    # windows of 30 s: values above 15 are the samples 16..21, at 180 s to 230 s: the windows 6 and 7
    assert (result.rule, result.windows, result.violations) == ("High", 8, 6)
    assert [row["index"] for row in result.details["windows"]] == [6, 7]
    assert result.changed_parameters == {"limit": 15, "scan_interval_us": 30_000_000}
    assert result.details["report"]["RuleParameters"] == "limit:15.0"


def test_settings_reach_the_constructor(make_store: MakeStore, tmp_path: Path) -> None:
    rule = attached(tmp_path, HIGH, parameters={"limit": 15}, name="my_high")
    result = judged(sampled(make_store), rule, settings={"my_high_limit": 20})
    assert (result.violations, result.parameters["limit"]) == (1, 20)
    assert judged(sampled(make_store), rule, settings={"my_high_limit": "20"}).violations == 1
    assert judged(sampled(make_store), rule, settings={"my_high_limit": float("nan")}).parameters["limit"] is None


def test_values_of_any_kind_reach_the_constructor_as_they_are(make_store: MakeStore, tmp_path: Path) -> None:
    text = BEGIN + (
        "    def __init__(self, base_trial, what, word='7', **rest):\n        super().__init__(base_trial)\n"
        "        self.report = {'what': [type(what).__name__, what.tolist()], 'word': word, 'rest': rest}\n"
        "    def invoke_for_timerange(self, start, end):\n        return True\n"
    )
    values = {"what": np.array([1, 2]), "word": "8", "number": "8", "scan_interval_us": 10**9}
    result = judged(sampled(make_store), attached(tmp_path, text, parameters=values))
    assert result.details["report"] == {
        "what": ["ndarray", [1, 2]], "word": "8", "rest": {"number": 8, "scan_interval_us": 10**9},
    }  # fmt: skip
    assert result.parameters == {"what": [1, 2], "word": "8", "number": 8, "scan_interval_us": 10**9}
    assert result.triggered == 1


def test_the_interval_is_not_passed_to_a_constructor_without_it(make_store: MakeStore, tmp_path: Path) -> None:
    text = BEGIN + "    def invoke_for_timerange(self, start, end):\n        return True\n"
    assert judged(sampled(make_store), attached(tmp_path, text, parameters={"scan_interval_us": 120_000_000})).windows == 2


@pytest.mark.parametrize(
    "body",
    [
        # the shape of most public rules: invoke() requests the range itself and raises
        "    def __init__(self, base_trial):\n        super().__init__(base_trial)\n        self.last = base_trial.first_timestamp\n"
        "    def invoke(self, step):\n        end = self.last + 60_000_000\n        self.base_trial.wait_for_data(end, self.last)\n"
        "        values = [e.value for e in self.base_trial.get_system_metrics(self.last, end) if e.name == 'gpu0']\n"
        "        self.last = end\n        if max(values) > 10:\n            raise RuleEvaluationConditionMet(self.rule_name, step)\n",
        # by step alone: the window is in base_trial
        "    def invoke_at_step(self, step):\n        return max(self.base_trial.samples(*[1000 * t for t in self.base_trial.window])\n"
        "            .filter(__import__('polars').col('unit') == 0)['value']) > 10\n",
        # an exception of the same name that is not the one provided
        "    def invoke_for_timerange(self, start, end):\n        class RuleEvaluationConditionMet(Exception):\n            pass\n"
        "        if max(e.value for e in self.base_trial.get_system_metrics(start, end) if e.name == 'gpu0') > 10:\n"
        "            raise RuleEvaluationConditionMet()\n",
    ],
    ids=["invoke", "invoke_at_step", "own exception"],
)
def test_every_way_of_being_asked(body: str, make_store: MakeStore, tmp_path: Path) -> None:
    result = judged(sampled(make_store), attached(tmp_path, BEGIN + body))
    assert (result.verdict, result.reason, [row["index"] for row in result.details["windows"]]) == ("IssuesFound", None, [2, 3])


def test_a_class_without_a_base_and_the_end_of_a_rule(make_store: MakeStore, tmp_path: Path) -> None:
    text = (
        "from smdebug.exceptions import RuleEvaluationConditionMet\nclass Mine:\n"
        "    def __init__(self, trial):\n        self.trial = trial\n"
        "    def invoke_for_timerange(self, start, end):\n        raise RuleEvaluationConditionMet('Mine', 0, end_of_rule=True)\n"
    )
    result = judged(sampled(make_store), attached(tmp_path, text))
    assert (result.verdict, result.windows, result.details["report"]) == ("IssuesFound", 1, None)
    text = "class NoMoreProfilerData(Exception):\n    pass\n" + text.replace(
        "raise RuleEvaluationConditionMet(", "raise NoMoreProfilerData("
    ).replace(", end_of_rule=True", "")
    assert judged(sampled(make_store), attached(tmp_path, text)).verdict == "NoIssuesFound"


def test_what_a_rule_prints_goes_to_standard_error(make_store: MakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "print('loading')\n" + BEGIN + "    def invoke_for_timerange(self, start, end):\n        print('asked')\n"
    judged(sampled(make_store, 1), attached(tmp_path, text))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "loading\nasked\n"


def test_modules_beside_the_file_can_be_imported_also_late_and_are_not_mixed_up(make_store: MakeStore, tmp_path: Path) -> None:
    text = (
        "from beside import number\n"
        + BEGIN
        + (
            "    def invoke_for_timerange(self, start, end):\n"
            "        import beside\n        from smdebug.exceptions import RuleEvaluationConditionMet\n"
            "        self.report['number'] = [number, beside.number]\n        return True\n"
        )
    )
    rules = []
    for name, number in (("one", 1), ("two", 2)):
        write(tmp_path / name, f"number = {number}\n", "beside.py")
        rules.append(attached(tmp_path / name, text, name=name))
    report = analyze(sampled(make_store, 1), Options(selection=selection(rules)))
    assert [result.details["report"]["number"] for result in report.rules] == [[1, 1], [2, 2]]


def test_only_the_two_names_are_lent(make_store: MakeStore, tmp_path: Path) -> None:
    text = "from smdebug.rules import Rule\nfrom smdebug.trials import create_trial\nclass Mine(Rule):\n    pass\n"
    assert judged(sampled(make_store, 1), attached(tmp_path, text)).reason == (
        "ModuleNotFoundError: No module named 'smdebug.trials' (my_rule.py, line 2)"
    )
    text = "from smdebug.exceptions import StepUnavailable\n"
    assert judged(sampled(make_store, 1), attached(tmp_path, text)).reason == (
        "ImportError: smdebug.exceptions.StepUnavailable needs smdebug, which is not installed; without it rule files can import Rule"
        " (smdebug.rules.rule) and RuleEvaluationConditionMet (smdebug.exceptions) (my_rule.py, line 1)"
    )


def test_an_installed_smdebug_is_used(make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "smdebug"
    (package / "rules").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "rules" / "__init__.py").touch()
    write(package / "rules", "class Rule:\n    def __init__(self, trial):\n        self.report = {'of': 'the installed one'}\n", "rule.py")
    write(package, "class RuleEvaluationConditionMet(Exception):\n    pass\n", "exceptions.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    text = BEGIN + "    def invoke_for_timerange(self, start, end):\n        raise RuleEvaluationConditionMet\n"
    result = judged(sampled(make_store, 1), attached(tmp_path, text))
    assert (result.verdict, result.details["report"]) == ("IssuesFound", {"of": "the installed one"})
    for name in [name for name in sys.modules if name.partition(".")[0] == "smdebug"]:
        del sys.modules[name]


# -- whatever goes wrong ---------------------------------------------------------------------------------------------------

RANGE = "    def invoke_for_timerange(self, start, end):\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n    pass\n", "SyntaxError: invalid syntax (my_rule.py, line 1)"),
        ("import nothing_of_the_kind\n", "ModuleNotFoundError: No module named 'nothing_of_the_kind' (my_rule.py, line 1)"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 (my_rule.py, line 2)"),
        ("class Other:\n    pass\n", "ValueError: my_rule.py has no class Mine; it has: Other"),
        ("Mine = 3\n", "ValueError: my_rule.py has no class Mine; it has: none"),
        ("class Mine:\n    pass\n",
         "TypeError: Mine has none of invoke_for_timerange(start_us, end_us), invoke(step) and invoke_at_step(step)"),
        (BEGIN + "    pass\n",
         "TypeError: Mine has none of invoke_for_timerange(start_us, end_us), invoke(step) and invoke_at_step(step)"),
        (BEGIN + "    def __init__(self, base_trial):\n        raise OSError('no file')\n" + RANGE + "        pass\n",
         "OSError: no file (my_rule.py, line 7)"),
        (BEGIN + "    def __init__(self, base_trial, limit):\n        pass\n" + RANGE + "        pass\n",
         "TypeError: Mine needs a value for limit; give it in rule_parameters"),
        (BEGIN + RANGE + "        x = 1\n        return 1 / (x - 1)\n", "ZeroDivisionError: division by zero (my_rule.py, line 8)"),
        (BEGIN + RANGE + "        raise SystemExit\n", "SystemExit (my_rule.py, line 7)"),
        (BEGIN + RANGE + "        exit_code = 4\n        raise SystemExit(exit_code)\n", "SystemExit: 4 (my_rule.py, line 8)"),
        (BEGIN + RANGE + "        raise ValueError('one\\ntwo')\n", "ValueError: one (my_rule.py, line 7)"),
        (BEGIN + RANGE + "        return self.base_trial.get_system_metrics('now', end)\n",
         "TypeError: must be real number, not str (my_rule.py, line 7)"),
        (BEGIN + RANGE + "        self.invoke_for_timerange(start, end)\n",
         "RecursionError: maximum recursion depth exceeded (my_rule.py, line 7)"),
        (BEGIN + RANGE + "        class E(Exception):\n            def __str__(self):\n                raise ValueError\n        raise E\n",
         "E (my_rule.py, line 10)"),
    ],
)  # fmt: skip
def test_what_a_rule_file_raises_is_its_verdict(text: str, reason: str, make_store: MakeStore, tmp_path: Path) -> None:
    result = judged(sampled(make_store), "OverallSystemUsage", attached(tmp_path, text))
    assert (result.rule, result.category, result.verdict, result.details) == ("Mine", "custom", "Error", {})
    assert result.reason is not None
    assert result.reason.startswith(reason.removesuffix(")").rpartition(" (my_rule")[0] if "Recursion" in reason else reason)
    assert result.finding is None


def test_files_that_cannot_be_read(make_store: MakeStore, tmp_path: Path) -> None:
    store = sampled(make_store, 1)

    def reason(source: str) -> str | None:
        result = judged(store, ProfilerRule.custom(source=source, rule_to_invoke="Mine"))
        assert result.verdict == "Error"
        return result.reason

    missing = tmp_path / "missing.py"
    assert reason(str(missing)) == f"ValueError: {missing}: cannot be read (No such file or directory); give the path of a Python file"
    assert reason(str(tmp_path)) == f"ValueError: {tmp_path}: cannot be read (Is a directory); give the path of a Python file"
    assert reason("s3://bucket/rule.py") == "ValueError: s3://bucket/rule.py is not a file of this machine; copy it here and give its path"
    image = judged(store, ProfilerRule.custom(name="Image", image_uri="repository/image:1"))
    assert image.verdict == "Error"
    assert image.reason == "its code is in a container image, which does not run here; give a source file and rule_to_invoke"


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"limti": 3}, "TypeError: Mine has no parameter limti; it has: limit, scan_interval_us"),
        ({"limit": "much"}, "ValueError: could not convert string to float: 'much' (my_rule.py, line 13)"),
        ({"scan_interval_us": 0}, "ValueError: scan_interval_us must be a positive integer!"),
        ({"scan_interval_us": "often"}, "ValueError: scan_interval_us must be a number"),
        ({"scan_interval_us": 1}, "ValueError: scan_interval_us=1 makes 230,000,002 windows of this run; at most 1,000,000 are evaluated"),
    ],
)
def test_wrong_parameters_of_a_rule_file(parameters: dict[str, Any], reason: str, make_store: MakeStore, tmp_path: Path) -> None:
    result = judged(sampled(make_store), attached(tmp_path, HIGH, parameters=parameters))
    assert result.verdict == "Error"
    assert (result.reason or "").replace("\u2009", " ") == reason


def test_ctrl_c_is_not_a_verdict(make_store: MakeStore, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        judged(sampled(make_store), attached(tmp_path, BEGIN + RANGE + "        raise KeyboardInterrupt\n"))


def test_a_rule_that_got_nothing_is_not_evaluated(make_store: MakeStore, tmp_path: Path) -> None:
    text = BEGIN + RANGE + "        return any(e.duration > 5 for e in self.base_trial.get_framework_metrics(start, end))\n"
    result = judged(sampled(make_store), attached(tmp_path, text))
    assert (result.verdict, result.reason) == ("NotEvaluated", "the run has nothing of what the rule asked for")
    result = judged(make_store(run=[{"name": "empty"}]), attached(tmp_path, text))
    assert (result.verdict, result.reason) == ("NotEvaluated", "no samples and no events in this run")


def test_the_report_of_a_rule_becomes_plain(make_store: MakeStore, tmp_path: Path) -> None:
    body = """
        loop = []
        loop.append(loop)
        self.report.update(RuleTriggered="many", Violations=float("nan"), Datapoints=3.7, when=datetime.date(2026, 1, 2))
        self.report.update(nan=float("nan"), keys={1: "a", None: "b", (2, 3): "c"}, odd="\\udc80", long=list(range(2000)))
        self.report.update(loop=loop, what=object)
        return True
"""
    text = "import datetime\n" + BEGIN + RANGE + body
    result = judged(sampled(make_store, 1), attached(tmp_path, text))
    assert result.verdict == "IssuesFound"
    assert (result.triggered, result.violations, result.datapoints) == (1, 0, 3)
    report = result.details["report"]
    assert (report["when"], report["nan"], report["keys"]) == ("2026-01-02", None, {"1": "a", "None": "b", "[2, 3]": "c"})
    assert report["long"][:3] + report["long"][-1:] == [0, 1, 2, "... and 1000 more"]
    assert (report["odd"], report["what"]) == ("\\x80", "<class 'object'>")


def test_plain_values() -> None:
    class Color(Enum):
        RED = 1

    values = {
        "int": np.int64(3), "float": np.float32(0.5), "array": np.array([[1, 2]]), "series": pl.Series([1, 2]), "set": {2, 1},
        "frame": pl.DataFrame({"a": [1]}), "queue": deque([1]), "enum": Color.RED, "bool": np.bool_(True), "inf": np.inf,
        "cost": Cost("t", 1, 2), "bytes": b"x",
    }  # fmt: skip
    assert plain(values) == {
        "int": 3, "float": 0.5, "array": [[1, 2]], "series": [1, 2], "set": [1, 2], "frame": [{"a": 1}], "queue": [1], "enum": 1,
        "bool": True, "inf": None, "bytes": "b'x'",
        "cost": {
            "title": "t", "ns": 1, "of_ns": 2, "saving_ns": None, "per_step_ns": None, "where": None,
            "base": "GPU time in the profile window", "saving_kind": "upper_bound",
        },
    }  # fmt: skip


# -- the trial -------------------------------------------------------------------------------------------------------------


def watched(store: Store, folder: Path, expression: str, imports: str = "") -> Any:
    """The value of an expression over ``t``, the trial, in a rule's constructor."""
    text = (
        imports
        + BEGIN
        + (f"    def __init__(self, t):\n        super().__init__(t)\n        self.report = {expression}\n{RANGE}        return True\n")
    )
    result = judged(store, attached(folder, text))
    assert result.reason is None
    return result.details["report"]


EVENT = "[e.event_name, e.event_phase, e.start_time, e.end_time, e.duration, e.pid, e.tid, e.node_id, e.event_args]"
SAMPLE = "[e.type, e.name, e.dimension, e.value, e.node_id, e.timestamp]"


def test_system_events(make_store: MakeStore, tmp_path: Path) -> None:
    expected = {
        "cpu_utilization": ["cpu", "cpu3", "CPUUtilization"],
        "cpu_iowait": ["cpu", "cpu3", "I/OWaitPercentage"],
        "gpu_utilization": ["gpu", "gpu3", "GPUUtilization"],
        "gpu_memory_controller": ["gpu", "gpu3", "GPUMemoryUtilization"],
        "gpu_memory_used_percent": ["gpu", "gpu3", "GPUMemoryUsedPercent"],
        "memory_used_percent": ["memory", "MemoryUsedPercent", ""],
        "disk_iops": ["i/o", "IOPS", ""],
        "disk_read": ["i/o", "ReadThroughputInBytesPerSecond", ""],
        "disk_write": ["i/o", "WriteThroughputInBytesPerSecond", ""],
        "network_receive": ["network", "ReceiveBytesPerSecond", "Algorithm"],
        "network_transmit": ["network", "TransmitBytesPerSecond", "Algorithm"],
        "network_receive_platform": ["network", "ReceiveBytesPerSecond", "Platform"],
        "network_transmit_platform": ["network", "TransmitBytesPerSecond", "Platform"],
    }
    rows = [
        {
            "node": 0,
            "metric": metric,
            "unit": 3 if names[0] in ("cpu", "gpu") else None,
            "time_ns": ORIGIN + i * SECOND // 2,
            "value": 1.5 + i,
        }
        for i, (metric, names) in enumerate(expected.items())
    ]
    actual = watched(make_store(sample=rows), tmp_path, f"[{SAMPLE} for e in t.get_system_metrics(t.first_timestamp, t.last_timestamp)]")
    assert actual == [[*names, 1.5 + i, "host-0", T0 + i / 2] for i, names in enumerate(expected.values())]
    alone = [row for row in rows if row["metric"] == "gpu_memory_used_percent"]
    (event,) = watched(make_store(sample=alone), tmp_path, f"[{SAMPLE} for e in t.get_system_metrics(0, float('inf'))]")
    assert event[:3] == ["gpu", "gpu3", "GPUMemoryUtilization"]


def test_framework_events(make_store: MakeStore, tmp_path: Path) -> None:
    at = ORIGIN
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 27, "label": "algo-1-27"}, {"id": 1, "node": 0, "pid": 28}],
        annotation=[
            {"name": "Step:ModeKeys.TRAIN", "phase": "Step:ModeKeys.TRAIN", "side": "host", "value": 7, "start_ns": at + 1000,
             "duration_ns": 5500},
            {"name": "DataLoaderWorker", "phase": "DataLoaderWorker", "side": "host", "start_ns": at + 2000, "duration_ns": 1000,
             "arguments": '{"num_workers":4,"pin_memory":true,"worker_id":null}'},
            {"name": "range", "side": "device", "device": 1, "stream": 7, "start_ns": at + 3000, "duration_ns": 1000},
            {"name": "open", "side": "host", "start_ns": at + 3000, "duration_ns": None},
        ],
        host_event=[
            {"kind": "operator", "name": "aten::mm", "start_ns": at + 4000, "duration_ns": 2000, "process": 1},
            {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": at + 4000, "duration_ns": 2000},
        ],
        device_event=[{"kind": "kernel", "name": "gemm", "device": 2, "start_ns": at + 5000, "duration_ns": 1000}],
    )  # fmt: skip
    us = T0 * 1_000_000
    expected = [
        ["Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", us + 1, us + 6.5, 5.5, 27, 1, "algo-1-27", {"step_num": "7"}],
        ["DataLoaderWorker", "DataLoaderWorker", us + 2, us + 3, 1, 27, 1, "algo-1-27", {"num_workers": 4, "pin_memory": True}],
        ["range", "gpu_functions-dev:1", us + 3, us + 4, 1, 27, 1, "algo-1-27", {}],
        ["aten::mm", "cpu_functions", us + 4, us + 6, 2, 28, 1, "host-0", {}],
        ["gemm", "gpu_functions-dev:2", us + 5, us + 6, 1, 27, 7, "algo-1-27", {}],
    ]
    assert watched(store, tmp_path, f"[{EVENT} for e in t.get_framework_metrics(t.first_timestamp, t.last_timestamp)]") == expected
    half_open = f"[{EVENT} for e in t.get_framework_metrics(t.first_timestamp + 2, t.first_timestamp + 4)]"
    assert watched(store, tmp_path, half_open) == expected[1:3]
    facts = "[t.name, t.first_timestamp, t.last_timestamp, t.get_latest_timestamp(), t.job_finished(), t.window, t.wait_for_data(1, 2)]"
    assert watched(store, tmp_path, facts) == ["run", us, us + 7, us + 7, True, [us, us + 7], None]


def test_frames(make_store: MakeStore, tmp_path: Path) -> None:
    store = sampled(
        make_store,
        annotation=[{"name": "step_1", "side": "host", "value": 1, "start_ns": ORIGIN, "duration_ns": 5}],
        names={"gemm": ("gemm", "fp16", "gemm")},
        device_event=[
            {"kind": "kernel", "name": "gemm", "start_ns": ORIGIN + 1, "duration_ns": 2},
            {"kind": "memcpy", "name": "copy", "start_ns": ORIGIN + 1, "duration_ns": 2},
        ],
        step=[{"node": 0, "process": 0, "phase": "TRAIN", "index": 1, "host_start_ns": ORIGIN, "host_duration_ns": 5}],
    )
    keys = {"node": "host-0", "rank": 0, "pid": 100}
    assert watched(store, tmp_path, "t.kernels()") == [
        {**keys, "device": 0, "stream": 7, "name": "gemm", "short_name": "gemm", "category": "gemm", "precision": "fp16",
         "start_ns": ORIGIN + 1, "duration_ns": 2}
    ]  # fmt: skip
    assert watched(store, tmp_path, "t.annotations()") == [
        {**keys, "tid": 1, "side": "host", "device": None, "name": "step_1", "phase": None, "value": 1, "start_ns": ORIGIN,
         "duration_ns": 5, "arguments": None}
    ]  # fmt: skip
    assert watched(store, tmp_path, "t.steps()") == [
        {**keys, "phase": "TRAIN", "index": 1, "host_start_ns": ORIGIN, "host_duration_ns": 5, "device_start_ns": None,
         "device_duration_ns": None}
    ]  # fmt: skip
    window = f"t.samples({ORIGIN + 30 * SECOND}, {ORIGIN + 40 * SECOND})"
    assert watched(store, tmp_path, window) == [
        {"node": "host-0", "metric": "gpu_utilization", "unit": unit, "time_ns": ORIGIN + 30 * SECOND + 1000 * unit, "value": value}
        for unit, value in ((0, 1.0), (1, 50.0))
    ]


def test_windows_before_the_first_sample_and_without_samples(make_store: MakeStore, tmp_path: Path) -> None:
    starts = BEGIN + (
        "    def __init__(self, t):\n        super().__init__(t)\n        self.report = {'windows': [], 'names': []}\n"
        + RANGE
        + "        self.report['windows'].append(start)\n"
        "        self.report['names'] += [e.event_name for e in self.base_trial.get_framework_metrics(start, end)]\n"
    )
    early = [
        {"name": name, "side": "host", "start_ns": ORIGIN + at * SECOND, "duration_ns": SECOND}
        for name, at in (("a", -61), ("b", -60), ("c", -1), ("d", 0), ("e", 239))
    ]
    result = judged(sampled(make_store, annotation=early), attached(tmp_path, starts))
    # the grid is that of the samples; the event at -61 s needs two windows before their first
    assert result.windows == 6
    alone = [{**row, "start_ns": row["start_ns"] + 5 * SECOND} for row in early]
    traced = judged(make_store(annotation=alone), attached(tmp_path, starts))
    assert traced.windows == 6  # -56 s .. 245 s: full minutes from -60 s to 240 s
    seen = "{'first': t.first_timestamp, 'last': t.last_timestamp}"
    assert watched(make_store(annotation=alone), tmp_path, seen) == {"first": (T0 - 60) * 1_000_000, "last": (T0 + 245) * 1_000_000}


def test_a_long_run_is_read_in_stretches(make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ROWS_AT_ONCE", 7)
    queries: list[str] = []
    store = sampled(make_store, 10)
    asked = store.frame

    def frame(sql: str, parameters: Any = None) -> pl.DataFrame:
        if "time_ns >= ?" in sql:
            queries.append(sql)
        return asked(sql, parameters)

    monkeypatch.setattr(store, "frame", frame)
    result = judged(store, attached(tmp_path, HIGH, parameters={"limit": 50, "scan_interval_us": 10_000_000}))
    # 58 samples of two GPUs; 0..57 on GPU 0, above 50: seven; each in a window of its own
    assert (result.datapoints, result.violations, result.windows_triggered) == (116, 7, 7)
    assert 116 / 7 <= len(queries) + 2 <= result.windows


# -- classes of postrun's own kind -----------------------------------------------------------------------------------------


class Slow(Rule):
    """Counts the samples."""

    name = "Slow"
    parameters = (Parameter("limit", "samples", 3, 3, "positive", "how many there may be"),)

    def evaluate(self, run: Any, parameters: Any) -> Outcome:
        number = run.store.frame("SELECT count(*) FROM sample").item()
        verdict = "IssuesFound" if number > parameters["limit"] else "NoIssuesFound"
        return Outcome(verdict, datapoints=np.int64(number), details={"mean": np.float64(2.5), "n": {1, 2}}, finding="Too many.")


def test_a_class_judges(make_store: MakeStore) -> None:
    store = sampled(make_store)
    result = judged(store, Slow)
    assert (result.verdict, result.datapoints, result.details) == ("IssuesFound", 44, {"mean": 2.5, "n": [1, 2]})
    assert (result.checks, result.condition, result.advice) == (
        "Counts the samples.",
        "its own condition is met",
        "Look at what Slow found.",
    )
    assert judged(store, Slow(), settings={"Slow_limit": 44}).verdict == "NoIssuesFound"


def test_a_class_of_a_file_judges_with_its_parameters(make_store: MakeStore, tmp_path: Path) -> None:
    text = (
        "import postrun\nclass Mine(postrun.Rule):\n    name = 'Mine'\n"
        "    parameters = (postrun.Parameter('limit', 'samples', 3, 3, 'positive', 'how many'),)\n"
        "    def evaluate(self, run, parameters):\n        print('asked')\n"
        "        return postrun.Outcome('NoIssuesFound', triggered=parameters['limit'])\n"
    )
    store = sampled(make_store)
    result = judged(store, attached(tmp_path, text, parameters={"limit": "9"}, name="Nine"))
    assert (result.rule, result.verdict, result.triggered, result.changed_parameters) == ("Nine", "NoIssuesFound", 9, {"limit": 9})
    for parameters, reason in (
        ({"limit": 0}, "ValueError: limit must be a positive integer! (given: 0)"),
        ({"limti": 1}, "TypeError: Mine has no parameter limti; it has: limit, scan_interval_us"),
    ):
        assert judged(store, attached(tmp_path, text, parameters=parameters)).reason == reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, "TypeError: evaluate() must return a postrun.Outcome, not bool"),
        (Outcome("Fine"), "ValueError: the verdict must be one of IssuesFound, Error, NoIssuesFound, NotEvaluated, not 'Fine'"),
        (Outcome("IssuesFound", cost=3), "TypeError: cost must be a postrun.Cost, not int"),  # type: ignore[arg-type]
        (Outcome("IssuesFound", triggered="many"), "TypeError: triggered must be a whole number, not 'many'"),  # type: ignore[arg-type]
        (Outcome("IssuesFound", details=[]), "TypeError: details must be a dict, not list"),  # type: ignore[arg-type]
        (Outcome("IssuesFound", cost=Cost("t", float("nan"), 3)), "TypeError: ns must be a whole number, not nan"),  # type: ignore[arg-type]
        (ValueError("no"), "ValueError: no (test_custom_rules.py, line "),
        (SystemExit(1), "SystemExit: 1 (test_custom_rules.py, line "),
    ],
)
def test_a_class_cannot_spoil_the_report(answer: Any, reason: str, make_store: MakeStore) -> None:
    class Odd(Slow):
        name = "Odd"

        def evaluate(self, run: Any, parameters: Any) -> Outcome:
            if isinstance(answer, BaseException):
                raise answer
            outcome: Outcome = answer
            return outcome

    result = judged(sampled(make_store), Odd)
    assert (result.rule, result.verdict) == ("Odd", "Error")
    assert (result.reason or "").startswith(reason)


def test_a_class_that_is_made_wrongly_is_an_error(make_store: MakeStore) -> None:
    class Unfinished(Rule):
        name = "Unfinished"

    class Twice(Slow):
        name = "Twice"
        parameters = (*Slow.parameters, *Slow.parameters)

    class NoTable(Slow):
        name = "NoTable"
        parameters = ("limit",)  # type: ignore[assignment]

    store = sampled(make_store, 1)
    assert (judged(store, Unfinished).reason or "").startswith("TypeError: Can't instantiate abstract class Unfinished")
    assert judged(store, Twice).reason == "Twice: parameter names must differ, and scan_interval_us is there already"
    assert judged(store, NoTable).reason == "NoTable: parameters must be a tuple of postrun.Parameter"


# -- as the command line does it -------------------------------------------------------------------------------------------


def test_load_gives_a_rule_with_its_values(make_store: MakeStore, tmp_path: Path) -> None:
    rule = load(write(tmp_path, HIGH), "Mine", {"limit": "15"})
    chosen = Chosen(rule, effective(type(rule), "documented", {}))
    report = analyze(sampled(make_store), Options(selection=Selection((chosen,), False)))
    assert (report.rules[0].violations, report.rules[0].parameters["limit"]) == (6, 15)


# -- installed packages ----------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, dict[str, str]], None]:
    """Makes an installed distribution with a module and its entry points."""

    def make(name: str, text: str, points: dict[str, str]) -> None:
        site = tmp_path / f"site-{name}"
        site.mkdir()
        (site / f"{name}.py").write_text(text, encoding="utf-8")
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        lines = [f"{key} = {value}" for key, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[postrun.rules]", *lines]) + "\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(site))

    return make


PACKAGE = """
import postrun

class Counting(postrun.Rule):
    name = "Counting"
    category = "system"
    parameters = (postrun.Parameter("limit", "samples", 3, 4, "positive", "how many"),)

    def evaluate(self, run, parameters):
        return postrun.Outcome("IssuesFound", triggered=parameters["limit"])

class Bottleneck(Counting):
    name = "CPUBottleneck"

class Other(Counting):
    name = "Other"

not_a_rule = 3
"""


def results(store: Store, chosen: Selection) -> dict[str, RuleResult]:
    report = report_of_rules(store, Options(selection=chosen))
    json.loads(report.to_json())
    return {result.rule: result for result in report.rules}


def test_an_installed_rule_takes_part(package: Any, make_store: MakeStore) -> None:
    assert installed() == {}
    package("acme_rules", PACKAGE, {"Counting": "acme_rules:Counting"})
    store = sampled(make_store, 1)
    assert list(installed()) == ["Counting"]
    everything = results(store, select())
    assert list(everything) == ["ProfilerReport", *RULES, "Counting"]
    assert (everything["Counting"].verdict, everything["Counting"].triggered, everything["Counting"].category) == (
        "IssuesFound",
        3,
        "custom",
    )
    assert "Counting" not in [row["rule"] for row in plain_details(everything["ProfilerReport"])["rules"]]
    by_name = results(store, select(["counting"], preset="service", settings={"Counting_limit": "7"}))
    assert (list(by_name), by_name["Counting"].triggered) == (["Counting"], 7)
    assert results(store, selection(["COUNTING"], preset="service"))["Counting"].triggered == 4
    assert find("counting").name == setting("counting_limit")[0].name == "Counting"
    with pytest.raises(UsageError, match="Recompiles, Counting"):
        select(["Cuonting-x"])
    with pytest.raises(UsageError, match="counting is the name of another rule"):
        selection([ProfilerRule.sagemaker(config.CPUBottleneck(), name="counting")])


def test_a_broken_installed_rule_is_an_error_of_its_name(package: Any, make_store: MakeStore) -> None:
    package("acme_rules", PACKAGE, {
        "Gone": "acme_rules:Nothing", "Missing": "acme_nothing:Rule", "Number": "acme_rules:not_a_rule", "Another": "acme_rules:Other",
    })  # fmt: skip
    package("exiting", "import sys\nprint('bye')\nsys.exit(2)\n", {"Exiting": "exiting:Rule"})
    actual = results(sampled(make_store, 1), select())
    expected = {name: result for name, result in actual.items() if name not in RULES and name != "ProfilerReport"}
    assert {result.verdict for result in expected.values()} == {"Error"}
    assert {name: result.reason for name, result in expected.items()} == {
        "Another": "ValueError: the entry point is named Another, its rule Other; name them alike; loaded from the package acme_rules",
        "Exiting": "SystemExit: 2; loaded from the package exiting",
        "Gone": "AttributeError: module 'acme_rules' has no attribute 'Nothing'; loaded from the package acme_rules",
        "Missing": "ModuleNotFoundError: No module named 'acme_nothing'; loaded from the package acme_rules",
        "Number": "TypeError: acme_rules:not_a_rule is not a subclass of postrun.Rule; loaded from the package acme_rules",
    }


def test_of_two_rules_of_one_name_the_first_runs_and_the_other_is_an_error(package: Any, make_store: MakeStore) -> None:
    package("acme_rules", PACKAGE, {"CPUBottleneck": "acme_rules:Bottleneck", "Counting": "acme_rules:Counting"})
    package("other_rules", PACKAGE.replace("4, 'pos", "5, 'pos"), {"counting": "other_rules:Counting"})
    actual = results(sampled(make_store, 1), select())
    assert actual["CPUBottleneck"].category == "system"
    assert actual["CPUBottleneck (acme_rules)"].verdict == "Error"
    assert actual["CPUBottleneck (acme_rules)"].reason == "a rule of postrun has the name CPUBottleneck; the one of acme_rules is not run"
    assert actual["Counting"].verdict == "IssuesFound"
    assert actual["counting (other_rules)"].reason == "a rule of acme_rules has the name counting; the one of other_rules is not run"


# -- bounds ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["next(run.samples.blocks()).series('gpuu')", "run.samples.has('gpuu')"])
def test_a_figure_that_does_not_exist_is_answered_with_those_that_do(call: str, make_store: MakeStore, tmp_path: Path) -> None:
    text = f"import postrun\nclass Mine(postrun.Rule):\n    def evaluate(self, run, parameters):\n        {call}\n"
    reason = judged(sampled(make_store, 1), attached(tmp_path, text)).reason or ""
    assert reason.startswith("ValueError: 'gpuu' is not a figure of the samples; accepted: gpu, gpu_memory, core, core_iowait, cpu")


def test_each_window_of_the_documented_rule_is_judged_by_itself(make_store: MakeStore, tmp_path: Path, project_root: Path) -> None:
    page = (project_root / "docs" / "custom-rules.md").read_text("utf-8")
    text = page[page.index("# my_rule.py") :].partition("```")[0]
    store = make_store(
        run=[{"name": "falls"}],
        sample=[
            {"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": ORIGIN + n * 10 * SECOND, "value": 99.0 if n < 6 else 1.0}
            for n in range(18)
        ],
    )
    result = judged(store, attached(tmp_path, text, rule="HotGPU", parameters={"threshold": 15}))
    assert (result.windows, result.windows_triggered, result.violations, result.datapoints) == (3, 1, 6, 18)


def test_time_is_looked_at_between_windows_where_there_is_no_alarm(make_store: MakeStore, tmp_path: Path) -> None:
    text = BEGIN + "    def invoke(self, step):\n        import time\n        time.sleep(0.2)\n"
    store, actual = sampled(make_store), []
    rule = attached(tmp_path, text)

    def judge() -> None:
        actual.append(judged(store, rule, rule_timeout=0.1))

    thread = threading.Thread(target=judge)
    thread.start()
    thread.join()
    assert (actual[0].verdict, actual[0].windows) == ("Error", 0)
    assert actual[0].reason.startswith("RuleTimeout: stopped after 0.1 s; --rule-timeout")


def test_an_alarm_of_the_caller_is_kept(make_store: MakeStore, tmp_path: Path) -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 500)
        store, rule = sampled(make_store, 1), attached(tmp_path, HIGH)
        assert judged(store, rule).verdict == "NoIssuesFound"
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        assert 400 < left < 500
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_end_of_the_program_is_no_verdict(make_store: MakeStore, tmp_path: Path) -> None:
    text = BEGIN + "    def invoke(self, step):\n        from postrun.errors import Terminated\n        raise Terminated(143)\n"
    with pytest.raises(Terminated):
        judged(sampled(make_store, 1), attached(tmp_path, text))
