"""Links to reports: addresses that last, by a template of a web server, or signed by the store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import small_runs as small
from postrun.errors import UsageError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import addresses, notify, places, work
from postrun.nightly.addresses import Addresses
from postrun.nightly.done_markers import marker
from postrun.nightly.index import Book
from postrun.nightly.model import Row
from postrun.tickets.mail import Mailer
from postrun.tickets.settings import Settings
from postrun.tickets.tracker import Outcome


def row(run_id: str, **more: Any) -> Row:
    base: dict[str, Any] = {"state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1}
    return Row(**base | {"id": run_id, "folder": f"{places.run_folder(run_id)}/1-2"} | more)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://reports.example.org/nightly", "https://reports.example.org/nightly/runs/a%20b/latest/report.html"),
        ("https://reports.example.org/nightly/", "https://reports.example.org/nightly/runs/a%20b/latest/report.html"),
        ("https://x.org/open?file={path}&raw=1", "https://x.org/open?file=runs/a%20b/latest/report.html&raw=1"),
    ],
)
def test_a_template_gives_the_address_of_the_newest_report(tmp_path: Path, text: str, address: str) -> None:
    of = Addresses(open_objects(tmp_path), addresses.template(text))
    assert of.of_ticket(row("a b", written=("report.html", "report.json"))) == address


@pytest.mark.parametrize(
    "text",
    [
        "reports.example.org",
        "ftp://x.org",
        "https:///x",
        "https://me:secret@x.org",
        "https://x.org/{file}",
        "{path}",
        "https://[::1",
        "https://{path}.org",
    ],
)
def test_other_templates_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"https://reports\.example\.org"):
        addresses.template(text)


def test_without_a_template_the_place_is_named(tmp_path: Path) -> None:
    of = Addresses(open_objects(tmp_path))
    assert of.of_ticket(row("a", written=("report.json", "report.pdf"))) == f"{tmp_path}/runs/a/latest/report.pdf"
    assert of.of_ticket(row("a", written=("postrun.log",))) is None
    assert of.of_ticket(row("a", state="failed", written=("report.html",))) is None


def test_a_folder_has_no_signed_links(tmp_path: Path) -> None:
    for out in (tmp_path, "memory://signed/out"):
        with pytest.raises(UsageError, match="need an object store"):
            Addresses(open_objects(out), presigned_s=60).of_ticket(row("a", written=("report.html",)))


def reported(source: Path, out: Path, **options: Any) -> Any:
    (run,) = small.found_below(str(source))
    return work.report_run(small.task_of(run, str(source), str(out), **options))


@pytest.mark.slow
def test_latest_has_the_newest_report_and_older_ones_stay(tmp_path: Path) -> None:
    small.write_run(tmp_path / "in" / "job", 1)
    out = tmp_path / "out"
    first = reported(tmp_path / "in", out, formats=("json", "md", "rule-json"))
    latest = out / places.latest_folder("job")
    assert (latest / "report.json").read_bytes() == (out / first.folder / "report.json").read_bytes()
    # A run below this one, which is called latest, has its own files in the same folder.
    (latest / "done.json").write_text("{}")
    small.write_run(tmp_path / "in" / "job", 2)
    second = reported(tmp_path / "in", out, formats=("json",))
    assert first.folder != second.folder
    assert (out / first.folder / "report.md").is_file()
    assert (latest / "report.json").read_bytes() == (out / second.folder / "report.json").read_bytes()
    assert sorted(path.name for path in latest.rglob("*") if path.is_file()) == ["done.json", "report.json"]
    assert json.loads((out / places.done("job")).read_text())["folder"] == second.folder


def test_the_index_has_the_address_of_each_report(tmp_path: Path) -> None:
    """Programs and people get the address that stays; a log is at its version alone."""
    out = open_objects(tmp_path)
    log = row("log", state="failed", written=("postrun.log",))
    for run in (row("a b", written=("report.html",)), row("bad", state="failed", folder=None), log):
        out.write(places.done(run.id), marker(run))
    book = Book(base_url="https://x.org/open?file={path}")
    book.write(out, book.known(out))
    runs = {run["id"]: run.get("url") for run in json.loads(out.read("index.json"))["runs"]}
    assert runs == {"a b": "https://x.org/open?file=runs/a%20b/latest/report.html", "bad": None, "log": None}
    links = set(re.findall('href="(https://x.org[^"]*)"', out.read("index.html").decode()))
    assert links == {"https://x.org/open?file=runs/a%20b/latest/report.html", "https://x.org/open?file=runs/log/1-2/postrun.log"}


def test_a_mail_of_a_night_has_the_title_of_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    titles = []
    monkeypatch.setattr(Mailer, "deliver", lambda self, message, files: titles.append(message.title) or Outcome("sent"))
    rules = notify.rules({"rule": [{"name": "r", "to": "mailto:a@x.org", "failed": True, "title": "{family}: {reason}"}]}, "rules.toml")
    (action,) = notify.actions(rules, [row("gpt-1", state="failed", reason="the file is cut")], ())
    settings = Settings({"POSTRUN_MAIL_HOST": "localhost"})
    notify.send(action, lambda path: b"", settings=settings)
    assert titles == ["gpt: there is no report: the file is cut"]
