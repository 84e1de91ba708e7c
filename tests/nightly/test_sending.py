"""Messages that a night could not send are sent by the next call, these and no others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from call_nightly import nightly
from postrun.errors import InputError, PostrunError
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import notify, outbox
from postrun.nightly.addresses import Addresses
from postrun.nightly.claims import Claims
from postrun.nightly.event_log import night_log
from postrun.nightly.history import Finding
from postrun.nightly.model import Row
from postrun.nightly.sending import Sender
from postrun.nightly.unannounced import announcing, of_ended_nights
from postrun.tickets.http import HttpError, UnreachableError
from ticket_fakes import FakeJira


def row(name: str, **more: Any) -> Row:
    base: dict[str, Any] = {"state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1000, "files": 1}
    return Row(**{"id": name, **base, "verdicts": {"IOBottleneck": "IssuesFound"}, **more})


def rules(*targets: str, **more: Any) -> tuple[notify.Rule, ...]:
    return notify.rules({"rule": [{"name": place, "to": place, "verdicts": ["any"], "per": "run", **more} for place in targets]}, "r.toml")


class Server:
    """The messages that arrived. ``down`` decides for each whether its server fails, and how."""

    def __init__(self) -> None:
        self.arrived: list[tuple[str, str]] = []
        self.keys: list[str] = []
        self.down: Callable[[notify.Action], BaseException | None] = lambda action: None

    def send(self, action: notify.Action, read: Any, *, link: str | None, alone: object) -> tuple[str, str]:
        if (error := self.down(action)) is not None:
            raise error
        self.arrived.append((action.rule, action.message.run))
        self.keys.append(action.message.key)
        return "commented", "jira:PERF 7"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(notify, "send", server.send)
    return server


@pytest.fixture
def out(tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "out")


@contextmanager
def sender(out: Objects, of_rules: tuple[notify.Rule, ...], known: list[Row], warnings: list[str] | None = None) -> Iterator[Sender]:
    with night_log(None) as log:
        rows = {one.id: one for one in known}
        warn = [].append if warnings is None else warnings.append
        yield Sender(of_rules, Addresses(out), rows, (), lambda line: None, warn, log)


def send(
    out: Objects, of_rules: tuple[notify.Rule, ...], new: list[Row], known: list[Row] | None = None, warnings: list[str] | None = None
) -> list[dict[str, str]]:
    """Send as a night that has reported ``new``."""
    with Claims(out) as claims, announcing(claims, bool(new)), sender(out, of_rules, known or new, warnings) as messages:
        return messages.night(claims, new, ())


def unreachable(action: notify.Action) -> UnreachableError:
    return UnreachableError("no answer within 60 s; tried 5 times")


def test_only_messages_that_were_not_sent_are_sent_later(out: Objects, server: Server) -> None:
    rows = [row(name) for name in "abc"]
    server.down = lambda action: HttpError("busy", 503, "") if action.run == "b" else None
    first = send(out, rules("jira:PERF"), rows)
    assert [("error" in one, one["run"]) for one in first] == [(False, "a"), (True, "b"), (False, "c")]
    assert len(list(out.list("nights/"))) == 1
    server.down = lambda action: None
    newer = [*rows, row("d")]
    assert [one["run"] for one in send(out, rules("jira:PERF"), [newer[-1]], newer)] == ["b", "d"]
    assert [run for _, run in server.arrived] == ["a", "c", "b", "d"]
    assert list(out.list()) == []
    assert send(out, rules("jira:PERF"), [], newer) == []


def test_the_line_of_a_message_names_its_run(out: Objects, server: Server) -> None:
    lines: list[str] = []
    with Claims(out) as claims, night_log(None) as log:
        Sender(rules("jira:PERF"), Addresses(out), {"a": row("a")}, (), lines.append, lines.append, log).night(claims, [row("a")], ())
    assert lines == ["jira:PERF: jira:PERF: a: commented"]


def refused(action: notify.Action) -> HttpError:
    return HttpError("the project is archived", 403, "")


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Let the clock go on."""
    now = time.time_ns()
    monkeypatch.setattr("time.time_ns", lambda: now + round(days * 86_400 * 10**9))


def test_a_message_that_is_refused_for_two_weeks_is_given_up_aloud(
    out: Objects, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [row(name) for name in "ab"]
    server.down = lambda action: refused(action) if action.run == "b" else None
    send(out, rules("jira:PERF"), rows)
    assert outbox.waiting(out) == 1
    later(monkeypatch, 13.9)
    (result,) = send(out, rules("jira:PERF"), [], rows)
    assert (result["error"], "given_up" in result, outbox.waiting(out)) == ("the project is archived", False, 1)
    later(monkeypatch, 0.2)
    warnings: list[str] = []
    with Claims(out) as claims, night_log(tmp_path / "log") as log:
        messages = Sender(rules("jira:PERF"), Addresses(out), {one.id: one for one in rows}, (), warnings.append, warnings.append, log)
        (result,) = messages.night(claims, [], ())
    assert (result["error"], result["given_up"]) == ("the project is archived", ["issues found by IOBottleneck"])
    assert warnings == [
        "jira:PERF: jira:PERF: b: the project is archived; given up after 14 days. The message was: issues found by IOBottleneck"
    ]
    event = json.loads((tmp_path / "log").read_text().splitlines()[0])
    assert (event["event"], event["run"], event["given_up"]) == ("ticket_given_up", "b", ["issues found by IOBottleneck"])
    assert (list(out.list()), outbox.waiting(out)) == ([], 0)


def test_a_message_is_tried_before_it_is_given_up(out: Objects, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no night came for weeks."""
    server.down = refused
    send(out, rules("jira:PERF"), [row("a")])
    later(monkeypatch, 60)
    server.down = lambda action: None
    assert "error" not in send(out, rules("jira:PERF"), [], [row("a")])[0]
    assert list(out.list()) == []


def test_the_age_of_messages_of_an_earlier_version_is_that_of_their_file(out: Objects, server: Server, monkeypatch: Any) -> None:
    path = f"nights/{'0' * 32}.outbox.json"
    out.write(path, json.dumps({"layout": "postrun.outbox/1", "messages": [MESSAGE]}).encode())
    server.down = refused
    assert "given_up" not in send(out, rules("jira:PERF"), [], [row("a")])[0]
    later(monkeypatch, 14)
    assert "given_up" in send(out, rules("jira:PERF"), [], [row("a")])[0]


def test_a_message_that_is_sent_later_is_the_same(out: Objects, server: Server) -> None:
    rows = [replace(row(name), state="failed", reason="cut off", verdicts={}) for name in ("gpt-1", "gpt-2", "gpt-3")]
    of_rules = rules("jira:PERF", failed=True, per="family", title="{family}: {reason}")
    sent: list[notify.Action] = []
    server.down = lambda action: (sent.append(action), unreachable(action))[1]
    send(out, of_rules, rows)
    server.down = lambda action: (sent.append(action), None)[1]
    send(out, of_rules, [], rows)
    assert sent[0] == sent[1]
    assert sent[0].message.lines[1:] == ("Also gpt-2: there is no report: cut off", "Also gpt-3: there is no report: cut off")


def test_messages_are_listed_with_the_ids_of_runs(out: Objects, server: Server) -> None:
    server.down = lambda action: refused(action) if action.run == "team/b" else None
    warnings: list[str] = []
    rows = [replace(row(run_id), name="gpt") for run_id in ("team/a", "team/b")]
    assert [one["run"] for one in send(out, rules("jira:PERF"), rows, warnings=warnings)] == ["team/a", "team/b"]
    assert warnings == ["jira:PERF: jira:PERF: team/b: the project is archived"]


def test_a_summary_of_many_is_sent_later(out: Objects, server: Server) -> None:
    rows = [row(f"r{number}") for number in range(5)]
    sent: list[notify.Action] = []
    server.down = lambda action: (sent.append(action), unreachable(action))[1]
    of_rules = rules("jira:PERF", limit=2)
    send(out, of_rules, rows)
    server.down = lambda action: (sent.append(action), None)[1]
    results = send(out, of_rules, [], rows)
    assert [action.message.run for action in sent] == ["r0", "r0", "4 runs"]
    assert [(one.get("run"), one.get("runs")) for one in results] == [("r0", None), (None, 4)]
    assert sent[2].message.lines == tuple(f"r{number}: issues found by IOBottleneck" for number in range(1, 5))
    assert sent[2] == notify.actions(of_rules, rows, ())[1]


def test_a_night_that_is_killed_between_two_messages_repeats_none(out: Objects, server: Server) -> None:
    """The second message arrived; its key shows the ticket system that it is known."""
    rows = [row(name) for name in "abc"]

    def killed(action: notify.Action) -> BaseException | None:
        if action.run != "b":
            return None
        server.arrived.append((action.rule, action.message.run))
        server.keys.append(action.message.key)
        return KeyboardInterrupt()

    server.down = killed
    with pytest.raises(KeyboardInterrupt):
        send(out, rules("jira:PERF"), rows)
    server.down = lambda action: None
    with Claims(out) as claims, of_ended_nights(out, claims) as ended:
        assert ended == frozenset()  # its messages are in its outbox
    send(out, rules("jira:PERF"), [], rows)
    assert [run for _, run in server.arrived] == ["a", "b", "b", "c"]
    assert server.keys[1] == server.keys[2]
    assert list(out.list()) == []


def test_nights_that_are_killed_one_after_the_other_send_each_message_once(out: Objects, server: Server) -> None:
    # The first is killed before it writes its messages, the second while it sends those of both.
    with pytest.raises(KeyboardInterrupt), Claims(out) as first, announcing(first, True):
        raise KeyboardInterrupt
    rows = [row("a", night=first.night)]
    server.down = lambda action: KeyboardInterrupt()

    def take_over() -> None:
        with Claims(out) as second, announcing(second, True), of_ended_nights(out, second) as ended:
            assert ended == {first.night}
            rows.append(row("b", night=second.night))
            with sender(out, rules("jira:PERF"), rows) as messages:
                messages.night(second, rows, ())

    with pytest.raises(KeyboardInterrupt):
        take_over()
    server.down = lambda action: None
    with Claims(out) as third, of_ended_nights(out, third) as ended:
        assert ended == frozenset()  # all messages are in the outbox of the second
    send(out, rules("jira:PERF"), [], rows)
    assert [run for _, run in server.arrived] == ["a", "b"]
    assert list(out.list()) == []


def test_what_matched_in_a_night_that_was_killed_is_passed_on_until_a_night_ends(out: Objects, server: Server) -> None:
    rows = [row("a"), row("b")]

    def night(new: list[Row], matched: str | None) -> list[str]:
        with Claims(out) as claims, announcing(claims, bool(new)), sender(out, rules("jira:PERF"), rows) as messages:
            messages.night(claims, new, (), matched)
        return messages.earlier

    server.down = lambda action: KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        night([rows[0]], "issues in a")
    server.down = lambda action: KeyboardInterrupt() if action.run == "b" else None
    with pytest.raises(KeyboardInterrupt):
        night([rows[1]], "issues in b")
    server.down = unreachable
    assert night([], None) == ["issues in b; issues in a"]
    assert night([], None) == []  # a night has ended with 3, though a message waits
    assert outbox.waiting(out) == 1


def test_a_night_whose_clock_is_ahead_does_not_keep_messages_for_longer(out: Objects) -> None:
    begun = time.time_ns() - 14 * 86_400 * 10**9
    for at_ns in (time.time_ns() * 2, begun):
        box = outbox.Outbox(out, "0" * 32, [], at_ns)
        box.write()
        with Claims(out) as claims:
            (read,) = outbox.left(out, claims)
            claims.give_back(f"nights/{read.night}.claim.json")
        assert read.at_ns == min(at_ns, out.head(box.path).modified_ns)  # type: ignore[union-attr]
        assert read.gives_up == (at_ns == begun)


def test_what_matched_is_text(out: Objects) -> None:
    box = outbox.Outbox(out, "0" * 32, [], 0)
    box.write()
    path = box.path
    value = json.loads(out.read(path))
    out.write(path, json.dumps({**value, "matched": 3}).encode(), content_type="application/json")
    with Claims(out) as claims:
        (read,) = outbox.left(out, claims)
        assert read.damaged


def test_an_outbox_that_another_night_sends_is_left_alone(out: Objects, server: Server) -> None:
    rows = [row(name) for name in "ab"]
    during: list[list[dict[str, str]]] = []

    def meanwhile(action: notify.Action) -> None:
        if not during:
            during.append([])
            server.down = lambda action: None
            during[0] = send(out, rules("jira:PERF"), [], rows)

    server.down = meanwhile
    send(out, rules("jira:PERF"), rows)
    assert during == [[]]
    assert [run for _, run in server.arrived] == ["a", "b"]


def test_messages_of_another_file_of_rules_wait_for_it(out: Objects, server: Server) -> None:
    rows, warnings = [row("a")], list[str]()
    server.down = unreachable
    send(out, rules("jira:PERF", "gitlab:group/project"), rows)
    server.down = lambda action: None
    send(out, rules("jira:PERF"), [], rows, warnings)
    assert server.arrived == [("jira:PERF", "a")]
    assert len(warnings) == 1
    assert "1 message of rules that are not in this file" in warnings[0]
    send(out, rules("gitlab:group/project"), [], rows)
    assert server.arrived == [("jira:PERF", "a"), ("gitlab:group/project", "a")]


def test_a_run_that_is_forgotten_is_named(out: Objects, server: Server) -> None:
    warnings: list[str] = []
    server.down = unreachable
    send(out, rules("jira:PERF"), [row("a")])
    send(out, rules("jira:PERF"), [], [row("b")], warnings)
    assert warnings == ["jira:PERF: a: not sent, because the run is not in the index anymore"]
    assert list(out.list()) == []


MESSAGE = {"rule": "jira:PERF", "key": "k", "run": "a", "reasons": ["slow"], "more": [], "number": 1}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"layout": "postrun.outbox/1"}', b"[" * 100_000,
        json.dumps({"layout": "postrun.outbox/2", "messages": []}).encode(),
        *(json.dumps({"layout": "postrun.outbox/1", "messages": [MESSAGE | more]}).encode() for more in (
            {"rule": 1}, {"key": None}, {"run": 7}, {"reasons": "slow", "run": 1}, {"reasons": []}, {"reasons": [None]}, {"more": None},
            {"number": "1"}, {"number": True},
        )),
        json.dumps({"layout": "postrun.outbox/1", "at_ns": 1e400, "messages": [MESSAGE]}).encode(),
        json.dumps({"layout": "postrun.outbox/1", "messages": MESSAGE}).encode(),
    ],
)  # fmt: skip
def test_a_damaged_outbox_is_named_and_ends_no_night(content: bytes, out: Objects, server: Server) -> None:
    path, warnings = f"nights/{'0' * 32}.outbox.json", list[str]()
    out.write(path, content)
    send(out, rules("jira:PERF"), [row("b")], [row("a"), row("b")], warnings)
    assert server.arrived == [("jira:PERF", "b")]
    assert (len(warnings), outbox.waiting(out)) == (1, 1)
    assert f"{path}: not as postrun nightly writes it, so the messages in it are not sent; remove it" in warnings[0]
    assert [file.path for file in out.list()] == [path]
    out.write(path, json.dumps({"layout": "postrun.outbox/1", "messages": [MESSAGE]}).encode())
    send(out, rules("jira:PERF"), [], [row("a")])
    assert server.arrived[1:] == [("jira:PERF", "a")]


def test_a_night_that_leaves_a_damaged_outbox_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "slow"\nto = "https://chat.example.org/x"\nregression = true\n')
    box = tmp_path / "out" / "nights" / f"{'0' * 32}.outbox.json"
    box.parent.mkdir(parents=True)
    box.write_bytes(b"{")
    arguments = (tmp_path / "source", "--out", tmp_path / "out", "--index-only", "--attach", tmp_path / "rules.toml")
    done = nightly(*arguments)
    assert (done.exit_code, done.stderr.count("remove it"), "the next call" in done.stderr) == (1, 1, False)
    box.unlink()
    assert nightly(*arguments).exit_code == 0


def test_a_message_that_cannot_be_noted_is_reported(out: Objects, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    write = out.write

    def full(path: str, data: Any, **more: Any) -> Any:
        if server.arrived:
            raise InputError("the store is full")
        return write(path, data, **more)

    monkeypatch.setattr(out, "write", full)
    sent = send(out, rules("jira:PERF"), [row("a")], warnings=warnings)
    assert sent == [{"rule": "jira:PERF", "to": "jira:PERF", "run": "a", "outcome": "commented"}]
    assert warnings == ["jira:PERF: done, but this could not be noted, so the next night tries it again: the store is full"]


def test_a_regression_of_a_run_of_an_earlier_night_is_sent_without_its_issues(out: Objects, server: Server) -> None:
    regression = Finding("regression", "old", "old", "12% slower", 3, metric="step")
    of_rules = rules("jira:PERF", regression=True)
    (action,) = notify.actions(of_rules, [], [regression], (), {"old": row("old")})
    assert action.message.lines == ("12% slower",)
    assert notify.actions(rules("jira:PERF"), [], [regression], (), {"old": row("old")}) == []
    (action,) = notify.actions(of_rules, [row("old")], [regression], (), {"old": row("old")})
    assert action.message.lines == ("12% slower", "issues found by IOBottleneck")


def test_links_of_a_night_are_not_logged(out: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A presigned link opens the report for everyone, also one that a server repeats."""
    links: list[str] = []

    def send(action: Any, read: Any, *, link: str, alone: object) -> tuple[str, str]:
        links.append(link)
        if len(links) == 2:
            raise PostrunError(f"the server refuses it (422: {link} is too long)")
        return "any: jira:PERF: wrote a comment", "jira:PERF 7"

    monkeypatch.setattr(Addresses, "of_ticket", lambda self, row: "https://store.example.org/report.html?X-Amz-Signature=5ecret")
    monkeypatch.setattr(notify, "send", send)
    rows, lines = [row(name) for name in "ab"], list[str]()
    with night_log(tmp_path / "log") as log, Claims(out) as claims:
        messages = Sender(rules("jira:PERF"), Addresses(out), {}, (), lines.append, lines.append, log)
        done = messages.night(claims, rows, ())
    assert links == ["https://store.example.org/report.html?X-Amz-Signature=5ecret"] * 2
    first, second, _ = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (first["event"], first["outcome"]) == ("ticket", "any: jira:PERF: wrote a comment")
    assert (second["event"], second["error"]) == (
        "ticket_failed", "the server refuses it (422: https://store.example.org/report.html?*** is too long)"
    )  # fmt: skip
    outbox = next(out.read(file.path).decode() for file in out.list("nights/"))
    assert "5ecret" not in (tmp_path / "log").read_text() + "".join(lines) + json.dumps(done) + outbox


def test_a_server_that_does_not_answer_gets_one_message(out: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tries of a minute each for all tickets of a night would take hours."""
    tried = []

    def send(action: Any, read: Any, *, link: str, alone: object) -> tuple[str, str]:
        tried.append(action.target.text)
        if action.target.kind == "gitea":
            raise UnreachableError("no answer within 60 s; tried 5 times")
        raise HttpError("refuses it", 422, "")

    monkeypatch.setattr(notify, "send", send)
    targets = ("gitea:o/r", "gitea:o/another", "jira:PERF", "gitea:https://tickets.example.org/o/r/issues/7")
    rows = [row(name) for name in "ab"]
    with Claims(out) as claims, sender(out, rules(*targets), rows) as messages:
        sent = messages.night(claims, rows, ())
    assert tried == ["gitea:o/r", "jira:PERF", "jira:PERF", targets[3]]
    assert len(sent) == 2 * len(targets)
    assert sum("did not answer the previous message" in one["error"] for one in sent) == 4


def test_two_nights_open_one_ticket_for_a_family(out: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    both_look = threading.Barrier(2)

    class Slow(FakeJira):
        def answer(self, request: Any) -> tuple[int, Any, dict[str, str]]:
            result = super().answer(request)
            if "search" in request.path:
                with suppress(threading.BrokenBarrierError):
                    both_look.wait(1)
            return result

    def night(name: str) -> None:
        rows = [replace(row(name), state="failed", reason="cut off")]
        with Claims(out) as claims, sender(out, rules("jira:PROJ", failed=True, per="family", attach=[]), rows) as messages:
            outcomes.extend(messages.night(claims, rows, ()))

    outcomes = list[dict[str, str]]()
    with Slow().serving() as fake:
        for setting, value in (("URL", fake.url), ("TOKEN", fake.token), ("USER", "me@example.org")):
            monkeypatch.setenv(f"POSTRUN_JIRA_{setting}", value)
        before = len(fake.issues)
        threads = [threading.Thread(target=night, args=(name,)) for name in ("gpt-1", "gpt-2")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(fake.issues) == before + 1, outcomes
    assert sorted("opened" in one["outcome"] for one in outcomes) == [False, True]
    assert list(out.list()) == []
