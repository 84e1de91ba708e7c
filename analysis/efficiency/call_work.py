"""Work of an operator call: what it computes and what it must move at least."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallWork:
    """Work of an operator call; None is unknown. Figures are below 2**63.

    ``flop``: floating-point operations as PyTorch's FlopCounterMode counts: two per multiply-add, no bias, causal attention in full.
    Integer products count the same. ``model_flop``: the part that the result needs: only pairs that a causal mask or window keeps, no
    recomputation. ``bytes``: least traffic: each input element is read once, each output written once. ``compute_type``: type that
    selects the peak (fp64, fp32, fp16, bf16, fp8, fp4, int8); fp32 may run as TF32, which no trace records. ``matrix``: a matrix
    product, convolution, attention or recurrent layer; the others have no FLOPs, as their time is that of their bytes.
    ``flop_bounds``: least and most ``flop`` if it depends on lengths of sequences that no trace has.
    """

    flop: int | None = None
    model_flop: int | None = None
    bytes: int | None = None
    compute_type: str | None = None
    matrix: bool = False
    flop_bounds: tuple[int, int] | None = None
