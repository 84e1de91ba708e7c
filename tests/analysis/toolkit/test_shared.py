"""Results that are computed once while a store is unchanged."""

from __future__ import annotations

import polars as pl
import pytest
from postrun.analysis.toolkit import shared
from postrun.ingest.store import Store


@pytest.mark.parametrize(("decorator", "rows", "computations"), [
    (shared.shared, 3, 1), (shared.shared, 2, 1), (shared.shared_if_small, 2, 1), (shared.shared_if_small, 3, 2),
])  # fmt: skip
def test_only_small_frames_are_kept(monkeypatch: pytest.MonkeyPatch, decorator: object, rows: int, computations: int) -> None:
    monkeypatch.setattr(shared, "_KEPT_ROWS", 2)
    computed: list[int] = []

    @decorator  # type: ignore[operator]
    def frame(store: Store, height: int) -> pl.DataFrame:
        computed.append(height)
        return pl.DataFrame({"number": range(height)})

    with Store.temporary() as store:
        frame(store, rows)
        assert computed == [rows]
        with store.unchanged():
            first, second = frame(store, rows), frame(store, rows)
        assert first.equals(second)
        assert len(computed) == 1 + computations
