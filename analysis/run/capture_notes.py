"""Notes on how a profile was recorded: what makes its figures slower or less certain than those of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...ingest.store.store import Store
from ..causes.program import INFERENCE, program
from ..report.run import Note
from ..toolkit.contents import formats, kinds

WITH_STACK: Final = "with_stack"
FEW_STEPS: Final = "few_steps"
CODES: Final = frozenset({WITH_STACK, FEW_STEPS})


def python_frames(store: Store) -> bool:
    """Return whether a profiler recorded the Python frames, which slows the host."""
    return "python" in kinds(store, "host_event")


def capture_notes(store: Store) -> Iterator[Note]:
    """Yield a warning per limit of the recording."""
    if python_frames(store):
        text = (
            "Python frames were recorded (`with_stack`), which slows the host: host times and idle times are longer than without them."
            " Compare only with profiles that were recorded in the same way."
        )
        yield Note(None, "warning", WITH_STACK, text, 1, None, None)
    if not store.has_rows("device_event") or not formats(store) or program(store).kind == INFERENCE:
        return
    steps = 0
    if store.has_rows("step"):
        steps = store.frame("SELECT max(n) FROM (SELECT count(*) AS n FROM step GROUP BY process)").item() or 0
    if steps < 2:
        text = "The profile has one step" if steps else "The profile has no steps"
        text += (
            ": its figures cannot show how steps vary, and include what runs once. Profile at least five steps after some warm-up steps."
        )
        yield Note(None, "warning", FEW_STEPS, text, 1, None, None)
