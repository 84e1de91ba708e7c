"""What can be told only when all files are read? Kernel classes, and ranks by the order of files."""

from __future__ import annotations

from collections.abc import Sequence

from .store import Store


def classify_kernels(store: Store) -> None:
    """Set short name, precision and category of the names of device kernels; other names stay without."""
    from .kernel_names import classify

    names = store.frame("SELECT id, text FROM name WHERE id IN (SELECT DISTINCT name FROM device_event WHERE kind = 'kernel') ORDER BY id")
    if names.is_empty():
        return
    classes = classify(names["text"].to_list()).select("short", "precision", "category").with_columns(names["id"])
    store.connection.register("kernel_class", classes.to_arrow())
    try:
        store.connection.execute(
            "UPDATE name SET short = c.short, precision = c.precision, category = c.category FROM kernel_class c WHERE name.id = c.id"
        )
    finally:
        store.connection.unregister("kernel_class")


def ranks_by_order(store: Store, processes: Sequence[int]) -> None:
    """Where no trace says its rank, number the processes of several traces in the order of their files, and note it.

    ``processes``: of the traces, in the order of their files. With ranks on some of them nothing is guessed.
    """
    order = list(dict.fromkeys(processes))
    ranks = dict(store.connection.execute("SELECT id, rank FROM process").fetchall())
    missing = [process for process in order if ranks.get(process) is None]
    if len(order) < 2 or not missing:
        return
    if len(missing) < len(order):
        store.note("warning", "rank_unknown", "Some traces do not say their rank; they are shown without.", count=len(missing))
        return
    for rank, process in enumerate(order):
        store.connection.execute("UPDATE process SET rank = ? WHERE id = ?", [rank, process])
    store.note("warning", "rank_guessed", "No trace says its rank; ranks were given in the order of the file names.", count=len(order))
