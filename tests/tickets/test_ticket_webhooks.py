"""Messages to webhooks of Slack, Teams and programs: what is posted, its limits, and that no address leaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.commands.environment import unknown
from postrun.errors import UsageError
from postrun.nightly import notify
from postrun.nightly.model import Row
from postrun.tickets import settings as ticket_settings
from postrun.tickets.dry import preview
from postrun.tickets.http import HttpError, LostAnswerError, Options
from postrun.tickets.message import Finding, Message, Verdict, from_report
from postrun.tickets.settings import Settings
from postrun.tickets.systems import delivery
from postrun.tickets.target import Target, parse
from postrun.tickets.webhook import generic, slack, teams
from ticket_fakes import FakeSlack, FakeTeams, FakeWebhook, report_json

OPTIONS = Options(timeout_s=5, backoff_s=0.01, sleep=lambda seconds: None)
MESSAGE = from_report(report_json(), link="https://r.example.org/latest/report.html?a=1&b=2")
HOSTILE = "<!channel> <@U123> @here <https://evil.example.org|report> & *x* #general > \x02bold\x03"


def texts(value: dict[str, Any]) -> str:
    """All texts of a body, of Slack or Teams."""
    if "blocks" in value:
        return "\n".join(block["text"]["text"] for block in value["blocks"])
    card = value["attachments"][0]["content"]
    return "\n".join("".join(run["text"] for run in block["inlines"]) for block in card["body"])


@pytest.fixture(params=["slack", "teams", "webhook"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any, Settings]]:
    fake = {"slack": FakeSlack, "teams": FakeTeams, "webhook": FakeWebhook}[request.param]()
    with fake.serving():
        address = f"{fake.url}{fake.path}" + (f"?{fake.query}" if isinstance(fake, FakeTeams) else "")
        yield request.param, fake, Settings({f"POSTRUN_{request.param.upper()}_URL": address})


def test_a_message_is_posted_once(server: tuple[str, Any, Settings]) -> None:
    kind, fake, settings = server
    outcome = delivery(parse(kind), settings, OPTIONS).deliver(MESSAGE, ())
    assert outcome.did == {"slack": "posted a message (200)", "teams": "posted a message (202)", "webhook": "posted a message (201)"}[kind]
    assert len(fake.requests) == 1
    text = fake.requests[0].data.decode()
    assert "GPUs were busy 91% of the time." in text
    assert "LowGPUUtilization" in text


def test_texts_of_slack() -> None:
    value = slack(replace(MESSAGE, lines=("12% slower than before",)))
    assert value["text"] == "gpt-350m: 12% slower than before"
    assert texts(value).split("\n\n") == [
        "*Training run gpt-350m*",
        "*12% slower than before*",
        "*GPUs were busy 91% of the time.*",
        "2 nodes x 4 H100 · status: completed",
        "GPU busy: 91.1%",
        "*Findings to take up first (3 of 4)*",
        "\n".join(texts(value).split("\n\n")[6].split("\n")),
        "*Rules: 1 issue, 1 passed, 1 not evaluated*",
        "• LowGPUUtilization: issue: 8 of 8 GPUs are used too little.",
        "<https://r.example.org/latest/report.html?a=1&amp;b=2|The whole report>",
        texts(value).split("\n\n")[10],
    ]
    assert texts(value).split("\n\n")[6].startswith("1. *Feed GPU 1* (algo-1): ")
    assert texts(value).split("\n\n")[10].startswith("Written by postrun 0.1.0")


def test_texts_of_teams() -> None:
    value = teams(MESSAGE)
    card = value["attachments"][0]["content"]
    assert card["body"][0] == {
        "type": "RichTextBlock",
        "inlines": [{"type": "TextRun", "text": "Training run gpt-350m", "weight": "Bolder"}],
    }
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open the report", "url": MESSAGE.link}]
    assert "r.example.org" not in texts(value)
    finding = next(block["inlines"] for block in card["body"] if block["inlines"][0]["text"] == "1. ")
    assert finding[1] == {"type": "TextRun", "text": "Feed GPU 1", "weight": "Bolder"}
    stored = teams(replace(MESSAGE, link="s3://reports/x/report.html"))["attachments"][0]["content"]
    assert "actions" not in stored
    assert "s3://reports/x/report.html" in json.dumps(stored)


def test_json_of_programs() -> None:
    value = generic(MESSAGE)
    assert value["summary"]["verdicts"][0] == {"rule": "LowGPUUtilization", "verdict": "issue", "note": "8 of 8 GPUs are used too little."}
    assert value["text"].startswith("### Training run gpt-350m")
    assert set(value) == {"key", "summary", "text"}
    origin = {"run": "team/gpt-7", "rule": "slow steps", "family": "team/gpt"}
    of_night = generic(replace(MESSAGE, origin=origin))
    assert of_night == {**value, **origin}


def test_names_of_runs_have_no_effect(server: tuple[str, Any, Settings]) -> None:
    kind, fake, settings = server
    message = Message(
        HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), ((HOSTILE, HOSTILE),), (Verdict(HOSTILE, "issue", HOSTILE),),
        (Finding(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),), 1, (HOSTILE,), None, HOSTILE,
    )  # fmt: skip
    delivery(parse(kind), settings, OPTIONS).deliver(message, ())  # the fake looks for mentions and links
    value = fake.requests[-1].json()
    if kind == "slack":
        assert "<" not in texts(value) + value["text"]
        assert "&lt;!\u2060channel&gt; &lt;@\u2060U123&gt; @\u2060here" in texts(value)
        assert all(block["text"]["verbatim"] for block in value["blocks"])
    if kind == "teams":
        (heading,) = value["attachments"][0]["content"]["body"][0]["inlines"]
        assert heading["text"] == "Training run " + HOSTILE.replace("\x02bold\x03", "bold")


LONG = {
    "many rules": {"verdicts": tuple(Verdict(f"Rule{number}", "issue", "ä€😀<&>" * 60) for number in range(200))},
    "long lines": {"lines": ("x & " * 40_000,), "headline": "😀" * 20_000},
    "many lines": {"lines": tuple(f"Also run-{number}: issues found by IOBottleneck & <others>" for number in range(201))},
    "many findings": {"findings": tuple(Finding("t" * 5000, "w" * 5000, "v", "x" * 5000, "a" * 5000) for _ in range(3))},
    "a long name": {"run": "r&" * 60_000, "subtitle": "s" * 100_000},
}


@pytest.mark.parametrize("name", LONG)
def test_large_messages_are_cut_to_the_limits(server: tuple[str, Any, Settings], name: str) -> None:
    """The fake refuses what the vendor refuses; a note reports the cut."""
    kind, fake, settings = server
    delivery(parse(kind), settings, OPTIONS).deliver(replace(MESSAGE, **LONG[name]), ())
    if kind != "webhook":
        assert "Cut: a comment here has at most " in texts(fake.requests[-1].json())


def test_a_line_longer_than_a_section_is_cut_between_characters() -> None:
    from postrun.tickets.webhook import _packed

    assert _packed("a\nb", 3) == ["a\nb"]
    assert _packed("ab\ncd\n\nef", 5) == ["ab\ncd", "ef"]
    assert _packed("abcdef&amp;x", 9) == ["abcdef…"]
    assert _packed("a😀😀😀", 6) == ["a😀😀…"]


# ------------------------------------------------------------------------------ addresses are secrets


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "the webhook was removed"), (403, "check POSTRUN_"), (410, "check POSTRUN_"), (500, "check the target"), (307, "redirects")],
)
def test_no_error_contains_the_address(server: tuple[str, Any, Settings], status: int, words: str) -> None:
    kind, fake, settings = server
    address = settings.environment[f"POSTRUN_{kind.upper()}_URL"]
    secrets = [fake.path, "s3cret", "XXXXXXXX"]
    delivered = delivery(parse(kind), settings, OPTIONS)
    fake.faults.append(
        ("POST", "/", (status, {"Location": address.replace("127.0.0.1", "localhost")}, {"error": f"no {address} {fake.path}"}))
    )
    with pytest.raises(HttpError, match=words) as caught:
        delivered.deliver(MESSAGE, ())
    assert not any(secret in f"{caught.value} {delivered!r} {settings!r}" for secret in secrets)
    for fault, error in (("lose", LostAnswerError), ("drop", LostAnswerError)):
        fake.faults.append(("POST", "/", fault))
        with pytest.raises(error, match="Another call posts it again") as lost:
            delivered.deliver(MESSAGE, ())
        assert not any(secret in str(lost.value) for secret in secrets)


def test_a_busy_server_is_asked_again(server: tuple[str, Any, Settings]) -> None:
    kind, fake, settings = server
    waits: list[float] = []
    heard: list[str] = []
    fake.faults.append(("POST", "/", (429, {"Retry-After": "3"}, {"error": f"rate_limited at {fake.path}"})))
    options = replace(OPTIONS, sleep=waits.append, tell=heard.append)
    delivery(parse(kind), settings, options).deliver(MESSAGE, ())
    assert (waits, len(fake.requests)) == ([3.0], 2)
    assert fake.path not in heard[0]


def test_files_are_not_sent(server: tuple[str, Any, Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, _, settings = server
    for name, value in settings.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "report.json").write_text(json.dumps(report_json()))
    (tmp_path / "report.pdf").write_bytes(b"%PDF")
    done = CliRunner().invoke(main, ["attach", str(tmp_path), "--to", kind])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{kind}: posted a message (20")
    assert ", without files, which webhooks do not take" in done.stdout


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("slack", Target("slack", "slack")),
        ("slack:", Target("slack", "slack")),
        ("Teams:perf_team", Target("teams", "teams:perf_team", project="perf_team")),
        ("webhook:a1", Target("webhook", "webhook:a1", project="a1")),
    ],
)
def test_words_for_webhooks(word: str, target: Target) -> None:
    assert parse(word) == target
    assert parse(word, projects=True) == target


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("slack:https://hooks.slack.com/services/T0/B0/s3cret", "set POSTRUN_SLACK_URL, write slack"),
        ("https://hooks.slack.com/services/T0/B0/s3cret", "set POSTRUN_SLACK_URL, write slack"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/s3cret", "set POSTRUN_TEAMS_URL, write teams"),
        ("https://x.api.powerplatform.com/powerautomate/s3cret", "set POSTRUN_TEAMS_URL, write teams"),
        ("slack:#perf", "small letters"),
        ("teams:Perf", "small letters"),
    ],
)
def test_addresses_are_not_accepted_as_words(word: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse(word)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("address", ["hooks.slack.com/s3cret", "https://", "ftp://h/s3cret", "https://h:port/s3cret", "https://h/s3 cret"])
def test_a_wrong_address_is_not_repeated(address: str) -> None:
    with pytest.raises(UsageError, match="POSTRUN_SLACK_URL is not the address of a webhook") as caught:
        delivery(parse("slack"), Settings({"POSTRUN_SLACK_URL": address}), OPTIONS)
    assert "s3" not in str(caught.value)


def test_settings_of_named_webhooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tickets.toml"
    file.write_text(
        '[slack]\nurl = "https://one.org/x"\nperf_url = "https://two.org/x"\n[webhook]\nci_headers = "A: b"\nci_url = "https://c.org"\n'
    )
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        ticket_settings.load({"POSTRUN_TICKETS_CONFIG": str(file)})
    file.chmod(0o600)
    known = ticket_settings.load({"POSTRUN_TICKETS_CONFIG": str(file), "POSTRUN_TEAMS_ML_URL_FILE": str(tmp_path / "ml")})
    (tmp_path / "ml").write_text("https://three.org/x\n")
    bases = [delivery(parse(word), known, OPTIONS).client.base for word in ("slack", "slack:perf", "teams:ml", "webhook:ci")]  # type: ignore[attr-defined]
    assert bases == ["https://one.org", "https://two.org", "https://three.org", "https://c.org"]
    assert delivery(parse("webhook:ci"), known, OPTIONS).client.headers == {"A": "b"}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="teams needs the address of its webhook: set POSTRUN_TEAMS_URL"):
        delivery(parse("teams"), known, OPTIONS)
    file.write_text('[slack]\nperf_token = "x"\n')
    with pytest.raises(UsageError, match="perf_token is unknown"):
        ticket_settings.load({"POSTRUN_TICKETS_CONFIG": str(file)})
    wrong = "POSTRUN_SLACK_PERF_URI"
    for name in ("POSTRUN_SLACK_URL", "POSTRUN_SLACK_PERF_URL", "POSTRUN_TEAMS_ML_URL_FILE", "POSTRUN_WEBHOOK_CI_HEADERS", wrong):
        monkeypatch.setenv(name, "x")
    assert [line.split()[3] for line in unknown([])] == [wrong]


def test_a_preview_needs_no_address(server: tuple[str, Any, Settings]) -> None:
    kind, fake, settings = server
    for known in (settings, Settings({})):
        text = preview(parse(kind), known, OPTIONS, MESSAGE, ())
        assert "GPUs were busy 91% of the time." in text
        assert fake.path not in text
    assert "POST to the webhook" in preview(parse(f"{kind}:perf"), Settings({}), OPTIONS, MESSAGE, ())
    assert fake.requests == []


def test_rules_of_a_night_post_messages(server: tuple[str, Any, Settings]) -> None:
    kind, fake, settings = server
    row = Row(
        "jobs/gpt-1", "reported", "traces", "f" * 32, "o", 1, 1, folder="runs/jobs/gpt-1/ffff", written=("report.json", "report.pdf"),
        name="gpt-1", headline="x", verdicts={"LowGPUUtilization": "IssuesFound"},
    )  # fmt: skip
    rules = notify.rules({"rule": [{"name": "any", "to": kind, "verdicts": ["any"]}]}, "rules.toml")
    (action,) = notify.actions(rules, [row], ())
    line, ticket = notify.send(
        action,
        lambda path: json.dumps(report_json()).encode(),
        settings=settings,
        options=OPTIONS,
        link="https://s3.org/r?X-Amz-Signature=5ig",
    )
    assert ticket == kind
    assert line.startswith(f"any: {kind}: posted a message")
    body = fake.requests[0].data.decode()
    assert "X-Amz-Signature=5ig" in body
    assert "issues found by LowGPUUtilization" in body
    assert "5ig" not in line
