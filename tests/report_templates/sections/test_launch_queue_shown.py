"""The figure of the launch queue draws some streams, and its caption is about all of them."""

from __future__ import annotations

import dataclasses

from postrun.analysis.report import Report
from postrun.analysis.report.device import LaunchQueue, StreamQueue
from postrun.report_templates.sections.launches import launch_queue


def stream(rank: int, highest: int, *, drawn: bool) -> StreamQueue:
    times, depth = ((0, 10, 20), (1.0, 5.0, 1.0)) if drawn else ((), ())
    return StreamQueue("n", rank, 1, 0, 7, 100, 100, highest, 2.0, 30, 30, 3, times, depth)


def test_the_caption_names_the_highest_of_all_streams_and_how_many_are_drawn(rich: Report) -> None:
    streams = (stream(0, 91, drawn=True), stream(5, 97, drawn=False))
    for total, fewer in ((2, " Drawn are 1 of 2\u00a0streams, those with the most runs."), (1, "")):
        section = launch_queue(dataclasses.replace(rich, launch_queue=LaunchQueue(streams[: 2 if fewer else 1], total, None)))
        highest = "97 kernels waited, on rank 5" if fewer else "91 kernels waited, on rank 0"
        caption = str(section.figures["depth"].caption)
        assert f"At most {highest}" in caption
        assert caption.endswith(f"Mean over intervals of equal length.{fewer}")
