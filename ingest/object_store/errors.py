"""Errors of a store for the user: one kind, and one message with the place and the next step; the store's own text is never shown.

That text may contain signed URLs and account names; only the HTTP status, the error code and the region are taken from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "exists", "changed", "missing", "bucket", "range", "secret", "expired", "clock", "region", "permission", "credentials", "host",
    "web identity", "network", "silent", "certificate", "authority", "http", "busy", "unsupported", "name", "too large", "other",
]  # fmt: skip

PASSING: Final[frozenset[Kind]] = frozenset({"host", "network", "busy"})  # Kinds that may be gone at the next try

_CODES: Final[dict[str, Kind]] = {
    "NoSuchKey": "missing", "BlobNotFound": "missing", "NoSuchVersion": "missing",
    "NoSuchBucket": "bucket", "ContainerNotFound": "bucket", "InvalidBucketName": "bucket", "InvalidResourceName": "bucket",
    "ContainerBeingDeleted": "bucket",
    "InvalidRange": "range",
    "SignatureDoesNotMatch": "secret", "InvalidAccessKeyId": "secret", "AuthenticationFailed": "secret", "InvalidSecurity": "secret",
    "NoAuthenticationInformation": "secret", "InvalidAuthenticationInfo": "secret", "InvalidToken": "expired",
    "ExpiredToken": "expired", "TokenRefreshRequired": "expired", "ExpiredTokenException": "expired",
    "RequestTimeTooSkewed": "clock", "RequestExpired": "clock",
    "AuthorizationHeaderMalformed": "region", "PermanentRedirect": "region", "TemporaryRedirect": "region",
    "IllegalLocationConstraintException": "region", "AuthorizationQueryParametersError": "region",
    "AccessDenied": "permission", "AllAccessDisabled": "permission", "AccountProblem": "permission", "AuthorizationFailure": "permission",
    "AuthorizationPermissionMismatch": "permission", "InsufficientAccountPermissions": "permission",
    "SlowDown": "busy", "InternalError": "busy", "ServiceUnavailable": "busy", "RequestTimeout": "busy", "ServerBusy": "busy",
    "OperationAborted": "busy", "ConditionalRequestConflict": "busy", "OperationTimedOut": "busy", "Throttling": "busy",
    "NotImplemented": "unsupported", "MethodNotAllowed": "unsupported",
    "PreconditionFailed": "changed", "ConditionNotMet": "changed", "BlobAlreadyExists": "exists",
    "EntityTooLarge": "too large", "KeyTooLongError": "name", "InvalidURI": "name",
}  # fmt: skip
_STATUS: Final[dict[int, Kind]] = {
    301: "region", 307: "region", 401: "secret", 403: "permission", 404: "missing", 408: "busy", 409: "busy", 412: "changed",
    413: "too large", 416: "range", 429: "busy", 501: "unsupported",
}  # fmt: skip
_WORDS: Final[tuple[tuple[str, Kind], ...]] = (
    (r"169\.254\.|latest/(?:api/token|meta-data)|[Aa]ccount must be|metadata\.google|fd00:ec2|/metadata/identity"
     r"|metadata endpoint|[Mm]issing.{0,20}credential|could not find.{0,40}credential"
     r"|[Cc]redential.{0,40}not found|No .{0,30}credentials", "credentials"),
    (r"CaUsedAsEndEntity", "authority"),  # of obstore's TLS, which OpenSSL accepts if the file of trusted authorities contains it
    (r"certificate|InvalidCertificate|UnknownIssuer|SSL", "certificate"),
    (r"dns error|failed to lookup address|Name or service not known|Temporary failure in name resolution|nodename nor servname|"
     r"No address associated", "host"),
    (r"URL scheme is not allowed|scheme not allowed|BadScheme|builder error for url", "http"),
    (r"timed out|TimedOut|[Tt]imeout|[Cc]onnection|tcp connect|error sending request|error decoding response body|IncompleteMessage|"
     r"IncompleteRead|[Uu]nexpected EOF|end of file before|channel closed|broken pipe|reset by peer|[Nn]etwork is unreachable|unreachable|"
     r"RemoteDisconnected|incomplete|HTTP error|not well-formed|request or response body error", "network"),
    (r"[Ii]nvalid range|Wanted range", "range"),
)  # fmt: skip
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>|\"(?:reason|code)\":\s*\"([A-Za-z]{3,60})\"")
_HTTP: Final = re.compile(r"status code: (\d{3})|\bstatus: (\d{3})|HTTP Error (\d{3})")
_REGION: Final = re.compile(r"<Region>([a-z0-9-]{3,30})</Region>|expecting '([a-z0-9-]{3,30})'")


@dataclass(frozen=True, slots=True)
class Trouble:
    kind: Kind
    status: int | None = None
    code: str | None = None
    region: str | None = None

    @property
    def passing(self) -> bool:
        return self.kind in PASSING


def trouble(error: BaseException | str, status: int | None = None) -> Trouble:
    """Classify an exception of obstore or urllib, or the text of a store's answer."""
    name = type(error).__name__
    text = error if isinstance(error, str) else str(error)
    http = _HTTP.search(text)
    if status is None and http:
        status = int(next(group for group in http.groups() if group))
    named = _CODE.search(text)
    code = (named[1] or named[2]) if named else None
    where = _REGION.search(text)
    region = (where[1] or where[2]) if where else None

    def of(kind: Kind) -> Trouble:
        return Trouble(kind, status, code, region)

    if name == "AlreadyExistsError" and code not in {"ConditionalRequestConflict", "OperationAborted"}:
        return of("exists")
    if name == "PreconditionError":
        return of("changed")
    if "No web identity credentials" in text:
        return of("web identity")
    if re.search(_WORDS[0][0], text):
        return of("credentials")
    if code in _CODES:
        return of(_CODES[code])
    if status is not None and status == 404 and "bucket does not exist" in text:
        return of("bucket")
    if status is not None and status in _STATUS:
        return of(_STATUS[status])
    if status is not None and status >= 500:
        return of("busy")
    if status is None:
        if name == "FileNotFoundError":
            return of("missing")
        if name == "PermissionDeniedError":
            return of("permission")
        if name == "UnauthenticatedError":
            return of("secret")
        if name in {"TimeoutError", "ConnectionResetError", "RemoteDisconnected", "IncompleteRead", "BadStatusLine", "ParseError"}:
            return of("network")
        for words, kind in _WORDS:
            if re.search(words, text):
                return of(kind)
    return of("other")


def message(problem: Trouble, place: str, root: str, server: str | None) -> str:
    """Return the place, the problem and the next step. ``root``: the bucket's URL."""
    bucket = root.split("://", 1)[-1].split("/", 1)[0]
    what = _SAY[problem.kind].format(
        bucket=bucket,
        server=server or "the store",
        endpoint=" and, where the store is not Amazon's, AWS_ENDPOINT_URL" if root.startswith("s3:") else " and the account",
        keys=_KEYS.get(root.split("://", 1)[0], "the credentials"),
        region=f"set AWS_REGION={problem.region}" if problem.region else "set AWS_REGION to the bucket's region",
    )
    answer = ", ".join(part for part in (f"HTTP {problem.status}" if problem.status else "", problem.code or "") if part)
    return f"{place}: {what}" + (f" ({answer})" if answer else "")


_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile in ~/.aws/credentials that AWS_PROFILE names",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_NO_CONNECTION: Final = "no connection to {server}, or it was cut off again and again; check the network, the proxy and the endpoint's URL"
_SAY: Final[dict[Kind, str]] = {
    "exists": "there already",
    "changed": "replaced since it was read; run again",
    "missing": "no such object; check the URL",
    "bucket": "there is no bucket {bucket} at {server}; check its name{endpoint}",
    "range": "shorter than expected; run again when it is written to no more",
    "secret": "the store refuses the credentials: key or secret is wrong; check {keys}",
    "expired": "the credentials have expired or their session token is wrong; renew them, then check {keys}",
    "clock": "the store refuses the request because this machine's clock is wrong; set it (timedatectl set-ntp true), then run again",
    "region": "the bucket {bucket} is in another region; {region}",
    "permission": "no permission for this with these credentials; ask the owner of {bucket} to let you list, read and, for output, write",
    "credentials": "no credentials found: neither in the environment and files nor as a role of this machine; set {keys}",
    "web identity": "no credentials for the token in AWS_WEB_IDENTITY_TOKEN_FILE; check that this file exists and is current, AWS_ROLE_ARN,"
    " the trust policy of this role, and the connection to AWS's Security Token Service",
    "host": "there is no such host: {server}; check the name in the endpoint's URL, and the network's name server",
    "network": _NO_CONNECTION,
    "silent": _NO_CONNECTION,
    "certificate": "the certificate of {server} is not trusted; name the file of its authority in AWS_CA_BUNDLE or SSL_CERT_FILE",
    "authority": "{server} uses the certificate of an authority (CA:TRUE) as its own, which is not accepted, even in AWS_CA_BUNDLE;"
    " create the server's certificate with CA:FALSE: openssl req -x509 -addext basicConstraints=critical,CA:FALSE ...",
    "http": "the endpoint is not encrypted (http://) and AWS_ALLOW_HTTP forbids that; give an https:// endpoint or set AWS_ALLOW_HTTP=true",
    "busy": "{server} answers with errors or asks to slow down, also after several tries; run again later",
    "unsupported": "{server} does not offer this operation; use a store that does, or another place for output",
    "name": "the store refuses this name; choose a shorter or plainer one",
    "too large": "too large for this store; choose another place",
    "other": "{server} refuses the request; check the URL and the rights of the credentials",
}
