"""Where do the addresses, names and tokens of ticket servers come from?

Environment > file. A value is ``POSTRUN_<SECTION>_<NAME>``, such as ``POSTRUN_JIRA_TOKEN``; of a secret also ``..._FILE``, a file that
holds it. The file is ``$POSTRUN_TICKETS_CONFIG``, else ``postrun/tickets.toml`` in ``$XDG_CONFIG_HOME`` (else ``~/.config``): a table per
section. Nobody but its owner may read a file that holds a secret.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import UsageError

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
}
CONFIG: Final = "POSTRUN_TICKETS_CONFIG"
CA_BUNDLE: Final = "POSTRUN_CA_BUNDLE"


def variables() -> Iterator[str]:
    """Every environment variable that is read here."""
    yield from (CONFIG, CA_BUNDLE)
    for section, (plain, secret) in SECTIONS.items():
        yield from (_variable(section, name) for name in (*plain, *secret))
        yield from (_variable(section, name) + "_FILE" for name in secret)


def _variable(section: str, name: str) -> str:
    return f"POSTRUN_{section}_{name}".upper()


@dataclass(frozen=True)
class Settings:
    """Values by section and name. Secrets are in no message and not in the repr."""

    environment: Mapping[str, str] = field(repr=False)
    file: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    path: Path | None = None

    def get(self, section: str, name: str, default: str | None = None) -> str | None:
        value = self.environment.get(_variable(section, name), "").strip() or self.file.get(section, {}).get(name, "").strip()
        return value or default

    def need(self, section: str, name: str, why: str) -> str:
        """Raises UsageError with ``why`` where it is not set."""
        value = self.get(section, name)
        if value is None:
            raise UsageError(
                f"{why}: set {_variable(section, name)}, or {name} in [{section}] of {self.path or default_path(self.environment)}"
            )
        return value

    def secret(self, section: str, name: str) -> str | None:
        """From the environment, a file that the environment names, or the configuration file."""
        if value := self.environment.get(_variable(section, name), "").strip():
            return value
        if named := self.environment.get(_variable(section, name) + "_FILE", ""):
            return _secret_file(Path(named), _variable(section, name) + "_FILE")
        return self.file.get(section, {}).get(name, "").strip() or None

    def need_secret(self, section: str, name: str, why: str) -> str:
        value = self.secret(section, name)
        if value is None:
            variable = _variable(section, name)
            raise UsageError(
                f"{why}: set {variable}, or {variable}_FILE to a file that holds it, or {name} in [{section}] of "
                f"{self.path or default_path(self.environment)}"
            )
        return value


def default_path(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "postrun" / "tickets.toml"


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this user. UsageError for a file that is no TOML, holds what nothing reads, or secrets that others can read."""
    environment = os.environ if environment is None else environment
    named = environment.get(CONFIG, "")
    path = Path(named) if named else default_path(environment)
    if not path.is_file():
        if named:
            raise UsageError(f"{path}: there is no such file; check {CONFIG}")
        return Settings(environment)
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; check {CONFIG}") from None
    tables: dict[str, dict[str, str]] = {}
    secrets = False
    for section, table in content.items():
        if section not in SECTIONS or not isinstance(table, dict):
            raise UsageError(f"{path}: [{section}] is no table of ticket settings; possible: {', '.join(SECTIONS)}")
        plain, secret = SECTIONS[section]
        for name, value in table.items():
            if name not in (*plain, *secret):
                raise UsageError(f"{path}: {section}.{name} is unknown; possible: {', '.join((*plain, *secret))}")
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise UsageError(f"{path}: {section}.{name} must be text in quotation marks")
            secrets = secrets or name in secret
        tables[section] = {name: str(value) for name, value in table.items()}
    if secrets:
        _private(path, f"{path} holds secrets")
    return Settings(environment, tables, path)


def _secret_file(path: Path, variable: str) -> str:
    """The text of a file that holds one secret. Its mode is not looked at: an orchestrator that mounts it sets the mode."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not text"
        raise UsageError(f"{path}: {reason}; check {variable}") from None
    if not text:
        raise UsageError(f"{path} is empty; check {variable}")
    return text


def _private(path: Path, what: str) -> None:
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{what}, and others can read it: chmod 600 {path}")
