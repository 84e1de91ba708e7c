"""The messages of a night: its actions and the outboxes of earlier nights -> tickets, mails and posts, each sent once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..analysis.toolkit.wording import plural
from ..errors import PostrunError
from ..tickets.http import TicketError, UnreachableError
from . import notify, outbox
from .addresses import Addresses
from .claims import Claims
from .done_markers import record_ticket

if TYPE_CHECKING:
    from .event_log import EventLog
    from .history import Finding
    from .model import Row

_TICKETS_CLAIM: Final = f"{outbox.FOLDER}/tickets.claim.json"


@dataclass(slots=True)
class Sender:
    """``tell`` receives a line for each message that is sent, ``warn`` one for each problem. ``rows``: of all runs in the index. ``sent``:
    the outcome of each message, or its error; if it is given up, also its lines. ``damaged``: outboxes that cannot be read. ``earlier``:
    what ``--fail-on`` matched in nights that were killed while they sent. A server that does not answer gets one message, so that no night
    waits minutes for each other one."""

    rules: Sequence[notify.Rule]
    addresses: Addresses
    rows: Mapping[str, Row]
    patterns: Sequence[re.Pattern[str]]
    tell: Callable[[str], None]
    warn: Callable[[str], None]
    log: EventLog
    sent: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    earlier: list[str] = field(default_factory=list)
    unreachable: set[str] = field(default_factory=set)

    def night(
        self, claims: Claims, rows: Sequence[Row], regressions: Sequence[Finding], matched: str | None = None
    ) -> list[dict[str, Any]]:
        """Send the messages of earlier nights, then those of this night.

        ``rows``, ``regressions``, ``matched``: of this night."""
        out = self.addresses.out
        actions = notify.actions(self.rules, rows, regressions, self.patterns, self.rows)
        ended = sorted({row.night for row in rows if row.night is not None} - {claims.night})
        # First: a night that is killed loses none.
        mine = outbox.new(out, claims, [notify.entry(action) for action in actions], ended, matched)
        for box in outbox.left(out, claims):
            with outbox.opened(box, claims):
                self._earlier(box, claims, mine)
        with outbox.opened(mine, claims):
            for action, entry in zip(actions, list(mine.entries), strict=True):
                self._send(action, mine, entry, claims)
        return self.sent

    def _earlier(self, box: outbox.Outbox, claims: Claims, mine: outbox.Outbox) -> None:
        file = box.out.place(box.path)
        if box.matched is not None:
            self.earlier.append(box.matched)
            if mine.entries:  # this night may be killed too
                mine.matched = "; ".join(filter(None, [mine.matched, box.matched]))
                mine.write()
        if box.damaged:
            self.damaged += 1
            self.warn(f"{file}: not as postrun nightly writes it, so the messages in it are not sent; remove it")
        names = {rule.name for rule in self.rules}
        for entry in list(box.entries):
            if entry.rule not in names:
                continue
            action = notify.restored(entry, self.rules, self.rows, self.patterns)
            if action is None:
                self.warn(f"{entry.rule}: {entry.run}: not sent, because the run is not in the index anymore")
                self._noted(box, entry)
            else:
                self._send(action, box, entry, claims)
        if rest := sum(entry.rule not in names for entry in box.entries):
            self.warn(f"{file}: {plural(rest, 'message')} of rules that are not in this file; give their file, or remove this one")

    def _send(self, action: notify.Action, box: outbox.Outbox, entry: outbox.Entry, claims: Claims) -> None:
        link, ticket = None, ""
        about = {"runs": action.number} if action.run is None else {"run": action.run}
        result: dict[str, Any] = {"rule": action.rule, "to": action.target.text, **about}
        try:
            if action.target.server in self.unreachable:
                raise TicketError("not sent, because the server did not answer the previous message")
            link = None if action.row is None else self.addresses.of_ticket(action.row)
            alone = partial(claims.alone, _TICKETS_CLAIM)
            result["outcome"], ticket = notify.send(action, self.addresses.out.read, link=link, alone=alone)
        except (PostrunError, OSError) as error:
            if isinstance(error, UnreachableError):
                self.unreachable.add(action.target.server)
            signature = (link or "").partition("?")[2]  # a server may repeat what it refuses
            result["error"] = str(error).replace(signature, "***") if signature else str(error)
            line = f"{action.rule}: {action.target.text}: {action.run or action.message.run}: {result['error']}"
            if box.gives_up:
                result["given_up"] = list(action.message.lines)
                line += f"; given up after {outbox.DAYS} days. The message was: {'; '.join(action.message.lines)}"
            self.warn(line)
        else:
            self._noted(box, entry)
            if action.row is not None:
                self._recorded(action.row, ticket)
            target = f"{action.rule}: {action.target.text}: "
            self.tell(f"{target}{action.run or action.message.run}: {result['outcome'].removeprefix(target)}")
        self.sent.append(result)
        self.log.ticket(result)
        if "given_up" in result:  # last: a night that is killed repeats this rather than loses it
            self._noted(box, entry)

    def _noted(self, box: outbox.Outbox, entry: outbox.Entry) -> None:
        try:
            box.remove(entry)
        except (PostrunError, OSError) as error:
            self.warn(f"{entry.rule}: done, but this could not be noted, so the next night tries it again: {error}")

    def _recorded(self, row: Row, ticket: str) -> None:
        try:
            record_ticket(self.addresses.out, row, ticket)
        except (PostrunError, OSError) as error:
            self.warn(
                f"{ticket}: it links to the report of {row.id}, which could not be noted, so postrun nightly prune may remove it: {error}"
            )
