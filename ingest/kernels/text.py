"""Splits a GPU kernel's name into function, template arguments and parameters, and shortens it.

Names come as compilers and libraries spell them: demangled C++ of two styles (`{lambda(float)#1}` and
`[lambda(float) (instance 1)]`), mangled C++ (`_ZN...`), plain identifiers of code generators. They are hostile input:
any length, any character, unbalanced brackets. Nothing here raises on a string, and all work is linear in at most
`EXAMINED` characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from ...messages import escaped

EXAMINED: Final = 8192  # characters; real names reach 4,000, and the rest repeats the template arguments


@dataclass(frozen=True, slots=True)
class NameRule:
    """One row of an ordered table: a name that matches `expression` has `value`.

    `expression` is searched in the lower-case text of `normalized`, so it is written in lower case. `reason` explains it, `examples` are
    (shortened) real names that exactly this row decides.
    """

    value: str
    expression: str
    reason: str
    examples: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled at first use, because many runs do not need it."""
        return _compiled(self.expression)


_compiled: Final = cache(re.compile)


def rule(value: str, expression: str, reason: str, *examples: str) -> NameRule:
    return NameRule(value, expression, reason, examples)


def normalized(name: str) -> tuple[str, str]:
    """Return the function with its template arguments, and the parameter list.

    Both are in lower case; only `EXAMINED` characters are used. The types in a parameter list mean less (`float` may be a learning rate)
    than those of the template arguments.
    """
    text = " ".join(name[:EXAMINED].split()).lower()
    cut = _parameters_at(text)
    return text[:cut], text[cut:]


_BRACKET_OR_BLANK: Final = re.compile(r"[<>()\[\]{} ]")
_CLOSES: Final = {">": "<", ")": "(", "]": "[", "}": "{"}


def _brackets(text: str) -> Iterator[tuple[re.Match[str], int, int]]:
    """Yield brackets and blanks with the number of open brackets before and after."""
    open_brackets: list[str] = []
    for match in _BRACKET_OR_BLANK.finditer(text):
        character, before = match.group(), len(open_brackets)
        if character in _CLOSES:
            if open_brackets and open_brackets[-1] == _CLOSES[character]:  # a lone '>' is an arrow or a comparison
                open_brackets.pop()
        elif character != " ":
            open_brackets.append(character)
        yield match, before, len(open_brackets)


def _parameters_at(text: str) -> int:
    """Return the index of the bracket that opens the parameter list, or the length."""
    for match, before, _ in _brackets(text):
        at = match.start()
        qualifier = text.startswith("(anonymous namespace)", at) or text.endswith("operator", 0, at)
        if match.group() == "(" and not before and at and text[at - 1] not in " :" and not qualifier:
            return at
    return len(text)


def _outside_brackets(text: str) -> str:
    """Return the text outside brackets, up to a bracket that is never closed."""
    kept: list[str] = []
    start = after = 0
    for match, before, after in _brackets(text):
        if before == 0 and after == 1:
            kept.append(text[start : match.start()])
        elif before == 1 and after == 0:
            start = match.end()
    return "".join(kept) + ("" if after else text[start:])


# Namespaces without information for a reader: those of the framework and of its helpers.
_SILENT_NAMESPACES: Final = frozenset(
    {"", "at", "native", "c10", "std", "detail", "internal", "impl", "at_cuda_detail", "_GLOBAL__N_1", "templates"}
)
# Functions that only carry the work of a template argument, which is the name that a reader looks for.
_CARRIERS: Final = frozenset(
    {
        "elementwise_kernel", "vectorized_elementwise_kernel", "unrolled_elementwise_kernel",
        "elementwise_kernel_manual_unroll", "legacy_elementwise_kernel", "index_elementwise_kernel",
        "vectorized_templated_elementwise_kernel", "_scatter_gather_elementwise_kernel",
        "elementwise_kernel_with_index", "distribution_elementwise_grid_stride_kernel", "reduce_kernel",
        "multi_tensor_apply_kernel", "Kernel", "Kernel2", "device_kernel", "kentry", "EigenMetaKernel",
    }
)  # fmt: skip
# Adapters around the carried function, and types.
_ADAPTERS: Final = frozenset(
    {
        "gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "opmath_gpu_kernel_with_scalars",
        "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "ReduceOp", "func_wrapper_t", "TensorListMetadata",
        "TensorListScalarListMetadata", "FusedOptimizerTensorListMetadata", "enable_sm90", "enable_sm90_or_later",
        "enable_sm80_to_sm89", "enable_3x_kernel_for_sm9x", "enable_3x_kernel_for_sm10", "enable_sm100_only",
        "_cuda_scatter_gather_internal_kernel", "OpaqueType", "lambda", "operator", "instance", "const", "unnamed", "anonymous",
        "namespace", "TensorEvaluator", "TensorAssignOp", "TensorMap",
        "TensorCwiseBinaryOp", "Tensor", "void", "bool", "char", "short", "int", "long", "unsigned", "signed", "float",
        "double", "true", "false", "BFloat16", "Half", "complex", "__half", "__nv_bfloat16",
    }
)  # fmt: skip
_IDENTIFIER_IN_ARGUMENTS: Final = re.compile(r"[A-Za-z_]\w*(?=[<(,>]|::[{\[]|$)")
# Markup, and a word directly after template arguments, do not occur in C++ names.
_NO_CPP: Final = re.compile(r"\A<|</|(?<!-)>\w")
# Endings from the build of a library, which are always cut.
_TAIL: Final = re.compile(r"_execute(_split_k|_segment_k_on|)(?:_segment_k_off)?_kernel\w{0,40}\Z")
# The least informative parts of long names, in the order in which they are cut: how threads divide a tile; the part after the tile in AMD's
# generated matrix products.
_DETAILS: Final = (
    (re.compile(r"_warpgroupsize\d+x\d+x\d+"), ""),
    (re.compile(r"_warpsize\d+x\d+x\d+"), ""),
    (re.compile(r"_g1(?=_|\Z)"), ""),
    (re.compile(r"_tensor\d+x\d+x\d+"), ""),
    (re.compile(r"\A(Cijk_\w*?_MT\d+x\d+x\d+)_\w*\Z"), r"\1"),
)
_MANGLED_LENGTH: Final = re.compile(r"\d{1,4}")
_MANGLED_PART: Final = re.compile(r"L[a-z]n?\d+E|(\d+)")
SHORT: Final = 60  # characters of a short name by default


def short_name(name: str, *, limit: int = SHORT) -> str:
    """Return the name for a table: at most `limit` characters.

    Return type, parameter list, template arguments, endings from builds and namespaces without information (`at::native`) are cut. A
    function that only carries another one is followed by that function: `reduce_kernel[MeanOps]`. Longer names lose their least informative
    parts, then their middle. Control and direction characters are escaped, so that a name cannot disturb its line.

    Raises ValueError for a limit below 1.
    """
    if limit < 1:
        raise ValueError(f"short_name: limit must be at least 1, not {limit}")
    if not name:
        return ""
    text = escaped(" ".join(name[:EXAMINED].split()))
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").strip()
    short = _mangled(text) if text.startswith("_Z") else _demangled(text)
    if not any(c.isalnum() for c in short):  # the name itself was cut: "](javascript:x)"
        short = text or "(blank)"
    short = _TAIL.sub(r"\1", short) or short
    for detail, instead in _DETAILS:
        if len(short) > limit:
            short = detail.sub(instead, short) or short
    if len(short) <= limit:
        return short
    tail = (limit - 1) // 2
    return short[: limit - 1 - tail] + "…" + short[len(short) - tail :]


def _demangled(text: str) -> str:
    if _NO_CPP.search(text):
        return text
    head = text[: _parameters_at(text)]
    if len(head) == len(text) and "<" not in text and "::" not in text and not text.startswith("void "):
        return text  # not C++: a generator's plain name, which may contain spaces
    function = _function(head)
    plain = _outside_brackets(function)
    path = [part for part in plain.split("::") if part not in _SILENT_NAMESPACES]
    if not path:
        return plain.strip(": ")
    name = "::".join(path)
    if path[-1] not in _CARRIERS:
        return name
    carried = _carried(function)
    if carried.startswith("cutlass"):
        return carried  # a library kernel, whose wrapper adds no information
    return f"{name}[{carried}]" if carried else name


def _function(head: str) -> str:
    """Return the head after its last blank outside brackets: without its return type.

    A word with other characters than ASCII is not a type and stays.
    """
    blanks = [match.end() for match, before, _ in _brackets(head) if match.group() == " " and not before]
    start = max((end for end in blanks if end < len(head)), default=0)
    return head[start:] if head[:start].isascii() else head


def _carried(function: str) -> str:
    """Return the first template argument that is neither a type nor an adapter, or ""."""
    matches = _IDENTIFIER_IN_ARGUMENTS.finditer(function, function.find("<") + 1)
    return next((match.group() for match in matches if match.group() not in _ADAPTERS), "")


def _mangled(text: str) -> str:
    """Return the function of a mangled name that is a plain nested name, else ""."""
    parts: list[str] = []
    at = 2
    if text.startswith("_ZN"):
        at = 3
        while at < len(text) and text[at] in "rVKRO":
            at += 1
    nested = at > 2
    while match := _MANGLED_LENGTH.match(text, at):
        at = match.end() + int(match.group())
        if at > len(text):
            return ""
        parts.append(text[match.end() : at])
        if not nested:
            break
    path = [part for part in parts if part not in _SILENT_NAMESPACES]
    if not path:
        return ""
    name = "::".join(path)
    carried = _carried_mangled(text, at) if path[-1] in _CARRIERS else ""
    return f"{name}[{carried}]" if carried else name


def _carried_mangled(text: str, at: int) -> str:
    """Return the first capitalized identifier in mangled template arguments."""
    while match := _MANGLED_PART.search(text, at):
        at = match.end()
        if match.group(1) is None or len(match.group(1)) > 4:
            continue  # the number of a literal such as Li128E
        identifier = text[at : at + int(match.group(1))]
        if re.fullmatch(r"[A-Za-z_]\w*", identifier):
            at += len(identifier)
            if identifier[0].isupper():
                return identifier
    return ""
