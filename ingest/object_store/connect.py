"""How is a store connected to? obstore's objects for a URL, with time limits, retries and what the store's own tools would set."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, urlsplit

from .credentials import Aws, aws
from .listing import Lister
from .objects import ObjectStoreError
from .urls import Place

_CLIENT: Final[dict[str, Any]] = {
    "connect_timeout": timedelta(seconds=10),
    "read_timeout": timedelta(seconds=60),
    "timeout": timedelta(minutes=10),  # of one request; downloads go on from where it ended
}
_ONCE: Final = {"max_retries": 0}
_PATIENT: Final = {
    "max_retries": 8,
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=10), "base": 2},
    "retry_timeout": timedelta(minutes=2),
}
_SIGNED_FOR: Final = timedelta(minutes=15)

_memory: dict[str, Any] = {}
_memory_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Connection:
    """``once``: does not try again, so that the answer is of this request. ``patient``: does; for writing, where a repeat does no harm.

    ``lister``: of S3. ``server``: for messages. ``ordered``: whether obstore lists by path. ``atomic``: whether of several conditional
    writes at once only one is known to succeed.
    """

    once: Any
    patient: Any
    lister: Lister | None
    server: str | None
    ordered: bool
    atomic: bool = True


def connect(place: Place) -> Connection:
    """The store of ``place``. No request is made. Raises ObjectStoreError where the settings cannot hold."""
    if place.scheme == "s3":
        return _s3(place)
    if place.scheme == "memory":
        return _in_memory(place)
    from obstore.store import AzureStore, GCSStore

    if place.scheme == "gs":
        client = _client(allow_http=_says_http("GOOGLE_BASE_URL"))
        made = _both(place, lambda retry: GCSStore(place.bucket, client_options=client, retry_config=retry))  # type: ignore[arg-type]
        return Connection(*made, None, os.environ.get("GOOGLE_BASE_URL") or "storage.googleapis.com", ordered=True)
    settings = _azure_settings(os.environ)
    client = _client(
        allow_http=_says_http("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
        or settings.get("endpoint", "").startswith("http://")
        or os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in {"1", "true"}
    )
    made = _both(place, lambda retry: AzureStore(place.bucket, client_options=client, retry_config=retry, **settings))  # type: ignore[arg-type]
    return Connection(*made, None, settings.get("endpoint") or "the Azure account", ordered=False)


def _says_http(*variables: str) -> bool:
    """Whether the user's own endpoint is an unencrypted one, such as an emulator's."""
    return any(os.environ.get(name, "").startswith("http://") for name in variables)


def _client(**more: Any) -> dict[str, Any]:
    return _CLIENT | more


def _both(place: Place, build: Callable[[Any], Any]) -> tuple[Any, Any]:
    try:
        return build(_ONCE), build(_PATIENT)
    except ObjectStoreError:
        raise
    except Exception as error:
        from .errors import trouble

        # obstore's message may hold what it could not read of a key; only what kind of settings it is of is told.
        names = {"gs": "GOOGLE_*", "az": "AZURE_*", "s3": "AWS_*"}[place.scheme]
        kind = "no credentials or account" if trouble(error).kind == "credentials" else type(error).__name__
        raise ObjectStoreError(
            f"{place.url}: the settings of the store cannot be used ({kind}); check the environment variables {names}"
        ) from None


def _in_memory(place: Place) -> Connection:
    from obstore.store import MemoryStore

    with _memory_lock:
        store = _memory.setdefault(place.bucket, None) or MemoryStore()
        _memory[place.bucket] = store
    return Connection(store, store, None, None, ordered=True)


# ------------------------------------------------------------------ S3


def _s3(place: Place) -> Connection:
    try:
        settings = aws()
    except ObjectStoreError as error:
        raise ObjectStoreError(f"{place.url}: {error}") from None
    if place.bucket.endswith("--x-s3"):
        raise ObjectStoreError(f"{place.url}: directory buckets (S3 Express) are not supported; give a bucket of another kind")
    url = _bucket_url(settings, place.bucket)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
        raise ObjectStoreError(f"{place.url}: the endpoint of S3 is no URL such as https://host:port; check AWS_ENDPOINT_URL")
    if parts.scheme == "http" and not settings.allow_http:
        raise ObjectStoreError(
            f"{place.url}: the endpoint is not encrypted (http://) and AWS_ALLOW_HTTP forbids that; give an https:// endpoint, or allow it"
        )
    client = _client(allow_http=settings.allow_http)
    if settings.certificates is not None:
        try:
            client["root_certificate"] = settings.certificates.read_bytes()
        except OSError as error:
            raise ObjectStoreError(f"{settings.certificates}: {error.strerror}; AWS_CA_BUNDLE names this file, correct it") from None

    def build(retry: Any, endpoint: str = url) -> Any:
        from obstore.store import S3Store

        return S3Store(
            place.bucket,
            config={
                "endpoint": endpoint,
                "aws_endpoint_url_s3": endpoint,
                "virtual_hosted_style_request": True,  # the bucket stands in the endpoint already
                "region": settings.region,
                "skip_signature": settings.anonymous,
                "disable_bulk_delete": True,
                "disable_tagging": True,
            },
            client_options=client,  # type: ignore[arg-type]
            retry_config=retry,
            credential_provider=settings.provider,  # type: ignore[arg-type]
        )

    def signed(query: str) -> str:
        if settings.anonymous:
            return f"{url}?{query}"
        import obstore

        # The path to sign is appended to the endpoint: a last parameter that means nothing takes it.
        return obstore.sign(build(_ONCE, f"{url}?{query}&x-id="), "GET", "ListObjectsV2", _SIGNED_FOR)

    once, patient = _both(place, build)
    lister = Lister(signed, settings.certificates)
    return Connection(
        once, patient, lister, parts.netloc, ordered=True, atomic=parts.hostname.endswith((".amazonaws.com", ".amazonaws.com.cn"))
    )


def _bucket_url(settings: Aws, bucket: str) -> str:
    if settings.endpoint:
        return settings.endpoint if settings.virtual_hosted else f"{settings.endpoint}/{quote(bucket)}"
    domain = "amazonaws.com.cn" if settings.region.startswith("cn-") else "amazonaws.com"
    if settings.virtual_hosted and "." not in bucket:
        return f"https://{bucket}.s3.{settings.region}.{domain}"
    return f"https://s3.{settings.region}.{domain}/{quote(bucket)}"


# ------------------------------------------------------------------ Azure


def _azure_settings(env: Mapping[str, str]) -> dict[str, Any]:
    """What AZURE_STORAGE_CONNECTION_STRING says, which obstore does not read itself."""
    text = env.get("AZURE_STORAGE_CONNECTION_STRING")
    if not text or env.get("AZURE_STORAGE_ACCOUNT_NAME"):
        return {}
    parts = dict(part.partition("=")[::2] for part in text.split(";") if "=" in part)
    names = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_key", "BlobEndpoint": "endpoint"}
    return {known: parts[name].rstrip("/") if known == "endpoint" else parts[name] for name, known in names.items() if parts.get(name)}
