"""Kernels by the operators that launched them: grouped device work -> categories, precisions, and what each kernel computes.

One kernel can serve several operators, so the shares of categories and precisions are added up from groups of a kernel and an operator
call, and are exact. The row of a kernel shows what takes most of its time.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import fsum
from typing import Any, Final

from ...ingest.store.store import Store
from ..device.precision import MATRIX_CATEGORIES
from ..report.device import Kernel, Precision
from ..report.rows import Share
from ..toolkit.shared import shared
from ..toolkit.shares import shares
from ..toolkit.wording import shape_text
from .operator_classes import KernelClass, in_module, kernel_class
from .operator_work import OwnedWork
from .signatures import Signature, parse


@dataclasses.dataclass(frozen=True, slots=True)
class KernelGroup:
    """Executions of a kernel by one process on one device that calls of one operator with one signature launched.

    ``operator``: the owner of the work; ``inner``: the innermost operator. ``kernel``, ``signature``: ids in the store; ``site``: as in
    the grouped device work. ``total``, ``occupancy_ns``: ns; ``occupancy``: sum of occupancy (percent) times duration over
    ``occupancy_ns``.
    """

    process: int | None
    device: int | None
    kernel: int | None
    operator: str | None
    inner: str | None
    signature: int | None
    site: int | None
    classes: KernelClass
    count: int
    total: int
    occupancy: float
    occupancy_ns: int


_KEY: Final = ("process", "device", "kernel", "operator", "inner", "signature", "site")
_SUMS: Final = ("count", "total", "occupancy", "occupancy_ns")


def kernel_groups(
    store: Store, owned: OwnedWork, sums: Sequence[dict[str, Any]], origins: Mapping[int | None, tuple[str, str]] | None = None
) -> tuple[KernelGroup, ...]:
    """Classify the kernels of grouped device work.

    ``sums``: kernels by name, as :func:`postrun.analysis.device.kernels.kernel_sums` returns them. ``origins``: module and line of a site.
    """
    modules = {site: module for site, (module, _) in (origins or {}).items() if module}
    names = {row["id"]: (row["name"], row["category"], row["precision"]) for row in sums}
    added: dict[tuple[Any, ...], list[Any]] = {}
    columns = owned.work.columns
    kind, *key_columns = (columns.index(name) for name in ("kind", *_KEY))
    sum_columns = [columns.index(name) for name in _SUMS]
    for row in owned.work.iter_rows():
        if row[kind] == "kernel":
            values = added.setdefault(tuple(row[column] for column in key_columns), [0, 0, 0.0, 0])
            for index, column in enumerate(sum_columns):
                values[index] += row[column] or 0
    inputs = signatures(store) if any(key[5] is not None for key in added) else {}
    classes: dict[tuple[Any, ...], KernelClass] = {}
    groups = []
    for key, values in added.items():
        process, device, kernel, operator, inner, signature, site = key
        known = classes.get((kernel, operator, inner, signature))
        if known is None:
            call = inputs.get(signature)
            types, dims = (call.types, call.dims) if call else ((), ())
            known = kernel_class(operator, inner, types, dims, *names.get(kernel, ("", "other", "unknown")))
            classes[kernel, operator, inner, signature] = known
        if site in modules:
            known = in_module(known, modules[site])
        groups.append(KernelGroup(process, device, kernel, operator, inner, signature, site, known, *values))
    return tuple(groups)


@shared
def signatures(store: Store) -> Mapping[int | None, Signature]:
    """Return the readable inputs of calls, by the id of their signature."""
    rows = store.frame("SELECT id, input_dims, input_types, input_strides FROM signature").rows()
    # Signatures also differ by call stack and module: each distinct input is parsed once.
    calls = {texts: parse("", *texts) for texts in {row[1:] for row in rows}}
    return {row[0]: call for row in rows if (call := calls[row[1:]])}


def categories(groups: Iterable[KernelGroup]) -> tuple[Share, ...]:
    """Sum kernel time by category, longest first, in percent of all kernels."""
    return _shares(groups, lambda group: group.classes.category)


def category_sources(groups: Iterable[KernelGroup]) -> tuple[Share, ...]:
    """Sum kernel time by the source of its category: operator, kernel name, unknown."""
    return _shares(groups, lambda group: group.classes.category_source)


def precision(groups: Sequence[KernelGroup]) -> Precision:
    """Sum kernel time by precision, longest first, for all and for matrix kernels."""
    matrix = [group for group in groups if group.classes.category in MATRIX_CATEGORIES]
    return Precision(
        shares=_shares(groups, lambda group: group.classes.precision),
        matrix=_shares(matrix, lambda group: group.classes.precision),
        sources=_shares(groups, lambda group: group.classes.precision_source),
    )


def _shares(groups: Iterable[KernelGroup], name: Callable[[KernelGroup], str]) -> tuple[Share, ...]:
    return shares((name(group), group.total, group.count) for group in groups)


def described(kernels: Sequence[Kernel], sums: Sequence[dict[str, Any]], groups: Iterable[KernelGroup], store: Store) -> tuple[Kernel, ...]:
    """Return the kernels with category, precision, operator, shape and occupancy.

    Category and precision are those with the longest time of the kernel; operator and shape are null if none takes half of it.
    """
    by_kernel: dict[int | None, list[KernelGroup]] = defaultdict(list)
    for group in groups:
        by_kernel[group.kernel].append(group)
    inputs = signatures(store) if any(group.signature is not None for rows in by_kernel.values() for group in rows) else {}
    numbers = {row["name"]: row["id"] for row in sums}
    rows = ((kernel, by_kernel.get(numbers[kernel.name])) for kernel in kernels)
    return tuple(_described(kernel, listed, inputs) if listed else kernel for kernel, listed in rows)


def _described(kernel: Kernel, groups: Sequence[KernelGroup], inputs: Mapping[int | None, Signature]) -> Kernel:
    category, _ = _longest(groups, lambda group: group.classes.category)
    arithmetic, _ = _longest([group for group in groups if group.classes.category == category], lambda group: group.classes.precision)
    (operator,), operator_ns = _longest(groups, lambda group: (group.operator,))
    shape, shape_ns = _longest(groups, lambda group: (group.operator, _shape(inputs.get(group.signature))))
    occupancy_ns = sum(group.occupancy_ns for group in groups)
    return dataclasses.replace(
        kernel,
        category=category,
        precision=arithmetic,
        operator=operator if 2 * operator_ns >= kernel.total_ns else None,
        shape=shape[1] if 2 * shape_ns >= kernel.total_ns else None,
        occupancy_percent=fsum(group.occupancy for group in groups) / occupancy_ns if occupancy_ns else None,
    )


def _longest(groups: Iterable[KernelGroup], key: Callable[[KernelGroup], Any]) -> tuple[Any, int]:
    """Return the value of ``key`` with the longest time, and this time."""
    times: dict[Hashable, int] = defaultdict(int)
    for group in groups:
        times[key(group)] += group.total
    return max(times.items(), key=lambda item: (item[1], str(item[0])))


def _shape(call: Signature | None) -> str | None:
    return shape_text(call.dims) if call else None
