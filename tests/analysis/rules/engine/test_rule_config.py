"""rule_configs and ProfilerRule give the documented dictionaries and messages, and select the rules.

The tables are the documented ones, written down here; nothing of them is read from the rules.
"""

from __future__ import annotations

import inspect
import math
import pydoc
from typing import Any

import numpy as np
import pytest
from postrun.analysis.rules.engine import config as rule_configs
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.analysis.rules.engine.config import ProfilerRule, selection
from postrun.analysis.rules.evidence.base import Outcome, Parameter, Rule
from postrun.errors import UsageError

MINUTE_US = 60 * 1000 * 1000

# rule -> parameter -> (documented, service)
DEFAULTS: dict[str, dict[str, tuple[Any, Any]]] = {
    "BatchSize": {
        "cpu_threshold_p95": (70, 70), "gpu_threshold_p95": (70, 70), "gpu_memory_threshold_p95": (70, 70), "patience": (100, 1000),
        "window": (500, 500),
    },
    "CPUBottleneck": {"threshold": (50, 50), "gpu_threshold": (10, 10), "cpu_threshold": (90, 90), "patience": (100, 1000)},
    "GPUMemoryIncrease": {"increase": (10, 5), "patience": (100, 1000), "window": (500, 10)},
    "IOBottleneck": {"threshold": (50, 50), "gpu_threshold": (70, 10), "io_threshold": (50, 50), "patience": (1000, 1000)},
    "LoadBalancing": {"threshold": (0.5, 0.24), "patience": (10, 1000)},
    "LowGPUUtilization": {"threshold_p95": (70, 70), "threshold_p5": (10, 10), "patience": (1000, 1000), "window": (500, 500)},
    "MaxInitializationTime": {"threshold": (20, 20)},
    "StepOutlier": {"stddev": (5, 3), "mode": (None, None), "n_outliers": (10, 10)},
    "Dataloader": {"min_threshold": (70, 70), "max_threshold": (200, 200), "patience": (10, 10)},
    "OverallSystemUsage": {},
    "OverallFrameworkMetrics": {},
    "HostBound": {"idle_threshold": (20, 20), "host_share": (50, 50)},
    "InputBound": {"threshold": (20, 20), "patience": (10, 10)},
    "HostPreprocessing": {"threshold": (5, 5)},
    "ExposedCommunication": {"threshold": (10, 10)},
    "LowPrecision": {"threshold": (30, 30)},
    "PageableCopies": {"threshold": (1, 1)},
    "SyncBound": {"threshold": (10, 10)},
    "ShortKernels": {"short_us": (10, 10), "count_threshold": (50, 50), "time_threshold": (10, 10)},
    "StragglerRank": {"threshold": (10, 10), "explained": (50, 50)},
    "StageImbalance": {"threshold": (10, 10), "explained": (50, 50)},
    "WorkImbalance": {"threshold": (5, 5), "between": (25, 25)},
    "HostPauses": {"threshold": (2, 2)},
    "SlowCollectives": {"link_threshold": (40, 40), "peer_threshold": (70, 70)},
    "ExposedCopies": {"threshold": (10, 10), "bucket_threshold": (1, 1)},
    "UnfusedElementwise": {"threshold": (10, 10)},
    "UnfusedAttention": {"threshold": (5, 5)},
    "LowOccupancy": {"threshold": (5, 5), "filled": (25, 25), "short_us": (10, 10)},
    "LayoutConversions": {"threshold": (10, 10)},
    "InefficientMatmul": {"threshold": (5, 5)},
    "Recompiles": {"threshold": (5, 5), "first_steps": (3, 3)},
}  # fmt: skip
REPORTED = sorted([
    "BatchSize", "CPUBottleneck", "Dataloader", "GPUMemoryIncrease", "IOBottleneck", "LoadBalancing", "LowGPUUtilization",
    "MaxInitializationTime", "OverallFrameworkMetrics", "OverallSystemUsage", "StepOutlier",
])  # fmt: skip
ORDER = [
    "CPUBottleneck", "IOBottleneck", "LowGPUUtilization", "StepOutlier", "GPUMemoryIncrease", "BatchSize", "MaxInitializationTime",
    "LoadBalancing", "OverallSystemUsage", "Dataloader", "OverallFrameworkMetrics",
]  # fmt: skip
PERCENTILES = [
    ("BatchSize", "cpu_threshold_p95"), ("BatchSize", "gpu_threshold_p95"), ("BatchSize", "gpu_memory_threshold_p95"),
    ("CPUBottleneck", "threshold"), ("CPUBottleneck", "gpu_threshold"), ("CPUBottleneck", "cpu_threshold"), ("IOBottleneck", "threshold"),
    ("IOBottleneck", "gpu_threshold"), ("IOBottleneck", "io_threshold"), ("LoadBalancing", "threshold"),
    ("LowGPUUtilization", "threshold_p95"), ("LowGPUUtilization", "threshold_p5"),
]  # fmt: skip
POSITIVE = [
    ("BatchSize", "patience"), ("BatchSize", "window"), ("CPUBottleneck", "patience"), ("IOBottleneck", "patience"),
    ("GPUMemoryIncrease", "increase"), ("GPUMemoryIncrease", "patience"), ("GPUMemoryIncrease", "window"), ("LoadBalancing", "patience"),
    ("LowGPUUtilization", "patience"), ("LowGPUUtilization", "window"), ("MaxInitializationTime", "threshold"), ("StepOutlier", "stddev"),
    ("StepOutlier", "n_outliers"), ("Dataloader", "min_threshold"), ("Dataloader", "max_threshold"),
    *((rule, "scan_interval_us") for rule in DEFAULTS),
]  # fmt: skip


def make(rule: str, **parameters: Any) -> rule_configs.RuleConfig:
    config: rule_configs.RuleConfig = getattr(rule_configs, rule)(**parameters)
    return config


@pytest.mark.parametrize("preset", ["documented", "service"])
@pytest.mark.parametrize("rule", DEFAULTS)
def test_defaults(rule: str, preset: str) -> None:
    column = ["documented", "service"].index(preset)
    expected = {name: values[column] for name, values in DEFAULTS[rule].items()}
    config = make(rule, preset=preset)
    assert config.rule_name == rule
    assert config.rule_parameters == {**expected, "scan_interval_us": MINUTE_US, "rule_to_invoke": rule}
    assert list(config.rule_parameters)[-1] == "rule_to_invoke"
    if preset == "documented":
        assert make(rule).rule_parameters == config.rule_parameters


@pytest.mark.parametrize("rule", DEFAULTS)
def test_the_signature_and_the_help_name_every_parameter_with_its_documented_default(rule: str) -> None:
    parameters = inspect.signature(getattr(rule_configs, rule)).parameters
    expected = {**{name: values[0] for name, values in DEFAULTS[rule].items()}, "scan_interval_us": MINUTE_US, "preset": "documented"}
    assert {name: one.default for name, one in parameters.items()} == expected
    text = pydoc.plain(pydoc.render_doc(getattr(rule_configs, rule)))
    for name in [*DEFAULTS[rule], "scan_interval_us"]:
        line = next(line for line in text.splitlines() if line.strip(" |").startswith(f"{name}: "))
        assert "; default " in line
        assert line.endswith("]")


def test_help_shows_units_and_the_other_default() -> None:
    text = pydoc.plain(pydoc.render_doc(rule_configs.GPUMemoryIncrease))
    assert "[percentage points; default 10; service: 5]" in text
    assert "[samples; default 500; service: 10]" in text


def test_every_rule_is_there_and_nothing_else() -> None:
    assert set(rule_configs.CONFIGURATIONS) == {*DEFAULTS, "ProfilerReport"}
    assert set(DEFAULTS) <= set(dir(rule_configs))
    with pytest.raises(AttributeError, match="rule_configs has no rule 'LowGpuUtilisation'; it has: CPUBottleneck, "):
        _ = rule_configs.LowGpuUtilisation


# Quotes of the released API, for the service preset: rule, values, the request's parameters.
QUOTED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("CPUBottleneck", {"gpu_threshold": 60}, {
        "rule_to_invoke": "CPUBottleneck", "threshold": "50", "gpu_threshold": "60", "cpu_threshold": "90", "patience": "1000",
        "scan_interval_us": "60000000",
    }),
    ("StepOutlier", {}, {
        "stddev": "3", "mode": "None", "n_outliers": "10", "scan_interval_us": "60000000", "rule_to_invoke": "StepOutlier",
    }),
    ("GPUMemoryIncrease", {}, {
        "increase": "5", "patience": "1000", "window": "10", "scan_interval_us": "60000000", "rule_to_invoke": "GPUMemoryIncrease",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "values", "expected"), QUOTED)
def test_the_quoted_requests(rule: str, values: dict[str, Any], expected: dict[str, str]) -> None:
    attached = ProfilerRule.sagemaker(make(rule, preset="service", **values))
    assert attached.to_profiler_rule_config_dict() == {
        "RuleConfigurationName": rule,
        "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
        "RuleParameters": expected,
    }
    assert attached.rule_parameters["scan_interval_us"] == MINUTE_US  # making the request changes nothing


def test_the_quoted_requests_of_profiler_report_and_of_a_custom_rule() -> None:
    report = ProfilerRule.sagemaker(rule_configs.ProfilerReport(CPUBottleneck_threshold=90), name="X")
    assert report.to_profiler_rule_config_dict() == {
        "RuleConfigurationName": "X",
        "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
        "RuleParameters": {"CPUBottleneck_threshold": "90", "rule_to_invoke": "ProfilerReport"},
    }
    custom = ProfilerRule.custom(
        name="N", image_uri="I", instance_type="ml.c4.xlarge", volume_size_in_gb=10, source="s.py", rule_to_invoke="R",
        rule_parameters={"a": 1},
    )  # fmt: skip
    assert custom.to_profiler_rule_config_dict() == {
        "RuleConfigurationName": "N",
        "RuleEvaluatorImage": "I",
        "InstanceType": "ml.c4.xlarge",
        "VolumeSizeInGB": 10,
        "RuleParameters": {"source_s3_uri": "s.py", "rule_to_invoke": "R", "a": "1"},
    }


def test_fields_are_kept_and_stand_in_the_request() -> None:
    attached = ProfilerRule.sagemaker(
        rule_configs.OverallSystemUsage(), "mine", "/opt/ml/processing/x", "s3://bucket/prefix", "ml.m5.4xlarge", 128,
    )  # fmt: skip
    assert (attached.name, attached.image_uri, attached.instance_type, attached.volume_size_in_gb) == (
        "mine", "DEFAULT_RULE_EVALUATOR_IMAGE", "ml.m5.4xlarge", 128,
    )  # fmt: skip
    assert (attached.container_local_output_path, attached.s3_output_path) == ("/opt/ml/processing/x", "s3://bucket/prefix")
    assert attached.to_profiler_rule_config_dict() == {
        "RuleConfigurationName": "mine",
        "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
        "InstanceType": "ml.m5.4xlarge",
        "VolumeSizeInGB": 128,
        "LocalPath": "/opt/ml/processing/x",
        "S3OutputPath": "s3://bucket/prefix",
        "RuleParameters": {"scan_interval_us": "60000000", "rule_to_invoke": "OverallSystemUsage"},
    }


# -- validation ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "parameter"), PERCENTILES)
def test_percentiles(rule: str, parameter: str) -> None:
    for value in (0, 100, 50.5):
        assert make(rule, **{parameter: value}).rule_parameters[parameter] == value
    for value in (-1, 100.5, 101, math.nan, math.inf):
        with pytest.raises(AssertionError) as failure:
            make(rule, **{parameter: value})
        assert str(failure.value) == f"{parameter} must be a valid percentile!"


@pytest.mark.parametrize(("rule", "parameter"), POSITIVE)
def test_positive_numbers(rule: str, parameter: str) -> None:
    for value in (1, 0.5, 10**9):
        assert make(rule, **{parameter: value}).rule_parameters[parameter] == value
    for value in (0, -1, -0.5, math.nan):
        with pytest.raises(AssertionError) as failure:
            make(rule, **{parameter: value})
        assert str(failure.value) == f"{parameter} must be a positive integer!"


def test_mode() -> None:
    assert make("StepOutlier", mode="TRAIN").rule_parameters["mode"] == "TRAIN"
    assert make("StepOutlier", mode=None).rule_parameters["mode"] is None
    with pytest.raises(AssertionError) as failure:
        make("StepOutlier", mode=3)
    assert str(failure.value) == "Mode must be a string if specified!"


@pytest.mark.parametrize("value", ["70", None, [70], True])
def test_what_is_no_number_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="patience must be a number"):
        make("LowGPUUtilization", patience=value)


def test_numbers_of_numpy_become_plain() -> None:
    actual = make("LowGPUUtilization", patience=np.int64(5), threshold_p5=np.float32(2.5)).rule_parameters
    assert (actual["patience"], type(actual["patience"]), actual["threshold_p5"], type(actual["threshold_p5"])) == (5, int, 2.5, float)


def test_unknown_and_positional_parameters_and_presets_are_type_errors() -> None:
    with pytest.raises(TypeError, match=r"LowGPUUtilization\(\) got an unexpected keyword argument 'pateince'; accepted: threshold_p95, "):
        make("LowGPUUtilization", pateince=3)
    with pytest.raises(TypeError):
        rule_configs.LowGPUUtilization(70)  # type: ignore[call-arg, misc]
    with pytest.raises(TypeError, match="preset='hosted'; accepted: documented, service"):
        make("LowGPUUtilization", preset="hosted")
    with pytest.raises(TypeError, match="take one of the classes"):
        rule_configs.RuleConfig()


def test_profiler_report_keeps_the_keys_as_typed() -> None:
    values = {"cpubottleneck_threshold": 90, "StepOutlier_MODE": "TRAIN", "Dataloader_scan_interval_us": 5}
    assert rule_configs.ProfilerReport(**values).rule_parameters == {**values, "rule_to_invoke": "ProfilerReport"}
    assert rule_configs.ProfilerReport().rule_parameters == {"rule_to_invoke": "ProfilerReport"}
    assert rule_configs.ProfilerReport(opt_out_telemetry=True).rule_parameters == {"rule_to_invoke": "ProfilerReport"}


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("threshold", 1, AssertionError, "Key (threshold) does not follow naming scheme: <rule_name>_<parameter_name>"),
        ("Foo_x", 1, AssertionError, f"foo is an invalid rule name! Accepted rule names (case insensitive) are: {REPORTED}"),
        ("HostBound_host_share", 1, AssertionError,
         f"hostbound is an invalid rule name! Accepted rule names (case insensitive) are: {REPORTED}"),
        ("CPUBottleneck_window", 1, TypeError, "window is an invalid parameter name! Accepted parameter names for CPUBottleneck are: "
         "(self, threshold=50, gpu_threshold=10, cpu_threshold=90, patience=100, scan_interval_us=60000000)"),
        ("cpubottleneck_Threshold", 190, AssertionError, "threshold must be a valid percentile!"),
        ("BatchSize_patience", 0, AssertionError, "patience must be a positive integer!"),
        ("stepoutlier_mode", 3, AssertionError, "Mode must be a string if specified!"),
    ],
)  # fmt: skip
def test_errors_of_profiler_report(key: str, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as failure:
        rule_configs.ProfilerReport(**{key: value})
    assert str(failure.value) == message
    with pytest.raises(error):
        ProfilerRule.sagemaker(rule_configs.ProfilerReport(), rule_parameters={key: value})


def test_one_parameter_in_two_spellings_is_an_error() -> None:
    with pytest.raises(TypeError, match="CPUBottleneck_threshold is given twice"):
        rule_configs.ProfilerReport(CPUBottleneck_threshold=1, cpubottleneck_threshold=2)


def test_rule_parameters_of_a_profiler_rule_stand_over_those_of_its_base() -> None:
    base = rule_configs.CPUBottleneck(gpu_threshold=60, threshold=40)
    attached = ProfilerRule.sagemaker(base, rule_parameters={"threshold": "90", "patience": "10", "cpu_threshold": 80.5})
    assert attached.rule_parameters == {
        "threshold": 90, "gpu_threshold": 60, "cpu_threshold": 80.5, "patience": 10, "scan_interval_us": MINUTE_US,
        "rule_to_invoke": "CPUBottleneck",
    }  # fmt: skip
    assert base.rule_parameters["threshold"] == 40
    outlier = ProfilerRule.sagemaker(rule_configs.StepOutlier(mode="TRAIN"), rule_parameters={"mode": "None", "n_outliers": "3"})
    assert (outlier.rule_parameters["mode"], outlier.rule_parameters["n_outliers"]) == (None, 3)
    report = ProfilerRule.sagemaker(rule_configs.ProfilerReport(), rule_parameters={"CPUBottleneck_threshold": "90"})
    assert report.rule_parameters == {"CPUBottleneck_threshold": 90, "rule_to_invoke": "ProfilerReport"}


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"threshold": "190"}, AssertionError, "threshold must be a valid percentile!"),
        ({"patience": 0}, AssertionError, "patience must be a positive integer!"),
        ({"patience": "many"}, TypeError, "patience must be a number, not str 'many'"),
        ({"window": 5}, TypeError, "CPUBottleneck() got an unexpected keyword argument 'window'; accepted: threshold, gpu_threshold, "
         "cpu_threshold, patience, scan_interval_us"),
    ],
)  # fmt: skip
def test_rule_parameters_are_validated(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as failure:
        ProfilerRule.sagemaker(rule_configs.CPUBottleneck(), rule_parameters=parameters)
    assert str(failure.value) == message


@pytest.mark.parametrize("base", [rule_configs.CPUBottleneck, "CPUBottleneck", None])
def test_a_base_that_is_no_configuration(base: Any) -> None:
    with pytest.raises(TypeError, match="base_config must be an object of a class of rule_configs"):
        ProfilerRule.sagemaker(base)


@pytest.mark.parametrize("values", [{"source": "s.py"}, {"rule_to_invoke": "R"}])
def test_source_and_rule_to_invoke_belong_together(values: dict[str, str]) -> None:
    with pytest.raises(ValueError) as failure:
        ProfilerRule.custom(name="N", image_uri="I", **values)  # type: ignore[arg-type]
    assert str(failure.value) == "If you provide a source, you must also provide a rule to invoke (and vice versa)."


# -- what runs -------------------------------------------------------------------------------------------------------------


def names(*rules: Any, **more: Any) -> list[str]:
    return [chosen.label or chosen.rule.name for chosen in selection(list(rules), **more).rules]


def test_nothing_said_means_everything() -> None:
    selected = selection()
    assert {chosen.rule.name for chosen in selected.rules} == set(DEFAULTS)
    assert selected.summarized
    assert not selection([]).rules
    assert not selection([]).summarized


def test_profiler_report_runs_the_documented_rules_with_its_values() -> None:
    selected = selection([rule_configs.ProfilerReport(lowgpuutilization_PATIENCE=5)])
    assert [chosen.rule.name for chosen in selected.rules] == ORDER
    assert selected.summarized
    chosen = {chosen.rule.name: chosen.parameters for chosen in selected.rules}
    assert chosen["LowGPUUtilization"]["patience"] == 5
    assert chosen["LowGPUUtilization"].changed == ("patience",)
    assert (chosen["CPUBottleneck"]["patience"], chosen["CPUBottleneck"].changed) == (100, ())


def test_rules_run_in_the_order_of_the_catalog_once_each() -> None:
    assert names("hostbound", rule_configs.BatchSize(), "CPUBottleneck", "cpubottleneck") == ["CPUBottleneck", "BatchSize", "HostBound"]
    assert not selection(["CPUBottleneck"]).summarized
    assert [chosen.rule.name for chosen in selection("profilerreport").rules] == ORDER  # type: ignore[arg-type]


def test_configurations_carry_their_values_and_the_preset_counts_for_names() -> None:
    selected = selection([rule_configs.CPUBottleneck(), "GPUMemoryIncrease"], preset="service")
    assert [dict(chosen.parameters)["patience"] for chosen in selected.rules] == [100, 1000]
    service = selection([rule_configs.GPUMemoryIncrease(preset="service", increase=7)]).rules[0].parameters
    assert (service["window"], service["increase"], service.changed) == (10, 7, ("increase",))
    report = selection([rule_configs.ProfilerReport()], preset="service")
    assert {chosen.rule.name: chosen.parameters for chosen in report.rules}["GPUMemoryIncrease"]["window"] == 10
    expected = selection([rule_configs.ProfilerReport(preset="service")])
    assert {chosen.rule.name: chosen.parameters for chosen in expected.rules}["GPUMemoryIncrease"]["window"] == 10


def test_settings_stand_over_everything() -> None:
    rules = [rule_configs.ProfilerReport(BatchSize_patience=5), ProfilerRule.sagemaker(rule_configs.BatchSize(patience=6), name="mine")]
    selected = selection(rules, settings={"profilerreport_batchsize_patience": "7", "mine_patience": 8})
    assert {
        chosen.label or chosen.rule.name: chosen.parameters["patience"] for chosen in selected.rules if chosen.rule.name == "BatchSize"
    } == {
        "BatchSize": 7,
        "mine": 8,
    }
    for settings, message in (
        ({"BatchSize_patience": 0}, "BatchSize_patience=0: patience must be a positive integer! "),
        ({"BatchSize_pateince": 1}, "'pateince' is not a parameter of BatchSize"),
        ({"Batch_patience": 1}, "'Batch' is not a rule"),
        ({"patience": 1}, "'patience' names no rule; write CPUBottleneck_patience or "),
        ({"HostBound_host_share": 1}, r"HostBound_host_share: HostBound is turned off; .* \(on: BatchSize\)"),
    ):
        with pytest.raises(UsageError, match=message):
            selection(["BatchSize"], settings=settings)


def test_the_same_rule_may_be_attached_under_another_name() -> None:
    loose = ProfilerRule.sagemaker(rule_configs.CPUBottleneck(threshold=90), name="loose")
    assert names(loose, "ProfilerReport")[:3] == ["CPUBottleneck", "loose", "IOBottleneck"]
    assert len(names(loose, "ProfilerReport")) == len(ORDER) + 1


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["CPUBottleneck", rule_configs.CPUBottleneck()], "two rules of the name CPUBottleneck are attached; give one of them another"),
        ([rule_configs.CPUBottleneck(), rule_configs.CPUBottleneck()], "two rules of the name CPUBottleneck"),
        (["ProfilerReport", rule_configs.ProfilerReport()], "ProfilerReport is attached twice"),
        ([rule_configs.ProfilerReport(CPUBottleneck_patience=5), "CPUBottleneck"],
         "CPUBottleneck is attached itself, and ProfilerReport sets patience of it; set them in one place"),
        ([ProfilerRule.sagemaker(rule_configs.CPUBottleneck(), name="iobottleneck")], "iobottleneck is the name of another rule"),
        (["CPUBotleneck"], r"'CPUBotleneck' is not a rule \(did you mean CPUBottleneck\?\); accepted: ProfilerReport, CPUBottleneck"),
    ],
)  # fmt: skip
def test_names_must_differ_and_exist(rules: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        selection(rules)


def test_a_rule_of_profiler_report_may_be_attached_itself() -> None:
    selected = selection(["ProfilerReport", rule_configs.CPUBottleneck(threshold=7)])
    assert [chosen.rule.name for chosen in selected.rules] == ORDER
    assert selected.rules[0].parameters["threshold"] == 7


def test_values_changed_after_the_making_are_checked_again() -> None:
    changed = rule_configs.CPUBottleneck()
    changed.rule_parameters["threshold"] = "12.5"
    assert selection([changed]).rules[0].parameters["threshold"] == 12.5
    changed.rule_parameters["threshold"] = 300
    with pytest.raises(UsageError, match="CPUBottleneck_threshold=300: threshold must be a valid percentile!"):
        selection([changed])
    changed.rule_parameters = {"treshold": 3, "rule_to_invoke": "CPUBottleneck"}
    with pytest.raises(UsageError, match="treshold: no parameter of CPUBottleneck; accepted: threshold, "):
        selection([changed])


@pytest.mark.parametrize("rule", [3, rule_configs.CPUBottleneck, int, None])
def test_what_is_no_rule(rule: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a rule|is a class; attach an object of it: CPUBottleneck\(\)"):
        selection([rule])


def test_at_most_twenty_rules_without_the_trace_rules() -> None:
    def attached(number: int) -> list[Any]:
        return [ProfilerRule.sagemaker(rule_configs.CPUBottleneck(), name=f"rule-{i}") for i in range(number)]

    trace = [name for name, rule in RULES.items() if rule.category == "trace"]
    assert trace == [name for name in RULES if name not in ORDER]
    assert len(selection([*attached(20), *trace]).rules) == 20 + len(trace)
    assert len(selection([*attached(19), "ProfilerReport"]).rules) == 19 + len(ORDER)
    for rules in (attached(21), [*attached(20), "ProfilerReport"]):
        with pytest.raises(UsageError, match=r"21 rules are attached; at most 20 can be \(trace rules do not count\)"):
            selection(rules)


def test_a_wrong_preset() -> None:
    with pytest.raises(UsageError, match="preset='hosted'; accepted: documented, service"):
        selection([], preset="hosted")  # type: ignore[arg-type]


class Mine(Rule):
    """Returns its parameters."""

    name = "Mine"
    parameters = (Parameter("limit", "steps", 3, 4, "positive", "how many"),)

    def evaluate(self, run: Any, parameters: Any) -> Outcome:
        return Outcome("IssuesFound", triggered=parameters["limit"])


def test_classes_and_objects_of_own_rules_take_part() -> None:
    for rule in (Mine, Mine()):
        selected = selection(["hostbound", rule], preset="service", settings={"Mine_limit": "9"})
        assert [chosen.rule.name for chosen in selected.rules] == ["HostBound", "Mine"]
        assert (selected.rules[1].parameters["limit"], selected.rules[1].parameters.changed) == (9, ("limit",))
        assert selected.rules[1].rule.category == "custom"
        assert selection([rule], preset="service").rules[0].parameters["limit"] == 4


def test_an_own_rule_cannot_take_the_name_of_one_of_postruns() -> None:
    class CPUBottleneck(Mine):
        name = "CPUBottleneck"

    with pytest.raises(UsageError, match="CPUBottleneck is the name of another rule; give yours a name of its own"):
        selection([CPUBottleneck])
