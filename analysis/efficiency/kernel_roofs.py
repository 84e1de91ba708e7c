"""Modules of kernels, and their distance from the roof, from the rows of the operators that launched them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any, Final

from ..report.device import Kernel
from ..report.efficiency import OperatorWork
from .kernel_classes import KernelGroup
from .largest_site import largest_site
from .signatures import Signature

# Share of an operator's device time that a kernel takes if the operator's work counts as the kernel's.
_MOST: Final = 0.9
_Key = tuple[str | None, str]


def located(
    kernels: Sequence[Kernel],
    sums: Iterable[Mapping[str, Any]],
    groups: Sequence[KernelGroup],
    operators: Iterable[OperatorWork],
    inputs: Mapping[int | None, Signature],
    origins: Mapping[int | None, tuple[str, str]],
) -> tuple[Kernel, ...]:
    """Return the kernels with ``percent_of_roof`` and ``module``.

    The roof is known if the kernel takes at least 90% of the device time of operator calls with a known roof, and these calls at least
    half of the kernel's time. ``inputs``: by signature. ``origins``: module and line of a site, "" if unknown.
    """
    names = {row["id"]: row["name"] for row in sums}
    times: dict[str, dict[_Key, int]] = defaultdict(lambda: defaultdict(int))
    sites: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    used = {group.signature for group in groups}
    texts = {number: _text(call.dims, call.types, call.strides) for number, call in inputs.items() if number in used}
    for group in groups:
        name = names.get(group.kernel, "")
        sites[name].append((*origins.get(group.site, ("", "")), group.total))
        if group.signature in texts:
            times[name][group.operator, texts[group.signature]] += group.total
    rows: dict[_Key, list[OperatorWork]] = defaultdict(list)
    for row in operators:
        rows[row.operator, _text(row.input_dims, row.input_types, row.input_strides)].append(row)
    # Rows with the same inputs and different work, such as other strides of a convolution, cannot be told apart here.
    known = {key: alike[0] for key, alike in rows.items() if len(alike) == 1 and alike[0].percent_of_roof is not None}
    return tuple(
        replace(kernel, percent_of_roof=_roof(kernel, times[kernel.name], known), module=_module(sites[kernel.name])) for kernel in kernels
    )


def _text(*inputs: Sequence[Any]) -> str:
    return json.dumps([list(values) for values in inputs])


def _module(sites: Iterable[tuple[str, str, int]]) -> str | None:
    site = largest_site(sites)
    return site.module if site else None


def _roof(kernel: Kernel, times: Mapping[_Key, int], known: Mapping[_Key, OperatorWork]) -> float | None:
    done = {key: known[key] for key, time in times.items() if key in known and time >= _MOST * known[key].device_ns > 0}
    if not done or 2 * sum(times[key] for key in done) < kernel.total_ns:
        return None
    least = fsum((row.percent_of_roof or 0.0) * row.device_ns for row in done.values())
    return least / sum(row.device_ns for row in done.values())
