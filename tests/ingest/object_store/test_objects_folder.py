"""Tests for local folders: links, foreign files, other processes, missing rights, a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from postrun.ingest.object_store import folder as object_folder
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects


def put(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def paths(folder: Path, prefix: str = "", after: str | None = None) -> list[str]:
    return [one.path for one in open_objects(folder).list(prefix, after=after)]


def test_a_root_that_cannot_be_created_is_named() -> None:
    with pytest.raises(ObjectStoreError, match=r"^/proc/x: the folder cannot be created \(.+\); choose another place$"):
        open_objects("/proc/x").create("nights/a.json", b"")


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "above" / "root", tmp_path / "other"
    put(root / "run" / "a")
    put(elsewhere / "deep" / "b")
    put(tmp_path / "above" / "beside")
    (root / "outside").symlink_to(elsewhere)
    (root / "file").symlink_to(elsewhere / "deep" / "b")
    (root / "latest").symlink_to("run")  # listed as run already
    (root / "up").symlink_to("..")
    (root / "self").symlink_to(".")
    (root / "nothing").symlink_to("nowhere")
    (root / "circle").symlink_to("circle")
    (root / "run" / "root").symlink_to(root)
    (elsewhere / "back").symlink_to(root)
    (elsewhere / "again").symlink_to(elsewhere / "deep")
    assert paths(root) == ["file", "outside/deep/b", "run/a"]
    assert open_objects(root).read("outside/deep/b") == b"x"
    assert paths(root, after="file") == ["outside/deep/b", "run/a"]


def test_links_that_lead_on_and_on_end(tmp_path: Path) -> None:
    for number in range(8):
        put(tmp_path / f"far{number}" / "f")
        for following in range(8):
            (tmp_path / f"far{number}" / f"to{following}").symlink_to(tmp_path / f"far{following}")
    root = tmp_path / "root"
    root.mkdir()
    (root / "begin").symlink_to(tmp_path / "far0")
    objects = open_objects(root)
    names = [one.path for one in objects.list()]
    assert names[0] == "begin/f"
    assert max(path.count("/") for path in names) == 3
    assert any("links to folders" in line for line in objects.left_out)


def test_files_that_are_no_objects(tmp_path: Path) -> None:
    put(tmp_path / "good")
    put(tmp_path / ".hidden")
    put(tmp_path / ".postrun-lock")
    put(tmp_path / "d" / ".postrun-0123.tmp")
    os.mkfifo(tmp_path / "pipe")
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/not utf-8 \xff")))
    put(tmp_path / "new\nline" / "x")
    put(tmp_path / "tab\t")
    objects = open_objects(tmp_path)
    assert [one.path for one in objects.list()] == [".hidden", "good"]
    assert objects.head("d") is None
    with pytest.raises(ObjectStoreError, match="pipe: not a file; remove it"):
        objects.head("pipe")
    notes = "\n".join(objects.left_out)
    assert len(objects.left_out) == 3
    assert "not UTF-8" in notes
    assert notes.count("control character") == 2
    assert notes.isprintable() or all(line.isprintable() for line in objects.left_out)
    list(objects.list())
    assert len(objects.left_out) == 3


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    objects = open_objects(tmp_path)
    objects.write("a/b", b"x")
    for action in (objects.write, objects.create):
        with pytest.raises(ObjectStoreError, match="there is a folder of this name"):
            action("a", b"y")
        with pytest.raises(ObjectStoreError, match="a/b/c: "):
            action("a/b/c", b"y")
    assert not objects.replace("a", b"y", '"x"')
    assert objects.head("a/b/c") is None
    objects.delete("a/b/c")
    assert paths(tmp_path) == ["a/b"]


def test_a_failed_write_leaves_the_old_object_and_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = open_objects(tmp_path)
    objects.write("a", b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "utime", full)
    etag = objects.head("a")
    assert etag is not None
    for action in (
        lambda: objects.write("a", b"new"),
        lambda: objects.create("b", b"new"),
        lambda: objects.replace("a", b"new", etag.etag),
    ):
        with pytest.raises(ObjectStoreError, match=r"No space left on device; free some space"):
            action()
    assert sorted(path.name for path in tmp_path.iterdir()) in (["a"], [".postrun-lock", "a"])
    assert objects.read("a") == b"old"


def test_a_file_to_upload_that_is_not_there(tmp_path: Path) -> None:
    for url in (str(tmp_path / "root"), "memory://uploads"):
        with pytest.raises(ObjectStoreError, match=r"nowhere: No such file"):
            open_objects(url).write("a", tmp_path / "nowhere")
        assert list(open_objects(url).list()) == []


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(object_folder.os, "link", refused)
    objects = open_objects(tmp_path)
    assert objects.create("a", b"1")
    assert not objects.create("a", b"2")
    assert objects.read("a") == b"1"


def test_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "closed" / "a")
    put(tmp_path / "open" / "a")
    real = os.scandir

    def scandir(path: os.PathLike[str]) -> object:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(object_folder.os, "scandir", scandir)
    objects = open_objects(tmp_path)
    assert [one.path for one in objects.list()] == ["open/a"]
    assert objects.left_out == [f"{tmp_path}/closed/: the folder cannot be searched (Permission denied)"]


COUNT = """
import sys
from pathlib import Path
from postrun.ingest.object_store.open import open_objects
place, done = open_objects(Path(sys.argv[1])), 0
print(place.create("claim", sys.argv[2].encode()), flush=True)
while done < 50:
    now = place.head("n")
    if place.replace("n", b"%d" % (int(place.read("n")) + 1), now.etag):
        done += 1
"""


def test_several_processes_replace_one_object(tmp_path: Path) -> None:
    """Another process may write between head and read: then replacing fails."""
    objects = open_objects(tmp_path)
    objects.write("n", b"0")
    command = [sys.executable, "-P", "-c", COUNT, str(tmp_path)]
    running = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(3)]
    outputs = [process.communicate(timeout=120)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(outputs) == ["False", "False", "True"]
    assert objects.read("n") == b"150"
    assert objects.read("claim") == str(outputs.index("True")).encode()
