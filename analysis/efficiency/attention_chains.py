"""Attention that runs as a chain of operators: two batched products around a softmax -> its time, and the least time of one fused kernel.

Sizes show the chain: a softmax of ``batch`` x ``queries`` x ``keys`` scores, a batched product that makes them, and one that takes them.
Scale, mask, dropout, conversions and the backward belong to it if they have the sizes of the scores. With grouped queries, a product may
take the queries of all heads of a group as rows of one product.
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

import polars as pl

from ..report.efficiency import DevicePeaks
from .formulas.matrix import product_dims
from .largest_site import largest_site
from .operator_work import OwnedWork
from .signature_texts import TEXTS
from .signatures import Signature, UndeterminedError, parse

# Megatron-LM and Apex fuse scale, mask and softmax, which leaves the scores in memory; their operators have no dimension as argument.
_MEGATRON: Final = frozenset({"ScaledUpperTriangMaskedSoftmax", "ScaledMaskedSoftmax", "ScaledAlignedCausalMaskedSoftmax", "ScaledSoftmax"})
_SOFTMAX: Final = frozenset({"aten::_softmax", *_MEGATRON})
_SOFTMAX_BACKWARD: Final = frozenset({"aten::_softmax_backward_data", *(f"{name}Backward" for name in _MEGATRON)})
_PRODUCTS: Final = {"aten::bmm": 0, "aten::baddbmm": 1, "aten::baddbmm_": 1}  # position of the first factor
# Operators between the products: scale, mask, dropout, soft cap, conversions, and their backwards.
_BETWEEN_NAMES: Final = """
    mul mul_ div div_ add add_ sub sub_ masked_fill masked_fill_ where native_dropout native_dropout_backward copy_ clone fill_ bernoulli_
    tanh tanh_backward eq logical_not all clamp clamp_ _masked_softmax
"""
_BETWEEN: Final = frozenset(f"aten::{name}" for name in _BETWEEN_NAMES.split())

Scores = tuple[int, int, int]  # batch x heads, queries, keys


class AttentionChain(NamedTuple):
    """A chain of operators on a device. Times are in ns, over all calls.

    ``batch`` (times heads), ``queries``, ``keys``: sizes of the scores; ``width``: of a query. ``between_ns``: scale, mask, dropout and
    conversions. ``calls``: of the forward softmax. ``fused_ns``: least time of fused attention by the peaks of the device; None if a peak
    or width is unknown. ``module``, ``line``: as :func:`.largest_site.largest_site` has them."""

    process: int | None
    device: int | None
    batch: int
    queries: int
    keys: int
    width: int | None
    type: str | None
    calls: int
    products_ns: int
    softmax_ns: int
    between_ns: int
    fused_ns: int | None
    module: str | None
    line: str | None

    @property
    def time_ns(self) -> int:
        return self.products_ns + self.softmax_ns + self.between_ns


def attention_chains(
    owned: OwnedWork, shapes: pl.DataFrame, peaks: dict[int | None, DevicePeaks], sites: pl.DataFrame
) -> list[AttentionChain]:
    """Return the chains, longest first.

    ``shapes``: :func:`.call_shapes.call_shapes`; ``sites``: site, module, line ("" if unknown)."""
    roles = _roles(shapes)
    if roles.is_empty():
        return []
    on = ["operator", "signature"]
    work = owned.work.filter(pl.col("operator").is_not_null()).join(roles, on=on, nulls_equal=True)
    work = work.join(sites.select("site", "module", "line"), on="site", how="left", nulls_equal=True)
    calls = owned.calls.join(roles, on=on, nulls_equal=True).group_by("process", "role", *_SCORES).agg(pl.col("calls").sum())
    counted = {tuple(row[:-1]): int(row[-1]) for row in calls.iter_rows()}
    chains = []
    for (process, device, *sizes), rows in work.group_by("process", "device", *_SCORES):
        batch, queries, keys = (int(size) for size in sizes)
        times = dict(rows.group_by("role").agg(pl.col("total").sum()).iter_rows())
        forward, backward, either = (counted.get((process, role, *sizes), 0) for role in ("softmax", "softmax backward", _EITHER))
        if {"scores", "values", "softmax"} <= set(times):
            scores, values = _main(rows, "scores"), _main(rows, "values")
        elif "softmax" in times and either >= 2 * forward:
            scores = values = _main(rows, _EITHER)
        else:
            continue
        known = peaks.get(process)
        fused = None if known is None else _fused_ns(known, (batch, queries, keys), scores, values, forward, backward)
        site = largest_site(rows.select("module", "line", "total").iter_rows())
        chains.append(
            AttentionChain(
                process, device, batch, queries, keys, scores["width"], scores["compute_type"], forward,  # type: ignore[arg-type]
                products_ns=sum(time for role, time in times.items() if role in _OF_PRODUCTS),
                softmax_ns=times["softmax"] + times.get("softmax backward", 0),
                between_ns=times.get("between", 0), fused_ns=fused,
                module=site.module if site else None, line=site.line if site else None,
            )
        )  # fmt: skip
    return sorted(chains, key=lambda chain: (-chain.time_ns, chain.process or 0, chain.device or 0, chain.batch, chain.queries, chain.keys))


_SCORES: Final = ("batch", "queries", "keys")
_EITHER: Final = "either"  # a product that may make or take the scores, as its sizes are equal
_OF_PRODUCTS: Final = ("scores", "values", "products", _EITHER)
_ROLES: Final[dict[str, type[pl.DataType]]] = {
    "operator": pl.String, "signature": pl.Int32, "role": pl.String, "batch": pl.Int64, "queries": pl.Int64, "keys": pl.Int64,
    "width": pl.Int64, "compute_type": pl.String,
}  # fmt: skip


def _roles(shapes: pl.DataFrame) -> pl.DataFrame:
    """Return the part of each operator and signature in chains: _ROLES.

    ``width``: of a product, the size that the scores do not have."""
    wanted = [*_SOFTMAX, *_SOFTMAX_BACKWARD, *_PRODUCTS, *_BETWEEN]
    used = shapes.filter(pl.col("operator").is_in(wanted)).select("operator", "signature", "compute_type", *TEXTS)
    parsed = [(row[:3], signature) for row in used.iter_rows() if (signature := parse(row[0], *row[3:])) is not None]
    scored = _Scored({scores for _, signature in parsed if (scores := _softmax(signature)) is not None})
    rows = []
    for (operator, number, kind), signature in parsed:
        for role, scores, width in _parts(signature, scored):
            rows.append((operator, number, role, *scores, width, kind))
    return pl.DataFrame(rows, schema=_ROLES, orient="row")


def _softmax(signature: Signature) -> Scores | None:
    """Return the sizes of a forward softmax over its last dimension."""
    if signature.operator not in _SOFTMAX:
        return None
    try:
        dims = signature.tensor(0).dims
    except UndeterminedError:
        return None
    try:
        last = signature.operator in _MEGATRON or signature.integer(1) in {-1, len(dims) - 1}
    except UndeterminedError:
        last = True  # a trace without values: the products decide
    return _scores(dims) if last else None


def _scores(dims: tuple[int, ...]) -> Scores | None:
    return (prod(dims[:-2]), dims[-2], dims[-1]) if len(dims) >= 3 and dims[-1] > 1 and prod(dims) > 0 else None


class _Scored:
    """The scores of the softmaxes of a run."""

    def __init__(self, scores: set[Scores]) -> None:
        self._scores = scores
        self._by_rows: dict[tuple[int, int], list[Scores]] = {}
        for each in sorted(scores):
            self._by_rows.setdefault((each[0] * each[1], each[2]), []).append(each)

    def __contains__(self, scores: Scores) -> bool:
        return scores in self._scores

    def of_product(self, batch: int, rows: int, keys: int) -> Scores | None:
        """Return the scores that products of these sizes make or take.

        The rows are the queries, or those of several heads."""
        if (batch, rows, keys) in self._scores:
            return batch, rows, keys
        grouped = self._by_rows.get((batch * rows, keys), [])
        return next((each for each in grouped if rows > each[1] and rows % each[1] == 0), None)


def _parts(signature: Signature, scored: _Scored) -> list[tuple[str, Scores, int | None]]:
    """Return the parts of a signature in the chains of these scores."""
    first = _PRODUCTS.get(signature.operator)
    if first is None:
        scores = _of_tensors(signature)
        if scores is None or scores not in scored:
            return []
        role = "softmax" if signature.operator in _SOFTMAX else "softmax backward" if signature.operator in _SOFTMAX_BACKWARD else "between"
        return [(role, scores, None)]
    try:
        batch, m, n, k = product_dims(signature.tensor(first), signature.tensor(first + 1))
    except UndeterminedError:
        return []
    result, taken = scored.of_product(batch, m, n), scored.of_product(batch, m, k)
    if result is not None and n == k:
        return [(_EITHER, result, k)]
    if result is not None:
        return [("scores", result, k)]
    if taken is not None:
        return [("values", taken, n)]
    # Gradients of key and value, and of the query as the second factor has it.
    for rows, keys, width in ((k, m, n), (k, n, m), (n, k, m)):
        sizes = scored.of_product(batch, rows, keys)
        if sizes is not None:
            return [("products", sizes, width)]
    return []


def _of_tensors(signature: Signature) -> Scores | None:
    """Return the sizes of the largest tensor among the first arguments."""
    largest: tuple[int, ...] = ()
    for position in range(min(len(signature), 4)):
        try:
            dims = signature.tensor(position).dims
        except UndeterminedError:
            continue
        if prod(dims) >= prod(largest) and len(dims) >= len(largest):
            largest = dims
    return _scores(largest)


def _main(rows: pl.DataFrame, role: str) -> dict[str, object]:
    """Return the row of the product with the longest time.

    Those of the forward are before others."""
    of_role = rows.filter(pl.col("role") == role).sort("backward", "total", "width", descending=[False, True, False])
    return of_role.row(0, named=True)


def _fused_ns(
    known: DevicePeaks, sizes: Scores, scores: dict[str, object], values: dict[str, object], forward: int, backward: int
) -> int | None:
    """Return the least time of the fused calls.

    FP32 may run as TF32. Every pair counts, also those that a causal mask drops: 2 (D_qk + D_v) operations per pair, 2.5 times as many in
    the backward. Bytes: query, key, value and output once, in the backward with their gradients."""
    kind, width, width_v = scores["compute_type"], scores["width"], values["width"]
    peaks = [known.flop_per_s.get(name, 0.0) for name in ((kind, "tf32") if kind == "fp32" else (kind,)) if isinstance(name, str)]
    peak = max(peaks, default=0.0)
    size = {"fp32": 4, "fp16": 2, "bf16": 2, "fp64": 8}.get(kind) if isinstance(kind, str) else None
    if not peak or not known.bytes_per_s or size is None or not isinstance(width, int) or not isinstance(width_v, int):
        return None
    batch, queries, keys = sizes
    flop = 2 * batch * queries * keys * (width + width_v)
    moved = batch * (queries + keys) * (width + width_v) * size
    once = max(flop / peak, moved / known.bytes_per_s)
    again = max(2.5 * flop / peak, 2 * moved / known.bytes_per_s)
    return round(1e9 * (forward * once + backward * again))
