"""An S3 server for tests that checks secrets, ranges and conditions: Swift with s3api, on loopback, for the duration of a ``with``.

Swift is installed in a virtual environment of its own, which $POSTRUN_SWIFT names (.ci/run makes it); tests skip without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

KEY, SECRET = "test:tester", "testing"
NO_RIGHTS = ("test:reader", "reading")
KEPT = ("test:keeper", "kept-quiet-0d5e1f")  # May do everything, and nobody else writes its secret


@dataclass(frozen=True, slots=True)
class SwiftServer:
    endpoint: str
    process: subprocess.Popen[str]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a program that uses it, without the user's settings."""
        nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"}
        return {**nowhere, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": self.endpoint, **more}

    def make_bucket(self, name: str) -> str:
        """-> its URL."""
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            name,
            config={
                "endpoint": f"{self.endpoint}/{name}",
                "virtual_hosted_style_request": True,
                "access_key_id": KEY,
                "secret_access_key": SECRET,
                "region": "us-east-1",
            },
            client_options={"allow_http": True},
        )
        signed = obstore.sign(store, "PUT", "", timedelta(minutes=5))
        with urllib.request.urlopen(urllib.request.Request(signed, method="PUT"), timeout=30) as answer:
            assert answer.status == 200
        return f"s3://{name}"

    def list_names(self, bucket: str, names: Sequence[str]) -> None:
        """The bucket lists these from now on; there is nothing to read behind them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"bucket": bucket, "names": list(names)}) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


def clean_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str] | None = None) -> None:
    """Nothing of the machine's own stores holds in this test, but ``environment``."""
    for name in os.environ:
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)


@contextmanager
def swift_server() -> Iterator[SwiftServer]:
    """Skips where Swift is not installed."""
    named = os.environ.get("POSTRUN_SWIFT")
    python = Path(named or "-") / "bin" / "python"
    if not python.is_file():
        pytest.skip("no Swift: $POSTRUN_SWIFT names no virtual environment with it (.ci/run makes one)")
    folder = Path(tempfile.mkdtemp(prefix="swift-"))
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [python, "-P", Path(__file__).with_name("swift_main.py"), folder, "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={"PATH": os.environ.get("PATH", ""), "TMPDIR": str(folder)},
        )
    try:
        assert process.stdout is not None
        word, _, port = process.stdout.readline().partition(" ")
        if word != "ready":
            log_lines = (folder / "errors").read_text(encoding="utf-8", errors="replace").splitlines()
            pytest.skip(f"Swift does not start: {log_lines[-1] if log_lines else 'no message'}")
        yield SwiftServer(f"http://127.0.0.1:{int(port)}", process)
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)
