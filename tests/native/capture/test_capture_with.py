""" "with annotate" behaves as any context manager, however its methods are reached."""

from __future__ import annotations

import gc
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("postrun.native._native")

from postrun import capture
from postrun.ingest.prt.format import TraceFile

ANNOTATION = type(capture.annotate("x"))


def names(folder: Path) -> list[str]:
    (file,) = folder.glob("*.prt")
    return sorted(row["name"] for row in TraceFile(file).table("annotation").arrow().to_pylist())


def test_every_way_to_enter_and_leave_records_one_range(tmp_path: Path) -> None:
    with capture.session(tmp_path, sample_ms=0):
        with capture.annotate("with") as entered:
            assert type(entered) is ANNOTATION
        with ExitStack() as stack:  # asks the type for its methods
            stack.enter_context(capture.annotate("stack"))
        first = capture.annotate("bound")
        enter, leave = first.__enter__, first.__exit__
        assert enter.__self__ is first
        assert enter() is first
        leave(None, None, None)
        two = capture.annotate("unbound")
        assert ANNOTATION.__enter__(two) is two
        ANNOTATION.__exit__(two, None, None, None)
        three = capture.annotate("tuple")
        three.__enter__(*[])
        three.__exit__(*[None, None, None])
        with pytest.raises(ZeroDivisionError), capture.annotate("raised"):
            _ = 1 // 0
        assert capture.statistics()["unbalanced"] == 0
    assert names(tmp_path) == sorted(["with", "stack", "bound", "unbound", "tuple", "raised"])


def test_wrong_uses_are_errors_and_no_crash() -> None:
    first = capture.annotate("x")
    method = ANNOTATION.__dict__["__enter__"]
    for wrong in (
        lambda: first.__enter__(1),
        lambda: first.__enter__(x=1),
        lambda: first.__exit__(x=1),
        lambda: method.__get__(3, int)(3),
        lambda: method.__get__("text")(),
        lambda: type(method)(),
        lambda: type(first.__enter__)(),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_nothing_is_kept_of_annotations_that_are_gone(tmp_path: Path) -> None:
    def use() -> None:
        for i in range(2000):
            with capture.annotate("x"), capture.annotate("y", value=i):
                pass
        kept = [capture.annotate("z").__enter__ for _ in range(200)]  # more than the memory that is kept
        assert len({id(one) for one in kept}) == 200

    with capture.session(tmp_path, sample_ms=0):
        use()
        gc.collect()
        before = sys.getrefcount(ANNOTATION), len(gc.get_objects())
        for _ in range(5):
            use()
        gc.collect()
        assert sys.getrefcount(ANNOTATION) == before[0]
        assert abs(len(gc.get_objects()) - before[1]) < 20
