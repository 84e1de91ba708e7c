"""Masking of secrets: none survives in any form, and everything else stays as it is."""

from __future__ import annotations

import json
import shlex
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.redaction import MASK, is_secret_name, mask_arguments, mask_command, mask_mapping, mask_text, mask_value, masked_sentence

SECRET = st.text(string.ascii_letters + string.digits, min_size=8, max_size=24).map(lambda text: f"Zq9{text}")
SECRET_NAMES = [
    "password", "PASSWORD", "db_password", "passwd", "pwd", "passphrase", "token", "hf_token", "HF_TOKEN", "access_token", "accessToken",
    "session-token", "api_key", "API_KEY", "apikey", "api-key", "apiKey", "wandb-key", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "secret",
    "client_secret", "credential", "credentials", "private_key", "auth", "authorization", "bearer", "cookie", "PGPASSWORD",
    "connection-string", "AccountKey", "ssh_private_key",
]  # fmt: skip
INNOCENT_NAMES = [
    "max-tokens", "tokenizer", "num_key_value_heads", "max_new_tokens", "token_count", "pad_token_id", "pad_token", "eos_token", "key_dim",
    "keys", "tokens_per_step", "vocab_size", "author", "secretary_count", "secret-sharing", "key", "passes", "monkey", "num_tokens",
    "use_auth", "lr", "n_heads", "bypass_cache", "token_embedding", "key_size", "query_key_norm",
]  # fmt: skip
FORMS = [
    "train --{name} {secret} --lr 1", "train --{name}={secret} --lr 1", "{variable}={secret} train",
    "sh -c 'train --{name}={secret}' --lr 1",
    "sh -c '{variable}={secret} train; echo done'", 'sh -c "export {variable}={secret}"', "train '{{\"{name}\": \"{secret}\", \"lr\": 1}}'",
    "docker run -e {variable}={secret} image", "curl 'https://host/x?a=1&{name}={secret}&b=2'", "train +model.{variable}={secret}",
    "train --header '{name}: {secret}'", "train \"{{'{name}': '{secret}'}}\"",
]  # fmt: skip
BY_FORM = [
    "git clone https://user:{secret}@host/x", "git clone https://{secret}@host/x", "psql postgres://user:{secret}@host:5432/db",
    "curl -H 'Authorization: Bearer {secret}' https://host", "curl -H 'Authorization: Basic {secret}' https://host", "x 'Bearer {secret}'",
    "x --url='https://host/?X-Amz-Signature={secret}&X-Amz-Credential={secret}&X-Amz-Security-Token={secret}'",
    "x 'https://host/?sv=1&sig={secret}'", "x 'Server=a;User=b;Password={secret};Database=c'", "x https://u:pa/{secret}@host/x",
]  # fmt: skip
TOKENS = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github_pat_11AAAAAAA0abcdefghijkl_mnopqrstuv", "hf_" + "aBcDeFgH" * 4,
    "glpat-aBcDeFgHiJkLmNoPqRsT", "xoxb-123456789012-abcdef", "sk-" + "aBcD1234" * 6, "npm_" + "aBcD1234" * 5, "AIza" + "aBcD123" * 5,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
]  # fmt: skip


@given(SECRET, st.sampled_from(SECRET_NAMES), st.sampled_from(FORMS))
def test_no_secret_survives_in_any_form(secret: str, name: str, form: str) -> None:
    text = form.format(name=name, variable=name.replace("-", "_"), secret=secret)
    for masked, found in (mask_command(text), mask_text(text)):
        assert secret not in masked, masked
        assert MASK in masked
        assert len(found) == 1
    masked, _ = mask_arguments(shlex.split(text))
    assert secret not in " ".join(masked)


@given(SECRET, st.sampled_from(BY_FORM))
def test_no_secret_survives_that_has_no_name(secret: str, form: str) -> None:
    text = form.format(secret=secret)
    for masked, found in (mask_command(text), mask_text(text)):
        assert secret not in masked, masked
        assert found


@pytest.mark.parametrize("token", TOKENS)
def test_well_known_tokens_are_masked_wherever_they_are(token: str) -> None:
    assert mask_command(f"train {token} --lr 1") == (f"train {MASK} --lr 1", ["access token"])
    assert mask_value("note", f"see ({token})") == (f"see ({MASK})", ["access token"])


@given(st.sampled_from(INNOCENT_NAMES), st.text(string.ascii_letters + string.digits + "._/", min_size=1, max_size=12))
def test_everything_else_stays_as_it_is(name: str, value: str) -> None:
    assert not is_secret_name(name)
    for form in ("train --{name} {value}", "train --{name}={value} ", "{name}={value} train", "sh -c 'train --{name} {value}'"):
        text = form.format(name=name, value=value)
        assert mask_command(text) == (text, [])
        assert mask_text(text) == (text, [])
    assert mask_mapping({name: value, "lr": 0.1}) == ({name: value, "lr": 0.1}, [])


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --lr 0.1 --url https://host:8080/x?a=1", "git clone ssh://git@github.com/a/b.git", "git@github.com:a/b",
        "PWD=/home/x cmd",
        "train --use-auth-token true --eos-token '</s>'", "sk-learn-based-experiment-run", "torch::auth::Token: x", "hf_transfer=1", "a: b",
        "train 'it is' \"quoted\"", "train 'unbalanced", "",
    ],
)  # fmt: skip
def test_commands_without_secrets_are_byte_identical(text: str) -> None:
    assert mask_command(text) == (text, [])


def test_a_mapping_is_masked_at_every_depth() -> None:
    given_values = {"optimizer": {"lr": 0.1, "api_key": "x1"}, "db": ["--password", "x2", "a"], "credentials": {"u": "x3"}, "token": None,
                    "text": json.dumps({"secret": "x4"})}  # fmt: skip
    masked, found = mask_mapping(given_values)
    assert masked == {
        "optimizer": {"lr": 0.1, "api_key": MASK}, "db": ["--password", MASK, "a"], "credentials": MASK, "token": None,
        "text": json.dumps({"secret": MASK}),
    }  # fmt: skip
    assert sorted(found) == ["--password", "api_key", "credentials", "secret"]
    assert mask_mapping(masked)[0] == masked


def test_the_sentence_names_what_was_masked_and_counts_it() -> None:
    assert masked_sentence(["--password", "URL user info"]) == "2 values masked: --password, URL user info."
    assert masked_sentence(["token"]) == "1 value masked: token."


@pytest.mark.parametrize("unit", ["-", "'", "{", "sk-", "eyJ-", "password=", "--password ", "://a:b", 'a=\\"'])
def test_hostile_texts_take_bounded_time(unit: str) -> None:
    began = time.process_time()
    mask_value("command", unit * (100_000 // len(unit)))
    assert time.process_time() - began < 3
