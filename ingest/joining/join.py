"""Joins the sources of one run: one node, one process and one clock for what several files state about the same, nothing counted twice.

Runs once, when all files are read. Sources are joined by what files state (host names, process ids, UUIDs of GPUs, identical events) and
by what the user states; each join, shift or omission leaves a note. Sources that may belong together, though no file states it, get a note.
"""

from __future__ import annotations

from .clocks import note_clocks, shift_identical, shift_stated
from .duplicate_events import leave_out_twice
from .duplicate_ranges import leave_out_ranges
from .log_machine import note_numbers, place_logs
from .same_machine import join_machines, join_stated, note_possible
from .same_work import join_same_work
from .sources import Sources


class Joining(Sources):
    """The sources of one run: :meth:`settle` joins them; then ``clocks`` and ``results`` describe each."""

    def settle(self) -> None:
        """Apply statements, join processes and nodes, store samples, remove duplicates."""
        shift_stated(self)
        join_same_work(self)
        join_machines(self)
        machines = join_stated(self)
        shift_identical(self)
        place_logs(self, machines)
        note_clocks(self)
        note_possible(self)
        if self.logs.logs:
            self.results.update(self.logs.store_samples())
            note_numbers(self)
        leave_out_twice(self)
        leave_out_ranges(self)
