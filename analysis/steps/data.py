"""Facts of a run that the sections on steps share, each read at first use."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import union
from ..toolkit.places import Places
from .loading_ranges import loading_ranges
from .outside import begun_after, disjoint_steps, outside_steps
from .ranges import ranges_on_step_threads
from .timed import timed_steps


class StepData:
    """Steps, loads and processes of a store. The store must not change meanwhile."""

    def __init__(self, store: Store, places: Places | None = None) -> None:
        self.store = store
        self.places = places or Places(store)

    @cached_property
    def timed(self) -> pl.DataFrame:
        """Return :func:`.timed.timed_steps`."""
        return timed_steps(self.store)

    @cached_property
    def loading(self) -> pl.DataFrame:
        """Return :func:`.loading_ranges.loading_ranges` of every process."""
        return loading_ranges(self.store)

    @cached_property
    def loads(self) -> pl.DataFrame:
        """Return when each process loaded data, by events or by ranges named so.

        Columns: ``process``, ``start``, ``end`` (ns); disjoint.
        """
        events = self.store.frame("""
            SELECT process, start_ns AS start, start_ns + duration_ns AS "end" FROM host_event WHERE kind = 'loader'
        """)
        return union(pl.concat([events, self.loading.select(events.columns)]), ["process"])

    @cached_property
    def _on_step_threads(self) -> pl.DataFrame:
        return ranges_on_step_threads(self.store)

    def on_step_threads(self, process: int | None) -> pl.DataFrame:
        """Return :func:`.ranges.ranges_on_step_threads` of a process."""
        return self._on_step_threads.filter(pl.col("process").eq_missing(process))

    @cached_property
    def events(self) -> dict[int | None, int]:
        """Return the number of events of each process, without its annotations."""
        return dict(
            self.store.frame("""
                SELECT process, count(*) AS n FROM (SELECT process FROM device_event UNION ALL SELECT process FROM host_event)
                GROUP BY process ORDER BY process
            """).rows()
        )

    @cached_property
    def ranked(self) -> pl.DataFrame:
        """Return the processes that have a rank: ``process``."""
        return self.store.frame("SELECT id AS process FROM process WHERE rank IS NOT NULL")

    @cached_property
    def main(self) -> pl.DataFrame:
        """Return the main steps of ``timed`` with device work, with their ``end``.

        These are the steps of each process without a phase, else those of the phase with the longest device time, each number once.
        """
        rows = self.timed.filter("on_device")
        weights = rows.group_by("process", "phase").agg(pl.col("duration").sum())
        main = (
            weights.sort(pl.col("phase").is_not_null(), "duration", "phase", descending=[False, True, False])
            .group_by("process", maintain_order=True)
            .first()
        )
        return (
            rows.join(main.select("process", "phase"), on=["process", "phase"], how="semi", nulls_equal=True)
            .sort("process", "number", "start")
            .unique(["process", "number"], keep="first", maintain_order=True)
            .with_columns(end=pl.col("start") + pl.col("duration"))
        )

    @cached_property
    def _disjoint(self) -> pl.DataFrame:
        return disjoint_steps(self.main)

    @cached_property
    def outside(self) -> pl.DataFrame:
        """Return :func:`.outside.outside_steps`: device work that no main step launched."""
        return outside_steps(self.store, self._disjoint, self.timed)

    @cached_property
    def walled(self) -> pl.DataFrame:
        """Return ``main`` with disjoint ``begin`` and ``until``, and two more.

        A step lasts from the ``until`` of the step before it, if their numbers are consecutive (``follows``). Else it lasts from its own
        start, or from the end of the device work that was launched before it (``ahead``), whichever is later.
        """
        return begun_after(self._disjoint, self.outside)

    @cached_property
    def ahead(self) -> pl.DataFrame:
        """Return the end of the device work that was launched before a step: ``ahead``.

        Columns: ``process``, ``host_start_ns`` of the step, ``ahead`` (ns).
        """
        return self.walled.filter(pl.col("ahead").is_not_null()).select("process", "host_start_ns", "ahead")
