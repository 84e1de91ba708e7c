"""Addresses, names and tokens of ticket servers: environment and configuration file -> `Settings`.

The environment overrides the file. A value is ``POSTRUN_<SECTION>_<NAME>``, such as ``POSTRUN_JIRA_TOKEN``; of a secret also
``..._FILE``, a file that contains it. The configuration file is ``$POSTRUN_TICKETS_CONFIG``, else ``postrun/tickets.toml`` in
``$XDG_CONFIG_HOME`` (else ``~/.config``), and has a table per section. Nobody but its owner may read it if it contains a secret.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from ..errors import UsageError
from .target import Target

SECTIONS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    # section -> (plain names, secret names)
    "jira": (("url", "user"), ("token",)),
    "gitlab": (("url",), ("token",)),
    "github": (("url",), ("token",)),
    "gitea": (("url",), ("token",)),
    "redmine": (("url", "markup"), ("token",)),
    "roundup": (("url", "user"), ("password",)),
    "mail": (("host", "port", "security", "user", "from"), ("password",)),
    "attach": ((), ("headers",)),
    "slack": ((), ("url",)),
    "teams": ((), ("url",)),
    "webhook": ((), ("url", "headers")),
}
_CHANNELS: Final = ("slack", "teams", "webhook")  # a name before url and headers is that of a channel: perf_url
CONFIG: Final = "POSTRUN_TICKETS_CONFIG"
_API_HOSTS: Final[dict[str | None, str]] = {"api.github.com": "github.com"}
CA_BUNDLE: Final = "POSTRUN_CA_BUNDLE"


def variables() -> Iterator[str]:
    """Every environment variable that is read here."""
    yield from (CONFIG, CA_BUNDLE)
    for section, (plain, secret) in SECTIONS.items():
        yield from (variable(section, name) for name in (*plain, *secret))
        yield from (variable(section, name) + "_FILE" for name in secret)


def variable(section: str, name: str) -> str:
    """Return the environment variable of a setting."""
    return f"POSTRUN_{section}_{name}".upper()


@dataclass(frozen=True)
class Settings:
    """Values by section and name. Secrets are in no message and not in the repr."""

    environment: Mapping[str, str] = field(repr=False)
    file: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    path: Path | None = None

    def get(self, section: str, name: str, default: str | None = None) -> str | None:
        value = self.environment.get(variable(section, name), "").strip() or self.file.get(section, {}).get(name, "").strip()
        return value or default

    def need(self, section: str, name: str, why: str) -> str:
        """Return a value. Raise UsageError with ``why`` if it is not set."""
        return self.get(section, name) or self._missing(section, name, why, "")

    def server(self, target: Target, example: str) -> str:
        """Return the server of the target, else of the settings.

        Both must name the same server, because the token is for that one."""
        configured = self.get(target.kind, "url")
        if target.url is None:
            return configured or self._missing(target.kind, "url", f"{target.text} does not name the server (such as {example})", "")
        if configured is None:
            return target.url
        ours, theirs = urlsplit(configured), urlsplit(target.url)
        if (_API_HOSTS.get(ours.hostname, ours.hostname), ours.port) != (theirs.hostname, theirs.port):
            setting = f"POSTRUN_{target.kind.upper()}_URL ({configured}), which the token is for"
            raise UsageError(f"{target.text} is on another server than {setting}; name one of the two")
        return configured

    def secret(self, section: str, name: str) -> str | None:
        """Read the environment, the file that it names, or the configuration file."""
        if value := self.environment.get(variable(section, name), "").strip():
            return value
        if named := self.environment.get(variable(section, name) + "_FILE", ""):
            return _secret_file(Path(named), variable(section, name) + "_FILE")
        return self.file.get(section, {}).get(name, "").strip() or None

    def need_secret(self, section: str, name: str, why: str) -> str:
        return self.secret(section, name) or self._missing(
            section, name, why, f", or {variable(section, name)}_FILE to a file that contains it"
        )

    def _missing(self, section: str, name: str, why: str, file: str) -> NoReturn:
        path = self.path or default_path(self.environment)
        raise UsageError(f"{why}: set {variable(section, name)}{file}, or {name} in [{section}] of {path}")


def default_path(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "postrun" / "tickets.toml"


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the user's settings. Raise UsageError for an unsafe or wrong file."""
    environment = os.environ if environment is None else environment
    named = environment.get(CONFIG, "")
    path = Path(named) if named else default_path(environment)
    if not path.is_file():
        if named:
            raise UsageError(f"{path}: there is no such file; check {CONFIG}")
        return Settings(environment)
    content = read_toml(path, CONFIG)
    tables: dict[str, dict[str, str]] = {}
    secrets = False
    for section, table in content.items():
        if section not in SECTIONS or not isinstance(table, dict):
            raise UsageError(f"{path}: [{section}] is not a table of ticket settings; possible: {', '.join(SECTIONS)}")
        plain, secret = SECTIONS[section]
        for name, value in table.items():
            is_secret = name in secret or (section in _CHANNELS and _of_channel(name, secret))
            if not is_secret and name not in plain:
                raise UsageError(f"{path}: {section}.{name} is unknown; possible: {', '.join((*plain, *secret))}")
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise UsageError(f"{path}: {section}.{name} must be text in quotation marks")
            secrets = secrets or is_secret
        tables[section] = {name: str(value) for name, value in table.items()}
    if secrets and os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{path} contains secrets, and others can read it: chmod 600 {path}")
    return Settings(environment, tables, path)


def _of_channel(name: str, secret: tuple[str, ...]) -> bool:
    return re.fullmatch(rf"[a-z][a-z0-9_]*_({'|'.join(secret)})", name) is not None


def read_toml(path: Path, option: str) -> dict[str, Any]:
    """Return the content of a file. Raise UsageError with the name of ``option``."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; check {option}") from None


def _secret_file(path: Path, variable: str) -> str:
    """Return the secret in a file, whose mode an orchestrator may have set."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not text"
        raise UsageError(f"{path}: {reason}; check {variable}") from None
    if not text:
        raise UsageError(f"{path} is empty; check {variable}")
    return text
