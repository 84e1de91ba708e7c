"""Tests that folder and memory behave as a dictionary of names and bytes under any operations."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from example_counts import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from postrun.ingest.object_store.objects import ChangedError, ObjectInfo, Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects

# Few letters, so that names meet; no name is the folder of another, which a folder on a disk cannot hold.
FOLDERS = st.lists(st.sampled_from(["d", "d.x", "dd", "é"]), max_size=2).map(lambda parts: "".join(f"{part}/" for part in parts))
FILES = st.sampled_from(["f", "f-", "f.", "ff", "\U0001f600", " ", "%41", "F"])
NAMES = st.builds(str.__add__, FOLDERS, FILES)
DATA = st.binary(max_size=3)


class Model(RuleBasedStateMachine):
    objects: Objects
    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.objects = self.new_place()
        self.model: dict[str, bytes] = {}
        self.current: dict[str, ObjectInfo] = {}

    def new_place(self) -> Objects:
        raise NotImplementedError

    def teardown(self) -> None:
        for info in list(self.objects.list()):
            self.objects.delete(info.path)
        self.folder.cleanup()

    def _now(self, name: str, data: bytes) -> ObjectInfo:
        self.model[name] = data
        info = self.objects.head(name)
        assert info is not None
        assert self.current.get(name) != info  # another version has another ETag, also with the same bytes
        self.current[name] = info
        return info

    @rule(target=versions, name=NAMES, data=DATA)
    def write(self, name: str, data: bytes) -> ObjectInfo:
        etag = self.objects.write(name, data)
        info = self._now(name, data)
        assert info.etag == etag
        return info

    @rule(name=NAMES, data=DATA)
    def create(self, name: str, data: bytes) -> None:
        written = self.objects.create(name, data)
        assert written == (name not in self.model)
        if written:
            self._now(name, data)

    @rule(version=versions, data=DATA)
    def replace(self, version: ObjectInfo, data: bytes) -> None:
        fresh = self.current.get(version.path) == version
        assert self.objects.replace(version.path, data, version.etag) == fresh
        if fresh:
            self._now(version.path, data)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.objects.delete(name)
        self.model.pop(name, None)
        self.current.pop(name, None)

    @rule(version=versions)
    def download(self, version: ObjectInfo) -> None:
        target = Path(self.folder.name, "target")
        if self.current.get(version.path) == version:
            self.objects.download(version, target)
            assert target.read_bytes() == self.model[version.path]
            target.unlink()
        else:
            with pytest.raises(ChangedError):
                self.objects.download(version, target)
            assert not target.exists()

    @rule(name=NAMES, first=st.integers(0, 4), count=st.none() | st.integers(0, 4))
    def read(self, name: str, first: int, count: int | None) -> None:
        if name in self.model:
            data = self.model[name][first:]
            assert self.objects.read(name, first=first, count=count) == (data if count is None else data[:count])
        else:
            assert self.objects.head(name) is None
            with pytest.raises(ObjectStoreError):
                self.objects.read(name, first=first, count=count)

    @rule(
        prefix=st.just("") | NAMES | FOLDERS | st.text("df./é", max_size=3),
        after=st.none() | NAMES | FOLDERS | st.text("df./é", max_size=3),
    )
    def list(self, prefix: str, after: str | None) -> None:
        expected = [
            self.current[name]
            for name in sorted(self.model, key=str.encode)
            if name.startswith(prefix) and (after is None or name.encode() > after.encode())
        ]
        assert [*self.objects.list(prefix, after=after)] == expected

    @invariant()
    def nothing_is_left_out(self) -> None:
        assert self.objects.left_out == []


class FolderModel(Model):
    def new_place(self) -> Objects:
        return open_objects(Path(self.folder.name) / "root")


class MemoryModel(Model):
    def new_place(self) -> Objects:
        return open_objects("memory://a-model/of a/dict")


LIMITS = settings(max_examples=examples(20), stateful_step_count=30)
TestFolder = FolderModel.TestCase
TestFolder.settings = LIMITS
TestMemory = MemoryModel.TestCase
TestMemory.settings = LIMITS
