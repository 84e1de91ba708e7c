"""UnfusedAttention: attention as a chain of products, softmax, scale and mask instead of one fused kernel (docs/rules.md).

A fused kernel keeps the scores on the chip. Its least time follows from its operations and bytes and the peaks of the GPU, so the time of
the chain beyond it is what fusing can save at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...efficiency.attention_chains import AttentionChain, attention_chains
from ...efficiency.largest_site import Site, largest_site
from ...report.device import DeviceTime
from ...report.rule_details import AttentionDevice, UnfusedAttentionChain, UnfusedAttentionDetails
from ...toolkit.wording import count, duration
from ..evidence.attention_advice import FUSED_ATTENTION, MATH_FORM
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.device_share import DeviceShare, above, finding, no_device_activity, outcome
from ..evidence.run_data import RunData

_NO_SHAPES: Final = "no operator with the sizes of its inputs launched device work in this run"
_CAPTURE: Final = "Profile with torch.profiler and `record_shapes=True`, or record with `postrun record --shapes`."
_NO_CHAINS: Final = "No softmax has batched products of its sizes on both sides."
_MATH: Final = "SELECT EXISTS (FROM name WHERE text = 'aten::_scaled_dot_product_attention_math')"


class UnfusedAttention(Rule):
    name = "UnfusedAttention"
    category = "trace"
    parameters = (Parameter("threshold", "%", 5, 5, "percentile", "share of a device's span that fused attention may save"),)
    needs = "A profiler trace with operators, the sizes of their inputs and their device work."
    checks = "Finds attention that runs as products, softmax, scale and mask, and how long one fused kernel would take at least."
    condition = "on any device, attention as a chain of operators takes longer than fused attention by more than `threshold` of the span"
    advice = "Call `torch.nn.functional.scaled_dot_product_attention`."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        if run.operator_work.calls.is_empty():
            return not_evaluated(_NO_SHAPES, _CAPTURE)
        shapes = run.call_shapes
        if shapes["input_dims"].null_count() == len(shapes):
            return not_evaluated(_NO_SHAPES, _CAPTURE)
        chains = attention_chains(run.operator_work, shapes, run.device_peaks, run.sites.table())
        threshold = parameters["threshold"]
        by_device = [_of(run, device, chains) for device in run.breakdown]
        shares = [
            DeviceShare(device, ns, above(ns, device.span_ns, threshold))
            for device, ns in zip(run.breakdown, map(_excess, by_device), strict=True)
        ]
        bad = [chain for share, mine in zip(shares, by_device, strict=True) if share.issue for chain in mine]
        known = all(chain.fused_ns is not None for chain in bad)
        return outcome(
            run,
            shares,
            details=UnfusedAttentionDetails(
                tuple(_row(share, mine) for share, mine in zip(shares, by_device, strict=True)), _sizes(chains)[: run.top]
            ),
            finding=finding(run, shares, _subject(chains), threshold) if chains else _NO_CHAINS,
            title="Use one fused attention kernel",
            recommendation=_recommendation(run, bad) if bad else "",
            saving_ns=sum(share.ns for share in shares if share.issue) if known else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        assert isinstance(outcome.details, UnfusedAttentionDetails)
        return largest_site((chain.module, chain.line, chain.time_ns) for chain in outcome.details.chains)


def _of(run: RunData, device: DeviceTime, chains: Iterable[AttentionChain]) -> list[AttentionChain]:
    key = (device.node, device.rank, device.pid, device.device)
    return [chain for chain in chains if (*run.places.process(chain.process), chain.device) == key]


def _excess(chains: Iterable[AttentionChain]) -> int:
    """Sum the time beyond fused attention.

    If that is unknown, only the operators count that a fused kernel does without memory traffic."""
    return sum(
        chain.softmax_ns + chain.between_ns if chain.fused_ns is None else max(chain.time_ns - chain.fused_ns, 0) for chain in chains
    )


def _subject(chains: list[AttentionChain]) -> str:
    if all(chain.fused_ns is not None for chain in chains):
        return "Attention as a chain of operators takes longer than one fused kernel at the peaks of the GPU by"
    return "Softmax, scale and mask of attention that is not fused take"


def _row(share: DeviceShare, chains: list[AttentionChain]) -> AttentionDevice:
    fused = [chain.fused_ns for chain in chains if chain.fused_ns is not None]
    return AttentionDevice.of(
        share.device,
        time_ns=sum(chain.time_ns for chain in chains),
        fused_ns=sum(fused) if len(fused) == len(chains) else None,
        excess_ns=share.ns,
        excess_percent=share.percent,
        issue=bool(share.issue),
    )


def _sizes(chains: list[AttentionChain]) -> tuple[UnfusedAttentionChain, ...]:
    """Add up the chains of equal sizes over devices; the place is that of the longest."""
    groups: dict[tuple[object, ...], list[AttentionChain]] = {}
    for chain in chains:
        groups.setdefault((chain.batch, chain.queries, chain.keys, chain.width, chain.type), []).append(chain)
    rows = []
    for same in groups.values():
        fused = [chain.fused_ns for chain in same if chain.fused_ns is not None]
        rows.append(
            UnfusedAttentionChain.of(
                same[0],
                calls=sum(chain.calls for chain in same),
                time_ns=sum(chain.time_ns for chain in same),
                products_ns=sum(chain.products_ns for chain in same),
                softmax_ns=sum(chain.softmax_ns for chain in same),
                between_ns=sum(chain.between_ns for chain in same),
                fused_ns=sum(fused) if len(fused) == len(same) else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def _recommendation(run: RunData, bad: list[AttentionChain]) -> str:
    first = bad[0]
    total = sum(chain.time_ns for chain in bad)
    around = sum(chain.softmax_ns + chain.between_ns for chain in bad)
    words = MATH_FORM if run.store.frame(_MATH).item() else FUSED_ATTENTION.of(run.program)
    fused = [chain.fused_ns for chain in bad if chain.fused_ns is not None]
    least = f" One fused kernel needs at least {duration(sum(fused))} for them." if len(fused) == len(bad) else ""
    scores = f"{first.queries} x {first.keys} with {count(first.batch)} heads in the batch"
    return (
        f"{words}. {count(sum(chain.calls for chain in bad))} calls take {duration(total)}, {duration(around)} of it in softmax, scale,"
        f" mask and conversions of scores, mostly of {scores}.{least} Code that returns the attention weights needs the chain."
    )
