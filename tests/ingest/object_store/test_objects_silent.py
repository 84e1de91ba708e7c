"""Servers that accept a connection and never answer, and slow ones that do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from postrun.ingest.object_store import connect as connections
from postrun.ingest.object_store import contact
from postrun.ingest.object_store.connect import connect
from postrun.ingest.object_store.errors import Trouble
from postrun.ingest.object_store.listing import ListError
from postrun.ingest.object_store.objects import Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.ingest.object_store.urls import parse
from small_s3 import small_s3
from swift_server import clean_environment

NO_FILES = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true"}
ACTIONS: dict[str, Callable[[Objects], object]] = {"list": lambda objects: list(objects.list()), "head": lambda objects: objects.head("x")}


@contextmanager
def silent_server() -> Iterator[str]:
    """The system accepts connections to a socket that nobody serves."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute becomes 1.5 s."""
    monkeypatch.setattr(contact, "SILENT_S", 1.5)
    monkeypatch.setattr(contact, "_PROBE_AFTER_S", 0.5)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.usefixtures("short")
def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    with silent_server() as endpoint:
        clean_environment(monkeypatch, {**NO_FILES, **KEYS, "AWS_ENDPOINT_URL": endpoint})
        began = time.monotonic()
        with pytest.raises(ObjectStoreError, match=r"^s3://bucket/p.*: no connection to 127.0.0.1:\d+, or it was cut off again and again"):
            ACTIONS[action](open_objects("s3://bucket/p"))
        assert 1 < time.monotonic() - began < 10


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["gs", "az"])
@pytest.mark.usefixtures("short")
def test_a_silent_server_of_google_or_azure_is_given_up(monkeypatch: pytest.MonkeyPatch, kind: str, action: str) -> None:
    with silent_server() as endpoint:
        google = {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true"}
        azure = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_SKIP_SIGNATURE": "true", "AZURE_STORAGE_ENDPOINT": endpoint}
        clean_environment(monkeypatch, {**google, **azure})
        began = time.monotonic()
        with pytest.raises(ObjectStoreError, match=rf"^{kind}://bucket/p.*: no connection to http://127.0.0.1:\d+, or it was cut off"):
            ACTIONS[action](open_objects(f"{kind}://bucket/p"))
        assert 1 < time.monotonic() - began < 10


def test_the_servers_that_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(connections, "answers", lambda opener, url, within_s: asked.append(url))
    monkeypatch.setattr(contact, "_PROBE_AFTER_S", 0)
    for variables in ({}, {"AZURE_STORAGE_USE_EMULATOR": "true"}):
        clean_environment(monkeypatch, {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5", **variables})
        for kind in ("gs", "az"):
            server = connect(parse(f"{kind}://bucket/x")).contact
            assert server is not None
            with pytest.raises(contact.SilentError):
                server.first(lambda: threading.Event().wait(30))
    google = "https://storage.googleapis.com"
    assert asked == [google, "https://account.blob.core.windows.net", google, "http://127.0.0.1:10000"]


def test_half_a_minute_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits as they are."""
    assert contact.SILENT_S == 30
    limits: list[float] = []
    silent = contact.Contact(lambda within_s: bool(limits.append(within_s)))
    monkeypatch.setattr(contact, "wait", lambda *_, timeout: limits.append(timeout))
    with pytest.raises(contact.SilentError):
        silent.first(threading.Event().wait)
    assert limits == [10, 20]


@pytest.mark.usefixtures("short")
def test_a_slow_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_s3("bucket", wait_s=4) as server:
        server.buckets["bucket"]["p/a"] = b"1"
        clean_environment(monkeypatch, {**NO_FILES, **KEYS, "AWS_ENDPOINT_URL": server.endpoint})
        assert [one.path for one in open_objects("s3://bucket/p").list()] == ["a"]
        assert open_objects("s3://bucket/p").head("a") is not None


def test_a_server_that_has_answered_is_waited_for() -> None:
    asked: list[float] = []
    known = contact.Contact(lambda within_s: bool(asked.append(within_s)))

    def refused() -> None:
        raise ListError(Trouble("permission", 403))

    with pytest.raises(ListError):
        known.first(refused)
    assert known.answered
    known.first(lambda: time.sleep(0.1))
    assert asked == []


@pytest.mark.slow
def test_a_silent_service_for_the_credentials_of_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server() as metadata:
        clean_environment(monkeypatch, {**NO_FILES, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_METADATA_ENDPOINT": metadata})
        began = time.monotonic()
        with pytest.raises(ObjectStoreError, match="no credentials found: neither in the environment and files nor as a role"):
            list(open_objects("s3://bucket/p").list())
        assert time.monotonic() - began < 40


def test_downloads_keep_their_limits() -> None:
    """Only the time between two reads is limited, not that of a download."""
    limits = connect(parse("s3://bucket/x")).once.client_options
    assert (limits["read_timeout"], limits["timeout"]) == ("1m", "10m")
