"""How do several sources of one run become one: same machine, same process, one clock, and nothing counted twice?

Asked once, when all files are read. What is joined, shifted or left out is told in notes; what is not clear stays as it is, with a note.
"""

from __future__ import annotations

from .clocks_apart import settle_apart
from .gpu_log_machine import place_logs
from .gpu_log_visible import number_visible
from .log_clocks import settle_logs
from .ranges_twice import leave_out_ranges
from .recorded_twice import leave_out_twice
from .relative_clocks import settle_relative
from .same_machine import join_machines, note_two_names
from .same_work import join_same_work
from .source_rows import Sources


class Joining(Sources):
    """The sources of one run: :meth:`settle` joins them; then ``clocks`` and ``results`` tell what became of each."""

    def settle(self) -> None:
        """Join processes and machines, then bring all to one clock, then leave out what is there twice; the samples of logs are stored
        meanwhile."""
        join_same_work(self)
        join_machines(self)
        if self.logs.logs:
            place_logs(self.logs)
            join_machines(self)
            number_visible(self)
            self.results.update(self.logs.store_samples({}, zoned=True))
        settle_relative(self)
        settle_apart(self)
        join_same_work(self)
        settle_logs(self)
        note_two_names(self)
        leave_out_twice(self)
        leave_out_ranges(self)
