"""Files of --profiler-config become the documented plans, and unreadable files have clear errors."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    Profiler,
    ProfilerConfig,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
)
from postrun.errors import UsageError
from postrun.native.profiling.config_file import plan_of, read_profiler_config, to_profilerconfig_json
from postrun.native.profiling.plan import DetailedPlan, LoaderPlan, ProfilingPlan, PythonPlan, Window

Write = Callable[[str | bytes | dict[str, Any]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: str | bytes | dict[str, Any], name: str = "c") -> Path:
        file = tmp_path / name
        text = json.dumps(content) if isinstance(content, dict) else content
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write_file


def framework(**parameters: Any) -> ProfilerConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return ProfilerConfig(framework_profile_params=FrameworkProfile(**parameters))


def steps(first: int, number: int = 1) -> Window:
    return Window(first_step=first, steps=number)


# -- requirements of the classes ----------------------------------------------------------------------------------------

PLANS: list[tuple[ProfilerConfig, ProfilingPlan]] = [
    (ProfilerConfig(), ProfilingPlan()),
    (ProfilerConfig("s3://b/p", 100), ProfilingPlan(sample_ms=100)),
    (ProfilerConfig(disable_profiler=True, profile_params=Profiler()), ProfilingPlan(disabled=True)),
    (ProfilerConfig(profile_params=Profiler(cpu_profiling_duration=120)), ProfilingPlan(cpu_seconds=120, rotate_s=600)),
    (ProfilerConfig(profile_params=Profiler(file_rotation_interval="30")), ProfilingPlan(cpu_seconds=3600, rotate_s=30)),
    (ProfilerConfig(profile_params=Profiler(file_rotation_interval=0)), ProfilingPlan(cpu_seconds=3600)),
    (framework(), ProfilingPlan(
        detailed=DetailedPlan(steps(5)), loader=LoaderPlan(steps(7)), python=PythonPlan(steps(9, 3), "cprofile", "default"),
        horovod=steps(13), smdataparallel=steps(15),
    )),
    (framework(start_step=6, num_steps=1), ProfilingPlan(
        detailed=DetailedPlan(steps(6)), loader=LoaderPlan(steps(6)), python=PythonPlan(steps(6)), horovod=steps(6),
        smdataparallel=steps(6),
    )),
    (framework(start_unix_time=1700000000, duration=600), ProfilingPlan(
        detailed=DetailedPlan(window := Window(start_s=1700000000, duration_s=600)), loader=LoaderPlan(window), python=PythonPlan(window),
        horovod=window, smdataparallel=window,
    )),
    (framework(python_profiling_config=PythonProfilingConfig(num_steps=5, python_profiler="Pyinstrument")), ProfilingPlan(
        python=PythonPlan(steps(0, 5), "pyinstrument"),
    )),
    (framework(dataloader_profiling_config=DataloaderProfilingConfig(duration=0.25, metrics_regex=r"DataLoader\S+\b")), ProfilingPlan(
        loader=LoaderPlan(Window(duration_s=0.25), r"DataLoader\S+\b"),
    )),
    (framework(
        local_path="/data/é", file_max_size=7, file_close_interval=0.5, file_open_fail_threshold=2,
        horovod_profiling_config=HorovodProfilingConfig(start_unix_time=1700000000),
    ), ProfilingPlan(
        local_path="/data/é", max_file_bytes=7, close_interval_s=0.5, open_fail_threshold=2, horovod=Window(start_s=1700000000),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), PLANS)
def test_plans_of_configurations_and_of_their_files(config: ProfilerConfig, expected: ProfilingPlan, write: Write) -> None:
    assert plan_of(config) == expected
    assert read_profiler_config(write(to_profilerconfig_json(config))) == expected


def test_a_duration_that_is_no_number_is_told_when_the_plan_is_made() -> None:
    with pytest.raises(UsageError) as failure:
        plan_of(ProfilerConfig(profile_params=Profiler("an hour")))
    assert str(failure.value) == (
        "profiler_config: ProfilingParameters: CPUProfilingDuration = 'an hour'; accepted: whole numbers from 1 on"
    )


def test_an_object_of_the_services_sdk_is_taken_and_others_are_told() -> None:
    class Foreign:
        def _to_request_dict(self) -> dict[str, Any]:
            return {"DisableProfiler": False, "ProfilingIntervalInMilliseconds": 100}

    assert plan_of(Foreign()) == ProfilingPlan(sample_ms=100)  # type: ignore[arg-type]
    for wrong in ({}, "c.json", None, ProfilerConfig):
        with pytest.raises(TypeError, match=r"profiler_config must be a ProfilerConfig, such as postrun\.ProfilerConfig\(\), not "):
            plan_of(wrong)  # type: ignore[arg-type]


def test_the_agents_file_has_both_names_of_a_duration_and_the_request_one() -> None:
    config = framework(duration=30)
    inner = json.loads(to_profilerconfig_json(config))["ProfilingParameters"]["DetailedProfilingConfig"]
    assert ast.literal_eval(inner) == {"Duration": 30, "DurationInSeconds": 30}
    assert config._to_request_dict()["ProfilingParameters"]["DetailedProfilingConfig"] == '{"Duration": 30, }'


RANGES = st.one_of(
    st.just({}),
    st.just({"profile_default_steps": True}),
    st.fixed_dictionaries({"start_step": st.integers(0, 2**62)}, optional={"num_steps": st.integers(1, 2**62)}),
    st.fixed_dictionaries({"num_steps": st.integers(1, 2**62)}),
    st.fixed_dictionaries(
        {"start_unix_time": st.integers(-(10**9), 2 * 10**11)}, optional={"duration": st.floats(1e-9, 1e12) | st.integers(1, 10**12)}
    ),
    st.fixed_dictionaries({"duration": st.floats(1e-9, 1e12)}),
)
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="".join(map(chr, [*range(7), 8])))
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "detailed_profiling_config": st.builds(
            lambda r, shapes, stack: DetailedProfilingConfig(**r, record_shapes=shapes, with_stack=stack),
            RANGES,
            st.booleans(),
            st.booleans(),
        ),
        "dataloader_profiling_config": st.builds(
            lambda r, text: DataloaderProfilingConfig(**r, metrics_regex=re.escape(text)), RANGES, st.text(LETTERS, max_size=20)
        ),
        "python_profiling_config": st.builds(
            lambda r, profiler, timer: PythonProfilingConfig(**r, python_profiler=profiler, cprofile_timer=timer),
            RANGES,
            st.sampled_from(["cProfile", "Pyinstrument"]),
            st.sampled_from(["total_time", "cpu_time", "off_cpu_time", "default"]),
        ),
        "horovod_profiling_config": st.builds(lambda r: HorovodProfilingConfig(**r), RANGES),
        "smdataparallel_profiling_config": st.builds(lambda r: SMDataParallelProfilingConfig(**r), RANGES),
        "file_max_size": st.integers(1, 2**62),
        "file_close_interval": st.floats(1e-6, 1e9) | st.integers(1, 10**9),
        "file_open_fail_threshold": st.integers(1, 10**6),
        "local_path": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20),
    },
)


@pytest.mark.filterwarnings("ignore:cprofile_timer:UserWarning")
@given(CONFIGS)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, parameters: dict[str, Any]) -> None:
    config = framework(**parameters)
    file = tmp_path_factory.getbasetemp() / "round_trip.json"
    file.write_text(to_profilerconfig_json(config), encoding="utf-8")
    plan = read_profiler_config(file)
    assert plan == plan_of(config)
    for name, kind in (("detailed", "detailed"), ("horovod", "horovod"), ("smdataparallel", "smdataparallel")):
        arguments = parameters.get(f"{kind}_profiling_config")
        if arguments is not None:  # the window, from the object and not from its text
            actual = arguments.range.to_json()
            planned = getattr(plan, name)
            if name == "detailed":
                assert (planned.shapes, planned.stacks) == (arguments.record_shapes, arguments.with_stack)
                planned = planned.window
            assert planned == Window(
                actual.get("StartStep"), actual.get("NumSteps"), actual.get("StartTimeInSecSinceEpoch"), actual.get("Duration")
            )


# -- as the hosted agent reads it ---------------------------------------------------------------------------------------------

# The content of a file under a kind, and the window: the start and length of steps, or of time.
WINDOWS: list[tuple[Any, Window | None]] = [
    ({"StartStep": 3, "NumSteps": 2}, steps(3, 2)),
    ({"StartStep": 3}, steps(3)),
    ({"NumSteps": 2}, steps(0, 2)),
    ({"StartStep": 0}, steps(0)),
    ({"StartStep": 3, "NumSteps": None}, steps(3)),
    ({"StartTimeInSecSinceEpoch": 1594429959.418771, "DurationInSeconds": 500}, Window(start_s=1594429959.418771, duration_s=500)),
    ({"StartTimeInSecSinceEpoch": 1594429959}, Window(start_s=1594429959)),
    ({"DurationInSeconds": 0.1}, Window(duration_s=0.1)),
    ({"Duration": 0.1}, Window(duration_s=0.1)),
    ({"Duration": 5, "DurationInSeconds": "5.0"}, Window(duration_s=5)),
    ({"startstep": "2", "NUMSTEPS": "3"}, steps(2, 3)),
    ('{"StartStep": 5, "NumSteps": 1, }', steps(5)),
    ("{'StartStep': 5, 'NumSteps': None}", steps(5)),
    ('{"StartStep": "7", "NumSteps": "1", }', steps(7)),
    ('{"StartStep": 7, "NumSteps": null}', steps(7)),
    ("{}", None),
    ("", None),
    ({}, None),
    (None, None),
]


@pytest.mark.parametrize(("content", "expected"), WINDOWS)
def test_windows_of_every_kind(content: Any, expected: Window | None, write: Write) -> None:
    kinds = ("DetailedProfilingConfig", "DataLoaderProfilingConfig", "pythonprofilingconfig", "HorovodProfilingConfig")
    plan = read_profiler_config(write({"ProfilingParameters": {**dict.fromkeys(kinds, content), "SMDataparallelProfilingConfig": content}}))
    detailed, loader, python = (kind and kind.window for kind in (plan.detailed, plan.loader, plan.python))
    assert [detailed, loader, python, plan.horovod, plan.smdataparallel] == 5 * [expected]
    assert plan.of_framework == (expected is not None)


FILES: list[tuple[Any, ProfilingPlan]] = [
    ({}, ProfilingPlan()),
    ({"ProfilingParameters": {}}, ProfilingPlan()),
    ({"ProfilingParameters": None}, ProfilingPlan()),
    ({"DisableProfiler": True, "ProfilingParameters": {"DetailedProfilingConfig": {"StartStep": 1}}}, ProfilingPlan(disabled=True)),
    ({"disableprofiler": "TRUE"}, ProfilingPlan(disabled=True)),
    ({"DisableProfiler": "false"}, ProfilingPlan()),
    ({"ProfilingParameters": {"ProfilerEnabled": False, "DetailedProfilingConfig": {"StartStep": 1}}}, ProfilingPlan()),
    ({"profilingparameters": {
        "PROFILERENABLED": True, "localPath": "/tmp/test", "rotateMaxFileSizeInBYTES": 100, "RotatefileCloseintervalInseconds": 1,
        "FILEopenFAILthreshold": 5, "UsePyInstrument": True, "detailedProfilingconfig": '{"startstep": "2", "NUMSTEPS": "3"}',
    }}, ProfilingPlan(
        local_path="/tmp/test", max_file_bytes=100, close_interval_s=1, open_fail_threshold=5, detailed=DetailedPlan(steps(2, 3))
    )),
    ({"ProfilingParameters": {"DetailedProfilingConfig": {"StartStep": 4, "RecordShapes": True, "withstack": "true"}}},
     ProfilingPlan(detailed=DetailedPlan(steps(4), shapes=True, stacks=True))),
    ({"ProfilingParameters": {
        "RotateMaxFileSizeInBytes": "300.0", "RotateFileCloseIntervalInSeconds": "0.5", "FileOpenFailThreshold": "2",
    }},
     ProfilingPlan(max_file_bytes=300, close_interval_s=0.5, open_fail_threshold=2)),
    ({"ProfilingParameters": {
        "LocalPath": "/opt/ml/output/profiler", "UsePyInstrument": True, "PythonProfilingConfig": "{'StartStep': 1}",
    }},
     ProfilingPlan(python=PythonPlan(steps(1), "pyinstrument"))),
    ({"ProfilingParameters": {"DataloaderProfilingConfig": r'{"StartStep": 1, "MetricsRegex": "Loader\d+\.[A-Z]\S*"}'}},
     ProfilingPlan(loader=LoaderPlan(steps(1), r"Loader\d+\.[A-Z]\S*"))),
    ({"ProfilingParameters": {"PythonProfilingConfig": '{"StartStep": 1, "ProfilerName": "cProfile", "cProfileTimer": "OFF_CPU_TIME"}'}},
     ProfilingPlan(python=PythonPlan(steps(1), "cprofile", "off_cpu_time"))),
    ({"ProfilingParameters": {"PythonProfilingConfig": '{"StartStep": 1, "cProfileTimer": "cpu"}'}},
     ProfilingPlan(python=PythonPlan(steps(1), "cprofile", "cpu_time"))),
    ({"TrainingJobName": "j", "ProfilerConfig": {
        "S3OutputPath": "s3://b", "ProfilingIntervalInMilliseconds": 500,
        "ProfilingParameters": {"CPUProfilingDuration": "3600", "SMPFileRotationSecs": "600"},
    }}, ProfilingPlan(sample_ms=500, cpu_seconds=3600, rotate_s=600)),
    ({"ProfilingParameters": {"smpfilerotationsecs": 7.0}}, ProfilingPlan(rotate_s=7)),
    ({"ProfilingParameters": {"SMPFileRotationSecs": "0"}}, ProfilingPlan()),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), FILES)
def test_files_of_the_agent_and_of_requests(content: dict[str, Any], expected: ProfilingPlan, write: Write) -> None:
    assert read_profiler_config(write(content)) == expected


LEFT_OUT = "cprofile_timer={} is left out: Pyinstrument takes wall-clock time, and only cProfile has timers"


@pytest.mark.parametrize(
    ("timer", "message"),
    [
        ("cpu_time", "cpu_time"),
        ("OFF_CPU", "off_cpu_time"),
        ("default", "default"),
        ("bad", "'bad'"),
        ("total_time", None),
        ("total", None),
        (None, None),
    ],
)
@pytest.mark.parametrize("form", ["text", "object", "old agent"])
def test_a_timer_for_pyinstrument_is_left_out_with_the_words_of_the_class(
    timer: str | None, message: str | None, form: str, write: Write
) -> None:
    profiler = {} if form == "old agent" else {"ProfilerName": "Pyinstrument"}
    python = {"StartStep": 1, **profiler, **({} if timer is None else {"cProfileTimer": timer})}
    old = {"UsePyInstrument": True} if form == "old agent" else {}
    file = write({"ProfilingParameters": {**old, "PythonProfilingConfig": json.dumps(python) if form == "text" else python}})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read_profiler_config(file) == ProfilingPlan(python=PythonPlan(steps(1), "pyinstrument"))
    assert [(one.category, str(one.message)) for one in caught] == ([] if message is None else [(UserWarning, LEFT_OUT.format(message))])


@pytest.mark.filterwarnings("error")
def test_a_timer_for_cprofile_and_what_the_classes_write_for_pyinstrument_are_no_warning(write: Write) -> None:
    cpu = '{"StartStep": 1, "ProfilerName": "cProfile", "cProfileTimer": "cpu_time"}'
    read_profiler_config(write({"ProfilingParameters": {"PythonProfilingConfig": cpu}}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        config = framework(python_profiling_config=PythonProfilingConfig(profile_default_steps=True, python_profiler="Pyinstrument"))
    assert plan_of(config).python == PythonPlan(steps(9, 3), "pyinstrument")


# -- TOML ---------------------------------------------------------------------------------------------------------------------

TOML: list[tuple[str, ProfilingPlan]] = [
    ("disable_profiler = true", ProfilingPlan(disabled=True)),
    ('s3_output_path = "s3://b"\nsystem_monitor_interval_millis = 1000', ProfilingPlan(sample_ms=1000)),
    ("[profiler]", ProfilingPlan(cpu_seconds=3600, rotate_s=600)),
    ('[profiler]\ncpu_profiling_duration = 120\nfile_rotation_interval = "60"', ProfilingPlan(cpu_seconds=120, rotate_s=60)),
    ("[profiler]\nfile_rotation_interval = 0", ProfilingPlan(cpu_seconds=3600)),
    ("[framework_profile]", plan_of(framework())),
    ("[framework_profile]\nstart_step = 6", plan_of(framework(start_step=6))),
    ("[framework_profile]\nstart_unix_time = 2023-11-14T23:13:20+01:00", plan_of(framework(start_unix_time=1700000000))),
    ("[framework_profile]\nstart_unix_time = 1700000000\nduration = 0.5", plan_of(framework(start_unix_time=1700000000, duration=0.5))),
    ('framework_profile = {local_path = "/data", file_max_size = 7, file_close_interval = 2, file_open_fail_threshold = 3, detailed = {}}',
     ProfilingPlan(local_path="/data", max_file_bytes=7, close_interval_s=2, open_fail_threshold=3, detailed=DetailedPlan(steps(5)))),
    ("[framework_profile.python]\nprofile_default_steps = true", ProfilingPlan(python=PythonPlan(steps(9, 3), "cprofile", "default"))),
    ("[framework_profile.dataloader]\nstart_step = 2\nmetrics_regex = 'Loader\\S'\n[framework_profile.smdataparallel]\nduration = 3\n"
     '[framework_profile.horovod]\nnum_steps = 4\n[framework_profile.python]\npython_profiler = "Pyinstrument"',
     ProfilingPlan(loader=LoaderPlan(steps(2), r"Loader\S"), smdataparallel=Window(duration_s=3), horovod=steps(0, 4),
                   python=PythonPlan(steps(9, 3), "pyinstrument"))),
    ('[framework_profile.python]\nstart_step = 1\ncprofile_timer = "cpu_time"',
     ProfilingPlan(python=PythonPlan(steps(1), "cprofile", "cpu_time"))),
    # As CPUProfilingDuration and SMPFileRotationSecs next to windows in the service's form.
    ("[framework_profile]\ncpu_profiling_duration = 2\n[framework_profile.detailed]\nstart_step = 4",
     ProfilingPlan(cpu_seconds=2, detailed=DetailedPlan(steps(4)))),
    ("[framework_profile.detailed]\nstart_step = 4\nrecord_shapes = true",
     ProfilingPlan(detailed=DetailedPlan(steps(4), shapes=True))),
    ("[framework_profile]\ncpu_profiling_duration = '2'\nfile_rotation_interval = 60\nnum_steps = 3",
     dataclasses.replace(plan_of(framework(num_steps=3)), cpu_seconds=2, rotate_s=60)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TOML)
def test_files_of_toml(text: str, expected: ProfilingPlan, write: Write) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_profiler_config(write(text)) == expected


def test_the_suffix_says_the_format_and_else_the_first_character(tmp_path: Path) -> None:
    for name, text in (
        ("a.json", '\ufeff {"DisableProfiler": true}'),
        ("b.toml", "disable_profiler = true"),
        ("c.conf", ' \n{"DisableProfiler": true}'),
    ):
        (tmp_path / name).write_text(text)
        assert read_profiler_config(str(tmp_path / name)) == ProfilingPlan(disabled=True)
    (tmp_path / "d.json").write_text("disable_profiler = true")
    with pytest.raises(UsageError, match=r"d\.json: no valid JSON: Expecting value in line 1, column 1"):
        read_profiler_config(tmp_path / "d.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("disable_profiler = true",))
    writer.start()
    assert read_profiler_config(pipe).disabled
    writer.join()


# -- what cannot be read ------------------------------------------------------------------------------------------------------


def in_parameters(**parameters: Any) -> dict[str, Any]:
    return {"ProfilingParameters": parameters}


def in_detailed(**values: Any) -> dict[str, Any]:
    return in_parameters(DetailedProfilingConfig=values)


P = "FILE: ProfilingParameters: "
RANGE = "give StartStep and NumSteps, or StartTimeInSecSinceEpoch and Duration"
LAST_KEYS = "FileOpenFailThreshold, DetailedProfilingConfig, DataloaderProfilingConfig, PythonProfilingConfig, HorovodProfilingConfig,"
REFUSED: list[tuple[Any, str]] = [
    (b"", "FILE: is empty; write "),
    (b" \n", "FILE: is empty; write "),
    (b"\xff\xfe{", "FILE: not UTF-8 (byte 0); save the file as UTF-8"),
    (b" " * (1 << 20) + b"{}", "FILE: larger than 1 MiB; give a file of profiling configuration"),
    ('{"ProfilingParameters": {"LocalPath"', "FILE: no valid JSON: Expecting ':' delimiter in line 1, column 37"),
    ('{"ProfilingParameters": ' + 100_000 * "[", "FILE: nested too deep; write "),
    ("x = " + 100_000 * "[", "FILE: n"),
    ('{"DisableProfiler": false, "DisableProfiler": true}', "FILE: 'DisableProfiler' is given twice"),
    ('{"DisableProfiler": false, "disableprofiler": true}', "FILE: DisableProfiler is given twice, in different case"),
    ('{"DisableProfiler": ' + 5000 * "9" + "}", "FILE: no valid JSON: a number with too many digits"),
    ("x == 1", "FILE: no valid TOML: "),
    ({"Profilingparameter": {}}, "FILE: unknown key 'Profilingparameter'; possible: ProfilingParameters, DisableProfiler, Prof"),
    ({"DisableProfiler": 1}, "FILE: DisableProfiler = 1; accepted: true, false"),
    ({"ProfilingIntervalInMilliseconds": 123}, "FILE: ProfilingIntervalInMilliseconds = 123; accepted: 100, 200, 500, 1000, 5000, 60000"),
    ({"S3OutputPath": 5}, "FILE: S3OutputPath = 5; accepted: a text"),
    ({"ProfilingParameters": []}, "FILE: ProfilingParameters: a list of 0 is no object; write it like "),
    ({"ProfilerConfig": "x"}, "FILE: ProfilerConfig: 'x' is no object; write it like "),
    (in_parameters(DetailedProfiling={}), f"{P}unknown key 'DetailedProfiling'; possible: LocalPath, RotateMaxFileSizeInBytes, "
     f"RotateFileCloseIntervalInSeconds, {LAST_KEYS}"),
    *((in_parameters(LocalPath=bad), f"{P}LocalPath = {bad!r}; accepted: the path of a folder") for bad in (5, "", "a\0b")),
    (in_parameters(RotateMaxFileSizeInBytes="None"), f"{P}RotateMaxFileSizeInBytes = 'None'; accepted: whole numbers from 1 on"),
    (in_parameters(RotateMaxFileSizeInBytes=0), f"{P}RotateMaxFileSizeInBytes = 0; accepted: whole numbers from 1 on"),
    (in_parameters(RotateMaxFileSizeInBytes=True), f"{P}RotateMaxFileSizeInBytes = true; accepted: whole numbers from 1 on"),
    (in_parameters(RotateFileCloseIntervalInSeconds=-1), f"{P}RotateFileCloseIntervalInSeconds = -1; accepted: seconds greater than 0"),
    ('{"ProfilingParameters": {"RotateFileCloseIntervalInSeconds": NaN}}',
     f"{P}RotateFileCloseIntervalInSeconds = nan; accepted: seconds greater than 0"),
    (in_parameters(FileOpenFailThreshold=1.5), f"{P}FileOpenFailThreshold = 1.5; accepted: whole numbers from 1 on"),
    (in_parameters(CPUProfilingDuration="0"), f"{P}CPUProfilingDuration = '0'; accepted: whole numbers from 1 on"),
    (in_parameters(SMPFileRotationSecs="x"), f"{P}SMPFileRotationSecs = 'x'; accepted: whole numbers from 0 on"),
    (in_parameters(SMPFileRotationSecs=-1), f"{P}SMPFileRotationSecs = -1; accepted: whole numbers from 0 on"),
    (in_parameters(SMPFileRotationSecs=0.5), f"{P}SMPFileRotationSecs = 0.5; accepted: whole numbers from 0 on"),
    (in_parameters(ProfilerEnabled="None"), f"{P}ProfilerEnabled = 'None'; accepted: true, false"),
    (in_detailed(StartStep=3, NumSteps=2, StartTimeInSecSinceEpoch=5, DurationInSeconds=500),
     f"{P}DetailedProfilingConfig: Found step and time fields in detailed profiling config! G{RANGE[1:]}"),
    (in_parameters(SMDataParallelProfilingConfig="{'StartStep': 0, 'Duration': 5}"),
     f"{P}SMDataParallelProfilingConfig: Found step and time fields in smdataparallel profiling config! G{RANGE[1:]}"),
    (in_parameters(PythonProfilingConfig="{'ProfilerName': 'cprofile'}"), f"{P}PythonProfilingConfig: neither steps nor a time; {RANGE}"),
    (in_detailed(Duration=5, DurationInSeconds=6), f"{P}DetailedProfilingConfig: Duration and DurationInSeconds differ; "),
    (in_detailed(StartStep="None"), f"{P}DetailedProfilingConfig: StartStep = 'None'; accepted: whole numbers from 0 on"),
    (in_detailed(StartStep=-1), f"{P}DetailedProfilingConfig: StartStep = -1; accepted: whole numbers from 0 on"),
    (in_detailed(StartStep=10**30), f"{P}DetailedProfilingConfig: StartStep = a number with too many digits; accepted: "),
    (in_detailed(NumSteps=0), f"{P}DetailedProfilingConfig: NumSteps = 0; accepted: whole numbers from 1 on"),
    (in_detailed(NumSteps=[1]), f"{P}DetailedProfilingConfig: NumSteps = a list of 1; accepted: whole numbers from 1 on"),
    (in_detailed(StartTimeInSecSinceEpoch=1700000000000),
     f"{P}DetailedProfilingConfig: StartTimeInSecSinceEpoch = 1700000000000; accepted: seconds since 1970-01-01 in UTC"),
    (in_detailed(DurationInSeconds="0"), f"{P}DetailedProfilingConfig: DurationInSeconds = '0'; accepted: seconds greater than 0"),
    (in_detailed(StartStep=2, WithStack=1), f"{P}DetailedProfilingConfig: WithStack = 1; accepted: true, false"),
    (in_detailed(Numstep=2), f"{P}DetailedProfilingConfig: unknown key 'Numstep'; possible: StartStep, NumSteps, "),
    (in_detailed(MetricsRegex=".*"), f"{P}DetailedProfilingConfig: unknown key 'MetricsRegex'; possible: "),
    (in_parameters(DetailedProfilingConfig="{1: 2}"), f"{P}DetailedProfilingConfig: unknown key 1; possible: "),
    (in_parameters(DetailedProfilingConfig="[1, 2]"), f"{P}DetailedProfilingConfig: a list of 2 is no object; "),
    (in_parameters(DetailedProfilingConfig="__import__('os').abort()"),
     f"{P}DetailedProfilingConfig: \"__import__('os').abort()\" is no dictionary; write it like "),
    (in_parameters(DetailedProfilingConfig=5), f"{P}DetailedProfilingConfig: 5 is no object; "),
    *((in_parameters(DetailedProfilingConfig=bad), f"{P}DetailedProfilingConfig: ")
      for bad in (4000 * "(", 4000 * "-" + "1", 1300 * "{1:", "{'StartStep': " + 3900 * "9" + "}", "\0", "{[]: 1}", 5000 * "9")),
    (in_parameters(DataloaderProfilingConfig={"StartStep": 1, "MetricsRegex": "*"}),
     f"{P}DataloaderProfilingConfig: nothing to repeat at position 0 encountered in dataloader profiling config; MetricsRegex = '*'"),
    (in_parameters(DataloaderProfilingConfig={"StartStep": 1, "MetricsRegex": 3}),
     f"{P}DataloaderProfilingConfig: MetricsRegex = 3; accepted: a regular expression"),
    (in_parameters(DataloaderProfilingConfig=r'{"StartStep": 1, "MetricsRegex": "\bLoader"}'),
     rf"{P}DataloaderProfilingConfig: MetricsRegex = '\x08Loader' holds a control character; write each backslash of it twice"),
    (in_parameters(PythonProfilingConfig={"StartStep": 1, "ProfilerName": "bad_profiler_name"}),
     f"{P}PythonProfilingConfig: Profiler name must be cprofile or pyinstrument! ProfilerName = 'bad_profiler_name'"),
    (in_parameters(PythonProfilingConfig={"StartStep": 1, "cProfileTimer": "bad"}),
     f"{P}PythonProfilingConfig: cProfileTimer = 'bad'; accepted: total_time, cpu_time, off_cpu_time, default"),
    ("interval = 5", "FILE: unknown key 'interval'; possible: system_monitor_interval_millis, s3_output_path, disable_profiler, "),
    ("system_monitor_interval_millis = 123", "FILE: system_monitor_interval_millis = 123: system_monitor_interval_millis must be one "),
    ("disable_profiler = 1", "FILE: disable_profiler = 1; accepted: true, false"),
    ("s3_output_path = 5", "FILE: S3OutputPath = 5; accepted: a text"),
    ("profiler = 5", "FILE: profiler = 5; accepted: a table"),
    ("[system_monitor_interval_millis" + 5000 * ".a" + "]", "FILE: system_monitor_interval_millis = a table; accepted: 100, 200, 500, "),
    ("[profiler.cpu_profiling_duration" + 5000 * ".a" + "]", "FILE: [profiler]: cpu_profiling_duration = a table; accepted: whole seconds"),
    ("[[framework_profile]]", "FILE: framework_profile = a list; accepted: a table"),
    ("[profiler]\n[framework_profile]", "FILE: [profiler] and [framework_profile]: Profiler will not work when Framework Profiler is ON; "
     "remove [profiler] and write its keys under [framework_profile]"),
    ("[profiler]\ncpu_profiling_duration = 5\n[framework_profile.python]\nstart_step = 3", "FILE: [profiler] and [framework_profile]: "),
    ("[framework_profile]\ncpu_profiling_duration = '1.5'", "FILE: [framework_profile]: cpu_profiling_duration = '1.5'; accepted: whole "),
    ("[framework_profile]\ncpu_profiling_duration = true", "FILE: [framework_profile]: cpu_profiling_duration = true; accepted: whole sec"),
    ("[profiler]\ncpu_profiling_duration = -5", "FILE: [profiler]: cpu_profiling_duration = -5; accepted: whole seconds"),
    ("[profiler]\nduration = 5", "FILE: [profiler]: unknown key 'duration'; possible: cpu_profiling_duration, file_rotation_interval"),
    ("[framework_profile]\nsteps = 5", "FILE: [framework_profile]: unknown key 'steps'; possible: local_path, file_max_size, "),
    ("[framework_profile]\nfile_max_size = 0",
     "FILE: [framework_profile]: file_max_size = 0: file_max_size must be an integer greater than 0! Accepted: whole numbers from 1 on"),
    ("[framework_profile]\nnum_steps = true", "FILE: [framework_profile]: num_steps = true; accepted: whole numbers from 1 on"),
    ("[framework_profile.detailed]\nmetrics_regex = '.*'", "FILE: [framework_profile.detailed]: unknown key 'metrics_regex'; possible: "),
    ("[framework_profile.python]\npython_profiler = 'perf'", "FILE: [framework_profile.python]: python_profiler = 'perf': python_profiler "
     "must be of type PythonProfiler! Accepted: cprofile, pyinstrument"),
    ("[framework_profile.detailed]\nstart_step = 1\nduration = 5",
     "FILE: [framework_profile.detailed]: Both step and time fields cannot be specified in the metrics config!"),
    ("[framework_profile]\nstart_unix_time = 2026-11-22T05:00:00", "FILE: [framework_profile]: start_unix_time = 2026-11-22T05:00:00: "),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_cannot_be_read_is_told_with_file_key_and_what_is_accepted(content: Any, message: str, write: Write) -> None:
    file = write(content)
    with pytest.raises(UsageError) as failure:
        read_profiler_config(file)
    text = str(failure.value).replace(str(file), "FILE")
    assert text.startswith(message)
    assert len(text) < 900
    assert "\n" not in text


@pytest.mark.parametrize("name", ["profile.yaml", "profile.YML"])
def test_yaml_is_told_to_be_written_as_json_or_toml(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("system_monitor_interval_millis: 500\n")
    with pytest.raises(UsageError, match=rf"{name}: YAML is not read; JSON and TOML are: write "):
        read_profiler_config(tmp_path / name)
    (tmp_path / name).write_text('{"ProfilingIntervalInMilliseconds": 500}')  # which is also YAML
    assert read_profiler_config(tmp_path / name) == ProfilingPlan(sample_ms=500)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match=rf"{re.escape(str(path))}: cannot be read \(.*\); check the path"):
            read_profiler_config(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_profiler_config("a\0b")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_a_file_without_end_is_read_to_the_limit() -> None:
    tracemalloc.start()
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_profiler_config("/dev/zero")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20


KEYS = st.sampled_from([
    "ProfilingParameters", "DisableProfiler", "ProfilerConfig", "ProfilingIntervalInMilliseconds", "LocalPath", "DetailedProfilingConfig",
    "DataloaderProfilingConfig", "PythonProfilingConfig", "StartStep", "NumSteps", "StartTimeInSecSinceEpoch", "Duration", "MetricsRegex",
    "ProfilerName", "cProfileTimer", "profiler", "framework_profile", "system_monitor_interval_millis",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.one_of(
    st.dictionaries(KEYS, JSON, max_size=5),
    st.builds(lambda inner: {"ProfilingParameters": inner}, st.dictionaries(KEYS, JSON, max_size=5)),
    st.builds(lambda inner: {"ProfilingParameters": {"PythonProfilingConfig": inner}}, st.dictionaries(KEYS, JSON, max_size=5)),
    st.builds(lambda text: {"ProfilingParameters": {"DataloaderProfilingConfig": text}}, st.text(max_size=60)),
))  # fmt: skip
def test_any_json_is_a_plan_or_a_usage_error(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    read_or_refused(tmp_path_factory.getbasetemp() / "any.json", json.dumps(content).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_plan_or_a_usage_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    read_or_refused(tmp_path_factory.getbasetemp() / "any", content)


def read_or_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        plan = read_profiler_config(file)
    except UsageError as error:
        plan, message = None, str(error)
    if plan is None:
        assert message.startswith(str(file))
        return
    assert isinstance(plan, ProfilingPlan)
    if plan.python is not None:
        assert plan.python.window.by_steps != (plan.python.window.start_s is not None or plan.python.window.duration_s is not None)


def test_reading_loads_no_library() -> None:
    """A launcher reads the file before the job begins; the job may read it again."""
    for module in ("postrun.native.profiling.config_file", "postrun.native.profiling.config_json", "postrun.native.profiling.classes"):
        source = Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (polars|duckdb|click|numpy)", source, re.MULTILINE)


def test_the_files_of_the_document(project_root: Path, write: Write) -> None:
    page = project_root / "docs" / "profiling-configuration.md"
    if not page.is_file():
        pytest.skip("no documents beside the tests")
    text = page.read_text(encoding="utf-8")
    (toml,) = re.findall(r"^```toml\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    (as_json,) = re.findall(r"^```json\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    (program,) = re.findall(r"^```python\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    assert read_profiler_config(write(toml)) == ProfilingPlan(
        sample_ms=500, detailed=DetailedPlan(steps(10, 2)), loader=LoaderPlan(steps(9, 3), "GetNext|Worker"),
        python=PythonPlan(steps(9, 3), "cprofile", "default"), horovod=Window(start_s=1795323600, duration_s=2.5),
    )  # fmt: skip
    assert read_profiler_config(write(as_json)) == ProfilingPlan(
        sample_ms=500, detailed=DetailedPlan(steps(5)), python=PythonPlan(Window(start_s=1700000000, duration_s=2.5)),
    )  # fmt: skip
    names: dict[str, Any] = {}
    with pytest.warns(DeprecationWarning, match="Framework profiling"):
        exec(program, names)
    assert plan_of(names["config"]) == ProfilingPlan(sample_ms=500, python=PythonPlan(steps(9, 3)))


def test_a_text_in_the_place_of_a_number_is_shown_with_its_quotes(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[framework_profile]\nstart_step = "5"\n', encoding="utf-8")
    with pytest.raises(UsageError, match="start_step = '5': start_step must be integer"):
        read_profiler_config(file)
