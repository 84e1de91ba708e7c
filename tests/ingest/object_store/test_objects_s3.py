"""Tests against an S3 server: wrong secrets, missing buckets, hostile names, many objects, a bad network."""

from __future__ import annotations

import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from faulty_proxy import KINDS, FaultyProxy, faulty_proxy
from postrun.ingest.object_store import connect as object_connect
from postrun.ingest.object_store import tries
from postrun.ingest.object_store.objects import ChangedError, Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from swift_server import KEY, NO_RIGHTS, SECRET, SwiftServer, clean_environment, swift_server

Setting = Callable[..., None]


@pytest.fixture(scope="module")
def swift() -> Iterator[SwiftServer]:
    with swift_server() as server:
        server.make_bucket("bucket")
        yield server


@pytest.fixture
def setting(swift: SwiftServer, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Sets the environment for the server, changed by what is given; waits are short."""
    monkeypatch.setattr(tries, "FIRST_WAIT_S", 0.005)
    monkeypatch.setattr(object_connect, "_PATIENT", {"max_retries": 2})
    clean_environment(monkeypatch, swift.environment())

    def change(**changes: str) -> None:
        environment = swift.environment(**changes)
        clean_environment(monkeypatch, {name: value for name, value in environment.items() if value})

    return change


@pytest.fixture
def objects(setting: Setting) -> Objects:
    return open_objects(f"s3://bucket/test-{time.monotonic_ns()}")


ACTIONS: dict[str, Callable[[Objects], object]] = {
    "list": lambda objects: list(objects.list()),
    "head": lambda objects: objects.head("x"),
    "read": lambda objects: objects.read("x"),
    "write": lambda objects: objects.write("x", b"data"),
    "create": lambda objects: objects.create("x", b"data"),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong-hidden"}, "refuses the credentials: key or secret is wrong; check AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "nobody-hidden"}, "refuses the credentials: key or secret is wrong; check AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": NO_RIGHTS[0], "AWS_SECRET_ACCESS_KEY": NO_RIGHTS[1]}, "no permission for this"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "no connection to 127.0.0.1:9"),
        ({"AWS_ENDPOINT_URL": "http://no-such-host.invalid"}, "there is no such host: no-such-host.invalid"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "false"}, "not encrypted .* allow it"),
        ({"AWS_ENDPOINT_URL": "https://127.0.0.1:{port}"}, "no connection to 127.0.0.1|certificate of 127.0.0.1"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:{port}"}, "the endpoint of S3 is no URL"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no AWS credentials: set AWS_ACCESS_KEY_ID"),
        (
            {
                "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": "",
                "AWS_EC2_METADATA_DISABLED": "",
                "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
            },
            "no credentials found: neither in the environment and files nor as a role",
        ),
        ({"AWS_REGION": "mars-1"}, "set AWS_REGION=us-east-1"),
    ],
)
def test_what_is_wrong_is_told_whatever_is_asked(
    setting: Setting, swift: SwiftServer, changes: dict[str, str], message: str, action: str
) -> None:
    setting(**{name: value.format(port=urlsplit(swift.endpoint).port) for name, value in changes.items()})
    with pytest.raises(ObjectStoreError, match=message) as raised:
        ACTIONS[action](open_objects("s3://bucket/prefix"))
    error = str(raised.value)
    assert error.startswith("s3://bucket/prefix")
    for secret in (SECRET, "hidden", "X-Amz", "Signature="):
        assert secret not in error
    assert "\n" not in error


@pytest.mark.parametrize("action", ACTIONS)
def test_a_missing_bucket(setting: Setting, action: str) -> None:
    with pytest.raises(ObjectStoreError, match=r"^s3://nowhere/prefix.*: there is no bucket nowhere at 127.0.0.1:\d+; check its name"):
        ACTIONS[action](open_objects("s3://nowhere/prefix"))


def test_the_prefix_of_a_bucket_bounds_what_is_seen(objects: Objects) -> None:
    objects.write("a", b"1")
    open_objects(objects.url + "-other").write("a", b"2")
    assert [one.path for one in objects.list()] == ["a"]
    bucket = open_objects("s3://bucket")
    assert bucket.read(objects.url.removeprefix("s3://bucket/") + "/a") == b"1"


def test_ten_thousand_other_objects(swift: SwiftServer, setting: Setting) -> None:
    swift.make_bucket("many")
    names = [f"p/other/{number:06d}.bin" for number in range(10_000)]
    swift.list_names("many", [*names, "p/zz/last"])
    objects = open_objects("s3://many/p")
    objects.write("a/first", b"1")
    objects.write("other/005000.x", b"2")
    listed = [one.path for one in objects.list()]
    assert listed == sorted(["a/first", "other/005000.x", "zz/last", *(name.removeprefix("p/") for name in names)])
    assert [one.path for one in objects.list(after="other/009998.bin")] == ["other/009999.bin", "zz/last"]
    assert [one.path for one in objects.list("z")] == ["zz/last"]
    lazily = objects.list(after="other/000041.bin")
    assert next(lazily).path == "other/000042.bin"


HOSTILE = [
    "p//x", "p//", "p/a//b", "p/../../etc/passwd", "p/a/../b", "p/./x", "p/new\nline", "p/tab\t", "p/\x7f", "p/.", "p/..",
    "p/control\u0085", "/p/x", "//", "../x", "p/nothing\r",
]  # fmt: skip


def test_names_that_no_file_can_have(swift: SwiftServer, setting: Setting) -> None:
    """They are listed next to good ones and do not end the listing."""
    swift.make_bucket("hostile")
    swift.list_names("hostile", [*HOSTILE, "p/folder/", "p/", "p"])
    objects = open_objects("s3://hostile/p")
    good = ["folder/x", "x", "x+y %20", "ümlaut", "\U0001f600/&<>\"'"]
    for name in good:
        objects.write(name, name.encode())
    assert [one.path for one in objects.list()] == sorted(good, key=str.encode)
    below = [name for name in HOSTILE if name.startswith("p/")]
    assert len(objects.left_out) == len(below) + 2  # and the markers of folders, which have a size here
    assert all(line.isprintable() and line.startswith("s3://hostile/p/") for line in objects.left_out)
    bucket = open_objects("s3://hostile")
    assert [one.path for one in bucket.list()] == ["p", *(f"p/{name}" for name in sorted(good, key=str.encode))]


def test_what_is_listed_but_gone(swift: SwiftServer, objects: Objects, tmp_path: Path) -> None:
    swift.list_names("bucket", [objects.url.removeprefix("s3://bucket/") + "/gone"])
    (info,) = objects.list()
    assert objects.head("gone") is None
    with pytest.raises(ChangedError, match="removed since it was listed"):
        objects.download(info, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_credentials_of_a_profile(swift: SwiftServer, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, signed listing included, without a secret in the environment."""
    (tmp_path / "credentials").write_text(f"[nightly]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n", encoding="utf-8")
    (tmp_path / "config").write_text(f"[profile nightly]\nregion = us-east-1\nendpoint_url = {swift.endpoint}/\n", encoding="utf-8")
    clean_environment(
        monkeypatch,
        {
            "AWS_PROFILE": "nightly",
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        },
    )
    objects = open_objects("s3://bucket/profile")
    objects.write("a", b"1")
    assert [one.path for one in objects.list()] == ["a"]
    assert objects.read("a") == b"1"


# ------------------------------------------------------------------ a bad network


@pytest.fixture
def proxy(swift: SwiftServer, setting: Setting) -> Iterator[FaultyProxy]:
    with faulty_proxy(swift.endpoint, seed=7) as proxy:
        setting(AWS_ENDPOINT_URL=proxy.endpoint)
        yield proxy


def test_five_of_a_hundred_requests_fail_and_every_answer_is_right(proxy: FaultyProxy, objects: Objects, tmp_path: Path) -> None:
    chance = random.Random(3)
    model: dict[str, bytes] = {}
    objects = open_objects(objects.url)
    proxy.next_faults = [fault for kind in KINDS for fault in (kind, *[""] * 6)]  # each kind at least once
    proxy.share = 0.05
    etags: dict[str, str | None] = {}
    for number in range(80):
        name = f"d{chance.randrange(3)}/f{chance.randrange(6)}"
        data = b"%d " % number * chance.choice([1, 1000, 100_000])
        match chance.choice(["write", "write", "create", "replace", "delete", "read", "download", "list"]):
            case "write":
                etags[name], model[name] = objects.write(name, data), data
            case "create":
                assert objects.create(name, data) == (name not in model)
                model.setdefault(name, data)
            case "replace" if name in model:
                now = objects.head(name)
                assert now is not None
                assert objects.replace(name, data, now.etag)
                assert not objects.replace(name, b"never", now.etag)
                model[name] = data
            case "delete":
                objects.delete(name)
                model.pop(name, None)
            case "read" if name in model:
                assert objects.read(name) == model[name]
            case "download" if name in model:
                now = objects.head(name)
                assert now is not None
                objects.download(now, tmp_path / "target")
                assert (tmp_path / "target").read_bytes() == model[name]
            case "list":
                assert [(one.path, one.size) for one in objects.list()] == [(name, len(model[name])) for name in sorted(model)]
            case _:
                assert (objects.head(name) is None) == (name not in model)
    assert set(proxy.seen) == {"", *KINDS}


def test_a_download_goes_on_where_it_was_cut_off(proxy: FaultyProxy, objects: Objects, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(6 << 20)
    objects.write("large", data)
    info = objects.head("large")
    assert info is not None
    proxy.next_faults = ["cut body", "503", "cut body", "lost answer", "cut body"]
    steps: list[int] = []
    objects.download(info, tmp_path / "target", progress=steps.append)
    assert (tmp_path / "target").read_bytes() == data
    assert steps == sorted(set(steps))
    assert proxy.next_faults == []


def test_an_object_that_is_replaced_while_its_download_is_cut_off(proxy: FaultyProxy, objects: Objects, tmp_path: Path) -> None:
    objects.write("grows", b"a" * (4 << 20))
    info = objects.head("grows")
    assert info is not None
    proxy.next_faults = ["half a body"]
    replaced = False

    def replace(done: int) -> None:
        nonlocal replaced
        if not replaced:
            replaced = True
            objects.write("grows", b"b" * (5 << 20))

    with pytest.raises(ChangedError, match="grows: replaced, changed or removed"):
        objects.download(info, tmp_path / "target", progress=replace)
    assert replaced
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", ["lost answer", "error after"])
def test_a_conditional_write_whose_answer_is_lost_is_ours(proxy: FaultyProxy, objects: Objects, fault: str) -> None:
    """The server wrote, the repeated request is refused, and the content is ours."""
    proxy.next_faults = [fault]
    assert objects.create("claim", b"mine")
    proxy.next_faults = [fault]
    assert not objects.create("claim", b"other")
    assert objects.read("claim") == b"mine"


@pytest.mark.parametrize(
    ("fault", "message"), [("500", "answers with errors"), ("503", "asks to slow down"), ("lost request", "no connection|cut off")]
)
def test_errors_that_do_not_pass_are_told(proxy: FaultyProxy, objects: Objects, fault: str, message: str) -> None:
    for action in ACTIONS.values():
        proxy.next_faults = [fault] * 1000
        with pytest.raises(ObjectStoreError, match=message):
            action(objects)
        assert len(proxy.next_faults) < 1000 - 2  # it was tried again
        proxy.next_faults = []


def test_a_signed_link_opens_one_object_without_credentials(objects: Objects) -> None:
    objects.write("runs/a b/report.html", b"the report")
    link = objects.signed("runs/a b/report.html", 3600)
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.read() == b"the report"
    assert SECRET not in link
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(link.replace("report.html", "other.html"), timeout=30)
