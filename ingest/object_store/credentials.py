"""AWS credentials, region and endpoint, in the order of the AWS tools: environment, the profile in ~/.aws, the node.

obstore itself reads the keys of the environment; the files of profiles are read here, and roles in roles.py and web_identity.py.
"""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from . import roles, web_identity
from .objects import ObjectStoreError
from .sides import AWS_KEYS

_TOKEN_FILE: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"
_REREAD: Final = timedelta(minutes=5)  # How long credentials of a file are used before it is read again: other tools renew them in there
_EARLY: Final = timedelta(minutes=1)  # How long before they expire credentials are renewed
_EXPORT: Final = 'first run: eval "$(aws configure export-credentials --profile {profile} --format env)"'
_EXPORT_OF_SIDE: Final = "name a profile with credential_process = aws configure export-credentials --profile {profile}"

Provider = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Aws:
    """``provider``: None if obstore reads the keys of the environment. It contains no secret, so it may be shown."""

    region: str
    endpoint: str | None
    virtual_hosted: bool
    anonymous: bool
    allow_http: bool
    certificates: Path | None
    provider: Provider | None = field(repr=False)


def aws(variables: Mapping[str, str], own_names: Set[str] = frozenset()) -> Aws:
    """Return the settings for S3; ObjectStoreError for a missing or unusable profile.

    ``own_names``: variables of one side of a night, which obstore cannot read from this process's environment by these names."""
    env = {name: value for name, value in variables.items() if value}
    named = env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE")
    profile = _profile(env, named or "default")
    anonymous = _true(env.get("AWS_SKIP_SIGNATURE"))
    stated = anonymous or "AWS_ACCESS_KEY_ID" in env or _TOKEN_FILE in env
    if named and not profile and not stated:
        raise ObjectStoreError(
            f"AWS_PROFILE: there is no profile {named} in {_file(env, 'config')} or {_file(env, 'credentials')}; write it there"
        )
    provider = None if stated else _provider(env, named or "default", profile, own_names)
    if not anonymous and provider is None:
        # Otherwise, an empty variable is a key, and the role of the node is used if only one of them is set.
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        for name in keys:
            if name not in env and (name in variables or any(key in env for key in keys)):
                raise ObjectStoreError(
                    f"{name} is {'empty' if name in variables else 'missing'}; set {keys[0]} and {keys[1]}, or none of them"
                )
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or profile.get("region") or "us-east-1"
    bundle = env.get("AWS_CA_BUNDLE") or profile.get("ca_bundle")
    certificates = Path(bundle).expanduser() if bundle else None
    if not stated and provider is None:
        provider = _kept(lambda: roles.credentials(env))
    elif _TOKEN_FILE in env and "AWS_ACCESS_KEY_ID" not in env and not anonymous:
        if "AWS_ROLE_ARN" not in env:
            raise ObjectStoreError(f"AWS_ROLE_ARN is missing; name the role of the token in {_TOKEN_FILE}")
        provider = _kept(lambda: web_identity.credentials(env, region, certificates))
    if own_names & set(AWS_KEYS) and not anonymous:
        provider = partial(_of_variables, env)
    endpoint = (
        env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or env.get("AWS_ENDPOINT")
        or _of_services(env, profile) or profile.get("endpoint_url")
    )  # fmt: skip
    return Aws(
        region=region,
        endpoint=endpoint.rstrip("/") if endpoint else None,
        virtual_hosted=_true(env.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")),
        anonymous=anonymous,
        # An endpoint with http:// is used, as by the AWS tools; AWS_ALLOW_HTTP=false forbids it.
        allow_http=_true(env.get("AWS_ALLOW_HTTP", "true")),
        certificates=certificates,
        provider=provider,
    )


def _kept(provider: Provider) -> Provider:
    """Call ``provider`` again only when its credentials expire.

    Each page of a listing needs them."""
    known: dict[str, Any] = {}
    lock = threading.Lock()

    def credentials() -> dict[str, Any]:
        with lock:
            if not known or known["expires_at"] - _EARLY <= datetime.now(UTC):
                known.update(provider())
            return dict(known)

    return credentials


def _true(value: str | None) -> bool:
    return (value or "").strip().lower() in {"1", "true", "yes", "on", "y"}


def _file(env: Mapping[str, str], kind: str) -> Path:
    variable = "AWS_CONFIG_FILE" if kind == "config" else "AWS_SHARED_CREDENTIALS_FILE"
    return Path(env.get(variable) or f"~/.aws/{kind}").expanduser()


def _profile(env: Mapping[str, str], name: str) -> dict[str, str]:
    """Return a profile's settings in both files; the credentials file comes first."""
    settings: dict[str, str] = {}
    for kind, section in (("config", name if name == "default" else f"profile {name}"), ("credentials", name)):
        parser = _parsed(_file(env, kind))
        for wanted in (section, f"profile {name}"):
            if parser.has_section(wanted):
                settings.update({key: value.strip() for key, value in parser.items(wanted) if value})
                break
    return settings


def _parsed(path: Path) -> configparser.ConfigParser:
    """Return the sections of a file; none if there is no such file."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="\0", delimiters=("=",))
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_file(file)
    except PermissionError:
        raise ObjectStoreError(
            f"{path}: no permission to read it; correct its permissions, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    except OSError:
        pass
    except (configparser.Error, UnicodeDecodeError):
        # The parser's message contains the line, which may be a secret.
        raise ObjectStoreError(f"{path}: not written as [profile] and name = value; correct it") from None
    return parser


def _of_services(env: Mapping[str, str], profile: Mapping[str, str]) -> str | None:
    """Return the endpoint of S3 in the section of services that a profile names.

    There, it is an indented line below ``s3 =``."""
    lines = _parsed(_file(env, "config")).get(f"services {profile.get('services')}", "s3", fallback="").splitlines()
    settings = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    return settings.get("endpoint_url")


def _provider(env: Mapping[str, str], name: str, profile: Mapping[str, str], own_names: Set[str]) -> Provider | None:
    if profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"):
        return lambda: _static(name, _profile(env, name))
    if command := profile.get("credential_process"):
        return _kept(lambda: _from_process(name, command))
    if any(key.startswith("sso_") or key == "role_arn" for key in profile):
        advice = (_EXPORT_OF_SIDE if "AWS_PROFILE" in own_names else _EXPORT).format(profile=shlex.quote(name))
        raise ObjectStoreError(f"the AWS profile {name} takes a role or a single sign-on, which is not done here; {advice}")
    if _true(env.get("AWS_EC2_METADATA_DISABLED")) and not roles.is_container(env):
        raise ObjectStoreError(
            "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with a profile in ~/.aws/credentials"
        )
    return None


def _of_variables(env: Mapping[str, str]) -> dict[str, Any]:
    id_name, secret_name, token_name = AWS_KEYS
    return {"access_key_id": env[id_name], "secret_access_key": env[secret_name], "token": env.get(token_name), "expires_at": None}


def _static(name: str, profile: Mapping[str, str]) -> dict[str, Any]:
    try:
        return {
            "access_key_id": profile["aws_access_key_id"],
            "secret_access_key": profile["aws_secret_access_key"],
            "token": profile.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _REREAD,
        }
    except KeyError:
        raise ObjectStoreError(f"the AWS profile {name} has no credentials any more; write them to ~/.aws/credentials") from None


def _from_process(name: str, command: str) -> dict[str, Any]:
    """Run the program of a profile, whose output the AWS tools define."""
    failed = f"the AWS profile {name}: its credential_process"
    try:
        done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ObjectStoreError(f"{failed} cannot be run ({type(error).__name__}); run it by hand") from None
    if done.returncode:
        raise ObjectStoreError(f"{failed} ends with {done.returncode}; run it by hand")
    try:
        answer = json.loads(done.stdout)
        expires = datetime.fromisoformat(answer["Expiration"]) if answer.get("Expiration") else datetime.now(UTC) + _REREAD
        return {
            "access_key_id": str(answer["AccessKeyId"]),
            "secret_access_key": str(answer["SecretAccessKey"]),
            "token": answer.get("SessionToken"),
            "expires_at": expires if expires.tzinfo else expires.replace(tzinfo=UTC),
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ObjectStoreError(f"{failed} does not print credentials as JSON; run it by hand") from None
