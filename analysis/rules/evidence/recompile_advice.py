"""Advice against recompilations: the guard that failed -> its kind, and code that fits it."""

from __future__ import annotations

import re
from typing import Final

SIZE: Final = "size"
ATTRIBUTE: Final = "attribute"
NUMBER: Final = "number"
LENGTH: Final = "length"
TENSOR: Final = "tensor"
STATE: Final = "state"
OBJECT: Final = "object"
VALUE: Final = "value"
UNKNOWN: Final = "unknown"

_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
# The first pattern that matches decides.
_KINDS: Final = (
    (SIZE, re.compile(r"size mismatch|stride mismatch|\.(?:size|stride)\(\)\[|\.shape\[")),
    (TENSOR, re.compile(r"(?:dtype|device|requires_grad|rank|dispatch key set|type) mismatch|expected type of|check_tensor")),
    (STATE, re.compile(r"GLOBAL_STATE|grad_mode|autocast|deterministic_algorithms|default_device|torch_function|num_threads")),
    (LENGTH, re.compile(rf"^(?:not )?len\(.+\)(?: == {_NUMBER})?")),
    (ATTRIBUTE, re.compile(rf"attributes of the nn\.Module|^(?:L\['self'\]|self)[\w.'\"\[\]()]* == {_NUMBER}(?: |$)")),
    (NUMBER, re.compile(rf"^[\w.'\"\[\]]+ == {_NUMBER}(?: |$)|___check_type_id\(\S*, \d+\), type=<class '(?:int|float)'>")),
    (OBJECT, re.compile(r"check_obj_id|check_type_id|check_function_id|check_weakref|\bis(?: not)? |type=<")),
    (VALUE, re.compile(r" (?:==|!=|in|not in) ")),
)
_DIMENSION: Final = re.compile(r"tensor '(?:L\[')?(\w+)(?:'\])?' (?:size|stride) mismatch at index (\d+)")
_COMMENT: Final = re.compile(r"\s+#\s.*| \(HINT: .*", re.DOTALL)
_LONGEST: Final = 120  # letters of a guard in a sentence


def kind_of(reason: str | None) -> str:
    """Return the kind of a guard."""
    return next((kind for kind, pattern in _KINDS if reason and pattern.search(reason)), UNKNOWN)


def guard_of(reason: str) -> str:
    """Return a guard for a sentence, without the line of code that follows it."""
    text = (_COMMENT.sub("", reason).strip() or reason).replace("`", "'")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def advice(function: str, reason: str | None) -> str:
    """Return what avoids the recompilations of a function."""
    kind = kind_of(reason)
    if kind == SIZE:
        match = _DIMENSION.search(reason or "")
        tensor, dimension = (match[1], match[2]) if match else ("x", "0")
        return (
            f"Compile {function} for changing sizes: `torch.compile(..., dynamic=True)`, or call"
            f" `torch._dynamo.mark_dynamic({tensor}, {dimension})` on the input before the first call. If sizes must stay fixed, pad the"
            " inputs to a few sizes."
        )
    if kind == ATTRIBUTE:
        return (
            f"Do not change a number of the module that {function} reads: keep it in a tensor (`register_buffer`), or set"
            " `torch._dynamo.config.allow_unspec_int_on_nn_module = True` for integers."
        )
    if kind == NUMBER:
        return (
            f"Give the number to {function} as a tensor (`torch.tensor(n)`) if it changes from call to call, because each value can need a"
            " compilation of its own."
        )
    if kind == LENGTH:
        return f"Give {function} lists of one length: stack their tensors into one, or pad them."
    if kind == TENSOR:
        return f"Give {function} tensors of one type, device and `requires_grad`: cast and move them before the call."
    if kind == STATE:
        return f"Call {function} in one state of gradients, autocast and other global settings, or compile one function for each state."
    if kind == OBJECT:
        return f"Give {function} the same objects in each call: create them once, outside of the step."
    if kind == VALUE:
        return f"Compile one function for each of the values that {function} branches on, or choose the branch outside of it."
    return (
        f"Find the guard that fails in {function}: run with `TORCH_TRACE=FOLDER`, and give its log with the profile"
        " (`TORCH_LOGS=recompiles` prints it)."
    )
