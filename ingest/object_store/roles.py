"""AWS credentials of the role of this machine or container, from the service of the node that gives them.

obstore also asks these services, but signing the pages of a listing needs a new store for each page, and so new credentials.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from .contact import NoRedirect

_INSTANCE: Final = "http://169.254.169.254"
_CONTAINER: Final = "http://169.254.170.2"
_PATH: Final = "/latest/meta-data/iam/security-credentials/"
_TIMEOUT_S: Final = 10
_TOKEN_S: Final = "600"
_MOST: Final = 1 << 16
_TRIES: Final = 2


class RoleError(Exception):
    """The node gives no credentials. Contains no part of an answer."""


def credentials(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the credentials of the role, as obstore takes them; RoleError."""
    for attempt in range(1, _TRIES + 1):
        try:
            text = _of_container(env) if is_container(env) else _of_instance(env)
            answer = json.loads(text)
            expires = datetime.fromisoformat(answer["Expiration"])
            return {
                "access_key_id": str(answer["AccessKeyId"]),
                "secret_access_key": str(answer["SecretAccessKey"]),
                "token": str(answer["Token"]),
                "expires_at": expires if expires.tzinfo else expires.replace(tzinfo=UTC),
            }
        except (OSError, HTTPException, ValueError, TypeError, LookupError, RecursionError) as error:
            if attempt == _TRIES:
                raise RoleError(f"No role credentials ({type(error).__name__})") from None
    raise AssertionError


def is_container(env: Mapping[str, str]) -> bool:
    """Decide whether a service for containers is named."""
    return any(env.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL"))


def _of_container(env: Mapping[str, str]) -> str:
    if relative := env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        return _answer(_CONTAINER + relative)
    token = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    if file := env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        token = Path(file).read_text(encoding="utf-8").strip()  # the node renews it
    return _answer(env["AWS_CONTAINER_CREDENTIALS_FULL_URI"], {"Authorization": token} if token else {})


def _of_instance(env: Mapping[str, str]) -> str:
    """Return the answer of version 2 of the service, or of 1 if it is allowed."""
    service = env.get("AWS_METADATA_ENDPOINT", _INSTANCE).rstrip("/")
    headers = {}
    try:
        token = _answer(f"{service}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_S}, "PUT")
        headers = {"X-aws-ec2-metadata-token": token}
    except urllib.error.HTTPError as error:
        if error.code != 403 or env.get("AWS_IMDSV1_FALLBACK", "").lower() not in {"1", "true", "yes", "on", "y"}:
            raise
    return _answer(service + _PATH + _answer(service + _PATH, headers).split()[0], headers)


_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)  # the services are on the node


def _answer(url: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=dict(headers or {}), method=method)
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
            text: str = answer.read(_MOST).decode()
            return text
    except urllib.error.HTTPError as error:
        error.close()
        raise
