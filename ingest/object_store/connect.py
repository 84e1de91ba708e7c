"""Connections to stores: obstore's objects for a URL, with time limits, retries and the settings of the store's own tools."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, urlsplit

from .contact import Contact, NoRedirect, answers
from .credentials import Aws, aws
from .listing import Lister
from .objects import ObjectStoreError
from .sides import Environment, Side, environment_of
from .urls import StoreUrl

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
_AZURITE: Final = "http://127.0.0.1:10000"  # the emulator of Azure
_SIGNED_FOR: Final = timedelta(minutes=15)

_memory: dict[str, Any] = {}
_memory_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Connection:
    """``once``: without retries, so that the answer is of this request. ``patient``: with retries; for writes, which may be repeated.

    ``lister``: of S3. ``contact``: of other servers. ``server``: for messages. ``ordered``: whether obstore lists by path. ``atomic``:
    whether of several conditional writes at once only one is known to succeed. ``environment``: the variables that were used.
    """

    once: Any
    patient: Any
    lister: Lister | None
    server: str | None
    ordered: bool
    atomic: bool = True
    environment: Environment = field(default_factory=lambda: Environment({}))
    contact: Contact | None = None


def connect(url: StoreUrl, side: Side | None = None) -> Connection:
    """Return the store of ``url`` without a request, or raise ObjectStoreError.

    ``side``: of a night, which may have variables of its own."""
    if url.scheme == "memory":
        return _in_memory(url)
    environment = environment_of(side)
    try:
        return replace({"s3": _s3, "gs": _google, "az": _azure}[url.scheme](url, environment), environment=environment)
    except ObjectStoreError as error:
        raise ObjectStoreError(environment.named(str(error))) from None


def _google(url: StoreUrl, environment: Environment) -> Connection:
    from obstore.store import GCSStore

    config: Any = _config(url, environment, "GOOGLE_")
    client: Any = _CLIENT | {"allow_http": _is_http(environment, "GOOGLE_BASE_URL")}
    stores = _stores(url, lambda retry: GCSStore(url.bucket, config=config, client_options=client, retry_config=retry))
    server = environment.values.get("GOOGLE_BASE_URL")
    contact = Contact(_probe(server or "https://storage.googleapis.com"))
    return Connection(*stores, None, server or "storage.googleapis.com", ordered=True, contact=contact)


def _azure(url: StoreUrl, environment: Environment) -> Connection:
    from obstore.store import AzureStore

    values = environment.values
    config: Any = {**_config(url, environment, "AZURE_"), **_azure_settings(values)}
    endpoint = config.get("endpoint") or values.get("AZURE_STORAGE_ENDPOINT") or values.get("AZURE_ENDPOINT") or ""
    if not endpoint and values.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in {"1", "true"}:
        endpoint = _AZURITE
    client: Any = _CLIENT | {"allow_http": endpoint.startswith("http://")}
    account = config.get("account_name") or values.get("AZURE_STORAGE_ACCOUNT_NAME") or values.get("AZURE_ACCOUNT_NAME")
    server = endpoint or (f"https://{account}.blob.core.windows.net" if account else None)
    stores = _stores(url, lambda retry: AzureStore(url.bucket, config=config, client_options=client, retry_config=retry))
    contact = Contact(_probe(server)) if server else None
    return Connection(*stores, None, endpoint or "the Azure account", ordered=False, contact=contact)


def _probe(server: str) -> Callable[[float], bool]:
    return lambda within_s: answers(urllib.request.build_opener(NoRedirect), server, within_s)


def _config(url: StoreUrl, environment: Environment, family: str) -> dict[str, str]:
    try:
        return environment.config(family)
    except ObjectStoreError as error:
        raise ObjectStoreError(f"{url.url}: {error}") from None


def _is_http(environment: Environment, *variables: str) -> bool:
    """Whether the user's own endpoint is not encrypted, such as that of an emulator."""
    return any(environment.values.get(name, "").startswith("http://") for name in variables)


def _stores(url: StoreUrl, build: Callable[[Any], Any]) -> tuple[Any, Any]:
    try:
        return build(_ONCE), build(_PATIENT)
    except ObjectStoreError:
        raise
    except Exception as error:
        from .errors import trouble

        # obstore's message may contain a part of a key; only the kind of the wrong setting is reported.
        names = {"gs": "GOOGLE_*", "az": "AZURE_*", "s3": "AWS_*"}[url.scheme]
        kind = "no credentials or account" if trouble(error).kind == "credentials" else type(error).__name__
        raise ObjectStoreError(
            f"{url.url}: the settings of the store cannot be used ({kind}); check the environment variables {names}"
        ) from None


def _in_memory(url: StoreUrl) -> Connection:
    from obstore.store import MemoryStore

    with _memory_lock:
        store = _memory.get(url.bucket) or _memory.setdefault(url.bucket, MemoryStore())
    return Connection(store, store, None, None, ordered=True)


# ------------------------------------------------------------------ S3


def _s3(target: StoreUrl, environment: Environment) -> Connection:
    try:
        settings = aws(environment.values, environment.replaced)
    except ObjectStoreError as error:
        raise ObjectStoreError(f"{target.url}: {error}") from None
    if target.bucket.endswith("--x-s3"):
        raise ObjectStoreError(f"{target.url}: directory buckets (S3 Express) are not supported; give a bucket of another kind")
    url = _bucket_url(settings, target.bucket)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
        raise ObjectStoreError(f"{target.url}: the endpoint of S3 is no URL such as https://host:port; check AWS_ENDPOINT_URL")
    if parts.scheme == "http" and not settings.allow_http:
        raise ObjectStoreError(
            f"{target.url}: the endpoint is not encrypted (http://) and AWS_ALLOW_HTTP forbids that; give an https:// endpoint, or allow it"
        )
    client = _CLIENT | {"allow_http": settings.allow_http}
    if settings.certificates is not None:
        try:
            client["root_certificate"] = settings.certificates.read_bytes()
        except OSError as error:
            raise ObjectStoreError(f"{settings.certificates}: {error.strerror}; AWS_CA_BUNDLE names this file, correct it") from None

    def build(retry: Any, endpoint: str = url, **limits: Any) -> Any:
        from obstore.store import S3Store

        return S3Store(
            target.bucket,
            config={
                "endpoint": endpoint,
                "aws_endpoint_url_s3": endpoint,
                "virtual_hosted_style_request": True,  # the endpoint contains the bucket already
                "region": settings.region,
                "skip_signature": settings.anonymous,
                "disable_bulk_delete": True,
                "disable_tagging": True,
            },
            client_options=client | limits,  # type: ignore[arg-type]
            retry_config=retry,
            credential_provider=settings.provider,  # type: ignore[arg-type]
        )

    def signed(query: str) -> str:
        if settings.anonymous:
            return f"{url}?{query}"
        import obstore

        # The path to sign is appended to the endpoint: a last parameter that means nothing takes it.
        # Signing sends no request, so the trusted certificates, which take most of the time, need not be read.
        signer = build(_ONCE, f"{url}?{query}&x-id=", allow_invalid_certificates=True)
        return obstore.sign(signer, "GET", "ListObjectsV2", _SIGNED_FOR)

    once, patient = _stores(target, build)
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
    """Read AZURE_STORAGE_CONNECTION_STRING, which obstore does not read."""
    text = env.get("AZURE_STORAGE_CONNECTION_STRING")
    if not text or env.get("AZURE_STORAGE_ACCOUNT_NAME"):
        return {}
    parts = dict(part.partition("=")[::2] for part in text.split(";") if "=" in part)
    names = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_key", "BlobEndpoint": "endpoint"}
    return {known: parts[name].rstrip("/") if known == "endpoint" else parts[name] for name, known in names.items() if parts.get(name)}
