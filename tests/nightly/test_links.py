"""Links below a local SOURCE: `postrun nightly` follows none, reports which it left out, and shows nothing of their targets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import small_runs as small
from call_nightly import nightly, told
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.object_store.objects import ChangedError, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import work

SECRET = "words-of-another-user"


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    small.write_run(folder / "first", seed=1)
    (folder / "first/job.json").unlink()
    return folder


def everything_in(folder: Path) -> bytes:
    return b"\0".join(os.fsencode(path) + b"\0" + path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_link_of_a_source_is_followed(run_files: Path, tmp_path: Path) -> None:
    private = tmp_path / f"private-{SECRET}"
    private.mkdir()
    (private / "job.json").write_text(f'{{"name": "{SECRET}", "labels": {{"a": "{SECRET}"}}}}')
    source = tmp_path / "source"
    shutil.copytree(run_files, source)
    shutil.copytree(run_files / "first", private / "traces")
    ingest([run_files / "first"], private / "run.duckdb", name=SECRET).close()
    links = {
        "first/job.json": private / "job.json", "first/etc": private, "second": private / "traces",
        "store/run.duckdb": private / "run.duckdb",
        "first/loop": Path("loop"), "first/nothing": Path("nowhere"), "latest": Path("first"),
    }  # fmt: skip
    for name, path in links.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).symlink_to(path)
    data = told(source, "-o", tmp_path / "out", "--format", "html,json", "--engine", "none", "--settle", "0")
    assert data["reported"] == ["first"]
    assert sorted(line.partition(": ")[0] for line in data["left_out"]) == [
        "first/etc",
        "first/job.json",
        "second",
        "store/run.duckdb",
    ]
    assert all("a symbolic link (not followed)" in line for line in data["left_out"])
    assert SECRET.encode() not in everything_in(tmp_path / "out")
    assert SECRET not in str({key: value for key, value in data.items() if key != "left_out"})


def test_a_source_may_be_a_link_itself(run_files: Path, tmp_path: Path) -> None:
    (tmp_path / "source").symlink_to(run_files)
    data = told(tmp_path / "source", "-o", tmp_path / "out", "--format", "json", "--engine", "none", "--settle", "0")
    assert (data["reported"], data["left_out"]) == (["first"], [])


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_becomes_a_link_after_the_listing_is_not_read(run_files: Path, tmp_path: Path, what: str) -> None:
    source = tmp_path / "source"
    shutil.copytree(run_files, source)
    (run,) = small.found_below(str(source))
    task = small.task_of(run, str(source), str(tmp_path / "out"))
    path = source / run.objects[0].path
    target = path if what == "file" else path.parent
    target.rename(tmp_path / "moved")
    target.symlink_to(tmp_path / "moved")
    objects = open_objects(str(source), links=False)
    assert objects.head(run.objects[0].path) is None
    assert [one.path for one in objects.list()] == []
    with pytest.raises(ObjectStoreError):
        objects.read(run.objects[0].path)
    with pytest.raises(InputError):
        objects.download(run.objects[0], tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    with pytest.raises(ChangedError, match="became a link"):
        work.fetch(task, objects, tmp_path / "work")


@pytest.mark.slow
def test_notes_name_every_link_and_fold_only_the_others(run_files: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(run_files, source)
    for number in range(7):
        (source / f"{number}.duckdb").write_bytes(b"")
        (source / f"link{number}").symlink_to(run_files / "first")
    options = (source, "-o", tmp_path / "out", "--format", "json", "--engine", "none", "--settle", "0")
    for more in (("--dry-run",), ()):
        notes = [line for line in nightly(*options, *more).stderr.splitlines() if line.startswith("note: left out: ")]
        links = [f"note: left out: link{number}: a symbolic link (not followed); replace it with the file itself" for number in range(7)]
        assert [line for line in notes if "link" in line] == links
        assert notes[-1] == "note: left out: 2 more files or folders (--json lists all)"
        assert len(notes) == 7 + 5 + 1
        assert len(told(*options, *more)["left_out"]) == 14


def test_a_source_with_links_alone_names_them(run_files: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").symlink_to(run_files / "first")
    done = nightly(tmp_path / "source", "-o", tmp_path / "out")
    assert done.exit_code == 4
    assert done.stderr.endswith("no run found. Left out:\na: a symbolic link (not followed); replace it with the file itself\n")
