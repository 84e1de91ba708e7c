"""Certificates of a server: the commands of the documentation make certificates that are accepted, and one that is not is explained."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from small_s3 import small_s3
from swift_server import clean_environment

DOCUMENT = Path(__file__).parents[3] / "docs" / "inputs.md"


def documented_commands() -> list[str]:
    section = DOCUMENT.read_text(encoding="utf-8").partition("### Certificates of your own")[2].partition("\n## ")[0]
    texts = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [text.replace("10.0.0.7", "127.0.0.1").replace("rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256") for text in texts]


def use(monkeypatch: pytest.MonkeyPatch, endpoint: str, bundle: Path) -> None:
    names = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null"}
    clean_environment(
        monkeypatch, {**names, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": endpoint, "AWS_CA_BUNDLE": str(bundle)}
    )


@pytest.mark.parametrize(("number", "bundle"), [(0, "server.pem"), (1, "ca.pem")])
def test_documented_commands_make_certificates_that_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, bundle: str
) -> None:
    subprocess.run(documented_commands()[number], shell=True, cwd=tmp_path, check=True, capture_output=True)
    with small_s3("bucket", certificate=tmp_path / "server.pem", key=tmp_path / "server.key") as server:
        use(monkeypatch, server.endpoint, tmp_path / bundle)
        objects = open_objects("s3://bucket/p")
        objects.write("a", b"1")
        assert [one.path for one in objects.list()] == ["a"]
        assert objects.read("a") == b"1"


def test_the_certificate_of_an_authority_is_refused_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = documented_commands()[0].replace("CA:FALSE", "CA:TRUE")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True)
    with small_s3("bucket", certificate=tmp_path / "server.pem", key=tmp_path / "server.key") as server:
        use(monkeypatch, server.endpoint, tmp_path / "server.pem")
        with pytest.raises(ObjectStoreError, match=r"an authority \(CA:TRUE\) as its own.*basicConstraints=critical,CA:FALSE"):
            open_objects("s3://bucket/p").head("a")
