"""intervals.py against a plain-Python sweep over every integer point or every endpoint."""

from __future__ import annotations

import itertools

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.toolkit import intervals

EPOCH = 1_712_195_495_519_689_047

Spans = list[tuple[str, int, int]]


def frame(spans: Spans) -> pl.DataFrame:
    return pl.DataFrame(spans, schema={"group": pl.String, "start": pl.Int64, "end": pl.Int64}, orient="row")


def points(spans: Spans, group: str) -> set[int]:
    """The unit cells [t, t + 1) that the intervals of a group cover."""
    return {t for g, start, end in spans if g == group for t in range(start, end)}


def cells(segments: pl.DataFrame, group: str) -> set[int]:
    rows = segments.filter(pl.col("group") == group).select("start", "end").rows()
    actual = [t for start, end in rows for t in range(start, end)]
    assert len(actual) == len(set(actual)), "segments are disjoint"
    return set(actual)


def lengths(result: pl.DataFrame) -> dict[str, int]:
    return dict(result.select("group", "length").rows())


small = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[1], s[1] + s[2])), max_size=12
)
wide = st.lists(st.tuples(st.integers(-4_000_000_000_000_000_000, 4_000_000_000_000_000_000), st.integers(0, 10**17)), max_size=20)


@given(small)
def test_union_covers_the_same_cells_in_maximal_segments(spans: Spans) -> None:
    result = intervals.union(frame(spans), ["group"])
    assert result.columns == ["group", "start", "end"]
    for group in "abc":
        assert cells(result, group) == points(spans, group)
        rows = result.filter(pl.col("group") == group).select("start", "end").rows()
        assert rows == sorted(rows)
        assert all(end < start for (_, end), (start, _) in itertools.pairwise(rows)), "touching segments are one"
    assert lengths(intervals.union_length(frame(spans), ["group"])) == {g: len(points(spans, g)) for g in {s[0] for s in spans}}


@given(small)
def test_outermost_lie_in_no_other_one(spans: Spans) -> None:
    """Of equal ones the first stays, with its other columns."""
    result = intervals.outermost(frame(spans).with_row_index("place"), ["group"])
    kept = {
        place
        for place, (group, start, end) in enumerate(spans)
        if not any(
            g == group and a <= start and end <= b and ((a, b) != (start, end) or other < place)
            for other, (g, a, b) in enumerate(spans)
            if other != place
        )
    }
    assert set(result["place"]) == kept
    assert result.select("group", "start", "end").rows() == sorted(spans[place] for place in kept)
    alone = frame([("a", start, end) for _, start, end in spans])
    assert intervals.outermost(alone).equals(intervals.outermost(alone, ["group"]))


@given(small, small)
def test_difference_and_intersection(a: Spans, b: Spans) -> None:
    minus = intervals.difference(frame(a), frame(b), ["group"])
    combined = intervals.intersection(frame(a), frame(b), ["group"])
    for group in "abc":
        assert cells(minus, group) == points(a, group) - points(b, group)
        assert cells(combined, group) == points(a, group) & points(b, group)
    groups = {s[0] for s in a}
    assert lengths(intervals.difference_length(frame(a), frame(b), ["group"])) == {g: len(points(a, g) - points(b, g)) for g in groups}


@given(small, small, small)
def test_sweep_flags(x: Spans, y: Spans, z: Spans) -> None:
    everything = pl.concat(
        frame(spans).with_columns(x=pl.lit(i == 0), y=pl.lit(i == 1), z=pl.lit(i == 2)) for i, spans in enumerate((x, y, z))
    )
    result = intervals.sweep(everything, ["group"], ["x", "y", "z"])
    assert result.rows() == sorted(result.rows(), key=lambda row: row[:2])
    for group in "abc":
        for flag, spans in zip("xyz", (x, y, z), strict=True):
            assert cells(result.filter(pl.col(flag)), group) == points(spans, group)


@given(wide)
def test_union_length_is_exact_for_large_times(spans: list[tuple[int, int]]) -> None:
    covered, last = 0, None
    for start, length in sorted(spans):
        begin = start if last is None else max(start, last)
        covered += max(0, start + length - begin)
        last = start + length if last is None else max(last, start + length)
    table = pl.DataFrame([(s, s + n) for s, n in spans], schema={"start": pl.Int64, "end": pl.Int64}, orient="row")
    assert intervals.union_length(table).item() == covered


def test_nanoseconds_at_the_epoch_of_real_traces() -> None:
    spans = [
        ("a", EPOCH, EPOCH + 3),
        ("a", EPOCH + 3, EPOCH + 3),
        ("a", EPOCH + 1, EPOCH + 2),
        ("a", EPOCH + 3, EPOCH + 4),
        ("a", EPOCH + 9, EPOCH + 10),
    ]
    assert intervals.union(frame(spans), ["group"]).rows() == [("a", EPOCH, EPOCH + 4), ("a", EPOCH + 9, EPOCH + 10)]


def test_nothing_in_nothing_out() -> None:
    empty = frame([])
    assert intervals.union(empty, ["group"]).is_empty()
    assert intervals.union_length(empty).item() == 0
    assert intervals.union_length(empty, ["group"]).is_empty()
    assert intervals.sweep(empty.with_columns(x=pl.lit(True)), ["group"], ["x"]).is_empty()
    assert lengths(intervals.union_length(frame([("a", 5, 5)]), ["group"])) == {"a": 0}
