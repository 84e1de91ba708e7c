"""Names of devices and processes, with and without the name of their node."""

from __future__ import annotations

import pytest
from postrun.report_templates.text import labels


@pytest.mark.parametrize(
    ("node", "rank", "device", "process"),
    [
        ("algo-1", 3, "rank 3 · algo-1 GPU 2", "rank 3"),
        ("algo-1", None, "algo-1 GPU 2", "algo-1 pid 17"),
        ("unknown host", 3, "rank 3 · GPU 2", "rank 3"),
        ("unknown host", None, "GPU 2", "pid 17"),
        ("unknown host 2", 3, "rank 3 · GPU 2", "rank 3"),
        ("unknown host 2", None, "unknown host 2 GPU 2", "unknown host 2 pid 17"),
    ],
)
def test_a_node_that_no_file_names_has_no_name(node: str, rank: int | None, device: str, process: str) -> None:
    assert labels.device(node, rank, 2) == device
    assert labels.process(node, rank, 17) == process
