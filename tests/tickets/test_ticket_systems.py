"""A report is on a ticket of every system exactly once, whatever the network does; tested with fakes of the documented contracts."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from postrun.tickets import systems
from postrun.tickets.http import HttpError, Options, TicketError, Upload
from postrun.tickets.message import Message, from_report, marker, slug
from postrun.tickets.settings import Settings
from postrun.tickets.target import parse
from postrun.tickets.tracker import NewTicket, Outcome, Tracker, has_marker
from ticket_fakes import Fake, FakeGitea, FakeGitHub, FakeGitLab, FakeJira, FakeJiraServer, FakeRedmine, report_json

SLEPT: list[float] = []
OPTIONS = Options(timeout_s=5, backoff_s=0.01, sleep=SLEPT.append)
SYSTEMS: dict[str, tuple[type[Fake], str, dict[str, str]]] = {
    "jira": (FakeJira, "jira:PROJ-12", {"POSTRUN_JIRA_USER": "me@example.org"}),
    "jira-server": (FakeJiraServer, "jira:PROJ-12", {}),
    "gitlab": (FakeGitLab, "gitlab:group/sub/project#7", {}),
    "gitlab-mr": (FakeGitLab, "gitlab:group/sub/project!7", {}),
    "github": (FakeGitHub, "github:owner/repo#7", {}),
    "gitea": (FakeGitea, "gitea:owner/repo#7", {}),
    "redmine": (FakeRedmine, "redmine:7", {}),
}
KEY = "gpt-350m"
MARK = marker(KEY)


class Bench:
    def __init__(self, name: str, fake: Any, word: str, environment: dict[str, str]) -> None:
        self.name, self.fake, self.word = name, fake, word
        section = word.partition(":")[0].upper()
        self.environment = {f"POSTRUN_{section}_URL": fake.url, f"POSTRUN_{section}_TOKEN": fake.token, **environment}

    def attach(self, message: Message | None = None, files: tuple[Upload, ...] = (), options: Options = OPTIONS, **more: str) -> Outcome:
        environment = {**self.environment, **more}
        options = replace(options, release="v1" if self.name == "github" else None)
        return systems.delivery(parse(self.word), Settings(environment), options).deliver(message or MESSAGE, files)

    @property
    def comments(self) -> list[str]:
        return [attach["body"] for attach in self.fake.written.values() if has_marker(attach["body"], MARK)]


MESSAGE = from_report(report_json(), link="https://reports.example.org/gpt/report.html")


def pdf(data: bytes = b"%PDF-1.7 first") -> Upload:
    return Upload(f"{slug(KEY)}.pdf", "application/pdf", len(data), data=data)


@pytest.fixture(params=list(SYSTEMS))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    result, word, environment = SYSTEMS[request.param]
    SLEPT.clear()
    with result().serving() as fake:
        yield Bench(request.param, fake, word, environment)


def test_a_report_comes_to_stand_once_and_is_renewed(bench: Bench) -> None:
    first = bench.attach(files=(pdf(),))
    assert (first.did, first.problem, first.notes) == ("wrote a comment", None, ())
    assert [attach["data"] for attach in bench.fake.files.values()] == [b"%PDF-1.7 first"]
    again = replace(MESSAGE, headline="A new headline stands here.")
    second = bench.attach(again, files=(pdf(b"%PDF-1.7 second, longer"),))
    assert (second.did, second.problem, second.notes) == ("updated its comment", None, ())
    assert len(bench.fake.written) == 1
    assert "A new headline stands here." in bench.comments[0]
    assert [attach["data"] for attach in bench.fake.files.values()] == [b"%PDF-1.7 second, longer"]
    assert f"{slug(KEY)}.pdf" in bench.comments[0]


def test_another_key_is_another_comment(bench: Bench) -> None:
    bench.attach()
    bench.attach(replace(MESSAGE, key="gpt-350m-2"))
    assert len(bench.fake.written) == 2


def test_only_our_own_comment_is_changed_even_where_it_is_quoted(bench: Bench) -> None:
    author = {"jira": {"accountId": "other"}, "jira-server": {"key": "other"}}.get(bench.name, "other")
    others = {
        "1": {"body": "unrelated", "author": author},
        "2": {"body": f"> Training run\n> {MARK}", "author": author},
        "3": {"body": f"see\n\n{MARK}", "author": author},
    }
    bench.fake.written.update({n: dict(attach) for n, attach in others.items()})
    bench.attach()
    bench.attach()
    assert len(bench.fake.written) == 4
    assert {n: bench.fake.written[n] for n in others} == others


def test_comments_beyond_the_first_page_are_seen(bench: Bench) -> None:
    author = bench.fake.author if hasattr(bench.fake, "author") else 5 if bench.name.startswith(("gitlab", "redmine")) else "bot"
    bench.fake.written.update({str(n): {"body": f"comment {n}", "author": author} for n in range(1, 231)})
    bench.attach()
    bench.attach()
    assert len(bench.fake.written) == 231


@pytest.mark.parametrize("what", ["drop", "lose"])
def test_an_answer_that_is_lost_does_not_double_the_comment(bench: Bench, what: str) -> None:
    method, path = ("PUT", "/issues/7.json") if bench.name == "redmine" else ("POST", "/notes" if "gitlab" in bench.name else "/comment")
    bench.fake.faults.append((method, path, what))
    bench.attach(files=(pdf(),))
    assert len(bench.comments) == 1
    assert [attach["data"] for attach in bench.fake.files.values()] == [b"%PDF-1.7 first"]


def test_an_answer_to_an_upload_that_is_lost_leaves_one_file(bench: Bench) -> None:
    path = {"jira": "/attachments", "jira-server": "/attachments", "github": "/assets", "gitea": "/assets"}.get(bench.name, "/uploads")
    bench.fake.faults.append(("POST", path, "lose"))
    assert bench.attach(files=(pdf(),)).problem is None
    assert len(bench.fake.files) == (2 if "gitlab" in bench.name else 1)  # GitLab does not tell which uploads belong to a ticket


def test_busy_servers_are_asked_again(bench: Bench) -> None:
    bench.fake.faults += [("GET", "", (503, {"Retry-After": "7"})), ("GET", "", (429, {"Retry-After": "3"})), ("GET", "", "drop")]
    bench.attach()
    assert 7 in SLEPT
    assert 3 in SLEPT
    assert len(bench.comments) == 1


def test_several_attaches_at_once_leave_one_comment(bench: Bench) -> None:
    barrier = threading.Barrier(4)
    problems: list[BaseException] = []

    def attach() -> None:
        barrier.wait()
        try:
            bench.attach()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=attach) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert len(bench.comments) == 1


def test_a_wrong_token_is_told_and_not_shown(bench: Bench) -> None:
    section = bench.word.partition(":")[0].upper()
    with pytest.raises(HttpError, match="401") as caught:
        bench.attach(**{f"POSTRUN_{section}_TOKEN": "wrong-and-secret"})
    assert "wrong-and-secret" not in str(caught.value)
    assert "TOKEN" in str(caught.value) or "token" in str(caught.value)
    assert bench.fake.written == {}


def test_a_ticket_that_is_not_there_is_told(bench: Bench) -> None:
    bench.word = bench.word.replace("12", "99").replace("7", "99")
    with pytest.raises(HttpError, match="404") as caught:
        bench.attach()
    assert "check the ticket" in str(caught.value) or "may not see it" in str(caught.value)


def test_a_login_page_instead_of_json_is_told(bench: Bench) -> None:
    page = b"<!DOCTYPE html><html><head><title>Sign in - Corp SSO</title></head></html>"
    bench.fake.faults.append(("GET", "", (200, {"Content-Type": "text/html"}, page)))
    with pytest.raises(HttpError, match=r"web page \(Sign in - Corp SSO\)"):
        bench.attach()


def test_a_redirect_to_another_host_is_not_followed(bench: Bench) -> None:
    bench.fake.faults.append(("GET", "", (302, {"Location": "http://localhost:9/elsewhere"})))
    with pytest.raises(HttpError, match="redirects to another server"):
        bench.attach()
    assert len(bench.fake.requests) == 1


def test_a_file_beyond_the_limit_is_left_out_and_told(bench: Bench) -> None:
    fake = bench.fake
    if bench.name == "github":
        fake.faults.append(("POST", "/uploads", (413, {})))
    elif bench.name == "gitea":
        fake.limit_mib = 0
    else:
        fake.limit = 1000
    outcome = bench.attach(files=(pdf(b"%PDF" + b"x" * 2000),))
    assert outcome.problem is not None
    assert "1.96 KiB" in outcome.problem
    assert "--link" in outcome.problem
    if "jira" in bench.name:
        assert "0.977 KiB" in outcome.problem
        assert fake.sent("POST", "/attachments") == []
    assert "Not attached" in bench.comments[0].replace("\\", "")
    assert fake.files == {}


def test_a_long_comment_is_cut_to_what_the_server_takes(bench: Bench) -> None:
    limit = {"jira": 32_767, "jira-server": 32_767, "github": 65_536, "gitea": 65_535, "redmine": 65_535}.get(bench.name, 1_000_000)
    rules = [{"rule": f"Rule{n}", "category": "trace", "verdict": "IssuesFound", "finding": "😀" * (limit // 200)} for n in range(130)]
    bench.attach(from_report(report_json(rules=rules)))
    (body,) = bench.comments
    assert len(body.replace("\r\n", "\n").encode("utf-16-le")) // 2 <= limit
    assert "Cut" in body


def test_hostile_names_notify_nobody(bench: Bench) -> None:
    evil = "@root #1 !2 ~x %3 GH-4 ABC-5 \n/close\n| x | {code} [~user] ![x](http://x.y) <img src=x> https://x.y/issues/1 0123456789abcdef"
    bench.attach(from_report(report_json(run={"name": KEY, "status": evil}, summary={"headline": evil, "subtitle": evil, "tiles": []})))
    (body,) = bench.comments
    output = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), body).replace("\\", "").rpartition(MARK)[0]
    for reference in (r"@\w", r"(?<!&)#\d", r"!\d", r"\bGH-\d", r"\bABC-\d", r"^/", r"~user", r"https?://x", r"[0-9a-f]{7}", r"<img"):
        assert re.search(reference, output, re.MULTILINE) is None or reference == r"<img", reference
    if "jira" not in bench.name:
        assert "<img" not in body


@pytest.mark.parametrize("name", ["gitlab", "github"])
def test_a_token_without_a_user_works(name: str) -> None:
    result, word, environment = SYSTEMS[name]
    with result().serving() as fake:
        fake.user_known = False
        bench = Bench(name, fake, word, environment)
        bench.attach()
        bench.attach()
        assert len(fake.written) == 1


def test_github_without_a_release_says_where_the_files_are_not() -> None:
    with FakeGitHub().serving() as fake:
        bench = Bench("plain", fake, "github:owner/repo#7", {})
        outcome = bench.attach(files=(pdf(),))
        assert outcome.problem is None
        assert "--github-release" in outcome.notes[0]
        assert fake.files == {}


def test_github_uploads_go_to_no_other_host() -> None:
    with FakeGitHub().serving() as fake, FakeGitHub().serving() as second:
        fake.uploads_host = second.url.replace("127.0.0.1", "localhost")
        with pytest.raises(TicketError, match="not GitHub's"):
            Bench("github", fake, "github:owner/repo#7", {}).attach(files=(pdf(),))
        assert second.requests == []


def test_a_locked_issue_is_told() -> None:
    with FakeGitHub().serving() as fake:
        fake.issues["7"]["locked"] = True
        with pytest.raises(HttpError, match="issue is locked"):
            Bench("github", fake, "github:owner/repo#7", {}).attach()


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "gitlab-mr"])
def test_a_ticket_is_opened_once_and_found_again(name: str) -> None:
    result, word, environment = SYSTEMS[name]
    with result().serving() as fake:
        bench = Bench(name, fake, word, environment)
        project = {"jira:PROJ-12": "jira:PROJ", "redmine:7": "redmine:perf"}.get(word, word.partition("#")[0])
        opened = systems.delivery(parse(project, projects=True), Settings(bench.environment), OPTIONS)
        assert isinstance(opened, Tracker)
        assert opened.find(MARK) is None
        body = opened.dialect.page.format("", MARK)
        number = opened.open(NewTicket("Slow steps", body, MARK))
        assert opened.find(MARK) == number
        assert opened.find(marker("another")) is None


def test_servers_before_notes_could_be_changed_get_a_newer_one() -> None:
    with FakeRedmine().serving() as fake:
        bench = Bench("redmine", fake, "redmine:7", {})
        bench.attach()
        fake.faults.append(("PUT", "/journals", (404, {}, b" ")))
        bench.attach()
        assert len(bench.comments) == 2


def call(function: Callable[[], Any]) -> str:
    with pytest.raises(TicketError) as caught:
        function()
    return str(caught.value)


def test_a_gateway_that_loses_the_answer_to_a_comment_is_no_reason_to_repeat_it(bench: Bench) -> None:
    method, path = ("PUT", "/issues/7.json") if bench.name == "redmine" else ("POST", "/notes" if "gitlab" in bench.name else "/comment")
    bench.fake.faults += [(method, path, (502, {}))] * 3
    assert "may have been carried out" in call(bench.attach)
    assert len(bench.fake.sent(method, path)) == 3
    assert len(bench.fake.sent("GET")) >= 4  # looked for before each
