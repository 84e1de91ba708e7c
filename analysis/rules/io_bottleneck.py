"""Do GPUs wait for reading or writing data?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wording import percent
from .base import Parameter, Parameters
from .bottleneck import Bottleneck, Row, longest, workers
from .frameworks import MANY_READERS, framework_of
from .gpus import threshold
from .run_data import RunData


class IOBottleneck(Bottleneck):
    """Low GPU while a core of the machine waits for I/O more than ``io_threshold`` of the time; see :class:`Bottleneck`."""

    name = "IOBottleneck"
    parameters = (
        Parameter("threshold", "%", 50, 50, "percentile", "share of a machine's snapshots that may be bottlenecks"),
        Parameter("gpu_threshold", "%", 70, 10, "percentile", "a snapshot is low when a used GPU is below this"),
        Parameter("io_threshold", "%", 50, 50, "percentile", "a low snapshot is a bottleneck when a core waits for I/O more than this"),
        Parameter(
            "patience",
            "samples",
            1000,
            1000,
            "positive",
            "a machine is judged, over the whole run, when it has more snapshots than this",
            seconds=True,
        ),
    )
    needs = "Samples of GPU utilisation and of every core's I/O wait; kernel activity stands in for the first."
    checks = "Looks for snapshots in which a GPU is low while a core of the same machine waits for I/O."
    condition = "a GPU is below gpu_threshold while a core's I/O wait is above io_threshold in more than threshold of a machine's snapshots"
    advice = "Read ahead in more processes, or keep the data on faster storage."

    core = "iowait_max"
    figure = "core_iowait"
    limit = "io_threshold"
    absent = "no I/O wait samples in this run"
    title = "Shorten the waits for I/O"
    core_state = "a core waits for I/O"
    core_condition = "a core's I/O wait is above io_threshold in more than threshold of a machine's snapshots"

    def state(self, parameters: Parameters) -> str:
        return f"a core waited for I/O more than {threshold(parameters['io_threshold'])} of the time"

    def recommendation(self, worst: Row, run: RunData, details: Mapping[str, Any]) -> str:
        readers = MANY_READERS.of(framework_of(run.store)).format(workers=workers(worst["node"], run))
        low = "a mean of the cores below 50 %" if run.samples.without_gpu else "a low GPU"
        return (
            f"Read ahead with {readers}, and keep the data on a local disk in few large files: on {worst['node']}"
            f" {percent(worst['of_low_percent'])} of the snapshots with {low} have a core waiting for I/O{longest(details)}."
        )
