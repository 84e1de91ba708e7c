"""InefficientMatmul: products and convolutions that reach far less of the roof than comparable ones of the same run (docs/rules.md).

The rate of these neighbors, which the same GPU reached in the same run, bounds the gain.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from ...efficiency.kernel_classes import signatures
from ...efficiency.largest_site import Site, largest_site
from ...efficiency.products import Convolution, Product, channel_reasons, convolution_of, product_of, reasons
from ...report.efficiency import OperatorWork
from ...report.rule_details import InefficientMatmulDetails, InefficientProduct
from ...toolkit.wording import duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import above, no_device_activity, span_of_all
from ..evidence.run_data import RunData

_FAR_BELOW: Final = 0.6  # of the median of the neighbors; different tiles explain smaller differences
_PEERS: Final = 2  # neighbors, so that an odd one does not decide alone
_LARGER: Final = 8.0  # times the work of a neighbor may be larger: larger products reach more of the roof
_SMALLER: Final = 64.0
_BOUNDS: Final = ("compute", "memory", "neither")
_ADVICE: Final = {
    "alignment": "Pad the odd sizes to a multiple of 8 (16 for FP8, 64 for a vocabulary), such as `nn.Linear(in_features, 50304)` instead"
    " of 50257, or `resize_token_embeddings(..., pad_to_multiple_of=64)`, and mask the padding",
    "channels": "Choose numbers of channels that are multiples of 8, such as `nn.Conv2d(64, 64, 3)` instead of 61 channels, or pad them"
    " with zeros",
    "layout": "Give the factors a contiguous dimension: store the transposed tensor once, `weight = weight.t().contiguous()`, or slice"
    " along the first dimension",
    "no tensor cores": "Let the product use tensor cores: make its sizes multiples of 8, and keep both factors in BF16 or FP16",
    "skinny": "Multiply more rows at once: a larger batch, or one product instead of several with the same input"
    " (`nn.Linear(d, 3 * d)` for query, key and value)",
    "tile quantization": "Choose sizes that fill the tiles of the kernel, multiples of 128, or let"
    ' `torch.compile(mode="max-autotune")` choose other tiles',
    "few tiles": 'Let `torch.compile(mode="max-autotune")` split the inner dimension, or combine several of these products in one'
    " (`torch.bmm`)",
    "wave tail": 'Choose a batch size with complete waves, or let `torch.compile(mode="max-autotune")` choose other tiles',
}


class _Shape(NamedTuple):
    row: OperatorWork
    product: Product | Convolution
    percent: float  # of the roof
    work: float  # FLOP of a call, or bytes if memory limits it


class InefficientMatmul(Rule):
    name = "InefficientMatmul"
    category = "trace"
    names_code = True
    parameters = (
        Parameter(
            "threshold", "%", 5, 5, "percentile", "share of the GPU time in the profile window that slow shapes may lose to their neighbors"
        ),
    )
    needs = "A profiler trace with shapes (`record_shapes=True`) of a GPU whose peaks are known."
    checks = "Compares the share of the roof that each shape of matrix products and convolutions reaches with that of comparable shapes."
    condition = (
        f"shapes below {_FAR_BELOW:g} of the median of their neighbors, with a reason in their sizes or kernels, lose more than `threshold`"
        " of the GPU time"
    )
    advice = "Pad, combine or lay out matrix products so that they fill the tiles of their kernels."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        shapes = _shapes(run.efficiency.operators)
        if not shapes:
            return _without_shapes(run)
        rows, compared = _slow(run, shapes)
        total = span_of_all(run)
        lost = sum(row.time_ns - row.peer_ns for row in rows if row.reasons)
        bad = [row for row in rows if row.reasons] if above(lost, total, parameters["threshold"]) else []
        details = InefficientMatmulDetails(rows[: run.top], lost, 100 * lost / total if total else 0.0, compared, len(shapes) - compared)
        if not compared:
            return not_evaluated("no shape of a matrix product or convolution has comparable ones in this run", details=details)
        return concluded(
            bad,
            compared,
            [(device.first_ns, device.first_ns + device.span_ns) for device in run.breakdown] if bad else (),
            details=details,
            finding=_finding(rows, lost, total, parameters["threshold"]),
            recommendation=_recommendation(bad) if bad else None,
            cost=Cost(_title(bad[0]), lost, total, lost) if bad else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        assert isinstance(outcome.details, InefficientMatmulDetails)
        rows = [row for row in outcome.details.products if row.reasons]
        return largest_site([(row.module, row.line, row.time_ns - row.peer_ns) for row in rows])


def _without_shapes(run: RunData) -> Outcome:
    if run.efficiency.peaks:
        return not_evaluated("no matrix product or convolution with known shapes in this run", "Profile with `record_shapes=True`.")
    return not_evaluated("the peaks of the GPUs are unknown", "Give them with `--peak`, or profile with `record_shapes=True`.")


def _shapes(operators: Sequence[OperatorWork]) -> list[_Shape]:
    """Return the products and convolutions that neither latency nor a cache limits."""
    shapes = []
    for row in operators:
        if row.bound not in _BOUNDS or not row.percent_of_roof:
            continue
        product = product_of(row.operator, row.input_dims, row.input_types, row.input_strides) or convolution_of(
            row.operator, row.input_dims, row.input_types
        )
        work = row.bytes_per_call if row.roof == "memory" else row.flop_per_call
        if product is not None and work:
            shapes.append(_Shape(row, product, row.percent_of_roof, float(work)))
    return shapes


def _slow(run: RunData, shapes: Sequence[_Shape]) -> tuple[tuple[InefficientProduct, ...], int]:
    """Return the shapes far below their neighbors, and how many shapes have any."""
    kernels = _kernels(run)
    counts = {device.sm_count for device in run.devices if device.used}
    multiprocessors = counts.pop() if len(counts) == 1 else None
    compared, rows = 0, []
    groups: dict[tuple[object, ...], list[_Shape]] = defaultdict(list)
    for shape in shapes:
        groups[_kind(shape)].append(shape)
    for shape in shapes:
        peers = [
            peer.percent
            for peer in groups[_kind(shape)]
            if peer is not shape and shape.work / _SMALLER <= peer.work <= shape.work * _LARGER
        ]
        if len(peers) < _PEERS:
            continue
        compared += 1
        if shape.percent < _FAR_BELOW * (peer := median(peers)):
            kernel = kernels.get(_key(shape.row.operator, shape.row.input_dims, shape.row.input_types))
            rows.append(_row(shape, peer, len(peers), kernel, _reasons(shape.product, kernel, multiprocessors)))
    return tuple(sorted(rows, key=lambda row: (row.peer_ns - row.time_ns, row.operator, row.shape))), compared


def _kind(shape: _Shape) -> tuple[object, ...]:
    """Return what neighbors have in common: product or convolution, type and roof."""
    return type(shape.product), shape.product.type, shape.row.roof


def _reasons(product: Product | Convolution, kernel: str | None, multiprocessors: int | None) -> tuple[str, ...]:
    return channel_reasons(product, kernel) if isinstance(product, Convolution) else reasons(product, kernel, multiprocessors)


def _row(shape: _Shape, peer: float, peers: int, kernel: str | None, known: tuple[str, ...]) -> InefficientProduct:
    row = shape.row
    return InefficientProduct(
        operator=row.operator,
        shape=shape.product.sizes,
        types=shape.product.type,
        calls=row.calls,
        time_ns=row.device_ns,
        tflops=row.tflops,
        percent_of_roof=shape.percent,
        peer_percent=peer,
        peers=peers,
        peer_ns=round(row.device_ns * shape.percent / peer),
        reasons=known,
        kernel=kernel,
        module=row.module,
        line=row.source_line,
    )


def _key(operator: str, dims: Sequence[object], types: Sequence[object]) -> tuple[str, str]:
    return operator, json.dumps([list(dims), list(types)])


def _kernels(run: RunData) -> Mapping[tuple[str, str], str]:
    """Return the name of the kernel with the longest time of each operator and inputs."""
    names = {row["id"]: row["name"] for row in run.kernel_sums}
    inputs = signatures(run.store)
    times: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for group in run.kernel_groups:
        call = inputs.get(group.signature)
        if group.operator is not None and call is not None and group.classes.category in {"GEMM", "convolution"}:
            times[_key(group.operator, call.dims, call.types)][names.get(group.kernel, "")] += group.total
    return {key: max(of_kernel.items(), key=lambda item: (item[1], item[0]))[0] for key, of_kernel in times.items()}


def _title(first: InefficientProduct) -> str:
    return "Give convolutions aligned channels" if first.reasons[0].startswith("channels") else "Give matrix products efficient shapes"


def _finding(rows: Sequence[InefficientProduct], lost: int, total: int, threshold: float) -> str:
    limit = f"threshold {threshold_text(threshold)}"
    known = [row for row in rows if row.reasons]
    if not known:
        return f"No shape of matrix products or convolutions with a known reason is far below comparable ones ({limit})."
    first = known[0]
    share = percent(100 * lost / total if total else 0.0)
    return (
        f"{plural(len(known), 'shape')} of matrix products or convolutions lose {duration(lost)} to the rate of comparable ones, {share} of"
        f" the GPU time in the profile window ({limit}). `{first.operator}` with {first.shape} reaches"
        f" {percent(first.percent_of_roof)} of the roof, comparable shapes {percent(first.peer_percent)}."
    )


def _recommendation(bad: Sequence[InefficientProduct]) -> str:
    first = bad[0]
    kind = first.reasons[0].partition(":")[0]
    where = f" in `{first.module}`" if first.module else ""
    return (
        f"{_ADVICE[kind]}, because `{first.operator}` with {first.shape}{where} takes {duration(first.time_ns)}, and"
        f" {duration(first.peer_ns)} at the rate of {plural(first.peers, 'comparable shape')} ({first.reasons[0]})."
    )
