"""Tests for the places of an object store's settings, and that no message contains a secret."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from postrun.ingest.object_store import connect as object_connect
from postrun.ingest.object_store.credentials import Aws, aws
from postrun.ingest.object_store.errors import message, trouble
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.ingest.object_store.urls import parse
from swift_server import clean_environment

KEYS = {"AWS_ACCESS_KEY_ID": "ID", "AWS_SECRET_ACCESS_KEY": "SECRET"}


def test_the_endpoint_of_a_services_section(tmp_path: Path) -> None:
    config = (
        "[profile a]\nservices = lab\nendpoint_url = https://all\n[profile b]\nendpoint_url = https://all\n"
        "[services lab]\ns3 =\n  signature_version = x\n  endpoint_url = https://s3.lab/\nsts =\n  endpoint_url = https://sts.lab\n"
    )
    assert settings(tmp_path, config, "", AWS_PROFILE="a", **KEYS).endpoint == "https://s3.lab"
    assert settings(tmp_path, config, "", AWS_PROFILE="b", **KEYS).endpoint == "https://all"
    assert settings(tmp_path, config, "", AWS_PROFILE="a", AWS_ENDPOINT_URL="https://env", **KEYS).endpoint == "https://env"


def settings(tmp_path: Path, config: str = "", credentials: str = "", **env: str) -> Aws:
    for name, text in (("config", config), ("credentials", credentials)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    return aws({**files, "AWS_EC2_METADATA_DISABLED": "true", **env})


DEFAULT = "[default]\naws_access_key_id=D\naws_secret_access_key=DS\n"


def test_the_environment_goes_before_the_profile(tmp_path: Path) -> None:
    actual = settings(tmp_path, "[default]\nregion=eu-west-1\n", DEFAULT, **KEYS)
    assert actual.provider is None  # obstore reads the environment
    assert actual.region == "eu-west-1"
    assert settings(tmp_path, "[default]\nregion=eu-west-1\n", DEFAULT, AWS_REGION="us-west-2").region == "us-west-2"
    assert settings(tmp_path, "[default]\nregion=eu-west-1\n", DEFAULT, AWS_DEFAULT_REGION="us-west-2").region == "us-west-2"
    assert settings(tmp_path, "", "", AWS_PROFILE="not there", **KEYS).provider is None


def test_profiles(tmp_path: Path) -> None:
    config = "[default]\nregion=a\n[profile team]\nregion = b\nendpoint_url = https://s3.example\ns3 =\n  addressing_style = path\n"
    credentials = DEFAULT + "[team]\naws_access_key_id = T\naws_secret_access_key = TS%x=y\naws_session_token = TT\n"
    default = settings(tmp_path, config, credentials)
    assert default.provider is not None
    assert default.region == "a"
    keys = default.provider()
    assert (keys["access_key_id"], keys["secret_access_key"], keys["token"]) == ("D", "DS", None)
    team = settings(tmp_path, config, credentials, AWS_PROFILE="team")
    assert (team.region, team.endpoint) == ("b", "https://s3.example")
    assert team.provider is not None
    keys = team.provider()
    assert (keys["access_key_id"], keys["secret_access_key"], keys["token"]) == ("T", "TS%x=y", "TT")
    assert "TS" not in repr(team)
    # Renewed while a night runs: read again.
    (tmp_path / "credentials").write_text(credentials.replace("TS%x=y", "renewed"), encoding="utf-8")
    assert team.provider()["secret_access_key"] == "renewed"


def test_a_program_that_gives_credentials(tmp_path: Path) -> None:
    answer = {"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "PS", "SessionToken": "PT", "Expiration": "2031-01-01T00:00:00Z"}
    script = tmp_path / "give.py"
    script.write_text(f"print('''{json.dumps(answer)}''')", encoding="utf-8")
    config = f"[default]\ncredential_process = {sys.executable} {script}\n"
    actual = settings(tmp_path, config)
    assert actual.provider is not None
    credentials = actual.provider()
    assert (credentials["access_key_id"], credentials["token"], credentials["expires_at"].year) == ("P", "PT", 2031)
    script.write_text("print('SECRET'); raise SystemExit(3)", encoding="utf-8")
    assert actual.provider() == credentials  # until they expire, as each page of a listing needs them
    actual = settings(tmp_path, config)
    assert actual.provider is not None
    with pytest.raises(ObjectStoreError, match="credential_process ends with 3; run it by hand") as raised:
        actual.provider()
    assert "SECRET" not in str(raised.value)
    script.write_text("print('SECRET')", encoding="utf-8")
    with pytest.raises(ObjectStoreError, match="does not print credentials as JSON") as raised:
        actual.provider()
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "credentials", "env", "expected"),
    [
        ("", "", {}, "no AWS credentials: set AWS_ACCESS_KEY_ID"),
        ("", "", {"AWS_ACCESS_KEY_ID": "x"}, "AWS_SECRET_ACCESS_KEY is missing; set"),
        ("", "", {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY is empty; set"),
        (
            "",
            "",
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": ""},
            "AWS_ACCESS_KEY_ID is empty; set",
        ),
        ("", "", {"AWS_PROFILE": "nobody"}, "there is no profile nobody in"),
        ("[default]\nrole_arn = x\nsource_profile = y\n", "", {}, "export-credentials --profile default"),
        ("[profile a b]\nsso_session = x\n", "", {"AWS_PROFILE": "a b"}, "export-credentials --profile 'a b'"),
        ("", "[default]\nhidden-secret\n", {}, r"credentials: not written as \[profile\]"),
        ("", "", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/x"}, "AWS_ROLE_ARN is missing; name the role of the token"),
        ("hidden = secret\n", "", {}, r"config: not written as \[profile\]"),
    ],
)
def test_settings_that_cannot_hold(tmp_path: Path, config: str, credentials: str, env: dict[str, str], expected: str) -> None:
    with pytest.raises(ObjectStoreError, match=expected) as raised:
        settings(tmp_path, config, credentials, **env)
    assert "secret\n" not in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_where_credentials_come_from(tmp_path: Path) -> None:
    container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1/x"}
    assert settings(tmp_path, **container).provider is not None
    assert settings(tmp_path, AWS_EC2_METADATA_DISABLED="false").provider is not None
    assert settings(tmp_path, AWS_WEB_IDENTITY_TOKEN_FILE="/x", AWS_ROLE_ARN="y").provider is not None
    assert settings(tmp_path, AWS_WEB_IDENTITY_TOKEN_FILE="/x", AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s").provider is None
    assert settings(tmp_path, AWS_SKIP_SIGNATURE="true").anonymous


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, "https://s3.us-east-1.amazonaws.com/bucket"),
        ({"AWS_REGION": "eu-central-1", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}, "https://bucket.s3.eu-central-1.amazonaws.com"),
        ({"AWS_REGION": "cn-north-1"}, "https://s3.cn-north-1.amazonaws.com.cn/bucket"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000/"}, "http://minio:9000/bucket"),
        ({"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_S3": "https://b/"}, "https://b/bucket"),
        ({"AWS_ENDPOINT_URL": "https://bucket.x.org", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}, "https://bucket.x.org"),
    ],
)
def test_where_requests_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], url: str) -> None:
    clean_environment(monkeypatch, {**KEYS, "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", **env})
    connection = object_connect.connect(parse("s3://bucket/x"))
    assert connection.once.config["endpoint"] == url
    assert connection.atomic == ("amazonaws" in url)


def test_settings_of_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch)
    with pytest.raises(ObjectStoreError, match=r"az://container/x: the settings of the store cannot be used.*AZURE_\*"):
        open_objects("az://container/x")
    text = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=aGlkZGVuPT0=;EndpointSuffix=core.windows.net"
    clean_environment(monkeypatch, {"AZURE_STORAGE_CONNECTION_STRING": text})
    connection = object_connect.connect(parse("az://container/x"))
    assert connection.once.config["account_name"] == "me"
    assert connection.once.config["account_key"] == "aGlkZGVuPT0="
    clean_environment(monkeypatch, {"GOOGLE_SERVICE_ACCOUNT_KEY": "hidden {not json"})
    with pytest.raises(ObjectStoreError, match=r"gs://bucket: the settings of the store cannot be used.*GOOGLE_\*") as raised:
        open_objects("gs://bucket")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code></Error>", "clock", "this machine's clock is wrong; set it"),
        ("status code: 403: <Error><Code>InvalidAccessKeyId</Code></Error>", "secret", "key or secret is wrong"),
        ("status code: 400: <Error><Code>ExpiredToken</Code></Error>", "expired", "expired"),
        ("status code: 301: <Error><Code>PermanentRedirect</Code></Error>", "region", "set AWS_REGION to the bucket's region"),
        ("<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region>", "region", "set AWS_REGION=eu-west-3"),
        ("status code: 503: <Code>SlowDown</Code>", "busy", "slow down"),
        ("status code: 429 Too Many Requests", "busy", "slow down"),
        ("status code: 404: <Code>ContainerNotFound</Code>", "bucket", "no bucket bucket"),
        ("Error performing PUT http://169.254.169.254/latest/api/token in 1s - connection refused", "credentials", "no credentials found"),
        ("error trying to connect: dns error: failed to lookup address information", "host", "no such host"),
        ("invalid peer certificate: UnknownIssuer", "certificate", "AWS_CA_BUNDLE"),
        ("InvalidCertificate(Other(OtherError(CaUsedAsEndEntity)))", "authority", "basicConstraints=critical,CA:FALSE"),
        ("operation timed out", "network", "no connection"),
        ("something new", "other", "refuses the request"),
    ],
)
def test_errors_that_no_server_here_gives(text: str, kind: str, words: str) -> None:
    """Only code, status and region of the stores' messages remain."""
    reason = trouble(Exception(f"{text} https://x/?X-Amz-Signature=hidden"))
    assert reason.kind == kind
    answer = message(reason, "s3://bucket/x", "s3://bucket", "s3.example")
    assert words in answer
    assert "hidden" not in answer
    assert answer.startswith("s3://bucket/x: ")
