"""Tests that local folders, the store in memory and an S3 server have the same contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from postrun.errors import UsageError
from postrun.ingest.object_store import remote, tries
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
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """An empty place of each kind; every test has its own prefix."""
    name = f"{request.node.originalname}-{time.monotonic_ns()}"
    clean_environment(monkeypatch)
    monkeypatch.setattr(tries, "FIRST_WAIT_S", 0.01)
    if request.param == "folder":
        return open_objects(tmp_path / "root" / name)
    if request.param == "memory":
        return open_objects(f"memory://{name}/a/prefix")
    clean_environment(monkeypatch, request.getfixturevalue("swift").environment())
    return open_objects(f"s3://contract/{name}/a prefix/")


def test_what_is_written_is_read_listed_and_removed(objects: Objects, tmp_path: Path) -> None:
    assert list(objects.list()) == []
    assert objects.head("a") is None
    before = time.time_ns() - 2 * 10**9
    for name in NAMES:
        objects.write(name, name.encode())
    listed = list(objects.list())
    assert [one.path for one in listed] == sorted(NAMES, key=str.encode)
    for info in listed:
        head = objects.head(info.path)
        assert head is not None
        assert abs(info.modified_ns - head.modified_ns) <= 10**9  # listings and answers round differently
        assert (info.path, info.size, info.etag) == (head.path, head.size, head.etag)
        assert info.size == len(info.path.encode())
        assert before <= info.modified_ns <= time.time_ns() + 2 * 10**9
        assert objects.read(info.path) == info.path.encode()
        objects.download(info, tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == info.path.encode()
    for name in NAMES:
        objects.delete(name)
        objects.delete(name)
    assert list(objects.list()) == []


def test_listings_by_prefix_and_behind_a_name(objects: Objects) -> None:
    names = sorted(["a", "a.b", "a/b", "a/b/c", "a/c", "ab", "b/a/a", "b/b", "ü"], key=str.encode)
    names.remove("a")  # a folder cannot contain both a file and a folder named a
    names.remove("a/b")
    for name in names:
        objects.write(name, b"x")
    for prefix in ("", "a", "a/b", "a/b/", "b/a/a", "ü", "a//", "../"):
        for after in (None, "", "a/", "a/b", "a/b/c", "\U0001f600", "a//b"):
            expected = [name for name in names if name.startswith(prefix) and (after is None or name.encode() > after.encode())]
            assert [one.path for one in objects.list(prefix, after=after)] == expected, (prefix, after)


def test_parts_of_an_object(objects: Objects) -> None:
    objects.write("x", b"0123456789")
    objects.write("empty", b"")
    assert objects.read("x", first=3) == b"3456789"
    assert objects.read("x", first=3, count=4) == b"3456"
    assert objects.read("x", first=8, count=4) == b"89"
    assert objects.read("x", count=0) == objects.read("x", first=10) == objects.read("x", first=99, count=1) == b""
    assert objects.read("empty") == objects.read("empty", first=1) == objects.read("empty", count=5) == b""
    for arguments in ({}, {"first": 1}, {"count": 0}, {"first": 1, "count": 1}):
        with pytest.raises(ObjectStoreError, match=r"nothing: no such (object|file)"):
            objects.read("nothing", **arguments)  # type: ignore[arg-type]


def test_only_one_of_many_creates(objects: Objects) -> None:
    written: list[int] = []

    def create(number: int) -> None:
        if objects.create("claims/one", b"%d" % number):
            written.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert objects.read("claims/one") == b"%d" % written[0]
    assert not objects.create("claims/one", b"again")
    objects.delete("claims/one")
    assert objects.create("claims/one", b"again")


def test_replace_needs_the_version_that_is_there(objects: Objects) -> None:
    assert not objects.replace("x", b"new", '"0-0-0"')
    assert objects.replace("x", b"one", None)
    assert not objects.replace("x", b"two", None)
    first = objects.head("x")
    assert first is not None
    assert objects.replace("x", b"two", first.etag)
    assert not objects.replace("x", b"three", first.etag)
    assert objects.read("x") == b"two"
    assert [one.path for one in objects.list()] == ["x"]  # no lock or temporary file is left, or is seen


def test_of_many_that_replace_a_version_one_does(objects: Objects) -> None:
    """A counter that several raise: none of the steps is lost."""
    objects.write("n", b"0")
    done = threading.Semaphore(0)

    def raise_it() -> None:
        for _ in range(200):
            now = objects.head("n")
            assert now is not None
            try:
                value = int(objects.read("n"))
            except ObjectStoreError:
                continue
            if objects.head("n") == now and objects.replace("n", b"%d" % (value + 1), now.etag):
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
    assert int(objects.read("n")) == successes == 3


def test_a_version_that_is_no_more_is_not_downloaded(objects: Objects, tmp_path: Path) -> None:
    target = tmp_path / "target"
    objects.write("grows", b"12")
    objects.write("same size", b"12")
    objects.write("goes", b"12")
    seen = {one.path: one for one in objects.list()}
    objects.write("grows", b"123")
    objects.write("same size", b"21")
    objects.delete("goes")
    for info in seen.values():
        with pytest.raises(ChangedError, match=f"{info.path}: replaced, changed or removed"):
            objects.download(info, target)
    assert list(tmp_path.glob("*")) in ([], [tmp_path / "root"])
    now = objects.head("grows")
    assert now is not None
    objects.download(now, target)
    assert target.read_bytes() == b"123"


def test_large_objects_in_parts_and_streams(objects: Objects, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    data = b"".join(number.to_bytes(4, "big") for number in range(3 << 20))  # 12 MB: several parts
    source.write_bytes(data)
    etag = objects.write("large", source, content_type="application/octet-stream")
    stored = objects.head("large")
    assert stored is not None
    assert (stored.size, stored.etag) == (len(data), etag)
    assert [info.etag for info in objects.list()] == [etag]
    steps: list[int] = []
    objects.download(stored, target, progress=steps.append)
    assert target.read_bytes() == data
    assert steps == sorted(steps)
    assert steps[-1] == len(data)
    assert objects.read("large", first=9_999_999, count=5) == data[9_999_999:10_000_004]

    class StopError(Exception):
        pass

    def stop(done: int) -> None:
        if done > 3 << 20:
            raise StopError

    target.unlink()
    with pytest.raises(StopError):
        objects.download(stored, target, progress=stop)
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name not in {"source", "root"}] == []


@pytest.mark.parametrize(
    "name", ["", "/x", "x/", "a//b", ".", "..", "../x", "a/../b", "a/./b", "new\nline", "nul\0", "\x7f", "\ud800", "x" * 1025]
)
def test_hostile_names_are_refused_everywhere(objects: Objects, tmp_path: Path, name: str) -> None:
    for action in (
        lambda: objects.head(name),
        lambda: objects.read(name),
        lambda: objects.write(name, b""),
        lambda: objects.create(name, b""),
        lambda: objects.replace(name, b"", '"x"'),
        lambda: objects.delete(name),
        lambda: objects.download(ObjectInfo(name, 1, None, 0), tmp_path / "x"),
    ):
        with pytest.raises(ObjectStoreError, match="give it another name") as raised:
            action()
        assert "\n" not in str(raised.value)
    assert list(objects.list(name)) == []


def test_names_of_our_own_files_are_kept_for_them(objects: Objects) -> None:
    for action in (objects.write, objects.create):
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
        ("s3://", "nothing is not a bucket name"),
        ("s3:///x", "nothing is not a bucket name"),
        ("s3://b$d/x", "is not a bucket name"),
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
    """Stores without a promised order, such as Azure, are sorted after listing."""
    objects = open_objects("memory://unordered/x")
    assert isinstance(objects, remote.Stored)
    objects._to = replace(objects._to, ordered=False)
    for name in NAMES:
        objects.write(name, b"")
    assert [one.path for one in objects.list(after="a-")] == [name for name in sorted(NAMES, key=str.encode) if name > "a-"]
    assert [one.path for one in objects.list("a/b", after="\U0001f600")] == []


def test_a_store_that_lists_out_of_order_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = open_objects("memory://out-of-order")
    monkeypatch.setattr(objects, "_listed", lambda *_: iter([ObjectInfo("b", 1, None, 0), ObjectInfo("a", 1, None, 0)]))
    with pytest.raises(ObjectStoreError, match="does not list objects in order"):
        list(objects.list())
