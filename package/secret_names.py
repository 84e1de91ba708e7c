"""Names and values of secrets: the name of an option, variable or key -> whether its value is secret.

Names are compared word by word, so ``--max-tokens`` and ``num_key_value_heads`` are not secrets.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_ALWAYS: Final = frozenset({
    "password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "credential", "credentials", "creds",
    "apikey", "apikeys", "bearer", "authorization", "cookie", "cookies", "auth", "oauth", "jwt", "webhook", "connectionstring",
    "connstring", "connstr", "passwort",
})  # fmt: skip
_ENDINGS: Final = (
    "password", "passwd", "passphrase", "apikey", "secretkey", "accesskey", "privatekey", "accountkey", "authtoken", "accesstoken",
    "apitoken", "sessiontoken", "hftoken",
)  # fmt: skip
_FILLERS: Final = frozenset({
    "value", "b", "base", "hash", "hex", "header", "raw", "plain", "plaintext", "staging", "prod", "production", "dev", "test", "local",
    "team", "org", "personal", "main", "default", "primary", "secondary", "backup", "old", "new", "read", "write", "ro", "rw", "readonly",
    "ci", "hf", "huggingface", "github", "gitlab", "wandb", "openai", "aws", "gcp", "azure",
})  # fmt: skip
"""Qualifiers that can follow the significant word of a name."""
_KEYS: Final = frozenset({
    "api", "secret", "access", "private", "signing", "sign", "encryption", "encrypt", "decryption", "wandb", "ssh", "rsa", "gpg",
    "pgp", "license", "licence", "auth", "account", "shared", "master", "service", "subscription", "storage", "hmac", "deploy",
    "consumer", "app", "application", "client", "openai", "anthropic", "huggingface", "hf", "comet", "neptune", "mlflow", "clearml",
    "ngc", "nvidia", "gcp", "google", "azure", "aws", "minio", "host", "admin", "root", "user", "server", "project", "sas", "kaggle",
})  # fmt: skip
"""A key is a secret if its name contains one of these."""
_NO_SECRET_TOKENS: Final = frozenset({
    "pad", "padding", "eos", "bos", "sos", "eot", "bot", "eod", "unk", "unknown", "cls", "sep", "mask", "special", "image", "img",
    "video", "audio", "speech", "text", "num", "number", "n", "count", "max", "min", "per", "stop", "start", "begin", "end",
    "first", "last", "next", "prev", "previous", "prefix", "suffix", "class", "dist", "patch", "null", "blank", "by", "time",
    "sec", "seconds", "latency", "loss", "cost", "flops", "bytes", "single", "each", "every", "one", "total", "mean", "avg",
    "average", "decoder", "query", "visual", "input", "output", "target", "label", "separator", "placeholder",
    "boundary", "control", "fill", "rare", "oov", "think", "tool", "sampled", "draft", "rank", "position", "cached",
})  # fmt: skip
"""Before "token", these words mean a token of a text."""
_BEFORE: Final = {
    "pass": {
        "", "db", "database", "user", "mysql", "postgres", "pg", "redis", "smtp", "mail", "email", "ftp", "sftp", "http", "https", "proxy",
        "sudo", "root", "admin", "ssh", "login", "registry", "docker", "rabbitmq", "mongo", "ldap", "vault", "keystore", "cert",
        "elastic", "rsync",
    },
    "tokens": {"", "access", "auth", "api", "refresh", "session", "bearer", "secret", "hf", "github", "gitlab", "wandb"},
    "keys": {"api", "secret", "access", "private", "signing", "encryption", "ssh", "wandb", "openai"},
    "pat": {"gh", "github", "gitlab", "azure", "ado"},
    "string": {"connection", "conn"},
}  # fmt: skip
"""Last word -> the words before it that make it a secret; "": it is the only word."""
_SERVICES: Final = frozenset({"wandb", "openai", "anthropic", "comet", "neptune", "huggingface", "clearml", "kaggle"})
_SWITCHES: Final = frozenset(["use", "no", "enable", "disable", "require", "skip", "with", "without"])
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # without digits: base64 is the word base
_LITERALS: Final = frozenset({"", "true", "false", "none", "null", "yes", "no"})  # values that are switches, not secrets


def words_of(name: str) -> list[str]:
    """Split a name into lower-case words, without qualifiers at its end."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1] in _FILLERS:
        words.pop()
    return words


def is_service(name: str) -> bool:
    """Whether a name is of a service in whose settings "key" is a secret."""
    return any(word.lower() in _SERVICES for word in _WORD.findall(name))


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of this option, variable or key is secret, by its words."""
    words = words_of(name)
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("auth", "oauth"):
        return before not in _SWITCHES
    if last in _ALWAYS or last.endswith(_ENDINGS):
        return True
    if last == "token":
        return before not in _NO_SECRET_TOKENS
    if last == "key":
        return any(word in _KEYS for word in words[:-1])
    return before in _BEFORE.get(last, ())


_NUMBER: Final = re.compile(r"[0-9]{1,7}", re.ASCII)
_COUNT: Final = re.compile(r"[0-9][0-9_.,]*(?:[eE]\+?[0-9]+)?[kKmMbBtTgG]?", re.ASCII)
_TEXT_TOKEN: Final = re.compile(r"[a-z]{1,2}|</?[A-Za-z0-9_|]{1,30}>|\[[A-Z0-9_]{1,20}\]", re.ASCII)
_KEY_FILE: Final = re.compile(r"/[^\s]*\.(?:pem|key|pub|crt|cert|json|txt)", re.ASCII)
_METHODS: Final = frozenset({
    "kerberos", "krb5", "gssapi", "ntlm", "ldap", "saml", "oidc", "sso", "iam", "google", "github", "azure", "aws", "munge", "sasl", "tls",
    "ssl", "mtls", "basic", "digest", "negotiate", "oauth", "oauth2", "anonymous",
})  # fmt: skip


def is_plain_value(name: str, value: str) -> bool:
    """Whether a secret's name has a harmless value: a switch, number or file."""
    if value.lower() in _LITERALS:
        return True
    words = words_of(name)
    last, before = (words[-1] if words else ""), words[-2] if len(words) > 1 else ""
    if last == "tokens" and _COUNT.fullmatch(value):
        return True
    if last in ("token", "tokens"):
        return _NUMBER.fullmatch(value) is not None or _TEXT_TOKEN.fullmatch(value) is not None
    if last == "pass":
        return len(value) <= 3 and _NUMBER.fullmatch(value) is not None
    if last in ("auth", "oauth"):
        return value.lower() in _METHODS
    if last == "pwd":
        return value.startswith("/") and before in ("", "work", "working", "old", "current")
    return last == "key" and _KEY_FILE.fullmatch(value) is not None
