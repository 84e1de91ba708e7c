"""What is a GPU kernel's name made of? Function, template arguments, parameters; and how is it shown short?

Names come as compilers and libraries spell them: demangled C++ of two styles (`{lambda(float)#1}` and
`[lambda(float) (instance 1)]`), mangled C++ (`_ZN...`), plain identifiers of code generators. They are hostile input:
any length, any character, unbalanced brackets. Nothing here raises on a string, and all work is linear in at most
`EXAMINED` characters.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

# Characters that are looked at. Real names reach 4,000; what comes later is repetition of the template arguments.
EXAMINED: Final = 8192


@dataclass(frozen=True, slots=True)
class NameRule:
    """One row of an ordered table: a name in which `pattern` is found has `value`.

    `pattern` is searched in the lower-case text that `normalised` gives, so it is written in lower case. `reason` says
    why the name tells it, `examples` are (shortened) real names which exactly this row decides.
    """

    value: str
    pattern: re.Pattern[str]
    reason: str
    examples: tuple[str, ...]


def rule(value: str, pattern: str, reason: str, *examples: str) -> NameRule:
    """A row of a table, its pattern compiled."""
    return NameRule(value, re.compile(pattern), reason, examples)


def normalised(name: str) -> tuple[str, str]:
    """(function with its template arguments, parameter list): lower case, each on one line, `EXAMINED` characters in all.

    The parameter list is empty where the name has none. The separation matters because the types in a parameter list
    tell less (`float` may be a learning rate) than those of the template arguments.
    """
    text = " ".join(name[:EXAMINED].split()).lower()
    cut = _parameters_at(text)
    return text[:cut], text[cut:]


_BRACKET: Final = re.compile(r"[<>()\[\]{}]")
_CLOSES: Final = {">": "<", ")": "(", "]": "[", "}": "{"}
_ANONYMOUS: Final = "(anonymous namespace)"


def _parameters_at(text: str) -> int:
    """Index of the bracket that opens the parameter list; the length of the text where there is none."""
    open_brackets: list[str] = []
    for match in _BRACKET.finditer(text):
        bracket, at = match.group(), match.start()
        if bracket in _CLOSES:
            # A lone '>' is an arrow or a comparison.
            if open_brackets and open_brackets[-1] == _CLOSES[bracket]:
                open_brackets.pop()
            continue
        if bracket == "(" and not open_brackets and _opens_parameters(text, at):
            return at
        open_brackets.append(bracket)
    return len(text)


def _opens_parameters(text: str, at: int) -> bool:
    """Whether the '(' at this place, outside all brackets, begins a parameter list."""
    if at == 0 or text[at - 1] in " :" or text.startswith(_ANONYMOUS, at):
        return False
    return not text.endswith("operator", 0, at)


def _outside_brackets(text: str) -> str:
    """The text without everything in brackets; a bracket that is never closed swallows the rest."""
    kept: list[str] = []
    open_brackets: list[str] = []
    start = 0
    for match in _BRACKET.finditer(text):
        bracket, at = match.group(), match.start()
        if bracket in _CLOSES:
            if open_brackets and open_brackets[-1] == _CLOSES[bracket]:
                open_brackets.pop()
                if not open_brackets:
                    start = match.end()
        else:
            if not open_brackets:
                kept.append(text[start:at])
            open_brackets.append(bracket)
    if not open_brackets:
        kept.append(text[start:])
    return "".join(kept)


# Namespaces that say nothing to a reader: the framework's own, and where it hides helpers.
_SILENT_NAMESPACES: Final = frozenset(
    {"", "at", "native", "c10", "std", "detail", "internal", "impl", "at_cuda_detail", "_GLOBAL__N_1", "templates"}
)
# Functions that only carry the work of a template argument: the argument is what a reader looks for.
_CARRIERS: Final = frozenset(
    {
        "elementwise_kernel", "vectorized_elementwise_kernel", "unrolled_elementwise_kernel",
        "elementwise_kernel_manual_unroll", "legacy_elementwise_kernel", "index_elementwise_kernel",
        "vectorized_templated_elementwise_kernel", "_scatter_gather_elementwise_kernel",
        "elementwise_kernel_with_index", "distribution_elementwise_grid_stride_kernel", "reduce_kernel",
        "multi_tensor_apply_kernel", "Kernel", "Kernel2", "device_kernel", "kentry", "EigenMetaKernel",
    }
)  # fmt: skip
# Not what a carrier carries, but adapters around it, and types.
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
# What no C++ name holds: markup, and a word right behind template arguments.
_NO_CPP: Final = re.compile(r"\A<|</|(?<!-)>\w")
# The ends of names that a library's build gives and that tell nothing: always cut.
_TAIL: Final = re.compile(r"_execute(_split_k|_segment_k_on|)(?:_segment_k_off)?_kernel\w{0,40}\Z")
# What tells least in the middle of too long names, in the order in which it goes: how threads divide a tile; of AMD's generated matrix
# products everything behind the tile.
_DETAILS: Final = (
    (re.compile(r"_warpgroupsize\d+x\d+x\d+"), ""),
    (re.compile(r"_warpsize\d+x\d+x\d+"), ""),
    (re.compile(r"_g1(?=_|\Z)"), ""),
    (re.compile(r"_tensor\d+x\d+x\d+"), ""),
    (re.compile(r"\A(Cijk_\w*?_MT\d+x\d+x\d+)_\w*\Z"), r"\1"),
)
_MANGLED_LENGTH: Final = re.compile(r"\d{1,4}")
_MANGLED_PART: Final = re.compile(r"L[a-z]n?\d+E|(\d+)")


SHORT: Final = 60  # Characters of a short name, where nothing else is asked for


def short_name(name: str, *, limit: int = SHORT) -> str:
    """The name as a table shows it: at most `limit` characters, never empty for a name that is not.

    Return type, parameter list and template arguments are cut, and namespaces that say nothing (`at::native`). A
    function that only carries another one is followed by what it carries: `reduce_kernel[MeanOps]`. The tails that builds
    of libraries give are cut, too. What is too long loses what tells least, then its middle to an ellipsis. Control and
    direction characters are dropped, so that a name cannot disturb the line it stands on.

    Raises ValueError for a limit below 1.
    """
    if limit < 1:
        raise ValueError(f"short_name: limit must be at least 1, not {limit}")
    if not name:
        return ""
    text = " ".join(name[:EXAMINED].split())
    text = "".join(c for c in text if unicodedata.category(c) not in {"Cc", "Cf", "Cs"}).strip()
    short = _mangled(text) if text.startswith("_Z") else _demangled(text)
    if not any(c.isalnum() for c in short):  # what was cut was the name: "](javascript:x)"
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
        return text  # not C++: a generator's plain name, which may hold spaces
    function = _function(head)
    plain = _outside_brackets(function)
    path = [part for part in plain.split("::") if part not in _SILENT_NAMESPACES]
    if not path:
        return plain.strip(": ")
    shown = "::".join(path)
    if path[-1] not in _CARRIERS:
        return shown
    carried = _carried(function)
    if carried.startswith("cutlass"):
        return carried  # a library kernel: its name says all, the wrapper nothing
    return f"{shown}[{carried}]" if carried else shown


def _function(head: str) -> str:
    """The head without its return type: what follows the last blank outside brackets. Words of other scripts are no types and stay."""
    start = 0
    open_brackets: list[str] = []
    for match in re.finditer(r"[<>()\[\]{} ]", head):
        character = match.group()
        if character == " ":
            if not open_brackets and match.end() < len(head):
                start = match.end()
        elif character in _CLOSES:
            if open_brackets and open_brackets[-1] == _CLOSES[character]:
                open_brackets.pop()
        else:
            open_brackets.append(character)
    return head[start:] if head[:start].isascii() else head


def _carried(function: str) -> str:
    """The first thing in the template arguments that is neither a type nor an adapter; empty where there is none."""
    for match in _IDENTIFIER_IN_ARGUMENTS.finditer(function, function.find("<") + 1):
        if match.group() not in _ADAPTERS:
            return match.group()
    return ""


def _mangled(text: str) -> str:
    """The function of a mangled name where it is a plain nested name; empty where it is not."""
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
    shown = "::".join(path)
    carried = _carried_mangled(text, at) if path[-1] in _CARRIERS else ""
    return f"{shown}[{carried}]" if carried else shown


def _carried_mangled(text: str, at: int) -> str:
    """The first capitalised identifier in mangled template arguments (namespaces are written small)."""
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
