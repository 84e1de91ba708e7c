"""Work of products that a compiler fuses with what follows: the operator of a compiled kernel -> its floating-point operations.

TorchInductor writes an estimate of its own with each Triton kernel (``kernel_flop``). For a template, which is one product or convolution,
it is that of FlopCounterMode. Other kernels that come from the same operator can carry all of its operations again, so only templates
count; those of attention do not, because they skip blocks of the mask. Bytes are unknown: other operators are fused into the kernel.
"""

from __future__ import annotations

from typing import Final

from .call_work import CallWork
from .formulas.formula import peak_type
from .signatures import Signature, UndeterminedError

_TEMPLATE: Final = "triton_tem_"
_LIMIT: Final = 1 << 63


def template_work(operator: str, signature: Signature | None, estimate: float | None) -> CallWork | None:
    """Return the work of a call of a template's kernel.

    None if it is not one, or has no estimate. ``estimate``: floating-point operations."""
    if not operator.startswith(_TEMPLATE) or "attention" in operator or estimate is None or not 1 <= estimate < _LIMIT:
        return None
    flop = round(estimate)
    return CallWork(flop=flop, model_flop=flop, compute_type=_type(signature), matrix=True)


def _type(signature: Signature | None) -> str | None:
    """Return the type of the first two tensors, the factors; None if they differ."""
    if signature is None:
        return None
    try:
        positions = [position for position in range(len(signature)) if signature.is_tensor(position)]
        kinds = {peak_type(signature.tensor(position).type) for position in positions[:2]}
    except UndeterminedError:
        return None
    return kinds.pop() if len(kinds) == 1 else None
