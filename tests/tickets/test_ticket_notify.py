"""A night opens the tickets of its rules, each only once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from postrun.errors import UsageError
from postrun.nightly import notify
from postrun.nightly.model import Row
from postrun.tickets.http import Options
from postrun.tickets.mail import Mailer
from postrun.tickets.message import Message
from postrun.tickets.settings import Settings
from postrun.tickets.target import parse
from ticket_fakes import FakeGitLab, FakeJira, report_json

OPTIONS = Options(timeout_s=5, backoff_s=0.01, sleep=lambda seconds: None)


@dataclass
class Worse:
    id: str
    family: str
    text: str


def row(name: str, **more: Any) -> Row:
    base: dict[str, Any] = {
        "id": f"jobs/{name}",
        "state": "reported",
        "kind": "traces",
        "fingerprint": "f" * 32,
        "options": "o",
        "bytes": 1,
        "files": 1,
        "folder": f"runs/jobs/{name}/ffff",
        "written": ("report.html", "report.pdf", "report.json"),
        "name": name,
        "headline": f"{name} was busy.",
        "labels": {"team": "vision"},
        "verdicts": {"LowGPUUtilization": "IssuesFound", "CPUBottleneck": "NoIssuesFound"},
    }
    return Row(**{**base, **more})


def rules_from(**table: Any) -> tuple[notify.Rule, ...]:
    return notify.rules({"rule": [{"name": "slow", "to": "jira:PROJ", **table}]}, "rules.toml")


def names(rules: Any, rows: list[Row], worse: Any = ()) -> list[str]:
    """Return the runs that the rules match, each with a ticket of its own."""
    return [action.message.run for action in notify.actions([replace(rule, per="run") for rule in rules], rows, worse)]


ROWS = [row("gpt-1"), row("bert-1", labels={"team": "text"}), row("gpt-2", verdicts={"CPUBottleneck": "IssuesFound"})]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"verdicts": ["any"]}, ["gpt-1", "bert-1", "gpt-2"]),
        ({"verdicts": ["lowgpuutilization"]}, ["gpt-1", "bert-1"]),
        ({"verdicts": "CPUBottleneck"}, ["gpt-2"]),
        ({"verdicts": ["any"], "run": ["gpt-*"]}, ["gpt-1", "gpt-2"]),
        ({"verdicts": ["any"], "run": "jobs/bert*"}, ["bert-1"]),
        ({"verdicts": ["any"], "labels": {"team": "vis*"}}, ["gpt-1", "gpt-2"]),
        ({"verdicts": ["any"], "labels": {"other": "*"}}, []),
        ({"regression": True}, ["gpt-2"]),
        ({"regression": True, "run": "gpt"}, ["gpt-2"]),
        ({"failed": True}, []),
    ],
)
def test_rules_choose_runs(table: dict[str, Any], expected: list[str]) -> None:
    assert names(rules_from(**table), ROWS, [Worse("jobs/gpt-2", "gpt", "steps take 12% longer")]) == expected


def test_the_rule_that_counts_issues_is_none_of_any() -> None:
    run = row("gpt-1", verdicts={"ProfilerReport": "IssuesFound", "IOBottleneck": "IssuesFound"})
    lines = {wanted: notify.actions(rules_from(verdicts=wanted), [run], ())[0].message.lines for wanted in ("any", "ProfilerReport")}
    assert lines == {"any": ("issues found by IOBottleneck",), "ProfilerReport": ("issues found by ProfilerReport",)}


def test_failed_runs_are_told_with_their_reason() -> None:
    bad = row("gpt-3", state="failed", reason="the file is cut", verdicts={}, folder=None, written=(), headline=None)
    (action,) = notify.actions(rules_from(failed=True), [*ROWS, bad], ())
    assert action.message.lines == ("there is no report: the file is cut",)
    assert action.files == ()
    assert action.message.headline == "There is no report of this run."
    assert action.title == "postrun: gpt: there is no report: the file is cut"


@pytest.mark.parametrize(("to", "parts"), [("gitlab:g/p", True), ("github:o/r", True), ("jira:PROJ", False), ("redmine:project", False)])
def test_titles_mention_nobody(to: str, parts: bool) -> None:
    """The name of a run mentions nobody; the rule's own text may."""
    (action,) = notify.actions(rules_from(to=to, verdicts="any", title="@team: {run}: {reason}"), [row("*b* @all #12")], ())
    assert action.title.startswith("@team: *\u2060b* @\u2060all #\u206012: " if parts else "@team: *b* @all #12: ")


def test_a_mail_has_the_title_of_its_rule() -> None:
    mail = Mailer(parse("mailto:team@example.org"), "mail.example.org", 25, "none", "postrun@example.org", OPTIONS)
    message = Message("k", "gpt-3", "failed", "There is no report of this run.", title="gpt: there is no report: the file is cut")
    assert mail.composed(message, ())["Subject"] == "[postrun] gpt: there is no report: the file is cut"
    assert mail.composed(replace(message, title=""), ())["Subject"] == "[postrun] gpt-3: no issue"


def test_a_message_says_which_run_rule_and_family_it_is_about() -> None:
    (action,) = notify.actions(rules_from(to="webhook", verdicts=["any"]), ROWS[:1], ())
    assert action.message.origin == {"run": "jobs/gpt-1", "rule": "slow", "family": "gpt"}
    full = notify._full(action, lambda path: json.dumps(report_json()).encode())
    assert full.issues > 0
    assert full.origin == action.message.origin


def test_runs_of_another_night_or_still_running_are_no_matter() -> None:
    assert names(rules_from(verdicts="any", failed=True), [row("a", state="running"), row("b", state="waiting")]) == []


def test_one_ticket_per_family_whatever_the_trigger() -> None:
    """A message is about the newest run of the family and lists the others."""
    rows = [row("gpt-2026-11-01", started_ns=1), row("gpt-2026-11-03", started_ns=3), row("gpt-2026-11-02", started_ns=2), row("bert-1")]
    gpt, bert = notify.actions(rules_from(verdicts="any"), rows, ())
    assert (gpt.ticket_key, bert.ticket_key) == ("slow/gpt", "slow/bert")
    assert gpt.title == "postrun: gpt: issues found by LowGPUUtilization"
    assert gpt.message.run == "gpt-2026-11-03"
    assert gpt.message.lines == (
        "issues found by LowGPUUtilization",
        "Also gpt-2026-11-02: issues found by LowGPUUtilization",
        "Also gpt-2026-11-01: issues found by LowGPUUtilization",
    )
    failed = [replace(one, state="failed", reason="the file is cut", verdicts={}) for one in rows]
    assert [action.ticket_key for action in notify.actions(rules_from(failed=True), failed, ())] == ["slow/gpt", "slow/bert"]
    assert len(notify.actions(rules_from(verdicts="any", per="run"), rows, ())) == 4


def test_families_are_those_of_the_index() -> None:
    """The label of a run and --family group the tickets as they group the page."""
    labeled = row("a-1", labels={"team": "vision", "family": "big"})
    (first, second) = notify.actions(rules_from(verdicts="any"), [labeled, row("b/x-9")], (), [re.compile("/(b)/")])
    assert (first.ticket_key, second.ticket_key) == ("slow/big", "slow/b")


def test_one_comment_per_version_of_a_run() -> None:
    rules = rules_from(regression=True)
    worse = [Worse("jobs/gpt-1", "gpt", "slower"), Worse("jobs/gpt-1", "gpt", "more memory")]
    (action,) = notify.actions(rules, ROWS, worse)
    assert action.message.lines == ("slower", "more memory")
    (newer,) = notify.actions(rules, [replace(ROWS[0], fingerprint="e" * 32)], worse)
    assert newer.ticket_key == action.ticket_key
    assert newer.message.key != action.message.key


def test_more_than_the_limit_become_one_summary() -> None:
    rows = [row(f"gpt-{n}") for n in range(300)]
    rules = rules_from(verdicts="any", limit=4, per="run")
    actual = notify.actions(rules, rows, ())
    assert len(actual) == 4
    assert actual[-1].title == "postrun: slow: 297 more runs"
    assert actual[-1].message.lines[0] == "gpt-3: issues found by LowGPUUtilization"
    assert actual[-1].message.lines[-1] == "and 97 more runs; the index has them all"
    assert len(notify.actions(rules, rows[:4], ())) == 4
    (family,) = notify.actions(rules_from(verdicts="any", limit=4), rows, ())
    assert len(family.message.lines) == 22
    assert family.message.lines[-1] == "and 279 more runs; the index has them all"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"no \[\[rule\]\]"),
        ({"rules": []}, "rules is unknown"),
        ({"rule": [{"name": "a", "to": "jira:PROJ"}]}, "no condition is set"),
        ({"rule": [{"name": "a", "to": "jira:PROJ", "regression": "yes"}]}, "must be true or false"),
        ({"rule": [{"name": "a", "to": "nowhere:1", "failed": True}]}, "names no ticket"),
        ({"rule": [{"name": "a", "to": "jira:PROJ", "failed": True, "title": "{nmae}"}]}, r"\{run\}, \{family\}"),
        ({"rule": [{"name": "a", "to": "jira:PROJ", "failed": True, "verdict": ["x"]}]}, "verdict is unknown"),
        ({"rule": [{"name": "a", "to": "jira:PROJ", "failed": True, "attach": ["docx"]}]}, "pdf, html, json"),
        ({"rule": [{"name": "a", "to": "jira:PROJ", "failed": True}] * 2}, "two rules"),
        ({"rule": [{"to": "jira:PROJ", "failed": True}]}, "name is missing"),
        ({"limit": 0, "rule": [{"name": "a", "to": "jira:PROJ", "failed": True}]}, "from 1 to 1000"),
    ],
)
def test_mistakes_in_the_file_are_told(content: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        notify.rules(content, "rules.toml")


def test_the_file_of_the_documentation_is_read(project_root: Path, tmp_path: Path) -> None:
    text = (project_root / "docs" / "tickets.md").read_text(encoding="utf-8")
    file = tmp_path / "rules.toml"
    file.write_text(next(part for part in text.split("```") if part.startswith("toml\n# rules"))[5:], encoding="utf-8")
    environment = {"POSTRUN_JIRA_URL": "https://j.org", "POSTRUN_JIRA_TOKEN": "a", "POSTRUN_MAIL_HOST": "m.org"}
    environment |= {"POSTRUN_SLACK_PERF_URL": "https://s.org/x"}
    with pytest.raises(UsageError, match=r"rule starved: .*POSTRUN_GITLAB_URL"):
        notify.load(file, settings=Settings(environment))
    environment |= {"POSTRUN_GITLAB_URL": "https://g.org", "POSTRUN_GITLAB_TOKEN": "b"}
    assert [rule.name for rule in notify.load(file, settings=Settings(environment))] == [
        "slower", "starved", "no report", "channel"
    ]  # fmt: skip
    file.write_text("[[rule", encoding="utf-8")
    with pytest.raises(UsageError, match="not TOML"):
        notify.load(file)


@pytest.fixture(params=["jira", "gitlab"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str, Settings]]:
    fake = FakeJira() if request.param == "jira" else FakeGitLab()
    with fake.serving():
        name = request.param.upper()
        environment = {f"POSTRUN_{name}_URL": fake.url, f"POSTRUN_{name}_TOKEN": fake.token, "POSTRUN_JIRA_USER": "me@example.org"}
        yield fake, {"jira": "jira:PROJ", "gitlab": "gitlab:group/sub/project"}[request.param], Settings(environment)


def read_file(path: str) -> bytes:
    return json.dumps(report_json()).encode() if path.endswith(".json") else f"%PDF of {path}".encode()


def test_a_ticket_is_opened_once_and_each_night_comments_on_it(server: tuple[Any, str, Settings]) -> None:
    fake, to, settings = server
    before = len(fake.issues)
    rules = rules_from(to=to, verdicts="any", run="gpt-1", title="{family}: {reason} " + "x" * 400)
    for fingerprint in ("a" * 32, "a" * 32, "b" * 32):
        for action in notify.actions(rules, [replace(ROWS[0], fingerprint=fingerprint)], ()):
            message, ticket = notify.send(action, read_file, settings=settings, options=OPTIONS, link="https://reports.example.org/r")
            assert message.startswith(f"slow: {to}: ")
            assert re.fullmatch(rf"{to} (PROJ-)?\d+", ticket)
    assert len(fake.issues) == before + 1
    assert len(fake.written) == 2
    body = next(iter(fake.written.values()))["body"]
    assert "issues found by LowGPUUtilization" in body
    assert "Feed GPU 1" in body  # from report.json
    assert "https://reports.example.org/r" in body
    assert len(fake.files) == 2


def test_a_lost_answer_opens_no_second_ticket(server: tuple[Any, str, Settings]) -> None:
    fake, to, settings = server
    before = len(fake.issues)
    fake.faults.append(("POST", "/issue", "lose"))
    (action,) = notify.actions(rules_from(to=to, verdicts="any", run="gpt-1", attach=[]), ROWS, ())
    notify.send(action, read_file, settings=settings, options=OPTIONS)
    assert len(fake.issues) == before + 1
