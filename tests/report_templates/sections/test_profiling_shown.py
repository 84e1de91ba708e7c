"""The profiled steps, and the missing profiles with reasons, in the section "Information"."""

from __future__ import annotations

import dataclasses

from postrun.analysis.report import ProfileGroup, PythonProfile, Report
from postrun.report_templates.blocks import Texts
from postrun.report_templates.sections.information import information

METADATA = {
    "profiling.config": "/home/me/c.toml",
    "profiling.detailed": "step 5", "profiling.detailed.recorded": "step 5",
    "profiling.loader": "steps 9–11", "profiling.loader.recorded": "steps 9–10",
    "profiling.python": "steps 9–11", "profiling.python.recorded": "steps 9–10",
    "profiling.horovod": "step 13", "profiling.horovod.recorded": "nothing: Horovod is not in use",
    "profiling.smdataparallel": "step 15",
    "profiling.plan": '{"disabled":false,"python":{"wind',
}  # fmt: skip


def facts(report: Report, metadata: dict[str, str]) -> tuple[dict[str, str], str]:
    groups = tuple(
        ProfileGroup("steps", f"step {9 + i}", "cprofile", timer, 1, 1, 1, 1.0, 1, 1) for i, timer in enumerate(("total_time", "cpu_time"))
    )
    profile = PythonProfile((), None, groups=groups)
    section = information(dataclasses.replace(report, run=dataclasses.replace(report.run, metadata=metadata), python_profile=profile))
    texts = {block.macro: block.texts for block in section.blocks if isinstance(block, Texts)}
    return dict(texts["facts"]), str(texts["lines_of"])


def test_a_configuration_is_told_in_words(rich: Report) -> None:
    run, rest = facts(rich, METADATA)
    assert run["Profiled"] == ("step 5: operators and kernels; steps 9–10: data loaders, Python functions (cProfile, total time, CPU time)")
    assert run["Not profiled"] == "Horovod (Horovod is not in use); SMDataParallel, asked for in step 15"
    assert "profiling.config" in rest
    assert "profiling.plan" not in rest
    assert "profiling.python" not in rest


def test_a_window_that_was_longer_than_the_training_is_told_with_what_it_has(rich: Report) -> None:
    why = "steps 11–19 were not reached; the last step that began was 10"
    run, _ = facts(rich, {"profiling.loader": "steps 9–19", "profiling.loader.recorded": f"steps 9–10: {why}"})
    assert run["Profiled"] == "steps 9–10: data loaders"
    assert run["Not profiled"] == f"data loaders to the end ({why})"


def test_without_one_nothing_is_said(rich: Report) -> None:
    run, rest = facts(rich, {"dataset": "v7"})
    assert not {"Profiled", "Not profiled"} & run.keys()
    assert "v7" in rest
