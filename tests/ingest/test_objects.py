"""Do local folders, the store in memory and an S3 server keep the same contract?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from postrun.errors import UsageError
from postrun.ingest.object_store import remote as object_stores
from postrun.ingest.object_store.objects import ChangedError, ObjectInfo, Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.ingest.object_store.urls import is_url
from swift_server import SwiftServer, clean_environment, swift_server

NAMES = ("a-", "a/b", "a/b.c/d", "a/c", "a0", "sp ace+%20?#&=", "é/ü", "q'\"<>\\", "\U0001f600", "~x*!()")


@pytest.fixture(scope="module")
def swift() -> Iterator[SwiftServer]:
    with swift_server() as server:
        server.make_bucket("contract")
        yield server


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """An empty place of each kind; every test has its own prefix."""
    name = f"{request.node.originalname}-{time.monotonic_ns()}"
    clean_environment(monkeypatch)
    monkeypatch.setattr(object_stores, "FIRST_WAIT_S", 0.01)
    if request.param == "folder":
        return open_objects(tmp_path / "root" / name)
    if request.param == "memory":
        return open_objects(f"memory://{name}/a/prefix")
    clean_environment(monkeypatch, request.getfixturevalue("swift").environment())
    return open_objects(f"s3://contract/{name}/a prefix/")


def test_what_is_written_is_read_listed_and_removed(place: Objects, tmp_path: Path) -> None:
    assert list(place.list()) == []
    assert place.head("a") is None
    before = time.time_ns() - 2 * 10**9
    for name in NAMES:
        place.write(name, name.encode())
    listed = list(place.list())
    assert [one.path for one in listed] == sorted(NAMES, key=str.encode)
    for one in listed:
        head = place.head(one.path)
        assert head is not None
        assert abs(one.modified_ns - head.modified_ns) <= 10**9  # listings and answers round differently
        assert (one.path, one.size, one.etag) == (head.path, head.size, head.etag)
        assert one.size == len(one.path.encode())
        assert before <= one.modified_ns <= time.time_ns() + 2 * 10**9
        assert place.read(one.path) == one.path.encode()
        place.download(one, tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == one.path.encode()
    for name in NAMES:
        place.delete(name)
        place.delete(name)
    assert list(place.list()) == []


def test_listings_by_prefix_and_behind_a_name(place: Objects) -> None:
    names = sorted(["a", "a.b", "a/b", "a/b/c", "a/c", "ab", "b/a/a", "b/b", "ü"], key=str.encode)
    names.remove("a")  # a folder cannot hold the file a beside the folder a
    names.remove("a/b")
    for name in names:
        place.write(name, b"x")
    for prefix in ("", "a", "a/b", "a/b/", "b/a/a", "ü", "a//", "../"):
        for after in (None, "", "a/", "a/b", "a/b/c", "\U0001f600", "a//b"):
            expected = [name for name in names if name.startswith(prefix) and (after is None or name.encode() > after.encode())]
            assert [one.path for one in place.list(prefix, after=after)] == expected, (prefix, after)


def test_parts_of_an_object(place: Objects) -> None:
    place.write("x", b"0123456789")
    place.write("empty", b"")
    assert place.read("x", first=3) == b"3456789"
    assert place.read("x", first=3, count=4) == b"3456"
    assert place.read("x", first=8, count=4) == b"89"
    assert place.read("x", count=0) == place.read("x", first=10) == place.read("x", first=99, count=1) == b""
    assert place.read("empty") == place.read("empty", first=1) == place.read("empty", count=5) == b""
    for arguments in ({}, {"first": 1}, {"count": 0}, {"first": 1, "count": 1}):
        with pytest.raises(ObjectStoreError, match=r"nothing: no such (object|file)"):
            place.read("nothing", **arguments)  # type: ignore[arg-type]


def test_only_one_of_many_creates(place: Objects) -> None:
    written: list[int] = []

    def create(number: int) -> None:
        if place.create("claims/one", b"%d" % number):
            written.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert place.read("claims/one") == b"%d" % written[0]
    assert not place.create("claims/one", b"again")
    place.delete("claims/one")
    assert place.create("claims/one", b"again")


def test_replace_needs_the_version_that_is_there(place: Objects) -> None:
    assert not place.replace("x", b"new", '"0-0-0"')
    assert place.replace("x", b"one", None)
    assert not place.replace("x", b"two", None)
    first = place.head("x")
    assert first is not None
    assert place.replace("x", b"two", first.etag)
    assert not place.replace("x", b"three", first.etag)
    assert place.read("x") == b"two"
    assert [one.path for one in place.list()] == ["x"]  # no lock or temporary file is left, or is seen


def test_of_many_that_replace_a_version_one_does(place: Objects) -> None:
    """A counter that several raise: none of the steps is lost."""
    place.write("n", b"0")
    done = threading.Semaphore(0)

    def raise_it() -> None:
        for _ in range(200):
            now = place.head("n")
            assert now is not None
            try:
                value = int(place.read("n"))
            except ObjectStoreError:
                continue
            if place.head("n") == now and place.replace("n", b"%d" % (value + 1), now.etag):
                done.release()
                return
            time.sleep(0.01)

    threads = [threading.Thread(target=raise_it) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.acquire(blocking=False)
    successes = 1
    while done.acquire(blocking=False):
        successes += 1
    assert int(place.read("n")) == successes == 3


def test_a_version_that_is_no_more_is_not_downloaded(place: Objects, tmp_path: Path) -> None:
    target = tmp_path / "target"
    place.write("grows", b"12")
    place.write("same size", b"12")
    place.write("goes", b"12")
    seen = {one.path: one for one in place.list()}
    place.write("grows", b"123")
    place.write("same size", b"21")
    place.delete("goes")
    for one in seen.values():
        with pytest.raises(ChangedError, match=f"{one.path}: replaced, changed or removed"):
            place.download(one, target)
    assert list(tmp_path.glob("*")) in ([], [tmp_path / "root"])
    now = place.head("grows")
    assert now is not None
    place.download(now, target)
    assert target.read_bytes() == b"123"


def test_large_objects_in_parts_and_streams(place: Objects, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    data = b"".join(number.to_bytes(4, "big") for number in range(3 << 20))  # 12 MB: several parts
    source.write_bytes(data)
    etag = place.write("large", source, content_type="application/octet-stream")
    one = place.head("large")
    assert one is not None
    assert (one.size, one.etag) == (len(data), etag)
    assert [info.etag for info in place.list()] == [etag]
    steps: list[int] = []
    place.download(one, target, progress=steps.append)
    assert target.read_bytes() == data
    assert steps == sorted(steps)
    assert steps[-1] == len(data)
    assert place.read("large", first=9_999_999, count=5) == data[9_999_999:10_000_004]

    class StopError(Exception):
        pass

    def stop(done: int) -> None:
        if done > 3 << 20:
            raise StopError

    target.unlink()
    with pytest.raises(StopError):
        place.download(one, target, progress=stop)
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name not in {"source", "root"}] == []


@pytest.mark.parametrize(
    "name", ["", "/x", "x/", "a//b", ".", "..", "../x", "a/../b", "a/./b", "new\nline", "nul\0", "\x7f", "\ud800", "x" * 1025]
)
def test_hostile_names_are_refused_everywhere(place: Objects, tmp_path: Path, name: str) -> None:
    for action in (
        lambda: place.head(name),
        lambda: place.read(name),
        lambda: place.write(name, b""),
        lambda: place.create(name, b""),
        lambda: place.replace(name, b"", '"x"'),
        lambda: place.delete(name),
        lambda: place.download(ObjectInfo(name, 1, None, 0), tmp_path / "x"),
    ):
        with pytest.raises(ObjectStoreError, match="give it another name") as raised:
            action()
        assert "\n" not in str(raised.value)
    assert list(place.list(name)) == []


def test_names_of_our_own_files_are_kept_for_them(place: Objects) -> None:
    for action in (place.write, place.create):
        with pytest.raises(ObjectStoreError, match="kept for temporary files"):
            action("a/.postrun-x", b"")


def test_marks_of_recorders_are_listed_and_what_is_temporary_is_not(tmp_path: Path) -> None:
    for name in ("run/a.prt", "run/.postrun-run/job", "run/.postrun-run/job.ended", "run/.postrun-x.tmp", ".postrun-scratch/b.prt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listed = [one.path for one in open_objects(str(tmp_path)).list()]
    assert listed == ["run/.postrun-run/job", "run/.postrun-run/job.ended", "run/a.prt"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://x/y", "not a place that is read"),
        ("s3://", "nothing is no name of a bucket"),
        ("s3:///x", "nothing is no name of a bucket"),
        ("s3://b$d/x", "is no name of a bucket"),
        ("s3://bucket/../x", "a part . or .."),
        ("s3://bucket//x", "an empty part"),
        ("s3://key:hidden@bucket/x", "no name or secret stands in the URL"),
        ("https://key:hidden@bucket/x?token=hidden", "not a place that is read"),
        ("file://host/x", "three slashes"),
        ("", "an empty path"),
    ],
)
def test_places_that_are_none(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        open_objects(url)
    assert "hidden" not in str(raised.value)


def test_urls_of_folders(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    open_objects(folder).write("a", b"1")
    assert open_objects(f"file://{tmp_path}/with%20space/").read("a") == b"1"
    assert open_objects(f"file://localhost{tmp_path}/with%20space").url == str(folder)
    assert is_url("s3://x")
    assert not is_url(str(folder))
    assert not is_url(folder)
    with pytest.raises(ObjectStoreError, match="this is a file"):
        list(open_objects(folder / "a").list())


def test_a_store_that_lists_in_no_order(tmp_path: Path) -> None:
    """Such as Azure: what comes is put in order; the way of stores that promise an order is not taken."""
    place = open_objects("memory://unordered/x")
    assert isinstance(place, object_stores.Stored)
    place._to = replace(place._to, ordered=False)
    for name in NAMES:
        place.write(name, b"")
    assert [one.path for one in place.list(after="a-")] == [name for name in sorted(NAMES, key=str.encode) if name > "a-"]
    assert [one.path for one in place.list("a/b", after="\U0001f600")] == []


def test_a_store_that_lists_out_of_order_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    place = open_objects("memory://out-of-order")
    monkeypatch.setattr(place, "_pages", lambda *_: iter([ObjectInfo("b", 1, None, 0), ObjectInfo("a", 1, None, 0)]))
    with pytest.raises(ObjectStoreError, match="does not list objects in order"):
        list(place.list())
