"""AWS credentials of a web identity: the token of a pod or a CI job -> those of a role, from the Security Token Service.

The request is AssumeRoleWithWebIdentity in version 2011-06-15 of the service. obstore also sends it, but signing the pages of a listing
needs a new store for each page, and so new credentials.
"""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from xml.etree import ElementTree

from .contact import opener

_TIMEOUT_S: Final = 10
_MOST: Final = 1 << 16
_TRIES: Final = 2
_CODE: Final = re.compile(r"<Code>[A-Za-z0-9]{1,60}</Code>")


class WebIdentityError(Exception):
    """The service gives no credentials. Contains no part of an answer except its code."""


def credentials(env: Mapping[str, str], region: str, certificates: Path | None) -> dict[str, Any]:
    """Return the credentials of AWS_ROLE_ARN, as obstore takes them; WebIdentityError."""
    for attempt in range(1, _TRIES + 1):
        try:
            answer = ElementTree.fromstring(_answer(env, region, certificates))
            texts = {element.tag.rpartition("}")[2]: element.text or "" for element in answer.iter()}
            expires = datetime.fromisoformat(texts["Expiration"])
            return {
                "access_key_id": texts["AccessKeyId"],
                "secret_access_key": texts["SecretAccessKey"],
                "token": texts["SessionToken"],
                "expires_at": expires if expires.tzinfo else expires.replace(tzinfo=UTC),
            }
        except (OSError, HTTPException, ValueError, LookupError, ElementTree.ParseError) as error:
            if attempt == _TRIES or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                raise WebIdentityError(f"No web identity credentials ({_reason(error)})") from None
    raise AssertionError


def _answer(env: Mapping[str, str], region: str, certificates: Path | None) -> bytes:
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    fields = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": env["AWS_ROLE_ARN"],
        "RoleSessionName": env.get("AWS_ROLE_SESSION_NAME", "postrun"),
        "WebIdentityToken": Path(env["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text(encoding="utf-8").strip(),  # the pod's node renews it
    }
    url = env.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.{domain}"
    with opener(certificates).open(url, urlencode(fields).encode(), timeout=_TIMEOUT_S) as answer:
        body: bytes = answer.read(_MOST)
        return body


def _reason(error: Exception) -> str:
    if not isinstance(error, urllib.error.HTTPError):
        return type(error).__name__
    with error:
        try:
            code = _CODE.search(error.read(_MOST).decode(errors="replace"))
        except (OSError, HTTPException):
            code = None
    return f"status: {error.code}{f', {code[0]}' if code else ''}"
