"""Long listings of Google Cloud Storage and Azure: several folders at a time, with the same result as one listing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from faulty_proxy import faulty_proxy
from postrun.ingest.object_store import division, remote, tries
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from small_azure import small_azure
from small_s3 import small_s3
from swift_server import clean_environment

NAMES = [f"team-{team}/job-{job:02}/{file}" for team in range(3) for job in range(9) for file in "abcd"]
NAMES += ["loose", "team-1/loose", "team-1-/x", "team-10/x", "\u00fc/x"]


@contextmanager
def store(kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Objects, list[dict[str, str]]]]:
    if kind == "gs":
        with small_s3("bucket") as server:
            clean_environment(monkeypatch, {"GOOGLE_BASE_URL": server.endpoint, "GOOGLE_SKIP_SIGNATURE": "true"})
            server.buckets["bucket"] = {f"p/{name}": b"x" for name in names} | {"q/x": b"x"}
            yield open_objects("gs://bucket/p"), server.listed
        return
    with small_azure() as azure:
        env = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_SKIP_SIGNATURE": "true", "AZURE_STORAGE_ENDPOINT": azure.endpoint}
        clean_environment(monkeypatch, env)
        azure.blobs = {f"p/{name}": b"x" for name in names} | {"q/x": b"x"}
        yield open_objects("az://bucket/p"), azure.listed


@pytest.mark.parametrize("kind", ["gs", "az"])
def test_folders_are_listed_at_the_same_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_FIRST", 40)
    monkeypatch.setattr(division, "_ENOUGH", 20)
    at_once, most, lock = 0, 0, threading.Lock()
    plain = remote.Stored._pages

    def watched(self: remote.Stored, prefix: str, after: str | None) -> Iterator[object]:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.05)
        yield from plain(self, prefix, after)
        with lock:
            at_once -= 1

    monkeypatch.setattr(remote.Stored, "_pages", watched)
    with store(kind, NAMES, monkeypatch) as (source, listed):
        assert [one.path for one in source.list()] == sorted(NAMES)
        assert most > 1
        assert {query["prefix"] for query in listed if "delimiter" not in query} >= {"p/team-0/job-00/", "p/team-2/job-08/"}
        level = source.level("team-1/")
        assert level is not None
        assert (level.folders[0], len(level.folders), [one.path for one in level.files]) == ("team-1/job-00/", 9, ["team-1/loose"])


@pytest.mark.parametrize("kind", ["gs", "az"])
@pytest.mark.parametrize("names", [NAMES, [f"{number:04}" for number in range(3000)], [f"a/{number:04}" for number in range(3000)]])
def test_listings_that_are_not_divided(kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are short, or most of their files are in one folder."""
    monkeypatch.setattr(remote, "_FIRST", 200)
    with store(kind, names, monkeypatch) as (source, listed):
        assert [one.path for one in source.list()] == sorted(names)
        assert not [query for query in listed if "delimiter" in query and query["prefix"] != "p/"]
        assert len([query for query in listed if "delimiter" not in query]) == -(-len(names) // 1000)


def test_a_page_of_azure_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its listings cannot continue behind a name, so a cut one begins again."""
    monkeypatch.setattr(tries, "FIRST_WAIT_S", 0.01)
    names = [f"a/{number:04}" for number in range(2500)]
    with store("az", names, monkeypatch) as (_, listed), faulty_proxy(os.environ["AZURE_STORAGE_ENDPOINT"]) as proxy:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", proxy.endpoint)
        proxy.next_faults = ["", "503", "", "half a body", "half a body", "", "half a body"]
        assert [one.path for one in open_objects("az://bucket/p").list()] == names
    assert (proxy.seen["503"], proxy.seen["half a body"]) == (1, 3)
    assert len(listed) > 3
