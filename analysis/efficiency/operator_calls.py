"""Operator calls by module, operator and inputs, for comparisons: grouped device work -> the rows with the longest device time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..report.operator_calls import OperatorCall, OperatorCalls
from ..toolkit.wording import shape_text
from .call_sites import CallSites
from .kernel_classes import KernelGroup, signatures
from .operator_work import OwnedWork
from .signatures import TYPES, Signature

MOST_ROWS: Final = 400  # of a report: some 100 KB of report.json
_SHARE: Final = 0.1  # of the device time of a row, from which a kernel is listed
_NUMBERED: Final = re.compile(r" #\d+$")  # the store numbers kernels with the same short name
_LOSSY: Final = re.compile(r"tensors|\.\.\.")  # in the text of a shape that leaves sizes out
_KEY: Final = ("module", "operator", "dims", "types")
_NAMES: Final = "SELECT id, coalesce(short, text), category FROM name WHERE list_contains(?, id)"


class _Kernel(NamedTuple):
    short: str
    category: str | None


def operator_calls(store: Store, owned: OwnedWork, groups: Iterable[KernelGroup], sites: CallSites) -> OperatorCalls:
    """Sum device work by module, owning operator and inputs, without communication.

    ``groups``: the classified kernels of ``owned``; ``sites``: those of its sites.
    """
    if owned.work["operator"].null_count() == owned.work.height:
        return OperatorCalls(unlinked_ns=int(owned.work["total"].sum()))
    ids = owned.work["kernel"].drop_nulls().unique().sort().to_list()
    kernels = {number: _Kernel(short, category) for number, short, category in store.frame(_NAMES, [ids]).iter_rows()}
    communication = [number for number, kernel in kernels.items() if kernel.category == "communication"]
    work = owned.work.filter(~pl.col("kernel").is_in(communication).fill_null(False))
    unlinked = int(work.filter(pl.col("operator").is_null())["total"].sum())
    used = {*work["signature"].unique(), *owned.calls["signature"].unique()}
    inputs = {number: _texts(call) for number, call in signatures(store).items() if number in used}
    table = sites.table() if sites.known else pl.DataFrame(schema={"site": pl.UInt32, "module": pl.String})
    modules = {site: module or None for site, module in table.select("site", "module").iter_rows()}
    work, calls = (_keyed(frame.filter(pl.col("operator").is_not_null()), inputs, modules) for frame in (work, owned.calls))
    rows = (
        work.group_by(*_KEY, "kernel")
        .agg(pl.col("total").sum(), pl.col("signature").min())
        .group_by(_KEY)
        .agg(pl.col("total").sum(), ran=pl.struct("kernel", "total", "signature").sort_by(-pl.col("total"), "kernel"))
        .join(calls.group_by(*_KEY).agg(pl.col("calls").sum()), on=list(_KEY), how="left", nulls_equal=True)
        .sort(-pl.col("total"), *_KEY)
    )
    precisions = {(group.kernel, group.operator, group.signature): group.classes.precision for group in groups}
    further = rows.slice(MOST_ROWS)
    return OperatorCalls(
        rows=tuple(_row(row, kernels, precisions) for row in rows.head(MOST_ROWS).iter_rows(named=True)),
        further=further.height,
        further_ns=int(further["total"].sum()),
        unlinked_ns=unlinked,
    )


def _keyed(frame: pl.DataFrame, inputs: Mapping[int | None, tuple[str, str]], modules: Mapping[int | None, str | None]) -> pl.DataFrame:
    """Add the columns of ``_KEY`` to work or calls."""
    numbers = list(inputs)

    def text(column: str, ids: list[int | None], texts: list[Any], default: str | None) -> pl.Expr:
        return pl.col(column).replace_strict(ids, texts, default=default, return_dtype=pl.String)

    return frame.with_columns(
        module=text("site", list(modules), list(modules.values()), None),
        dims=text("signature", numbers, [dims for dims, _ in inputs.values()], ""),
        types=text("signature", numbers, [types for _, types in inputs.values()], ""),
    )


def _row(row: Mapping[str, Any], kernels: Mapping[int, _Kernel], precisions: Mapping[tuple[Any, ...], str]) -> OperatorCall:
    ran = row["ran"]
    shorts = [kernels[one["kernel"]].short for one in ran if one["kernel"] in kernels and one["total"] >= _SHARE * row["total"]]
    precision = precisions.get((ran[0]["kernel"], row["operator"], ran[0]["signature"]))
    return OperatorCall(
        module=row["module"],
        operator=row["operator"],
        dims=row["dims"],
        types=row["types"],
        kernels=tuple(dict.fromkeys(_NUMBERED.sub("", short) for short in shorts)),
        precision=None if precision == "unknown" else precision,
        calls=row["calls"] or 0,
        device_ns=row["total"],
    )


def _texts(call: Signature) -> tuple[str, str]:
    """Return the sizes and the distinct types of a call's tensors.

    A text that leaves sizes out ends with a digest of all, so that different calls stay different.
    """
    dims = shape_text(call.dims) or ""
    if _LOSSY.search(dims):
        dims += f" #{blake2b(json.dumps(call.dims).encode(), digest_size=4).hexdigest()}"
    types = call.types if len(call.types) == len(call.dims) else [None] * len(call.dims)
    kinds = [TYPES[kind].name if kind in TYPES else kind for kind, sizes in zip(types, call.dims, strict=True) if sizes and kind]
    return dims, ", ".join(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))[:200]
