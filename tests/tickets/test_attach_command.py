"""`postrun attach` finds the report, reads its settings, and ends with the documented exit code."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from postrun.cli import main
from postrun.errors import InputError, UsageError
from postrun.tickets import report_files, settings
from postrun.tickets.target import Target, parse
from ticket_fakes import Fake, FakeGitLab, FakeRedmine, Request, report_json


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in settings.variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    report_data = tmp_path / "report"
    report_data.mkdir()
    (report_data / "report.json").write_text(json.dumps(report_json()), encoding="utf-8")
    (report_data / "report.pdf").write_bytes(b"%PDF-1.7 x")
    return report_data


def run(*args: Any) -> Result:
    return CliRunner().invoke(main, ["attach", *map(str, args)])


@pytest.fixture
def gitlab(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitLab]:
    with FakeGitLab().serving() as fake:
        monkeypatch.setenv("POSTRUN_GITLAB_URL", fake.url)
        monkeypatch.setenv("POSTRUN_GITLAB_TOKEN", fake.token)
        yield fake


def test_two_tickets_and_json(folder: Path, gitlab: FakeGitLab, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeRedmine().serving() as redmine:
        monkeypatch.setenv("POSTRUN_REDMINE_TOKEN", redmine.token)
        result = run(
            folder, "--to", "gitlab:group/sub/project#7", "--to", f"redmine:{redmine.url}/issues/7", "--attach", "pdf,json", "--json"
        )
        assert result.exit_code == 0, result.output
        assert [one["done"] for one in json.loads(result.stdout)] == ["wrote a comment"] * 2
        assert (len(gitlab.files), len(redmine.files)) == (2, 2)


def test_one_that_fails_does_not_stop_the_others(folder: Path, gitlab: FakeGitLab) -> None:
    result = run(folder, "--to", "gitlab:group/sub/project#99", "--to", "gitlab:group/sub/project#7")
    assert result.exit_code == 1
    assert "postrun: gitlab:group/sub/project#99: " in result.stderr
    assert "gitlab:group/sub/project#7: wrote a comment" in result.stdout
    assert len(gitlab.written) == 1


def test_the_key_and_the_link(folder: Path, gitlab: FakeGitLab) -> None:
    for key in ("a", "b", "a"):
        assert run(folder, "--to", "gitlab:group/sub/project#7", "--key", key, "--link", "https://x.y/r", "--attach", "none").exit_code == 0
    assert len(gitlab.written) == 2
    assert gitlab.files == {}


def test_a_dry_run_contacts_nobody_and_shows_no_token(folder: Path, gitlab: FakeGitLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTRUN_JIRA_TOKEN", "s3cret-jira")
    monkeypatch.setenv("POSTRUN_ATTACH_HEADERS", "Authorization: Bearer s3cret-header")
    words = ["jira:PROJ-12", "gitlab:group/sub/project#7", "github:o/r#1", "gitea:o/r#1", "redmine:1", "roundup:issue1", "mailto:a@b.org"]
    result = run(folder, *(part for word in [*words, "https://hooks.example.org/x?k=s3cret-query"] for part in ("--to", word)), "--dry-run")
    assert result.exit_code == 0, result.output
    assert gitlab.requests == []
    assert "s3cret" not in result.output
    assert gitlab.token not in result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("No server is configured")]
    assert [line.rsplit(" ", 1)[1] for line in lines] == [f"POSTRUN_{word}_URL." for word in ("JIRA", "GITEA", "REDMINE", "ROUNDUP")]
    assert "Mail through no server yet: set POSTRUN_MAIL_HOST" in result.stdout
    assert result.output.count("8 of 8 GPUs are used too little.") >= len(words) + 1
    output = run(folder, "--to", "gitlab:group/sub/project#7", "--dry-run", "--attach", "none").stdout
    run(folder, "--to", "gitlab:group/sub/project#7", "--attach", "none")
    assert next(iter(gitlab.written.values()))["body"] in output


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--to", "jira:PROJ-12"), 2, "POSTRUN_JIRA_URL"),
        (("--to", "github:o/r#1"), 2, "POSTRUN_GITHUB_TOKEN_FILE"),
        (("--to", "jira:PROJ"), 2, "no ticket in it"),
        (("--to", "PROJ-12"), 2, "accepted are"),
        (("--to", "mailto:nobody"), 2, "not a mail address"),
        (("--to", "http://x.org/y"), 2, "--insecure-http"),
        (("--to", "redmine:1", "--attach", "docx"), 2, "pdf, html, json"),
        (("--to", "redmine:1", "--attach", "html"), 4, "there is no report.html"),
        (("--to", "redmine:1", "--link", "javascript:alert(1)"), 2, "is not an address"),
        ((), 2, "--to"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, args: tuple[str, ...], code: int, message: str) -> None:
    result = run(folder, *args)
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_reports_that_are_none(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "later.json").write_text(json.dumps(report_json(schema_version=99)))
    (tmp_path / "odd.json").write_text(json.dumps(report_json(rules=[{"rule": 1}])))
    (tmp_path / "x.pdf").write_bytes(b"%PDF-1.4\n%%EOF")
    for name, message in [
        ("empty", "holds no report.json"),
        ("none.pdf", "no such file"),
        ("other.json", "not a report.json of postrun"),
        ("bad.json", "not JSON"),
        ("later.json", "later version"),
        ("odd.json", "a part is missing"),
        ("x.pdf", "not beside"),
        ("x.txt", "is no report"),
    ]:
        result = run(tmp_path / name, "--to", "redmine:1", "--dry-run")
        assert (result.exit_code, message in result.output) == (4, True), (name, result.output)


@pytest.mark.parametrize("name", ["", "comparison.json", "comparison.pdf"])
def test_a_comparison_cannot_be_attached(tmp_path: Path, name: str) -> None:
    (tmp_path / "comparison.json").write_text("{}")
    result = run(tmp_path / name, "--to", "redmine:1", "--dry-run")
    assert result.exit_code == 4
    assert f"{tmp_path / name} is a comparison; only reports can be attached. Try: attach the report of the new run" in result.output


def test_the_pdf_alone_is_enough(tmp_path: Path) -> None:
    data = json.dumps(report_json()).encode()
    packed = zlib.compress(data)
    head = b"%%PDF-1.7\n5 0 obj\n<</Type /EmbeddedFile/Subtype /application#2fjson/Params <</Size %d>>"
    head += b"/Filter /FlateDecode/Length %d>>\nstream\n"
    (tmp_path / "report.pdf").write_bytes(head % (len(data), len(packed)) + packed + b"\nendstream\nendobj\n%%EOF")
    read = report_files.read(tmp_path / "report.pdf")
    assert read.report["run"]["name"] == "gpt-350m"
    assert [one.size for one in report_files.uploads(read, ("json",), "k")] == [len(data)]
    cut = (tmp_path / "report.pdf").read_bytes()[: len(head) + 60]
    (tmp_path / "cut.pdf").write_bytes(cut)
    with pytest.raises(InputError, match="not beside"):
        report_files.read(tmp_path / "cut.pdf")


def test_a_pdf_that_we_print_gives_its_json(tmp_path: Path) -> None:
    """Against the real printer, and pikepdf's own reading of it."""
    pikepdf = pytest.importorskip("pikepdf")
    from postrun.report_templates.output.pdf import Job, Printer

    (tmp_path / "page.html").write_text("<html><head><title>x</title></head><body>x</body></html>", encoding="utf-8")
    data = json.dumps(report_json()).encode()
    (tmp_path / "attached.json").write_bytes(data)
    with Printer() as printer:
        printer.start(Job(str(tmp_path / "page.html"), str(tmp_path / "attached.json"), str(tmp_path / "report.pdf"), 0))
        printer.attach()
        if (reason := printer.finish(60)) is not None:
            pytest.skip(f"no PDF: {reason}")
    with pikepdf.open(tmp_path / "report.pdf") as pdf:
        assert pdf.attachments["report.json"].get_file().read_bytes() == data
    assert report_files.embedded((tmp_path / "report.pdf").read_bytes()) == data


def test_settings_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "tickets.toml"
    file.write_text('[jira]\nurl = "https://jira.example.org"\ntoken = "from-file"\n[mail]\nport = 2525\n')
    environment = {"POSTRUN_TICKETS_CONFIG": str(file)}
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        settings.load(environment)
    file.chmod(0o600)
    read = settings.load(environment)
    assert (read.get("jira", "url"), read.secret("jira", "token"), read.get("mail", "port")) == (
        "https://jira.example.org",
        "from-file",
        "2525",
    )
    assert "from-file" not in repr(read)
    secret = tmp_path / "token"
    secret.write_text("mounted\n")
    assert settings.load({**environment, "POSTRUN_JIRA_TOKEN_FILE": str(secret)}).secret("jira", "token") == "mounted"
    assert settings.load({**environment, "POSTRUN_JIRA_TOKEN": "direct"}).secret("jira", "token") == "direct"
    for text, message in [
        ("[jria]\n", "not a table"),
        ("[jira]\ntokn = 'x'\n", "tokn is unknown"),
        ("[jira\n", "not TOML"),
        ("[jira]\nurl = true\n", "must be text"),
    ]:
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            settings.load(environment)
    with pytest.raises(UsageError, match="no such file"):
        settings.load({"POSTRUN_TICKETS_CONFIG": str(tmp_path / "gone")})


def test_a_token_goes_to_its_own_server_alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("POSTRUN_JIRA_URL", "https://jira.example.org")
    monkeypatch.setenv("POSTRUN_JIRA_TOKEN", "s3cret-jira")
    result = run(folder, "--to", "jira:https://jira.evil.example/browse/PROJ-12")
    assert result.exit_code == 2
    assert "another server than POSTRUN_JIRA_URL" in result.output
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("jira:proj-12", Target("jira", "jira:proj-12", "PROJ-12", "PROJ")),
        (
            "jira:https://a.org/jira/browse/X2-1",
            Target("jira", "jira:https://a.org/jira/browse/X2-1", "X2-1", "X2", url="https://a.org/jira"),
        ),
        ("gitlab:g/s/p#7", Target("gitlab", "gitlab:g/s/p#7", "7", "g/s/p")),
        ("gitlab:g/p!7", Target("gitlab", "gitlab:g/p!7", "7", "g/p", True)),
        (
            "gitlab:https://a.org/g/p/-/merge_requests/7",
            Target("gitlab", "gitlab:https://a.org/g/p/-/merge_requests/7", "7", "g/p", True, "https://a.org"),
        ),
        ("github:o/r.js#7", Target("github", "github:o/r.js#7", "7", "o/r.js")),
        (
            "github:https://github.com/o/r/pull/7",
            Target("github", "github:https://github.com/o/r/pull/7", "7", "o/r", url="https://github.com"),
        ),
        ("redmine:#12", Target("redmine", "redmine:#12", "12")),
        ("redmine:https://a.org/r/issues/9", Target("redmine", "redmine:https://a.org/r/issues/9", "9", url="https://a.org/r")),
        ("roundup:issue12", Target("roundup", "roundup:issue12", "12", "issue")),
        ("mailto:a@b.org,c@d.org", Target("mail", "mailto:a@b.org,c@d.org", addresses=("a@b.org", "c@d.org"))),
        ("https://a.org/x?y=1", Target("web", "https://a.org/x", url="https://a.org/x?y=1")),
    ],
)
def test_targets(word: str, expected: Target) -> None:
    assert parse(word) == expected


@pytest.mark.parametrize(
    "word",
    [
        "",
        "jira:",
        "jira:12",
        "jira:PROJ-0",
        "jira:../x-1",
        "gitlab:p#7",
        "gitlab:g/p#",
        "gitlab:g/../p#1",
        "github:../user#1",
        "gitea:./r#1",
        "github:a/b/c#1",
        "github:o/r!1",
        "redmine:x-1#",
        "mailto:",
        "mailto:a@b.org?bcc=x@y.org",
        "mailto:a@b.org\nBcc: x",
        "https://",
        "https://u:p@x.org/",
        "https://x.org/a b",
        "ftp://x.org",
        "jira:https://x.org/other/PROJ-1",
        "https://x.org:port/",
    ],
)
def test_words_that_are_no_targets(word: str) -> None:
    with pytest.raises(UsageError):
        parse(word)


class Hook(Fake):
    def authorize(self, request: Request) -> None:
        assert request.headers["X-Key"] == "s3cret: header"

    def routes(self) -> list[Any]:
        return [("POST", "/hook", lambda r: (202, None))]


def test_any_web_address_gets_a_form(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hook().serving() as hook:
        monkeypatch.setenv("POSTRUN_ATTACH_HEADERS", "X-Key: s3cret: header\nX-Other: 1")
        for _ in range(2):
            result = run(folder, "--to", f"{hook.url}/hook?team=a%20b")
            assert result.exit_code == 0, result.output
        first, second = hook.requests
        assert first.query == {"team": "a b"}
        assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
        form = first.form()
        assert form["pdf"][1] == b"%PDF-1.7 x"
        summary = json.loads(form["summary"][1])
        assert summary["run"] == "gpt-350m"
        assert summary["verdicts"][0] == {"rule": "LowGPUUtilization", "verdict": "issue", "note": "8 of 8 GPUs are used too little."}
        assert form["text"][1].decode().startswith("### Training run gpt-350m")
        hook.faults.append(("POST", "/hook", "lose"))
        lost = run(folder, "--to", f"{hook.url}/hook")
        assert lost.exit_code == 1
        assert "Idempotency-Key" in lost.output
        assert "s3cret" not in lost.output
        hook.faults.append(("POST", "/hook", (500, {}, {"error": "s3cret: header is bad"})))
        assert "*** is bad" in run(folder, "--to", f"{hook.url}/hook").output
