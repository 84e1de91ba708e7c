"""Do GPUs wait for a processor core that is at its limit?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wording import percent
from .base import Parameter, Parameters
from .bottleneck import Bottleneck, Row, longest, workers
from .frameworks import BUSY_CORES, framework_of
from .gpus import NO_CPU, threshold
from .run_data import RunData


class CPUBottleneck(Bottleneck):
    """Low GPU while a core of the machine is above ``cpu_threshold``; see :class:`Bottleneck`."""

    name = "CPUBottleneck"
    parameters = (
        Parameter("threshold", "%", 50, 50, "percentile", "share of a machine's snapshots that may be bottlenecks"),
        Parameter("gpu_threshold", "%", 10, 10, "percentile", "a snapshot is low when a used GPU is below this"),
        Parameter("cpu_threshold", "%", 90, 90, "percentile", "a low snapshot is a bottleneck when a core is above this"),
        Parameter(
            "patience",
            "samples",
            100,
            1000,
            "positive",
            "a machine is judged, over the whole run, when it has more snapshots than this",
            seconds=True,
        ),
    )
    needs = "Samples of GPU utilisation and of every core's utilisation; kernel activity stands in for the first."
    checks = "Looks for snapshots in which a GPU is low while a core of the same machine is at its limit."
    condition = "a GPU is below gpu_threshold while a core is above cpu_threshold in more than threshold of a machine's snapshots"
    advice = "Take work off the cores that feed the GPUs, or give them more cores."

    core = "core_max"
    figure = "core"
    limit = "cpu_threshold"
    absent = NO_CPU
    title = "Take work off the processor"
    core_state = "a core is at its limit"
    core_condition = "a core is above cpu_threshold in more than threshold of a machine's snapshots"

    def state(self, parameters: Parameters) -> str:
        return f"a core was above {threshold(parameters['cpu_threshold'])}"

    def recommendation(self, worst: Row, run: RunData, details: Mapping[str, Any]) -> str:
        if run.samples.without_gpu:
            return (
                "Let more cores share the work of the busy one: use more threads in the operators, load data in other processes, or"
                f" vectorize Python loops. On {worst['node']} {percent(worst['of_low_percent'])} of the snapshots with a mean of the"
                f" cores below 50 % have a core at its limit{longest(details)}."
            )
        knobs = BUSY_CORES.of(framework_of(run.store)).format(workers=workers(worst["node"], run))
        return (
            f"Set {knobs}, do augmentation on the GPU or before training, or take an instance with more cores per GPU:"
            f" on {worst['node']} {percent(worst['of_low_percent'])} of the snapshots with a low GPU have a core at its"
            f" limit{longest(details)}."
        )
