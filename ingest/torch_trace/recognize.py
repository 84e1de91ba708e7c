"""Recognizes structured logs of torch.compile by their first line, or by the name that PyTorch gives them."""

from __future__ import annotations

import re
from typing import Final

HEADER: Final = re.compile(
    rb"(?:\[rank(?P<rank>\d{1,9})\]:)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9} (?P<pid>\d{1,18}) [^\]\r\n]{1,1000}\] (?P<body>\{.*)", re.DOTALL
)
"""The line of an entry: level, date and time of the node, process id, file and line of PyTorch, and a JSON object."""
_NAME: Final = re.compile(r"/dedicated_log_torch_trace_[^/]*\.log(\.gz|\.zst)?$")
_MEMBER: Final = re.compile(
    rb'\{\s*"(?:str|artifact|chromium_event|dynamo_\w+|compilation_metrics|bwd_compilation_metrics|describe_\w+|inductor_\w+|aot_\w+|frame_id'
    rb'|torch_version|optimize_ddp_\w+|compiled_autograd_\w+|create_symbol|create_unbacked_symbol|guard_added\w*)"\s*:'
)


def recognizes_torch_trace(head: bytes, name: str) -> bool:
    """Whether a file is a structured log of torch.compile."""
    if _NAME.search(name):
        return True
    header = HEADER.match(head)
    return header is not None and _MEMBER.match(header["body"]) is not None
