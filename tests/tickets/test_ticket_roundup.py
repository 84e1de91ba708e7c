"""A real Roundup accepts the report: its own server code in a separate process. $POSTRUN_ROUNDUP is a virtual environment with it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from postrun.tickets import systems
from postrun.tickets.http import HttpError, Options, Upload
from postrun.tickets.message import from_report
from postrun.tickets.roundup import Roundup
from postrun.tickets.settings import Settings
from postrun.tickets.target import parse
from ticket_fakes import report_json

pytestmark = pytest.mark.slow

SERVE = """
import sys
from wsgiref.simple_server import make_server, WSGIRequestHandler
from roundup.cgi.wsgi_handler import RequestDispatcher
WSGIRequestHandler.log_message = lambda *_: None
make_server("127.0.0.1", int(sys.argv[2]), RequestDispatcher(sys.argv[1])).serve_forever()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = os.environ.get("POSTRUN_ROUNDUP")
    if not path or not (Path(path) / "bin" / "roundup-admin").is_file():
        pytest.skip("no Roundup (python -m venv DIR; DIR/bin/pip install roundup==2.6.0; POSTRUN_ROUNDUP=DIR)")
    home = tmp_path_factory.mktemp("roundup") / "tracker"
    admin = [f"{path}/bin/roundup-admin", "-i", str(home)]
    subprocess.run([*admin, "install", "classic", "sqlite"], check=True, capture_output=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    config = (home / "config.ini").read_text(encoding="utf-8")
    config = config.replace("#web = NO DEFAULT", f"web = http://127.0.0.1:{port}/").replace("#host = NO DEFAULT", "host = 127.0.0.1")
    config = re.sub(r"^backend = anydbm", "backend = sqlite", config, flags=re.MULTILINE).replace(
        "#domain = NO DEFAULT", "domain = example.org"
    )
    # A login is checked with every request.
    config = re.sub(r"^#?(password_pbkdf2_default_rounds) = .*", r"\1 = 1000", config, flags=re.MULTILINE)
    (home / "config.ini").write_text(config, encoding="utf-8")
    subprocess.run([*admin, "initialise", "s3cret-password"], check=True, capture_output=True)
    subprocess.run([*admin, "create", "issue", "title=slow", "priority=1"], check=True, capture_output=True)
    process = subprocess.Popen([f"{path}/bin/python", "-c", SERVE, str(home), str(port)])
    try:
        for _ in range(200):
            with socket.socket() as listener:
                if listener.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def settings(server: str, password: str = "s3cret-password") -> Settings:
    return Settings({"POSTRUN_ROUNDUP_URL": server, "POSTRUN_ROUNDUP_USER": "admin", "POSTRUN_ROUNDUP_PASSWORD": password})


def test_a_real_roundup_holds_the_report_once(server: str) -> None:
    message = from_report(report_json())
    for number in (1, 2):
        data = b"%PDF " + b"x" * number
        files = [Upload("gpt-350m-x0.pdf", "application/pdf", len(data), data=data)]
        text = replace(message, headline=f"Headline {number}")
        systems.delivery(parse("roundup:issue1"), settings(server), Options()).deliver(text, files)
    tracker = systems.delivery(parse("roundup:issue1"), settings(server), Options())
    assert isinstance(tracker, Roundup)
    issue = tracker.client.json("GET", "/rest/data/issue/1")["data"]["attributes"]
    assert (len(issue["messages"]), len(issue["files"])) == (1, 1)
    (comment,) = tracker.comments()
    assert "Headline 2" in comment.body
    content = tracker.client.send("GET", f"/rest/data/file/{issue['files'][0]['id']}/binary_content", headers={"Accept": "*/*"})
    assert content.data == b"%PDF xx"


def test_a_real_roundup_refuses_a_wrong_password_and_an_unknown_issue(server: str) -> None:
    message = from_report(report_json())
    with pytest.raises(HttpError, match="POSTRUN_ROUNDUP_PASSWORD") as caught:
        systems.delivery(parse("roundup:issue1"), settings(server, "wrong-and-secret"), Options()).deliver(message, [])
    assert "wrong-and-secret" not in str(caught.value)
    with pytest.raises(HttpError, match="404"):
        systems.delivery(parse("roundup:issue99"), settings(server), Options()).deliver(message, [])
