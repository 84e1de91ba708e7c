"""The profiling request of the hosted service's estimator for a job, and the locations of the job's outputs, without the service.

:func:`profiler_requests`, :func:`update_profiler`, :func:`enable_default_profiling` and :func:`disable_profiling` check like the
estimator, with the same messages, and return the two parts of its request; nothing is sent. Errors about regions do not apply.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from .native.profiling.classes import FrameworkProfile
from .native.profiling.profiler_config import ProfilerConfig

LONGEST_VALUE: Final = 256  # characters of a profiling parameter that the service accepts
_PROCESSING: Final = "DetailedProfilerProcessing"
_PROCESSING_NAME: Final = "DetailedProfilerProcessingJobConfig"
_PROCESSING_IMAGE: Final = "detailed-profiler-processing:latest"


def profiler_requests(
    profiler_config: ProfilerConfig | None = None,
    rules: Sequence[Any] | None = None,
    disable_profiler: bool = False,
    output_path: str | None = None,
) -> dict[str, Any]:
    """Return the profiler and rule configurations of the request that starts a job.

    ``rules``: ProfilerRule objects; others are left out. ``output_path``: of the job; it applies if the configuration has no
    ``s3_output_path``. Raise RuntimeError for a configuration or rules with ``disable_profiler``, ValueError for more than 20 rules and
    for values that are too long for the service.
    """
    attached = _profiler_rules(rules)
    if disable_profiler:
        if profiler_config is not None and not profiler_config.disable_profiler:
            raise RuntimeError("profiler_config.disable_profiler cannot be False when disable_profiler is True.")
        if attached:
            raise RuntimeError("ProfilerRule cannot be set when disable_profiler is True.")
        profiler_config = profiler_config or ProfilerConfig(disable_profiler=True)
    config = copy(profiler_config or ProfilerConfig())
    config.s3_output_path = config.s3_output_path or output_path
    request = {"profiler_config": _checked(config._to_request_dict()), "profiler_rule_configs": _rule_requests(attached)}
    if config.profile_params is not None and not attached and not disable_profiler:
        request["profiler_rule_configs"] = [_processing(config.profile_params.instanceType, config.profile_params.volumeSizeInGB)]
    return request


def update_profiler(
    rules: Sequence[Any] | None = None,
    system_monitor_interval_millis: int | None = None,
    s3_output_path: str | None = None,
    framework_profile_params: FrameworkProfile | None = None,
    disable_framework_metrics: bool = False,
) -> dict[str, Any]:
    """Return the request that changes a running job's profiling."""
    if not (rules or system_monitor_interval_millis or s3_output_path or framework_profile_params or disable_framework_metrics):
        raise ValueError("Please provide profiler config or profiler rule to be updated.")
    if disable_framework_metrics and framework_profile_params:
        raise ValueError("framework_profile_params cannot be set when disable_framework_metrics is True")
    attached = _profiler_rules(rules)
    if len(attached) < len(rules or ()):
        raise ValueError("Please provide ProfilerRule to be updated.")
    config = ProfilerConfig(s3_output_path, system_monitor_interval_millis, framework_profile_params)._to_request_dict()
    if disable_framework_metrics:
        config["ProfilingParameters"] = {}
    request: dict[str, Any] = {"profiler_config": _checked(config)}
    return {**request, "profiler_rule_configs": _rule_requests(attached)} if attached else request


def enable_default_profiling(profiling_status: str | None = None, s3_output_path: str | None = None) -> dict[str, Any]:
    """Return the request that turns profiling on for a running job. Raise ValueError.

    It profiles the system and runs ProfilerReport. ``profiling_status``: of the job, "Enabled" or "Disabled".
    """
    if profiling_status == "Enabled":
        raise ValueError(
            "Debugger monitoring is already enabled. To update the profiler_config parameter and the Debugger profiling rules, please use"
            " the update_profiler function."
        )
    config = ProfilerConfig(s3_output_path)
    return {"profiler_config": config._to_request_dict(), "profiler_rule_configs": _rule_requests([get_default_profiler_rule()])}


def disable_profiling(profiling_status: str | None = None) -> dict[str, Any]:
    """Return the request that turns profiling off. Raise ValueError."""
    if profiling_status == "Disabled":
        raise ValueError("Profiler is already disabled.")
    return {"profiler_config": ProfilerConfig._to_profiler_disabled_request_dict()}


def get_default_profiler_rule() -> Any:
    """Return a ProfilerRule of ProfilerReport, named after the time in seconds."""
    from .analysis.rules.engine.config import ProfilerReport, ProfilerRule

    return ProfilerRule.sagemaker(ProfilerReport(), name=f"ProfilerReport-{int(time.time())}")


def _profiler_rules(rules: Iterable[Any] | None) -> list[Any]:
    if not rules:
        return []
    from .analysis.rules.engine.config import ATTACHED, ProfilerRule

    attached = [rule for rule in rules if isinstance(rule, ProfilerRule)]
    if len(attached) > ATTACHED:
        raise ValueError(f"{len(attached)} rules are attached; at most {ATTACHED} can be. Leave some out")
    return attached


def _rule_requests(rules: Iterable[Any]) -> list[dict[str, Any]]:
    return [rule.to_profiler_rule_config_dict() for rule in rules]


def _processing(instance_type: str, volume_size_in_gb: int) -> dict[str, Any]:
    """Return the rule that requests the processing of a deep profile."""
    now_ms = time.time_ns() // 1_000_000
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return {
        "RuleConfigurationName": f"{_PROCESSING_NAME}-{moment:%Y-%m-%d-%H-%M-%S}-{now_ms % 1000:03d}",
        "RuleEvaluatorImage": _PROCESSING_IMAGE,
        "InstanceType": instance_type,
        "VolumeSizeInGB": volume_size_in_gb,
        "RuleParameters": {"rule_to_invoke": _PROCESSING},
    }


def _checked(config: dict[str, Any]) -> dict[str, Any]:
    for key, value in config.get("ProfilingParameters", {}).items():
        if len(value) > LONGEST_VALUE:
            raise ValueError(f"{key} has {len(value):,} characters; the service takes {LONGEST_VALUE}. Shorten it")
    return config


# -- locations ----------------------------------------------------------------------------------------------------------------


def profiler_output_uri(output_path: str, job_name: str) -> str:
    """Return the folder of a job's profile, which ``postrun report`` reads.

    ``output_path``: of the job, or its ``s3_output_path``.
    """
    return f"{output_path.rstrip('/')}/{job_name}/profiler-output"


def rule_output_uri(output_path: str, job_name: str, rule_name: str | None = None) -> str:
    """Return the output folder of a job's rules, or of one rule."""
    folder = f"{output_path.rstrip('/')}/{job_name}/rule-output"
    return folder if rule_name is None else f"{folder}/{rule_name}"


def get_detailed_profiler_output_uri(output_path: str, job_name: str, profiler_rule_configs: Iterable[Mapping[str, Any]]) -> str:
    """Return the folder of a job's deep profile, below its rule output.

    ``profiler_rule_configs``: of the job's request.
    """
    for rule in profiler_rule_configs:
        if rule.get("RuleParameters", {}).get("rule_to_invoke") == _PROCESSING:
            return rule_output_uri(output_path, job_name, rule["RuleConfigurationName"])
    raise ValueError(f"no rule of the job invokes {_PROCESSING}; its configuration has no profile_params, so it has no deep profile")


class DetailProfilerApp:
    """The launcher of the hosted application: finds the report of a job.

    ``region`` is accepted and ignored; ``runs``: the folder of recordings.
    """

    def __init__(self, region: str | None = None, runs: str | Path = "postrun-runs") -> None:
        self.region = region
        self.runs = Path(runs)

    def get_app_url(self, training_job_name: str | None = None) -> str:
        """Return the path of the report that ``postrun record --report`` makes of a job.

        It is in the folder of this name, or in the newest whose name begins with it; without a name, the folder of recordings.
        """
        if training_job_name is None:
            return str(self.runs)
        if Path(training_job_name).name != training_job_name or training_job_name in ("", ".", ".."):
            raise ValueError(f"{training_job_name!r} is not a name of a job")
        folder = self.runs / training_job_name
        if not folder.is_dir() and self.runs.is_dir():
            later = [path for path in self.runs.iterdir() if path.name.startswith(f"{training_job_name}-") and path.is_dir()]
            folder = max(later, key=lambda path: (path.stat().st_mtime_ns, path.name), default=folder)
        return str(folder / "report" / "report.html")
