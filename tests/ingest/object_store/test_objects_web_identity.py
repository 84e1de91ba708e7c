"""The token of a pod or a CI job is exchanged for the credentials of a role once, until they expire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from loopback import serving
from postrun.ingest.object_store import ranges, web_identity
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from small_s3 import small_s3
from swift_server import clean_environment

NO_FILES = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}


@dataclass
class Service:
    """``seen``: the fields of each request. ``answer``: status and text instead of credentials."""

    url: str = ""
    seen: list[dict[str, str]] = field(default_factory=list)
    expires: timedelta = timedelta(hours=1)
    answer: tuple[int, str] | None = None

    def reply(self, body: str) -> tuple[int, str]:
        self.seen.append({name: values[0] for name, values in parse_qs(body).items()})
        return self.answer or (
            200,
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
            f"<Credentials><AccessKeyId>W{len(self.seen)}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
            f"<Expiration>{datetime.now(UTC) + self.expires:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials>"
            "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        )


@contextmanager
def service() -> Iterator[Service]:
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, text = state.reply(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(status)
            if status == 302:
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            return

    with serving(Handler) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state


def identity(tmp_path: Path, url: str, token: str | None = "pod-token\n") -> dict[str, str]:
    file = tmp_path / "token"
    if token is not None:
        file.write_text(token)
    return {"AWS_WEB_IDENTITY_TOKEN_FILE": str(file), "AWS_ROLE_ARN": "arn:aws:iam::1:role/nights", "AWS_ENDPOINT_URL_STS": url}


def test_all_pages_of_a_listing_use_the_same_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ranges, "_FIRST", 1)
    with service() as sts, small_s3("bucket") as server:
        clean_environment(monkeypatch, {**NO_FILES, **identity(tmp_path, sts.url), "AWS_ENDPOINT_URL": server.endpoint})
        server.buckets["bucket"] = {f"runs/job-{number // 100:03}/{number:05}": b"" for number in range(9_500)}
        assert len(list(open_objects("s3://bucket/runs").list())) == 9_500
        assert len(server.listed) >= 10
        assert server.seen - {""} == {"W1"}
        assert sts.seen == [
            {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": "arn:aws:iam::1:role/nights",
                "RoleSessionName": "postrun",
                "WebIdentityToken": "pod-token",
            }
        ]


def test_the_role_of_one_side_beside_the_keys_of_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with service() as sts, small_s3("bucket") as server:
        keys = {"AWS_ACCESS_KEY_ID": "plain", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": server.endpoint}
        role = {f"POSTRUN_OUT_{name}": value for name, value in identity(tmp_path, sts.url).items()}
        clean_environment(monkeypatch, {**NO_FILES, **keys, **role})
        open_objects("s3://bucket/reports", side="out").write("x", b"")
        assert server.seen - {""} == {"W1"}
        open_objects("s3://bucket/runs", side="source").head("x")
        assert server.seen - {""} == {"W1", "plain"}


def test_expired_credentials_are_renewed_with_the_token_of_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with service() as sts, small_s3("bucket") as server:
        sts.expires = timedelta(seconds=50)
        clean_environment(monkeypatch, {**NO_FILES, **identity(tmp_path, sts.url), "AWS_ENDPOINT_URL": server.endpoint})
        source = open_objects("s3://bucket/runs")
        list(source.list())
        (tmp_path / "token").write_text("renewed")
        list(source.list())
        assert [one["WebIdentityToken"] for one in (sts.seen[0], sts.seen[-1])] == ["pod-token", "renewed"]


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        (
            (403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>hidden</Message></Error></ErrorResponse>"),
            "(HTTP 403, AccessDenied)",
        ),
        ((400, "<Code>ExpiredTokenException</Code> hidden"), "(HTTP 400, ExpiredTokenException)"),
        ((503, "hidden"), "(HTTP 503)"),
        ((302, "http://127.0.0.1:9/hidden"), "(HTTP 302)"),
        ((200, "hidden"), "Token Service"),
        ((200, "<a><Expiration>hidden</Expiration></a>"), "Token Service"),
        ((200, "<a>" * 20_000), "Token Service"),
    ],
)
def test_answers_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: tuple[int, str], stated: str) -> None:
    with service() as sts:
        sts.answer = answer
        clean_environment(monkeypatch, {**NO_FILES, **identity(tmp_path, sts.url), "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
        with pytest.raises(ObjectStoreError, match="no credentials for the token in AWS_WEB_IDENTITY_TOKEN_FILE; check") as raised:
            list(open_objects("s3://bucket/runs").list())
        assert stated in str(raised.value)
        assert "hidden" not in str(raised.value)
        assert len(sts.seen) <= 4


@pytest.mark.parametrize(("status", "requests"), [(403, 1), (503, 2)])
def test_a_refusal_is_final_and_a_fault_is_not(tmp_path: Path, status: int, requests: int) -> None:
    with service() as sts:
        sts.answer = (status, "")
        with pytest.raises(web_identity.WebIdentityError, match=f"status: {status}"):
            web_identity.credentials(identity(tmp_path, sts.url), "eu-central-1", None)
        assert len(sts.seen) == requests


def test_a_missing_token_is_sent_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with service() as sts:
        role = {f"POSTRUN_SOURCE_{name}": value for name, value in identity(tmp_path, sts.url, token=None).items()}
        clean_environment(monkeypatch, {**NO_FILES, **role, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
        with pytest.raises(ObjectStoreError, match="token in POSTRUN_SOURCE_AWS_WEB_IDENTITY_TOKEN_FILE; check that this file exists"):
            list(open_objects("s3://bucket/runs", side="source").list())
        assert sts.seen == []


def test_a_private_authority_is_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As for the store, AWS_CA_BUNDLE names the file."""
    trusted: list[Path | None] = []
    monkeypatch.setattr(web_identity, "opener", lambda certificates: trusted.append(certificates) or _Refusing())
    with pytest.raises(web_identity.WebIdentityError):
        web_identity.credentials(identity(tmp_path, "https://sts.example.org"), "eu-central-1", tmp_path / "authority.pem")
    assert trusted == [tmp_path / "authority.pem"] * 2


class _Refusing:
    def open(self, *_: Any, **__: Any) -> None:
        raise ConnectionRefusedError
