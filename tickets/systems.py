"""Which program part speaks to the system that a target names?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from . import gitea, github, gitlab, jira, mail, redmine, roundup, tracker, web
from .http import Options, Upload
from .message import Message
from .settings import Settings
from .target import Target
from .tracker import Outcome, Tracker


class Delivery(Protocol):
    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome: ...


class OnTicket:
    """A message to a ticket of a tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome:
        return tracker.deliver(self.tracker, message, files)


def tracker_of(target: Target, settings: Settings, options: Options, release: str | None = None) -> Tracker | None:
    """None for mail and plain web addresses, which are no tickets. Raises UsageError where an address, a name or a token is missing."""
    match target.kind:
        case "jira":
            return jira.tracker(target, settings, options)
        case "gitlab":
            return gitlab.tracker(target, settings, options)
        case "github":
            return github.tracker(target, settings, options, release)
        case "gitea":
            return gitea.tracker(target, settings, options)
        case "redmine":
            return redmine.tracker(target, settings, options)
        case "roundup":
            return roundup.tracker(target, settings, options)
    return None


def delivery(target: Target, settings: Settings, options: Options, release: str | None = None) -> Delivery:
    if (ticket := tracker_of(target, settings, options, release)) is not None:
        return OnTicket(ticket)
    return mail.mailer(target, settings, options) if target.kind == "mail" else web.web(target, settings, options)
