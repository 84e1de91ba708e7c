"""Steps that need all files of a run: names and classes of kernels, and ranks by the order of files."""

from __future__ import annotations

from collections.abc import Sequence

from ..store.limits import KERNEL_TEXT_BYTES, KERNELS, OTHER_KERNELS
from ..store.store import Store


def demangle_kernels(store: Store) -> None:
    """Replace symbols of kernels by names; symbols with the same name become one."""
    from ..kernels.demangle import demangled

    if not store.frame("SELECT EXISTS (FROM name WHERE starts_with(text, '_Z'))").item():
        return
    symbols = store.frame("""
        SELECT n.id, n.text FROM name AS n
        WHERE starts_with(n.text, '_Z') AND n.id IN (SELECT DISTINCT name FROM device_event WHERE kind = 'kernel') ORDER BY n.id
    """)
    if symbols.is_empty():
        return
    ids, texts = symbols["id"].to_list(), symbols["text"].to_list()
    changed = {number: name for number, text, name in zip(ids, texts, demangled(texts), strict=True) if name != text}
    execute = store.connection.execute
    known = dict(execute("SELECT text, id FROM name WHERE text IN (SELECT unnest(?))", [list(changed.values())]).fetchall())
    for number, name in changed.items():
        first = known.setdefault(name, number)
        if first == number:
            execute("UPDATE name SET text = ? WHERE id = ?", [name, number])
        else:
            execute("INSERT INTO name_alias VALUES (?, ?)", [number, first])


def classify_kernels(store: Store) -> None:
    """Set short name, precision and category of the names of device kernels.

    If kernels would have the same short name, the one with the longest total time keeps it.
    """
    import polars as pl

    from ..kernels.names import classify, distinct_short_names

    _limit_kernels(store)
    names = store.frame("""
        SELECT n.id, n.text FROM name AS n
        JOIN (SELECT name, sum(duration_ns) AS total FROM device_event WHERE kind = 'kernel' GROUP BY name) AS t ON n.id = t.name
        ORDER BY t.total DESC, n.text
    """)
    if names.is_empty():
        return
    texts = names["text"].to_list()
    classes = classify(texts).select("precision", "category").with_columns(names["id"], pl.Series("short", distinct_short_names(texts)))
    store.connection.register("kernel_class", classes.to_arrow())
    try:
        store.connection.execute(
            "UPDATE name SET short = c.short, precision = c.precision, category = c.category FROM kernel_class c WHERE name.id = c.id"
        )
    finally:
        store.connection.unregister("kernel_class")


def _limit_kernels(store: Store) -> None:
    """Give the kernels beyond the limits, those with the least time, one name."""
    execute = store.connection.execute
    ranked = """
        SELECT n.id, row_number() OVER largest AS place, sum(strlen(n.text)) OVER largest AS bytes FROM name AS n
        JOIN (SELECT name, sum(duration_ns) AS total FROM device_event WHERE kind = 'kernel' GROUP BY name) AS t ON n.id = t.name
        WINDOW largest AS (ORDER BY t.total DESC, n.text ROWS UNBOUNDED PRECEDING)
    """
    beyond = f"SELECT id FROM ({ranked}) WHERE place > {KERNELS} OR bytes > {KERNEL_TEXT_BYTES}"
    left_out = execute(f"SELECT count(*) FROM ({beyond})").fetchall()[0][0]
    if not left_out:
        return
    [name] = store.name_ids([OTHER_KERNELS])
    execute(f"CREATE TEMP TABLE beyond AS {beyond}")
    try:
        events = execute("SELECT count(*) FROM device_event WHERE kind = 'kernel' AND name IN (FROM beyond)").fetchall()[0][0]
        execute("UPDATE name_alias SET alias = ? WHERE alias IN (FROM beyond)", [name])
        execute("INSERT INTO name_alias SELECT id, ? FROM beyond WHERE id NOT IN (SELECT name FROM name_alias)", [name])
    finally:
        execute("DROP TABLE beyond")
    text = (
        f"The run has more than {KERNELS:,} kernels or {KERNEL_TEXT_BYTES >> 20} MiB of their names, the limit; the {left_out:,} kernels"
        f" with the least time are shown as {OTHER_KERNELS}."
    )
    store.note("warning", "limit_reached", text, count=events)


def ranks_by_order(store: Store, processes: Sequence[int]) -> None:
    """Number the processes of several traces by the order of files if none has a rank.

    ``processes``: of the traces, in the order of their files. Nothing is guessed if some of them have ranks.
    """
    ranks = dict(store.connection.execute("SELECT id, rank FROM process").fetchall())
    order = [process for process in dict.fromkeys(processes) if process in ranks]
    missing = [process for process in order if ranks.get(process) is None]
    if len(order) < 2 or not missing:
        return
    if len(missing) < len(order):
        store.note("warning", "rank_unknown", "Some traces do not say their rank; they are shown without.", count=len(missing))
        return
    with store.transaction():
        for rank, process in enumerate(order):
            store.connection.execute("UPDATE process SET rank = ? WHERE id = ?", [rank, process])
    text = "No trace says its rank; ranks were given in the order of the file names, within a file of the devices."
    store.note("warning", "rank_guessed", text, count=len(order))
