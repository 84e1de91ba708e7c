from __future__ import annotations

import gc

from postrun.garbage import collected_rarely


def test_the_thresholds_are_as_before_after_an_error() -> None:
    usual = gc.get_threshold()
    block = collected_rarely()
    block.__enter__()
    assert gc.get_threshold()[0] > usual[0]
    assert not block.__exit__(ValueError, ValueError("of the block"), None)  # which the block raises
    assert gc.get_threshold() == usual
