"""Credentials of a role come from the node's service once until they expire, and never from another host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from loopback import serving
from postrun.ingest.object_store import ranges, roles
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from small_s3 import small_s3
from swift_server import clean_environment

ROLE = "/latest/meta-data/iam/security-credentials/"
NO_FILES = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}


@dataclass
class Node:
    """``seen``: the method and path of each request. ``expires``: the time of the credentials, which have numbers. ``answers``: status and
    text by path, instead of those of the service."""

    url: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)
    expires: timedelta = timedelta(hours=6)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    version_1: bool = False

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        self.seen.append((method, path))
        if path in self.answers:
            return self.answers[path]
        if method == "PUT":
            return (403, "") if self.version_1 else (200, "token-1")
        if path == "/of-container":
            return (200, self.keys()) if headers["Authorization"] == "pod" else (401, "")
        if not self.version_1 and headers["X-aws-ec2-metadata-token"] != "token-1":
            return 401, ""
        return (200, "worker\n") if path == ROLE else (200, self.keys()) if path == f"{ROLE}worker" else (404, "")

    def keys(self) -> str:
        keys = {"AccessKeyId": f"R{len(self.seen)}", "SecretAccessKey": "s", "Token": "t"}
        return json.dumps({**keys, "Expiration": f"{datetime.now(UTC) + self.expires:%Y-%m-%dT%H:%M:%SZ}"})


@contextmanager
def node() -> Iterator[Node]:
    state = Node()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = state.answer(self.command, self.path, self.headers)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            return

    with serving(Handler) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state


@pytest.mark.parametrize(("expires", "times"), [(timedelta(hours=6), 1), (timedelta(seconds=50), 12)])
def test_all_pages_of_a_listing_use_the_same_credentials(monkeypatch: pytest.MonkeyPatch, expires: timedelta, times: int) -> None:
    monkeypatch.setattr(ranges, "_FIRST", 1)
    with node() as service, small_s3("bucket") as server:
        service.expires = expires
        clean_environment(monkeypatch, {**NO_FILES, "AWS_ENDPOINT_URL": server.endpoint, "AWS_METADATA_ENDPOINT": service.url})
        server.buckets["bucket"] = {f"runs/job-{number // 100:03}/{number:05}": b"" for number in range(9_500)}
        source = open_objects("s3://bucket/runs")
        assert len(list(source.list())) == 9_500
        assert len(server.listed) >= 10
        fetched = [path for method, path in service.seen if path == f"{ROLE}worker"]
        # Credentials that expire at once are renewed for the probe, and for each page and folder that is listed.
        assert len(fetched) == 1 if times == 1 else len(fetched) >= times
        if times == 1:
            assert server.seen - {""} == {"R3"}
            assert service.seen == [("PUT", "/latest/api/token"), ("GET", ROLE), ("GET", f"{ROLE}worker")]


def test_the_role_of_a_container(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("pod\n")
    with node() as service:
        env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service.url}/of-container"}
        assert roles.credentials({**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)})["access_key_id"] == "R1"
        assert roles.credentials({**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod"})["token"] == "t"
        with pytest.raises(roles.RoleError, match="HTTPError"):
            roles.credentials({**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "other"})


def test_version_1_only_if_it_is_allowed() -> None:
    with node() as service:
        service.version_1 = True
        with pytest.raises(roles.RoleError):
            roles.credentials({"AWS_METADATA_ENDPOINT": service.url})
        service.seen.clear()
        assert roles.credentials({"AWS_METADATA_ENDPOINT": service.url, "AWS_IMDSV1_FALLBACK": "true"})["access_key_id"] == "R3"


@pytest.mark.parametrize(
    "answers",
    [
        {f"{ROLE}worker": (200, '{"Code": "Failed", "AccessKeyId": "hidden"}')},
        {f"{ROLE}worker": (200, "hidden")},
        {f"{ROLE}worker": (200, "[" * 60_000)},
        {f"{ROLE}worker": (200, '["hidden"]')},
        {ROLE: (404, "hidden")},
        {ROLE: (200, "")},  # no role
        {"/latest/api/token": (500, "hidden")},
        {"/latest/api/token": (302, "http://127.0.0.1:9/hidden")},
    ],
)
def test_answers_without_credentials(monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, str]]) -> None:
    with node() as service:
        service.answers = answers
        clean_environment(monkeypatch, {**NO_FILES, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_METADATA_ENDPOINT": service.url})
        with pytest.raises(ObjectStoreError, match="no credentials found: neither in the environment") as raised:
            list(open_objects("s3://bucket/runs").list())
        assert "hidden" not in str(raised.value)
