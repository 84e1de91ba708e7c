"""What does a local folder bear: links, foreign files, other processes, missing rights, a full disk?"""

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


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    root, other = tmp_path / "above" / "root", tmp_path / "other"
    put(root / "run" / "a")
    put(other / "deep" / "b")
    put(tmp_path / "above" / "beside")
    (root / "outside").symlink_to(other)
    (root / "file").symlink_to(other / "deep" / "b")
    (root / "latest").symlink_to("run")  # listed as run already
    (root / "up").symlink_to("..")
    (root / "self").symlink_to(".")
    (root / "nothing").symlink_to("nowhere")
    (root / "circle").symlink_to("circle")
    (root / "run" / "root").symlink_to(root)
    (other / "back").symlink_to(root)
    (other / "again").symlink_to(other / "deep")
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
    place = open_objects(root)
    found = [one.path for one in place.list()]
    assert found[0] == "begin/f"
    assert max(path.count("/") for path in found) == 3
    assert any("links to folders" in line for line in place.left_out)


def test_files_that_are_no_objects(tmp_path: Path) -> None:
    put(tmp_path / "good")
    put(tmp_path / ".hidden")
    put(tmp_path / ".postrun-lock")
    put(tmp_path / "d" / ".postrun-0123.tmp")
    os.mkfifo(tmp_path / "pipe")
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/not utf-8 \xff")))
    put(tmp_path / "new\nline" / "x")
    put(tmp_path / "tab\t")
    place = open_objects(tmp_path)
    assert [one.path for one in place.list()] == [".hidden", "good"]
    assert place.head("d") is None
    with pytest.raises(ObjectStoreError, match="pipe: not a file; remove it"):
        place.head("pipe")
    said = "\n".join(place.left_out)
    assert len(place.left_out) == 3
    assert "not UTF-8" in said
    assert said.count("control character") == 2
    assert said.isprintable() or all(line.isprintable() for line in place.left_out)
    list(place.list())
    assert len(place.left_out) == 3


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    place = open_objects(tmp_path)
    place.write("a/b", b"x")
    for action in (place.write, place.create):
        with pytest.raises(ObjectStoreError, match="there is a folder of this name"):
            action("a", b"y")
        with pytest.raises(ObjectStoreError, match="a/b/c: "):
            action("a/b/c", b"y")
    assert not place.replace("a", b"y", '"x"')
    assert place.head("a/b/c") is None
    place.delete("a/b/c")
    assert paths(tmp_path) == ["a/b"]


def test_a_failed_write_leaves_the_old_object_and_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = open_objects(tmp_path)
    place.write("a", b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "utime", full)
    etag = place.head("a")
    assert etag is not None
    for action in (lambda: place.write("a", b"new"), lambda: place.create("b", b"new"), lambda: place.replace("a", b"new", etag.etag)):
        with pytest.raises(ObjectStoreError, match=r"No space left on device; free some space"):
            action()
    assert sorted(path.name for path in tmp_path.iterdir()) in (["a"], [".postrun-lock", "a"])
    assert place.read("a") == b"old"


def test_a_file_to_upload_that_is_not_there(tmp_path: Path) -> None:
    for url in (str(tmp_path / "root"), "memory://uploads"):
        with pytest.raises(ObjectStoreError, match=r"nowhere: No such file"):
            open_objects(url).write("a", tmp_path / "nowhere")
        assert list(open_objects(url).list()) == []


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(object_folder.os, "link", refused)
    place = open_objects(tmp_path)
    assert place.create("a", b"1")
    assert not place.create("a", b"2")
    assert place.read("a") == b"1"


def test_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "closed" / "a")
    put(tmp_path / "open" / "a")
    real = os.scandir

    def scandir(place: os.PathLike[str]) -> object:
        if Path(place).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return real(place)

    monkeypatch.setattr(object_folder.os, "scandir", scandir)
    place = open_objects(tmp_path)
    assert [one.path for one in place.list()] == ["open/a"]
    assert place.left_out == [f"{tmp_path}/closed/: the folder cannot be searched (Permission denied)"]


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
    """Between head and read another may write: then the ETag is old, and the replacing fails."""
    place = open_objects(tmp_path)
    place.write("n", b"0")
    command = [sys.executable, "-P", "-c", COUNT, str(tmp_path)]
    running = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(3)]
    said = [process.communicate(timeout=120)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(said) == ["False", "False", "True"]
    assert place.read("n") == b"150"
    assert place.read("claim") == str(said.index("True")).encode()
