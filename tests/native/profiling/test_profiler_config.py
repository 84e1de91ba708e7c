"""The classes of profiling configuration produce the documented dictionaries and messages, and the launcher's requests.

The tables are copies of the documented ones; nothing in them is read from the classes.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import postrun
import pytest
from postrun import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    Profiler,
    ProfilerConfig,
    ProfilerRule,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    StepRange,
    TimeRange,
    cProfileTimer,
    profiler_requests,
    rule_configs,
)

KINDS = {
    "DetailedProfilingConfig": DetailedProfilingConfig,
    "DataloaderProfilingConfig": DataloaderProfilingConfig,
    "PythonProfilingConfig": PythonProfilingConfig,
    "HorovodProfilingConfig": HorovodProfilingConfig,
    "SMDataParallelProfilingConfig": SMDataParallelProfilingConfig,
}
FILES = {
    "LocalPath": "/opt/ml/output/profiler",
    "RotateMaxFileSizeInBytes": "10485760",
    "RotateFileCloseIntervalInSeconds": "60",
    "FileOpenFailThreshold": "50",
}
DEFAULT = {
    **FILES,
    "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 1, }',
    "DataloaderProfilingConfig": '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }',
    "PythonProfilingConfig": '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default", }',
    "HorovodProfilingConfig": '{"StartStep": 13, "NumSteps": 1, }',
    "SMDataParallelProfilingConfig": '{"StartStep": 15, "NumSteps": 1, }',
}


def in_all(text: str) -> dict[str, str]:
    return {
        **FILES,
        "DetailedProfilingConfig": "{" + text + "}",
        "DataloaderProfilingConfig": "{" + text + '"MetricsRegex": ".*", }',
        "PythonProfilingConfig": "{" + text + '"ProfilerName": "cprofile", "cProfileTimer": "total_time", }',
        "HorovodProfilingConfig": "{" + text + "}",
        "SMDataParallelProfilingConfig": "{" + text + "}",
    }


def framework(**parameters: Any) -> ProfilerConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return ProfilerConfig(framework_profile_params=FrameworkProfile(**parameters))


# -- names --------------------------------------------------------------------------------------------------------------------

SIGNATURES: list[tuple[Any, dict[str, Any]]] = [
    (Profiler, {"cpu_profiling_duration": "3600", "file_rotation_interval": "600"}),
    (ProfilerConfig, {
        "s3_output_path": None, "system_monitor_interval_millis": None, "framework_profile_params": None, "profile_params": None,
        "disable_profiler": False, "profiler_params": None,
    }),
    (FrameworkProfile, {
        "local_path": "/opt/ml/output/profiler", "file_max_size": 10485760, "file_close_interval": 60, "file_open_fail_threshold": 50,
        "detailed_profiling_config": None, "dataloader_profiling_config": None, "python_profiling_config": None,
        "horovod_profiling_config": None, "smdataparallel_profiling_config": None, "start_step": None, "num_steps": None,
        "start_unix_time": None, "duration": None,
    }),
    *((kind, {
        "start_step": None, "num_steps": None, "start_unix_time": None, "duration": None, "profile_default_steps": False, **own,
    }) for kind, own in (
        (DetailedProfilingConfig, {"record_shapes": False, "with_stack": False}),
        (DataloaderProfilingConfig, {"metrics_regex": ".*"}),
        (PythonProfilingConfig, {"python_profiler": PythonProfiler.CPROFILE, "cprofile_timer": cProfileTimer.TOTAL_TIME}),
        (HorovodProfilingConfig, {}),
        (SMDataParallelProfilingConfig, {}),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), SIGNATURES, ids=[kind.__name__ for kind, _ in SIGNATURES])
def test_parameters_in_their_order_with_their_defaults(kind: Any, expected: dict[str, Any]) -> None:
    actual = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    assert list(actual.items()) == list(expected.items())


def test_the_enumerations() -> None:
    assert {one.name: one.value for one in PythonProfiler} == {"CPROFILE": "cprofile", "PYINSTRUMENT": "pyinstrument"}
    assert {one.name: one.value for one in cProfileTimer} == {
        "TOTAL_TIME": "total_time", "CPU_TIME": "cpu_time", "OFF_CPU_TIME": "off_cpu_time", "DEFAULT": "default",
    }  # fmt: skip


def test_every_name_is_one_of_postrun_and_loads_no_library() -> None:
    names = ["Profiler", "ProfilerConfig", "FrameworkProfile", *KINDS, "StepRange", "TimeRange", "PythonProfiler", "cProfileTimer"]
    assert set(names) | {"profiler_requests"} <= set(postrun.__all__)
    code = f"import sys, postrun\nfor name in {names}: getattr(postrun, name)\nprint(*{{'polars', 'duckdb', 'click'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# -- dictionaries -------------------------------------------------------------------------------------------------------------


def test_a_profiler() -> None:
    config = Profiler()
    assert config.profiling_parameters == {"CPUProfilingDuration": "3600", "SMPFileRotationSecs": "600"}
    assert (config.instanceType, config.volumeSizeInGB) == ("ml.m5.4xlarge", 128)
    assert Profiler(120).profiling_parameters == Profiler("120", 600).profiling_parameters
    assert Profiler(120).profiling_parameters["CPUProfilingDuration"] == "120"


REQUESTS: list[tuple[ProfilerConfig, dict[str, Any]]] = [
    (ProfilerConfig(), {"DisableProfiler": False}),
    (ProfilerConfig("s3://b/p", 500), {"S3OutputPath": "s3://b/p", "DisableProfiler": False, "ProfilingIntervalInMilliseconds": 500}),
    (ProfilerConfig("s3://b/p", disable_profiler=True), {"DisableProfiler": True}),
    (ProfilerConfig(profile_params=Profiler(3600)), {
        "DisableProfiler": False, "ProfilingParameters": {"CPUProfilingDuration": "3600", "SMPFileRotationSecs": "600"},
    }),
    (framework(), {"DisableProfiler": False, "ProfilingParameters": DEFAULT}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), REQUESTS)
def test_the_quoted_requests(config: ProfilerConfig, expected: dict[str, Any]) -> None:
    assert config._to_request_dict() == expected
    assert list(config._to_request_dict()) == list(expected)


def test_the_request_that_turns_profiling_off() -> None:
    assert ProfilerConfig._to_profiler_disabled_request_dict() == {"DisableProfiler": True}


PROFILES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, DEFAULT),
    ({"start_step": 6, "num_steps": 1}, in_all('"StartStep": 6, "NumSteps": 1, ')),
    ({"start_step": 3, "num_steps": 5}, in_all('"StartStep": 3, "NumSteps": 5, ')),
    ({"start_step": 6}, in_all('"StartStep": 6, "NumSteps": 1, ')),
    ({"num_steps": 2}, in_all('"StartStep": 0, "NumSteps": 2, ')),
    ({"start_step": 0}, in_all('"StartStep": 0, "NumSteps": 1, ')),
    ({"start_unix_time": 1700000000, "duration": 600}, in_all('"StartTimeInSecSinceEpoch": 1700000000, "Duration": 600, ')),
    ({"start_unix_time": 1700000000}, in_all('"StartTimeInSecSinceEpoch": 1700000000, ')),
    ({"duration": 0.5}, in_all('"Duration": 0.5, ')),
    ({"local_path": "/tmp/test", "file_max_size": 20971520, "file_close_interval": 30.0, "file_open_fail_threshold": 60}, {
        **DEFAULT, "LocalPath": "/tmp/test", "RotateMaxFileSizeInBytes": "20971520", "RotateFileCloseIntervalInSeconds": "30.0",
        "FileOpenFailThreshold": "60",
    }),
    # Configurations of kinds: only these, and a range next to them is ignored.
    ({
        "detailed_profiling_config": DetailedProfilingConfig(start_step=3, num_steps=5),
        "dataloader_profiling_config": DataloaderProfilingConfig(start_step=3, metrics_regex="Dataset::Iterator::GetNext"),
        "python_profiling_config": PythonProfilingConfig(num_steps=5, python_profiler=PythonProfiler.PYINSTRUMENT),
        "horovod_profiling_config": HorovodProfilingConfig(start_unix_time=1700000000),
        "smdataparallel_profiling_config": SMDataParallelProfilingConfig(duration=30),
        "start_step": 1, "num_steps": 10,
    }, {
        **FILES,
        "DetailedProfilingConfig": '{"StartStep": 3, "NumSteps": 5, }',
        "DataloaderProfilingConfig": '{"StartStep": 3, "NumSteps": 1, "MetricsRegex": "Dataset::Iterator::GetNext", }',
        "PythonProfilingConfig": '{"StartStep": 0, "NumSteps": 5, "ProfilerName": "pyinstrument", }',
        "HorovodProfilingConfig": '{"StartTimeInSecSinceEpoch": 1700000000, }',
        "SMDataParallelProfilingConfig": '{"Duration": 30, }',
    }),
    ({"python_profiling_config": PythonProfilingConfig(start_unix_time=1700000000, duration=30, cprofile_timer=cProfileTimer.CPU_TIME)}, {
        **FILES,
        "PythonProfilingConfig":
            '{"StartTimeInSecSinceEpoch": 1700000000, "Duration": 30, "ProfilerName": "cprofile", "cProfileTimer": "cpu_time", }',
    }),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), PROFILES)
def test_profiling_parameters(arguments: dict[str, Any], expected: dict[str, str]) -> None:
    actual = FrameworkProfile(**arguments).profiling_parameters
    assert actual == expected
    assert list(actual) == list(expected)
    assert all(isinstance(value, str) and len(value) <= 256 for value in actual.values())
    for name in KINDS:  # each is a dictionary of Python
        assert name not in actual or isinstance(ast.literal_eval(actual[name]), dict)


DEFAULT_STEPS = {
    "DetailedProfilingConfig": (5, 1), "DataloaderProfilingConfig": (7, 1), "PythonProfilingConfig": (9, 3),
    "HorovodProfilingConfig": (13, 1), "SMDataParallelProfilingConfig": (15, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_default_steps(name: str) -> None:
    first, steps = DEFAULT_STEPS[name]
    for arguments in (
        {},
        {"profile_default_steps": True},
        {"profile_default_steps": True, "start_step": 2},
        {"profile_default_steps": False},
    ):
        config = KINDS[name](**arguments)
        assert config.name == name
        assert config.range.to_json() == {"StartStep": first, "NumSteps": steps}
        assert isinstance(config.range, StepRange)
    assert isinstance(KINDS[name](duration=3).range, TimeRange)
    with pytest.raises(AssertionError, match="Both step and time fields"):
        KINDS[name](profile_default_steps=True, duration=3)


def test_python_profiling_of_default_steps_has_three_timers_only_where_asked_for() -> None:
    assert PythonProfilingConfig().cprofile_timer is cProfileTimer.TOTAL_TIME
    assert PythonProfilingConfig(profile_default_steps=True, cprofile_timer=cProfileTimer.CPU_TIME).cprofile_timer is cProfileTimer.DEFAULT
    assert PythonProfilingConfig(profile_default_steps=True, python_profiler=PythonProfiler.PYINSTRUMENT).cprofile_timer is None


@pytest.mark.parametrize("name", ["cProfile", "cprofile", "Pyinstrument", "pyinstrument", "PYINSTRUMENT"])
def test_profilers_and_timers_are_also_texts(name: str) -> None:
    assert PythonProfilingConfig(python_profiler=name).python_profiler is PythonProfiler(name.lower())
    assert PythonProfilingConfig(cprofile_timer="off_cpu_time").cprofile_timer is cProfileTimer.OFF_CPU_TIME
    assert PythonProfilingConfig(cprofile_timer="default").cprofile_timer is cProfileTimer.DEFAULT


def test_a_timer_for_pyinstrument_is_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="^cprofile_timer=cpu_time is left out: Pyinstrument takes wall-clock time") as seen:
        config = PythonProfilingConfig(python_profiler="Pyinstrument", cprofile_timer="cpu_time")
    assert (config.cprofile_timer, seen[0].filename) == (None, __file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PythonProfilingConfig(python_profiler="Pyinstrument")
        PythonProfilingConfig(python_profiler="Pyinstrument", profile_default_steps=True)
        PythonProfilingConfig(cprofile_timer="cpu_time")


def test_ranges() -> None:
    assert StepRange(6, 2).to_json() == {"StartStep": 6, "NumSteps": 2}
    assert StepRange(6, None).to_json() == {"StartStep": 6, "NumSteps": 1}
    assert StepRange(None, 2).to_json() == {"StartStep": 0, "NumSteps": 2}
    assert StepRange(None, None).to_json() == {"StartStep": 0, "NumSteps": None}
    assert TimeRange(1700000000, 600).to_json() == {"StartTimeInSecSinceEpoch": 1700000000, "Duration": 600}
    assert TimeRange(1700000000, None).to_json() == {"StartTimeInSecSinceEpoch": 1700000000}
    assert TimeRange(None, 0.5).to_json() == {"Duration": 0.5}
    assert TimeRange(None, None).to_json() == {}
    assert StepRange(True, 2).to_json() == {"StartStep": 1, "NumSteps": 2}  # as the documented check has it


@pytest.mark.parametrize("regex", ["a\"b'c", r"\bstep \d+\\", "é→\u2028", "a\tb\x00"])
def test_a_regular_expression_stands_in_its_dictionary_as_it_is(regex: str) -> None:
    config = DataloaderProfilingConfig(metrics_regex=regex)
    assert ast.literal_eval(config.to_json_string())["MetricsRegex"] == regex


def test_true_is_a_number_as_the_documented_check_has_it() -> None:
    assert DetailedProfilingConfig(start_step=True).to_json_string() == '{"StartStep": 1, "NumSteps": 1, }'


# -- messages -----------------------------------------------------------------------------------------------------------------

STEP_AND_TIME = "Both step and time fields cannot be specified in the metrics config!"
MESSAGES: list[tuple[Any, dict[str, Any], str]] = [
    *((FrameworkProfile, {"local_path": bad}, "local_path must be a string!") for bad in (10, None, Path("/tmp"))),
    *((FrameworkProfile, {"file_max_size": bad}, "file_max_size must be an integer greater than 0!") for bad in (100.5, 0, -1, "1", None)),
    *((FrameworkProfile, {"file_close_interval": bad}, "file_close_interval must be a float/integer greater than 0!")
      for bad in (-1, 0, "60", None, float("nan"))),
    *((FrameworkProfile, {"file_open_fail_threshold": bad}, "file_open_fail threshold must be an integer greater than 0!")
      for bad in (2.3, 0, "50")),
    *((kind, {"start_step": bad}, "start_step must be integer greater or equal to 0!")
      for kind in (FrameworkProfile, *KINDS.values()) for bad in (6.8, -1, "5")),
    *((kind, {"num_steps": bad}, "num_steps must be integer greater than 0!")
      for kind in (FrameworkProfile, *KINDS.values()) for bad in (0, -1, 1.5)),
    *((kind, {"start_unix_time": bad}, "start_unix_time must be valid integer unix time!")
      for kind in (FrameworkProfile, *KINDS.values()) for bad in (99999999999999, 1.5, "now", 10**30)),
    *((kind, {"duration": bad}, "duration must be float greater than 0!")
      for kind in (FrameworkProfile, *KINDS.values()) for bad in (0, -2, "3", float("inf"), 10**400)),
    *((kind, {step: 5, time: 20}, STEP_AND_TIME)
      for kind in (FrameworkProfile, *KINDS.values()) for step in ("start_step", "num_steps") for time in ("start_unix_time", "duration")),
    *((kind, {"profile_default_steps": bad}, "profile_default_steps must be a boolean!") for kind in KINDS.values() for bad in (1, "True")),
    *((DataloaderProfilingConfig, {"metrics_regex": bad}, "metrics_regex is invalid!") for bad in ("*", 3, "(", None, "\udcff", b"a")),
    *((PythonProfilingConfig, {"python_profiler": bad}, "python_profiler must be of type PythonProfiler!")
      for bad in ("bad_python_profiler", 1, None, cProfileTimer.CPU_TIME)),
    *((StepRange, {"start_step": bad, "num_steps": 2}, "start_step must be integer greater or equal to 0!") for bad in ("a", -1, 1.5)),
    *((StepRange, {"start_step": 1, "num_steps": bad}, "num_steps must be integer greater than 0!") for bad in ("2", 0, 2.0)),
    *((TimeRange, {"start_unix_time": bad, "duration": 1}, "start_unix_time must be valid integer unix time!") for bad in ("now", 10**15)),
    *((TimeRange, {"start_unix_time": None, "duration": bad}, "duration must be float greater than 0!") for bad in ("1", 0, float("nan"))),
    *((PythonProfilingConfig, {"cprofile_timer": bad}, "cprofile_timer must be of type cProfileTimer")
      for bad in ("bad_cprofile_timer", 1, None, PythonProfiler.CPROFILE)),
    (ProfilerConfig, {"framework_profile_params": {}}, "framework_profile_params must be of type FrameworkProfile if specified."),
    (ProfilerConfig, {"framework_profile_params": Profiler()}, "framework_profile_params must be of type FrameworkProfile if specified."),
    (ProfilerConfig, {"profile_params": {"cpu_profiling_duration": 3600}}, "profile_params must be of type Profiler if specified."),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "message"), MESSAGES)
def test_the_documented_messages(kind: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError) as failure:
        kind(**arguments)
    assert str(failure.value) == message


def test_a_range_beside_configurations_of_kinds_is_not_looked_at() -> None:
    assert FrameworkProfile(detailed_profiling_config=DetailedProfilingConfig(), start_step=-1, duration=0).profiling_parameters == {
        **FILES, "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 1, }',
    }  # fmt: skip


def test_a_configuration_in_anothers_place_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="PythonProfilingConfig must be an object of PythonProfilingConfig"):
        FrameworkProfile(python_profiling_config=DetailedProfilingConfig())  # type: ignore[arg-type]


def test_both_profilers_exclude_each_other() -> None:
    with pytest.raises(ValueError) as failure:
        ProfilerConfig(framework_profile_params=FrameworkProfile(), profile_params=Profiler())
    assert str(failure.value) == "Profiler will not work when Framework Profiler is ON"


def test_intervals_of_the_sampler() -> None:
    for interval in (100, 200, 500, 1000, 5000, 60000):
        assert ProfilerConfig(system_monitor_interval_millis=interval).system_monitor_interval_millis == interval
    for wrong in (123, 0, -100, "500", True):
        with pytest.raises(ValueError, match="system_monitor_interval_millis must be one of 100, 200, 500, 1000, 5000, 60000, not "):
            ProfilerConfig(system_monitor_interval_millis=wrong)  # type: ignore[arg-type]


def test_framework_profiling_warns_and_nothing_else_does() -> None:
    with pytest.warns(DeprecationWarning, match="Framework profiling") as seen:
        ProfilerConfig(framework_profile_params=FrameworkProfile())
    assert [str(one.message) for one in seen] == ["Framework profiling will be deprecated from tensorflow 2.12 and pytorch 2.0"]
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ProfilerConfig("s3://b", 500, profile_params=Profiler())


def test_the_other_name_of_profile_params_is_taken_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="profiler_params is taken as profile_params") as seen:
        config = ProfilerConfig(profiler_params=Profiler(cpu_profiling_duration=3600))
    assert seen[0].filename == __file__
    assert config._to_request_dict() == ProfilerConfig(profile_params=Profiler(3600))._to_request_dict()
    with pytest.raises(TypeError, match="give one of them"):
        ProfilerConfig(profile_params=Profiler(), profiler_params=Profiler())


# -- the launcher's side ------------------------------------------------------------------------------------------------------


def own_rule(name: str = "CustomProfilerRule") -> ProfilerRule:
    return ProfilerRule.custom(name=name, image_uri="RuleImageUri", instance_type="c4.4xlarge", volume_size_in_gb=5)


CUSTOM = {
    "RuleConfigurationName": "CustomProfilerRule",
    "RuleEvaluatorImage": "RuleImageUri",
    "InstanceType": "c4.4xlarge",
    "VolumeSizeInGB": 5,
}


def test_requests_of_a_job() -> None:
    requests = profiler_requests.profiler_requests
    assert requests() == {"profiler_config": {"DisableProfiler": False}, "profiler_rule_configs": []}
    assert requests(output_path="s3://bucket/") == {
        "profiler_config": {"S3OutputPath": "s3://bucket/", "DisableProfiler": False}, "profiler_rule_configs": [],
    }  # fmt: skip
    config = ProfilerConfig("s3://own", 1000)
    assert requests(config, [own_rule(), object()], output_path="s3://bucket/") == {
        "profiler_config": {"S3OutputPath": "s3://own", "DisableProfiler": False, "ProfilingIntervalInMilliseconds": 1000},
        "profiler_rule_configs": [CUSTOM],
    }
    assert requests(disable_profiler=True) == {"profiler_config": {"DisableProfiler": True}, "profiler_rule_configs": []}
    assert requests(ProfilerConfig(disable_profiler=True), disable_profiler=True, output_path="s3://bucket/") == requests(
        disable_profiler=True
    )
    config = ProfilerConfig()
    requests(config, output_path="s3://bucket/")
    assert config.s3_output_path is None


def test_a_deep_profile_brings_the_rule_that_processes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_123_456_789)
    config = ProfilerConfig(profile_params=Profiler())
    actual = profiler_requests.profiler_requests(config)["profiler_rule_configs"]
    assert actual == [{
        "RuleConfigurationName": "DetailedProfilerProcessingJobConfig-2023-11-14-22-13-20-123",
        "RuleEvaluatorImage": "detailed-profiler-processing:latest",
        "InstanceType": "ml.m5.4xlarge",
        "VolumeSizeInGB": 128,
        "RuleParameters": {"rule_to_invoke": "DetailedProfilerProcessing"},
    }]  # fmt: skip
    assert profiler_requests.profiler_requests(config, [own_rule()])["profiler_rule_configs"] == [CUSTOM]
    assert profiler_requests.get_detailed_profiler_output_uri("s3://bucket/out/", "job", actual) == (
        "s3://bucket/out/job/rule-output/DetailedProfilerProcessingJobConfig-2023-11-14-22-13-20-123"
    )


def refused(error: type[Exception], message: str, call: Any, *args: Any, **arguments: Any) -> None:
    with pytest.raises(error) as failure:
        call(*args, **arguments)
    assert str(failure.value) == message


def test_errors_of_a_job() -> None:
    requests = profiler_requests.profiler_requests
    refused(
        RuntimeError, "profiler_config.disable_profiler cannot be False when disable_profiler is True.",
        requests, ProfilerConfig(), disable_profiler=True,
    )  # fmt: skip
    refused(RuntimeError, "ProfilerRule cannot be set when disable_profiler is True.", requests, rules=[own_rule()], disable_profiler=True)
    rules = [own_rule(f"rule {number}") for number in range(21)]
    assert len(requests(rules=rules[:20])["profiler_rule_configs"]) == 20
    refused(ValueError, "21 rules are attached; at most 20 can be. Leave some out", requests, rules=rules)
    refused(ValueError, "LocalPath has 257 characters; the service takes 256. Shorten it", requests, framework(local_path="/" + 256 * "x"))
    refused(
        ValueError,
        "no rule of the job invokes DetailedProfilerProcessing; its configuration has no profile_params, so it has no deep profile",
        profiler_requests.get_detailed_profiler_output_uri, "s3://bucket", "job", [CUSTOM],
    )  # fmt: skip


def test_updates_of_a_running_job() -> None:
    update = profiler_requests.update_profiler
    assert update(system_monitor_interval_millis=1000) == {
        "profiler_config": {"DisableProfiler": False, "ProfilingIntervalInMilliseconds": 1000},
    }  # fmt: skip
    assert update(system_monitor_interval_millis=1000, disable_framework_metrics=True) == {
        "profiler_config": {"DisableProfiler": False, "ProfilingIntervalInMilliseconds": 1000, "ProfilingParameters": {}},
    }  # fmt: skip
    assert update([own_rule()], 1000) == {
        "profiler_config": {"DisableProfiler": False, "ProfilingIntervalInMilliseconds": 1000}, "profiler_rule_configs": [CUSTOM],
    }  # fmt: skip
    with pytest.warns(DeprecationWarning, match="Framework profiling"):
        assert update(framework_profile_params=FrameworkProfile())["profiler_config"]["ProfilingParameters"] == DEFAULT
    refused(ValueError, "Please provide profiler config or profiler rule to be updated.", update)
    refused(
        ValueError, "framework_profile_params cannot be set when disable_framework_metrics is True",
        update, framework_profile_params=FrameworkProfile(), disable_framework_metrics=True,
    )  # fmt: skip
    refused(ValueError, "Please provide ProfilerRule to be updated.", update, rules=[rule_configs.StepOutlier()])


def test_profiling_turned_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.5)
    assert profiler_requests.enable_default_profiling("Disabled", "s3://custom/") == {
        "profiler_config": {"S3OutputPath": "s3://custom/", "DisableProfiler": False},
        "profiler_rule_configs": [{
            "RuleConfigurationName": "ProfilerReport-1700000000",
            "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
            "RuleParameters": {"rule_to_invoke": "ProfilerReport"},
        }],
    }  # fmt: skip
    assert profiler_requests.disable_profiling("Enabled") == {"profiler_config": {"DisableProfiler": True}}
    refused(
        ValueError,
        "Debugger monitoring is already enabled. To update the profiler_config parameter and the Debugger profiling rules, please use the"
        " update_profiler function.",
        profiler_requests.enable_default_profiling, "Enabled",
    )  # fmt: skip
    refused(ValueError, "Profiler is already disabled.", profiler_requests.disable_profiling, "Disabled")


def test_places_of_a_jobs_outputs(tmp_path: Path) -> None:
    assert profiler_requests.profiler_output_uri("s3://bucket/", "job") == "s3://bucket/job/profiler-output"
    assert profiler_requests.rule_output_uri("s3://bucket", "job") == "s3://bucket/job/rule-output"
    assert profiler_requests.rule_output_uri("s3://bucket", "job", "X") == "s3://bucket/job/rule-output/X"
    app = profiler_requests.DetailProfilerApp("us-west-2", runs=tmp_path)
    assert app.get_app_url() == str(tmp_path)
    assert app.get_app_url("train") == str(tmp_path / "train/report/report.html")
    for name in ("train-20261122-050000", "train-20261122-050000-2", "other-1"):
        (tmp_path / name).mkdir()
    assert app.get_app_url("train-20261122-050000") == str(tmp_path / "train-20261122-050000/report/report.html")
    assert Path(app.get_app_url("train")).parts[-3].startswith("train-20261122-050000")
    for wrong in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="is not a name of a job"):
            app.get_app_url(wrong)
