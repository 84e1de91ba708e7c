"""Chooses the class that delivers to each kind of target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from . import gitea, github, gitlab, jira, mail, redmine, roundup, web, webhook
from .http import Options, Upload
from .message import Message
from .settings import Settings
from .target import Kind, Target
from .tracker import Outcome


class Delivery(Protocol):
    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome: ...


_DELIVERIES: Final[dict[Kind, Callable[[Target, Settings, Options], Delivery]]] = {
    "jira": jira.tracker,
    "gitlab": gitlab.tracker,
    "github": github.tracker,
    "gitea": gitea.tracker,
    "redmine": redmine.tracker,
    "roundup": roundup.tracker,
    "mail": mail.mailer,
    "web": web.web,
    "slack": webhook.webhook,
    "teams": webhook.webhook,
    "webhook": webhook.webhook,
}


def delivery(target: Target, settings: Settings, options: Options) -> Delivery:
    """Return the delivery to a target. Raise UsageError for a missing setting."""
    return _DELIVERIES[target.kind](target, settings, options)
