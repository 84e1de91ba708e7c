"""An object store whose calls fail at random."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from postrun.ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError


class FlakyObjects(Objects):
    """Another store in which every tenth call fails."""

    def __init__(self, store: Objects, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.url = store.url
        self.left_out = []

    def _call(self, name: str, *args: object, **kwargs: object) -> Any:
        with self._lock:
            before, after = self._random.random() < 0.05, self._random.random() < 0.05
        if before:
            raise ObjectStoreError(f"{name}: the store does not answer")
        result = getattr(self._store, name)(*args, **kwargs)
        if after:
            raise ObjectStoreError(f"{name}: the store's answer was lost")
        return result

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(list(self._call("list", prefix, after=after)))

    def head(self, path: str) -> ObjectInfo | None:
        return self._call("head", path)

    def read(self, path: str, *, first: int = 0, count: int | None = None) -> bytes:
        return self._call("read", path, first=first, count=count)

    def write(self, path: str, data: bytes | Path, *, content_type: str | None = None) -> str | None:
        return self._call("write", path, data, content_type=content_type)

    def create(self, path: str, data: bytes) -> bool:
        return self._call("create", path, data)

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        return self._call("replace", path, data, etag)

    def delete(self, path: str) -> None:
        self._call("delete", path)
