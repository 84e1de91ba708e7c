"""intervals.py, with the C extension and without it, against definitions over every integer point (oracles/interval_oracle.py)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import interval_oracle as oracle
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun import native
from postrun.analysis.toolkit import intervals, vectorized_intervals

EPOCH = 1_712_195_495_519_689_047

Spans = list[tuple[str | None, int | None, int | None]]


@pytest.fixture(params=["native", "vectorized"], scope="module", autouse=True)
def _version(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute all tests with each version."""
    if request.param == "native":
        if not native.available():
            pytest.skip("this installation has no C extension")
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_extension", lambda: None)
        yield


def frame(spans: Spans) -> pl.DataFrame:
    return pl.DataFrame(spans, schema={"group": pl.String, "start": pl.Int64, "end": pl.Int64}, orient="row")


def numbered(spans: Spans) -> pl.DataFrame:
    """The same groups as two integer columns, which the extension reads as they are."""
    number = {"a": (1, -1), "b": (1, 0), "c": (2, None), None: (None, None)}
    rows = [(*number[group], start, end) for group, start, end in spans]
    return pl.DataFrame(rows, schema={"x": pl.Int16, "y": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row")


def union_of(*sets: Spans, covers: Any) -> list[tuple[object, int, int]]:
    """The segments whose cells satisfy ``covers``, which gets their membership."""
    groups = oracle.groups([row for spans in sets for row in spans])
    values = []
    for group in groups:
        every = [oracle.cells(spans, group) for spans in sets]
        values.append((group, {t: True for t in set().union(*every) if covers(*(t in cells for cells in every))}))
    return [row[:3] for row in oracle.segments(values)]


def lengths_of(of: Spans, *sets: Spans, covers: Any) -> list[tuple[object, int]]:
    total: dict[object, int] = dict.fromkeys(oracle.groups(of), 0)
    for group, start, end in union_of(*sets, covers=covers):
        if group in total:
            total[group] += end - start
    return list(total.items())


group = st.sampled_from(["a", "b", "c", None])
small = st.lists(
    st.tuples(group, st.integers(0, 30), st.integers(-2, 12)).map(lambda s: (s[0], s[1], s[1] + s[2]))
    | st.tuples(group, st.none() | st.integers(0, 30), st.none() | st.integers(0, 30)),
    max_size=12,
)
wide = st.lists(st.tuples(st.integers(-4_000_000_000_000_000_000, 4_000_000_000_000_000_000), st.integers(0, 10**17)), max_size=20)


@given(small)
def test_union(spans: Spans) -> None:
    result = intervals.union(frame(spans), ["group"])
    assert result.columns == ["group", "start", "end"]
    assert result.rows() == union_of(spans, covers=bool)
    assert intervals.union_length(frame(spans), ["group"]).rows() == lengths_of(spans, spans, covers=bool)
    alone = [("a", start, end) for _, start, end in spans]
    assert intervals.union(frame(spans)).rows() == [row[1:] for row in union_of(alone, covers=bool)]
    assert intervals.union_length(frame(spans)).rows() == [(len(oracle.cells(alone, "a")),)]


@given(small)
def test_groups_of_several_columns(spans: Spans) -> None:
    """Groups are ordered by all their columns, null first."""
    result = intervals.union(numbered(spans), ["x", "y"])
    assert result.schema == {"x": pl.Int16, "y": pl.Int64, "start": pl.Int64, "end": pl.Int64}
    assert result.equals(numbered(union_of(spans, covers=bool)))  # type: ignore[arg-type]


@given(small)
def test_outermost_lie_in_no_other_one(spans: Spans) -> None:
    """Of equal ones the first stays, with its other columns."""
    spans = [(group, start, end) for group, start, end in spans if start is not None and end is not None]
    result = intervals.outermost(frame(spans).with_row_index("place"), ["group"])
    kept = {
        place
        for place, (group, start, end) in enumerate(spans)
        if not any(
            g == group and a <= start and end <= b and ((a, b) != (start, end) or other < place)  # type: ignore[operator]
            for other, (g, a, b) in enumerate(spans)
            if other != place
        )
        and not any(g == group and (a, -b, other) < (start, -end, place) and b >= end for other, (g, a, b) in enumerate(spans))  # type: ignore[operator]
    }
    assert set(result["place"]) == kept
    order = {group: at for at, group in enumerate(oracle.groups(spans))}
    assert result.select("group", "start", "end").rows() == sorted(
        (spans[place] for place in kept), key=lambda row: (order[row[0]], row[1])
    )
    alone = frame([("a", start, end) for _, start, end in spans])
    assert intervals.outermost(alone).equals(intervals.outermost(alone, ["group"]))


@given(small, small)
def test_difference_and_intersection(a: Spans, b: Spans) -> None:
    assert intervals.difference(frame(a), frame(b), ["group"]).rows() == union_of(a, b, covers=lambda x, y: x and not y)
    assert intervals.intersection(frame(a), frame(b), ["group"]).rows() == union_of(a, b, covers=lambda x, y: x and y)
    minus = intervals.difference_length(frame(a), frame(b), ["group"])
    assert minus.rows() == lengths_of(a, a, b, covers=lambda x, y: x and not y)


@given(small, small, small, st.randoms(use_true_random=False))
def test_sweep_flags(x: Spans, y: Spans, z: Spans, draw: random.Random) -> None:
    rows = [(*span, i) for i, spans in enumerate((x, y, z)) for span in spans]
    draw.shuffle(rows)
    everything = frame([row[:3] for row in rows]).with_columns(
        pl.Series(name, [None if row[3] != i and draw.random() < 0.5 else row[3] == i for row in rows], pl.Boolean)
        for i, name in enumerate("xyz")
    )
    values = []
    for group in oracle.groups([row[:3] for row in rows]):
        every = [oracle.cells(spans, group) for spans in (x, y, z)]
        values.append((group, {t: tuple(t in cells for cells in every) for t in set().union(*every)}))
    expected = [(group, start, end, *flags) for group, start, end, flags in oracle.segments(values)]
    assert intervals.sweep(everything, ["group"], ["x", "y", "z"]).rows() == expected
    summed: dict[tuple[object, ...], int] = {}
    for group, start, end, *flags in expected:
        summed[group, *flags] = summed.get((group, *flags), 0) + end - start
    result = intervals.sweep_length(everything, ["group"], ["x", "y", "z"])
    assert result.columns == ["group", "x", "y", "z", "length"]
    order = {group: at for at, (group, _) in enumerate(values)}
    assert result.rows() == sorted(((*key, total) for key, total in summed.items()), key=lambda r: (order[r[0]], r[3], r[2], r[1]))


@given(small, small)
def test_length_inside(spans: Spans, covering: Spans) -> None:
    """Rows keep their order; a null group has no segments."""
    known = [span for span in union_of(covering, covers=bool) if span[0] is not None]
    draw = random.Random(len(spans))
    draw.shuffle(known)
    spans = [span for span in spans if span[1] is not None and span[2] is not None]
    expected = [
        0 if group is None else sum(t < end for t in oracle.cells(known, group)) - sum(t < start for t in oracle.cells(known, group))
        for group, start, end in spans
    ]
    assert intervals.length_inside(frame(spans), frame(known), "group").to_list() == expected  # type: ignore[arg-type]
    twice = [rows.with_columns(same="group") for rows in (frame(spans), frame(known))]  # type: ignore[arg-type]
    assert intervals.length_inside(*twice, ["group", "same"]).to_list() == expected
    everywhere = union_of([("a", *row[1:]) for row in known], covers=bool)
    alone = [("a", *row[1:]) for row in spans]
    inside = intervals.length_inside(frame(alone).drop("group"), frame(everywhere).drop("group"))  # type: ignore[arg-type]
    assert inside.equals(intervals.length_inside(frame(alone), frame(everywhere), "group"), check_names=False)  # type: ignore[arg-type]


@given(small)
def test_gaps(spans: Spans) -> None:
    result = intervals.gaps(frame(spans), ["group"])
    assert result.columns == ["row", "start", "end"]
    assert result.rows() == oracle.gaps(spans)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[str | None, int, int, int | None]]:
    """Ranges that are nested or disjoint in their group, in any order."""
    rows: list[tuple[str | None, int, int, int | None]] = []

    def within(name: str | None, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and depth and draw(st.booleans()):
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start, high))
            rows.append((name, start, end, draw(st.none() | st.integers(-2, 2))))
            within(name, start, end, depth - 1)
            at = end

    for name in ("a", "b", None):
        within(name, 0, 30, 4)
    return draw(st.permutations(rows))


@given(nested(), st.lists(st.tuples(group, st.none() | st.integers(-1, 31)), max_size=30))
def test_innermost(ranges: list[tuple[str | None, int, int, int | None]], points: list[tuple[str | None, int | None]]) -> None:
    known = pl.DataFrame(ranges, schema={"group": pl.String, "start": pl.Int64, "end": pl.Int64, "order": pl.Int64}, orient="row")
    moments = pl.DataFrame(points, schema={"group": pl.String, "time": pl.Int64}, orient="row")
    result = intervals.innermost(moments, known, ["group"], ["order"])
    assert result.to_list() == oracle.innermost(points, ranges)
    without = intervals.innermost(moments, known, ["group"])
    assert without.to_list() == oracle.innermost(points, [(*row[:3], None) for row in ranges])


@given(small)
def test_nested(ranges: Spans) -> None:
    result = intervals.nested(frame(ranges), ["group"])
    assert result.rows() == oracle.nested(ranges)
    assert intervals.nested(numbered(ranges), ["x", "y"]).rows() == result.rows()


def test_nested_ranges_that_overlap_by_mistake() -> None:
    spans: Spans = [("a", 0, 10), ("a", 8, 12), ("a", 10, 20), ("a", 19, 40), ("a", 19, 40), ("b", 1, 2)]
    # 8-12 lies inside by half: it ends with 0-10. 19-40 lies inside by a 21st: 10-20 ends where it starts.
    assert intervals.nested(frame(spans), ["group"]).rows() == [(None, 10), (0, 10), (None, 19), (None, 40), (3, 40), (None, 2)]


def test_nested_ranges_of_any_depth() -> None:
    depth = 100_000
    numbers = pl.int_range(depth, eager=True)
    ranges = pl.DataFrame({"group": "a", "start": numbers, "end": 2 * depth - numbers})
    assert intervals.nested(ranges, ["group"])["parent"].to_list() == [None, *range(depth - 1)]


number = st.none() | st.integers(-3, 6)


@given(st.lists(st.tuples(group, number), max_size=30), st.lists(st.tuples(group, number, number, number), max_size=20))
def test_first_of(points: list[tuple[str | None, int | None]], rows: list[oracle.Numbered]) -> None:
    known = pl.DataFrame(rows, schema={"group": pl.String, "number": pl.Int64, "order": pl.Int64, "next": pl.Int32}, orient="row")
    moments = pl.DataFrame(points, schema={"group": pl.String, "number": pl.Int64}, orient="row")
    assert intervals.first_of(moments, known, ["group"], ["order", "next"]).to_list() == oracle.first_of(points, rows)
    alone = [(*row[:3], None) for row in rows]
    assert intervals.first_of(moments, known, ["group"], ["order"]).to_list() == oracle.first_of(points, alone)


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
    spans: Spans = [
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
    assert intervals.difference_length(empty, frame([("a", 1, 2)])).item() == 0
    assert intervals.sweep(empty.with_columns(x=pl.lit(True)), ["group"], ["x"]).is_empty()
    assert intervals.sweep_length(empty.with_columns(x=pl.lit(True)), ["group"], ["x"]).is_empty()
    assert intervals.gaps(empty, ["group"]).is_empty()
    assert intervals.length_inside(empty, frame([("a", 1, 2)]), "group").is_empty()
    assert intervals.innermost(pl.DataFrame({"group": ["a"], "time": [1]}), empty, ["group"]).to_list() == [None]
    assert intervals.nested(empty, ["group"]).is_empty()
    assert intervals.union_length(frame([("a", 5, 5)]), ["group"]).rows() == [("a", 0)]


@pytest.mark.parametrize("chunks", [1, 7])
def test_many_rows_in_any_order(chunks: int) -> None:
    """Larger than a block, in several chunks, with columns that begin within a bitmap."""
    draw = random.Random(chunks)
    rows = [
        (draw.choice([None, *range(-3, 40)]), start, start + draw.randrange(-3, 400), draw.random() < 0.5, draw.choice([None, True, False]))
        for start in (draw.randrange(50_000) for _ in range(5_003))
    ]
    schema = {"group": pl.Int32, "start": pl.Int64, "end": pl.Int64, "x": pl.Boolean, "y": pl.Boolean}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    parts = pl.concat([table[at::chunks] for at in range(chunks)], rechunk=False).slice(3)
    for ordered in (parts, parts.sort("group", "start"), parts.sort("start", "end", descending=True)):
        expected = vectorized_intervals.sweep(ordered, ["group"], ["x", "y"])
        assert intervals.sweep(ordered, ["group"], ["x", "y"]).equals(expected)
        assert intervals.gaps(ordered, ["group"]).equals(vectorized_intervals.gaps(ordered, ["group"]))
        segments = intervals.union(ordered.filter("x"), ["group"])
        assert segments.equals(vectorized_intervals.union(ordered.filter("x"), ["group"]))
        inside = intervals.length_inside(ordered, segments, "group")
        assert inside.equals(vectorized_intervals.length_inside(ordered, segments, ["group"]))
        numbers = ordered.select("group", number=pl.col("start") // 10, order="end")
        points = numbers.select("group", "number").reverse()
        assert intervals.first_of(points, numbers, ["group"], ["order"]).equals(
            vectorized_intervals.first_of(points, numbers, ["group"], ["order"])
        )
