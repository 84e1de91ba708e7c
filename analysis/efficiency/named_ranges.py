"""Ranges that name modules in traces without calls of modules: the program's own, those of FSDP, of compiled regions, and of layers.

Ranges of steps and their parts, of operators, of collectives, of data loading, of optimizers and of the compiler name no module.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..steps.loading_names import DATA_LOADING

_DECORATION: Final = r"^[#\s]+|[#\s]+$"
# vLLM and SGLang write the facts of a layer as text of a dictionary; packages write a module as its class.
_TEXT: Final = r"^\{'Module': '([^']+)'|^<class '[^']*?([^'.]+)'>$"
_NO_MODULE: Final = (
    r"^$|^\w+::|^autograd::|^nccl:|^[a-z]ccl:|, (seq|op_id|sizes) = |^ProfilerStep|^Optimizer\.|^enumerate\(DataLoader\)"
    r"|(?i)^(## *)?((train|val|eval|test)(ing|idation|uation)?[ _-]*)?(step|iter(ation)?|epoch|batch)[ #_:.-]*\d*( *##)?$"
    r"|^(## *)?(forward|backward|optimi[sz]er|zero[_ ]?grad|loss)([ _-]?(pass|step))?( *##)?$"
    r"|(^|[ _:])(all2all|alltoall|all_to_all|allreduce|all_reduce|wait|awaitable|metrics|recmetrics)"
    r"|^execute_|^step\[|^\[Executor\]|^(prefill|decode)\[|^aws_marker-|^PyTorch Profiler|^DistributedDataParallel\.forward$"
    r"| \(dynamo_timed\)$|_data: (fn_name=.*, )?compile_id="
)
# FSDP marks the start and the end of a module's pass, each by a short range.
_FSDP: Final = r"^FSDP::(pre|post)_(forward|backward)(?: \((.+)\))?$"

_NAMES: Final = """
    SELECT id AS name, text FROM name WHERE id IN (SELECT name FROM annotation WHERE side = 'host') OR text LIKE 'FSDP::p%' ORDER BY id
"""
_RANGES: Final = """
    SELECT e.process, e.tid, e.name, e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM annotation AS e
    WHERE e.side = 'host' AND e.complete IS NOT FALSE AND e.name IN (SELECT unnest(?::INTEGER[])) AND {condition}
        AND NOT EXISTS (FROM step AS s WHERE s.process = e.process AND s.host_start_ns = e.start_ns AND s.host_duration_ns = e.duration_ns)
    UNION ALL
    SELECT e.process, e.tid, e.name, e.start_ns, e.start_ns + e.duration_ns FROM host_event AS e
    WHERE e.kind = 'operator' AND e.name IN (SELECT unnest(?::INTEGER[])) AND {condition}
"""


def range_names(store: Store) -> pl.DataFrame | None:
    """Return the names of ranges that name a module, None without ranges.

    Columns: ``name`` (id), ``text``, and of FSDP's marks ``mark`` (pre, post) and ``way`` (forward, backward)."""
    if not store.has_rows("annotation", "host_event"):
        return None
    names = store.frame(_NAMES)
    if not len(names):
        return None
    text = pl.col("text")
    marked = names.with_columns(mark=text.str.extract(_FSDP, 1), way=text.str.extract(_FSDP, 2), module=text.str.extract(_FSDP, 3))
    chosen = marked.filter(pl.col("mark").is_not_null() | ~(text.str.contains(_NO_MODULE) | text.str.contains(DATA_LOADING)))
    layer = pl.coalesce(text.str.extract(_TEXT, 1), text.str.extract(_TEXT, 2), text.str.replace_all(_DECORATION, ""))
    plain = pl.when(pl.col("mark").is_null()).then(layer).otherwise(pl.col("module").fill_null("FSDP"))
    return chosen.select("name", plain.alias("text"), "mark", "way")


def module_ranges(store: Store, condition: str, names: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges of modules: process, tid, start, end, ``module``.

    ``names``: rows of :func:`range_names`, with the number of the ``module`` of each."""
    marks = names.filter(pl.col("mark").is_not_null())["name"].to_list()
    rows = store.frame(_RANGES.format(condition=condition), [names["name"].to_list(), marks]).join(names, on="name")
    columns = ["process", "tid", "start", "end", "module"]
    plain, marked = rows.filter(pl.col("mark").is_null()), rows.filter(pl.col("mark").is_not_null()).sort("start", "end")
    by = ["process", "tid", "module", "way"]
    ends = marked.filter(pl.col("mark") == "post").select(*by, "start", "end")
    begins = marked.filter(pl.col("mark") == "pre").select(*by, "start")
    passes = begins.join_asof(ends, on="start", by=by, strategy="forward", check_sortedness=False).drop_nulls("end")
    return pl.concat([plain.select(columns), passes.select(columns)])
