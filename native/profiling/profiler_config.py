"""``ProfilerConfig`` and ``Profiler`` of the documented API, with which programs configure profiling.

Parameters, defaults, messages and requests are the documented ones. Their effect on a recording, and the resolution of contradictions in
the documentation: docs/profiling-configuration.md.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

from .classes import FrameworkProfile

INTERVALS_MS: Final = (100, 200, 500, 1000, 5000, 60000)  # supported intervals of the system sampler
EXCLUSIVE: Final = "Profiler will not work when Framework Profiler is ON"
DEPRECATED: Final = "Framework profiling will be deprecated from tensorflow 2.12 and pytorch 2.0"


class Profiler:
    """Deep profiling, with texts or numbers. ``cpu_profiling_duration``: seconds for which the processors are sampled.

    ``file_rotation_interval``: age in seconds at which a trace file is closed and the next begun (0: never). ``instanceType``,
    ``volumeSizeInGB``: of the hosted service; kept, and without effect here.
    """

    def __init__(self, cpu_profiling_duration: str | int = "3600", file_rotation_interval: str | int = "600") -> None:
        self.profiling_parameters = {
            "CPUProfilingDuration": str(cpu_profiling_duration),
            "SMPFileRotationSecs": str(file_rotation_interval),
        }
        self.instanceType = "ml.m5.4xlarge"  # the documented name
        self.volumeSizeInGB = 128

    def __repr__(self) -> str:
        return f"Profiler({', '.join(map(repr, self.profiling_parameters.values()))})"


class ProfilerConfig:
    """The profiling of a job, and the interval of the system sampler.

    ``s3_output_path``: kept for the request. ``system_monitor_interval_millis``: 100, 200, 500, 1000, 5000 or 60000 (None: 500).
    ``framework_profile_params``: a FrameworkProfile; ``profile_params``: a Profiler; not both. ``disable_profiler``: nothing is profiled.
    ``profiler_params``: another name of ``profile_params`` in parts of the documentation.
    """

    def __init__(
        self,
        s3_output_path: str | None = None,
        system_monitor_interval_millis: int | None = None,
        framework_profile_params: FrameworkProfile | None = None,
        profile_params: Profiler | None = None,
        disable_profiler: bool = False,
        *,
        profiler_params: Profiler | None = None,
    ) -> None:
        if profiler_params is not None:
            if profile_params is not None:
                raise TypeError("profiler_params is another name of profile_params; give one of them")
            warnings.warn("profiler_params is taken as profile_params, which is the parameter's name", UserWarning, stacklevel=2)
            profile_params = profiler_params
        if not (framework_profile_params is None or isinstance(framework_profile_params, FrameworkProfile)):
            raise AssertionError("framework_profile_params must be of type FrameworkProfile if specified.")
        if not (profile_params is None or isinstance(profile_params, Profiler)):
            raise AssertionError("profile_params must be of type Profiler if specified.")
        if framework_profile_params is not None and profile_params is not None:
            raise ValueError(EXCLUSIVE)
        if system_monitor_interval_millis is not None and system_monitor_interval_millis not in INTERVALS_MS:
            raise ValueError(
                f"system_monitor_interval_millis must be one of {', '.join(map(str, INTERVALS_MS))}, not {system_monitor_interval_millis!r}"
            )
        if framework_profile_params is not None:
            warnings.warn(DEPRECATED, DeprecationWarning, stacklevel=2)
        self.s3_output_path = s3_output_path
        self.system_monitor_interval_millis = system_monitor_interval_millis
        self.framework_profile_params = framework_profile_params
        self.profile_params = profile_params
        self.disable_profiler = disable_profiler

    def _to_request_dict(self) -> dict[str, Any]:
        """Return the profiler configuration of the service's request."""
        request: dict[str, Any] = {}
        if self.s3_output_path is not None and not self.disable_profiler:
            request["S3OutputPath"] = self.s3_output_path
        request["DisableProfiler"] = self.disable_profiler
        if self.system_monitor_interval_millis is not None:
            request["ProfilingIntervalInMilliseconds"] = self.system_monitor_interval_millis
        chosen = self.framework_profile_params or self.profile_params
        if chosen is not None:
            request["ProfilingParameters"] = chosen.profiling_parameters
        return request

    @classmethod
    def _to_profiler_disabled_request_dict(cls) -> dict[str, Any]:
        return {"DisableProfiler": True}

    def __repr__(self) -> str:
        return f"ProfilerConfig({self._to_request_dict()!r})"
