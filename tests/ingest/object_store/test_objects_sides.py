"""The source and the output of a night with stores, keys and endpoints of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from call_nightly import nightly
from postrun.ingest.object_store.connect import connect
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.ingest.object_store.sides import environment_of
from postrun.ingest.object_store.urls import parse
from small_s3 import small_s3
from swift_server import clean_environment

NO_FILES = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
SOURCE = {"POSTRUN_SOURCE_AWS_ACCESS_KEY_ID": "reader", "POSTRUN_SOURCE_AWS_SECRET_ACCESS_KEY": "secret-9f2c-source"}
OUT = {"POSTRUN_OUT_AWS_ACCESS_KEY_ID": "writer", "POSTRUN_OUT_AWS_SECRET_ACCESS_KEY": "secret-9f2c-out"}


def values(side: str, **variables: str) -> dict[str, str]:
    return dict(environment_of(side, variables).values)  # type: ignore[arg-type]


def test_a_variable_of_a_side_replaces_the_plain_one_for_this_side_alone() -> None:
    variables = {"AWS_REGION": "a", "POSTRUN_OUT_AWS_REGION": "b", "AWS_CA_BUNDLE": "c"}
    for side, region in (("source", "a"), ("out", "b")):
        actual = values(side, **variables)
        assert (actual["AWS_REGION"], actual["AWS_CA_BUNDLE"]) == (region, "c")


def test_credentials_and_endpoints_are_replaced_as_a_whole() -> None:
    """A key of one side is never used with a token or an endpoint of another."""
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t", "AWS_PROFILE": "p"}
    actual = values("out", **keys, **OUT)
    assert (actual["AWS_ACCESS_KEY_ID"], actual["AWS_SECRET_ACCESS_KEY"]) == ("writer", "secret-9f2c-out")
    assert "AWS_SESSION_TOKEN" not in actual
    assert "AWS_PROFILE" not in actual
    endpoint = {"AWS_ENDPOINT_URL_S3": "https://a", "POSTRUN_OUT_AWS_ENDPOINT_URL": "https://b"}
    assert "AWS_ENDPOINT_URL_S3" not in values("out", **endpoint)
    assert values("out", **endpoint, AWS_PROFILE="p")["AWS_PROFILE"] == "p"
    profile = values("out", **keys, AWS_ENDPOINT_URL="https://a", AWS_REGION="r", AWS_CA_BUNDLE="c", POSTRUN_OUT_AWS_PROFILE="mine")
    of_aws = {name: value for name, value in profile.items() if name.startswith("AWS_")}
    assert of_aws == {"AWS_PROFILE": "mine", "AWS_CA_BUNDLE": "c"}
    azure = values("out", AZURE_STORAGE_ACCOUNT_KEY="k", AZURE_STORAGE_ACCOUNT_NAME="n", POSTRUN_OUT_AZURE_STORAGE_ACCOUNT_NAME="m")
    assert "AZURE_STORAGE_ACCOUNT_KEY" not in azure


def test_a_night_between_two_stores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "mm", "pid": 1, "tid": 1, "ts": 1_700_000_000_000_000, "dur": 20}]}
    with small_s3("runs", keys={"reader"}) as source, small_s3("reports", keys={"writer"}) as out:
        source.buckets["runs"]["job/trace.json"] = json.dumps(trace).encode()
        endpoints = {"POSTRUN_SOURCE_AWS_ENDPOINT_URL": source.endpoint, "POSTRUN_OUT_AWS_ENDPOINT_URL": out.endpoint}
        clean_environment(monkeypatch, {**NO_FILES, **SOURCE, **OUT, **endpoints})
        done = nightly("s3://runs", "--out", "s3://reports/n", "--format", "json", "--workers", "1", "--settle", "0")
        assert done.exit_code == 0, done.output
        assert "unknown" not in done.output
        assert (source.seen, out.seen) == ({"reader"}, {"writer"})
        assert {"n/index.html", "n/runs/job/done.json"} <= out.buckets["reports"].keys()
        written = b"".join(out.buckets["reports"].values()) + done.output.encode()
        assert b"secret-9f2c" not in written
        assert sorted(source.buckets["runs"]) == ["job/trace.json"]


def test_messages_name_the_variables_of_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_s3("bucket", keys={"other"}) as server:
        clean_environment(monkeypatch, {**NO_FILES, **OUT, "AWS_ENDPOINT_URL": server.endpoint})
        with pytest.raises(ObjectStoreError, match="check POSTRUN_OUT_AWS_ACCESS_KEY_ID and POSTRUN_OUT_AWS_SECRET_ACCESS_KEY") as raised:
            list(open_objects("s3://bucket", side="out").list())
        assert "secret-9f2c" not in str(raised.value)
        monkeypatch.delenv("POSTRUN_OUT_AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of another")
        with pytest.raises(ObjectStoreError, match="AWS_SECRET_ACCESS_KEY is missing"):
            open_objects("s3://bucket", side="out")


def test_wrong_settings_are_those_of_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, {"POSTRUN_OUT_GOOGLE_SERVICE_ACCOUNT_KEY": "{hidden"})
    with pytest.raises(ObjectStoreError, match=r"check the environment variables POSTRUN_OUT_GOOGLE_\*$"):
        connect(parse("gs://bucket/x"), "out")


def test_a_connection_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, {**NO_FILES, **OUT})
    assert "secret-9f2c" not in repr(connect(parse("s3://bucket/x"), "out"))


def test_what_obstore_would_combine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore reads the plain variables of the process itself."""
    azure = {"POSTRUN_OUT_AZURE_STORAGE_ACCOUNT_NAME": "me", "POSTRUN_OUT_AZURE_STORAGE_ACCOUNT_KEY": "aGlkZGVuPT0="}
    clean_environment(monkeypatch, azure)
    config = connect(parse("az://container/x"), "out").once.config
    assert (config["account_name"], config["account_key"]) == ("me", "aGlkZGVuPT0=")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "hidden")
    with pytest.raises(ObjectStoreError, match="name it POSTRUN_SOURCE_AZURE_STORAGE_SAS_TOKEN"):
        connect(parse("az://container/x"), "out")
