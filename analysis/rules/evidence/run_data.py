"""A run as the rules see it: the store, the samples in blocks, and every other analysis of the report.

Each analysis is computed at first use: a few rules do not take the time of a complete report.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import polars as pl

from ....ingest.store.store import Store
from ...causes.collectives import collectives
from ...causes.exposed import exposed_calls
from ...causes.gaps import gaps
from ...causes.iterations import iterations
from ...causes.late_hosts import late_hosts, no_late_hosts
from ...causes.matching import matched_collectives
from ...causes.peers import Peers, peers
from ...causes.program import program
from ...causes.roles import PIPELINE, coordinates, roles, working_processes
from ...causes.what_if import WhatIf, common_steps, what_if
from ...device.activity import activity
from ...device.device_gaps import DeviceGaps
from ...device.idle import idle
from ...device.kernels import kernel_sums, kernels
from ...device.launch_configurations import launch_configurations
from ...device.launches import launches
from ...device.memory_operations import memory_operations
from ...device.time_breakdown import time_breakdown, whole_devices
from ...efficiency.call_shapes import call_shapes
from ...efficiency.call_sites import CallSites
from ...efficiency.efficiency import device_peaks, efficiency, no_efficiency
from ...efficiency.kernel_classes import described, kernel_groups, precision, signatures
from ...efficiency.kernel_roofs import located
from ...efficiency.largest_site import Site, largest_site, sampled
from ...efficiency.measured_time import measured_time
from ...efficiency.modules import code_times
from ...efficiency.operator_work import OwnedWork, attributed, operator_work
from ...framework.annotations import annotation_groups
from ...framework.framework import framework
from ...machine.system_usage import system_usage
from ...machine.utilization import derived_utilization
from ...report.device import Kernel
from ...report.efficiency import Efficiency
from ...run import run_info
from ...run.job_statistics import job_statistics
from ...steps.data import StepData
from ...steps.steps import steps
from ...steps.times import step_times
from ...toolkit.options import AnalysisOptions
from ...toolkit.places import Places
from .blocking import blocking
from .blocks import Samples
from .loading import loading_percent

T = TypeVar("T")


def _from_store(analysis: Callable[[Store], T]) -> cached_property[T]:
    return cached_property(lambda run: analysis(run.store))


def _from_run(analysis: Callable[[RunData], T]) -> cached_property[T]:
    return cached_property(analysis)


def _operator_work(run: RunData) -> OwnedWork:
    return operator_work(run.store, run.measured_time.launching, run.sites.of if run.sites.known else None)


def _efficiency(run: RunData) -> Efficiency:
    owned = run.operator_work
    if owned.calls.is_empty():
        return no_efficiency(run.store)
    return efficiency(run.store, owned, run.call_shapes, run.measured_time, run.device_peaks, run.sites.table())


class RunData:
    """A run and the results of its analysis functions. The store must not change meanwhile."""

    def __init__(self, store: Store, options: AnalysisOptions = AnalysisOptions()) -> None:  # noqa: B008  (AnalysisOptions is frozen)
        self.store = store
        self.places = Places(store)
        self.options = options
        self.top = options.top  # maximum number of rows of lists in the details

    nodes = _from_store(run_info.nodes)
    devices = _from_store(run_info.devices)
    processes = _from_store(run_info.processes)
    job = _from_store(job_statistics)
    derived = _from_store(derived_utilization)  # of devices without samples, from their kernels
    samples = _from_run(lambda run: Samples(run.store, run.derived))
    usage = _from_run(lambda run: system_usage(run.store, run.derived))
    breakdown = _from_store(time_breakdown)  # a row per (process, device)
    whole_devices = _from_run(lambda run: whole_devices(run.store, run.breakdown))  # a row per device
    step_data = _from_run(lambda run: StepData(run.store, run.places))
    measured_time = _from_run(lambda run: measured_time(run.store, run.step_data))
    sites = _from_store(CallSites)  # module and source line of calls; filled by operator_work
    operator_work = _from_run(_operator_work)  # device work by owning operator call, signature and site: the one pass over it
    kernel_sums = _from_store(kernel_sums)  # by name
    kernel_groups = _from_run(  # by operator call
        lambda run: kernel_groups(run.store, run.operator_work, run.kernel_sums, run.origins)
    )
    precision = _from_run(lambda run: precision(run.kernel_groups))
    launch_configurations = _from_run(
        lambda run: launch_configurations(run.store, {kernel.name: kernel.category for kernel in run.kernels})
    )
    activity = _from_store(activity)
    memory_operations = _from_store(memory_operations)
    launches = _from_run(lambda run: launches(run.store, top=run.top))
    idle = _from_store(idle)
    steps = _from_run(lambda run: steps(run.store, run.step_data))
    step_times = _from_run(lambda run: step_times(run.store, run.step_data))
    loading_percent = _from_run(lambda run: loading_percent(run.store, run.steps, run.step_data.loading))
    annotations = _from_run(lambda run: annotation_groups(run.store, run.options))
    code_times = _from_run(lambda run: code_times(run.operator_work.work, run.sites))  # by module and by source line
    call_shapes = _from_run(lambda run: call_shapes(run.store, run.operator_work))
    device_peaks = _from_run(lambda run: device_peaks(run.store, run.operator_work.work, run.options.peaks))  # by process
    efficiency = _from_run(_efficiency)
    attributed = _from_run(lambda run: attributed(run.store, run.operator_work))  # by the innermost operator around the launch
    collectives = _from_run(lambda run: collectives(run.store, run.places))  # rows by time, and totals
    roles = _from_run(lambda run: roles(run.store, run.peers, run.places))
    framework = _from_run(lambda run: framework(run.store, run.attributed))
    exposed_calls = _from_store(exposed_calls)  # calls of collectives, with their exposed time
    gaps = _from_store(DeviceGaps)
    blocking = _from_run(lambda run: blocking(run.store, run.gaps))  # calls of the host, by groups of devices
    longest_gaps = _from_run(lambda run: gaps(run.store, run.gaps, run.sites_during if run.sites.known else None))
    program = _from_store(program)
    iterations = _from_store(iterations)

    def site_of_work(self, condition: pl.Expr) -> Site | None:
        """Return the site with at least half of the device time of some work.

        ``condition``: on the columns of :attr:`operator_work`'s ``work``, and on ``text``, the name of the work as reports show it."""
        if not self.sites.known:
            return None
        texts = self.store.frame("SELECT id AS kernel, coalesce(short, text) AS text FROM name")
        work = self.operator_work.work.join(texts, on="kernel", how="left").filter(condition)
        by_site = work.group_by("site").agg(pl.col("total").sum()).join(self.sites.table(), on="site", how="left", nulls_equal=True)
        return largest_site(by_site.select("module", "line", "total").iter_rows())

    def site_of_waits(self, waits: pl.DataFrame) -> Site | None:
        """Return the site with at least half of some waits.

        ``waits``: process, tid, start, and ``ns``, the length of each."""
        moments = sampled(waits.filter(pl.col("ns") > 0))
        by_site = self.sites.at(moments).with_columns(moments["ns"]).group_by("module", "line").agg(pl.col("ns").sum())
        return largest_site(by_site.iter_rows())

    def sites_during(self, stretches: pl.DataFrame) -> list[Site | None]:
        """Return the site that was open for at least half of each stretch.

        ``stretches``: process, tid, start, and ``ns``, the length of each."""
        moments = sampled(stretches.with_row_index("stretch"))
        rows: list[list[tuple[str, str, int]]] = [[] for _ in range(len(stretches))]
        for stretch, *code in moments.select("stretch").hstack(self.sites.at(moments)).with_columns(n=1).iter_rows():
            rows[stretch].append((code[0], code[1], code[2]))
        return [largest_site(part) for part in rows]

    @cached_property
    def origins(self) -> dict[int | None, tuple[str, str]]:
        """Return module and source line of each site, "" if unknown; empty without any."""
        if not self.sites.known or self.operator_work.work.is_empty():  # which fills the sites
            return {}
        return {site: (module, line) for site, module, line in self.sites.table().select("site", "module", "line").iter_rows()}

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels by name, longest total time first."""
        by_name = kernels(self.kernel_sums, self.whole_devices)
        return described(by_name, self.kernel_sums, self.kernel_groups, self.store)

    @cached_property
    def located_kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels with module and percent of roof."""
        if all(group.operator is None for group in self.kernel_groups):
            return self.kernels
        inputs = signatures(self.store) if any(group.signature is not None for group in self.kernel_groups) else {}
        return located(self.kernels, self.kernel_sums, self.kernel_groups, self.efficiency.operators, inputs, self.origins)

    @cached_property
    def shared_steps(self) -> pl.DataFrame:
        """Return the steps that all ranks have: process, number, start, end."""
        ranked = self.step_data.main.join(self.step_data.ranked, on="process", how="semi")
        return common_steps(ranked)

    @cached_property
    def peers(self) -> Peers:
        """Return which ranks do the same work; ranks without steps only if none has any."""
        processes = working_processes(self.store)
        if len(processes) < 2:
            return peers(self.store, processes, pl.DataFrame(), pl.DataFrame(), {})
        steps = self.shared_steps
        stages = {process: known.get(PIPELINE) for process, known in coordinates(self.store).items()}
        return peers(self.store, steps["process"].unique() if len(steps) else processes, matched_collectives(self.store), steps, stages)

    @cached_property
    def what_if(self) -> WhatIf | str:
        """Return the simulation of the job, or why there is none."""
        return what_if(self.store, matched_collectives(self.store), self.shared_steps, self.step_data.loads, self.peers)

    @cached_property
    def late_hosts(self) -> pl.DataFrame:
        """Return the ranks whose host launches late while the others wait for them."""
        if self.exposed_calls.is_empty():
            return no_late_hosts()
        return late_hosts(self.gaps, self.exposed_calls, self.shared_steps, self.peers)
