"""Masking of secrets: none survives in any form, and everything else stays as it is."""

from __future__ import annotations

import json
import shlex
import string
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.masked_values import TOO_DEEP, mask_mapping, mask_value
from postrun.redaction import MASK, mask_arguments, mask_command, mask_text, masked_sentence
from postrun.secret_names import is_secret_name

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
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N", "dapi" + "0a1b2c3d" * 4, "nvapi-" + "aBcD1234" * 5,
    "r8_" + "aBcD1234" * 5, "pypi-" + "aBcD1234" * 5, "glptt-" + "aBcD1234" * 4, "SG." + "aBcD1234" * 6, "xapp-1-A01-" + "aBcD1234" * 2,
    "sk_live_" + "aBcD1234" * 3, "ya29." + "aBcD1234" * 4,
]  # fmt: skip


S = "Zq9SECRETval77"
COMMANDS = [
    ["python", "-c", f"import os; os.environ['WANDB_API_KEY']='{S}'"], ["python", "-c", f'os.environ["WANDB_API_KEY"] = "{S}"; run()'],
    ["python", "-c", f"os.environ.setdefault('HF_TOKEN', '{S}')"], ["python", "-c", f"os.putenv('HF_TOKEN','{S}')"],
    ["python", "-c", f"wandb.login(key='{S}')"], ["csh", "-c", f"setenv WANDB_API_KEY {S}; train"],
    ["mpirun", "-genv", "WANDB_API_KEY", S, "train"], ["sh", "-c", f"export API_KEY=`echo a {S}`"],
    ["sh", "-c", f"API_KEY=$(echo {S}) train"],
    ["train", f'{{"name":"WANDB_API_KEY","value":"{S}"}}'], ["train", f'{{"wandb":{{"key":"{S}"}}}}'],
    ["train", f"wandb={{key:{S},project:x}}"],
    ["train", f"--DB_PASSWORD_STAGING={S}"], ["train", f"TOKEN_HF={S}"], ["train", f"WANDB_API_KEY_TEAM={S}"],
    ["train", f"GITHUB_TOKEN_READ={S}"],
    ["train", f"GH_PAT={S}"], ["train", "--api-keys", S], ["train", f"--tokens={S},{S}"], ["train", f"access_tokens=['{S}']"],
    ["curl", "-u", f"user:{S}", "https://x"], ["curl", "--proxy-user", f"user:{S}", "https://x"], ["sshpass", "-p", S, "ssh", "h"],
    ["mysql", "-u", "root", f"-p{S}"], ["docker", "login", "-u", "x", "-p", S], ["sh", "-c", f"wandb login {S} && train"],
    ["train", "--password", f"-{S}"], ["train", "--proxy", f"u:{S}@proxy:3128"],
    ["train", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n-----END OPENSSH PRIVATE KEY-----"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS)
def test_less_common_forms_are_masked(arguments: list[str]) -> None:
    for masked in (" ".join(mask_arguments(arguments)[0]), mask_command(shlex.join(arguments))[0], mask_text(" ".join(arguments))[0]):
        assert S not in masked, masked
        assert MASK in masked


@given(SECRET, st.sampled_from(SECRET_NAMES), st.sampled_from(FORMS))
def test_no_secret_survives_in_any_form(secret: str, name: str, form: str) -> None:
    text = form.format(name=name, variable=name.replace("-", "_"), secret=secret)
    for masked, actual in (mask_command(text), mask_text(text)):
        assert secret not in masked, masked
        assert MASK in masked
        assert len(actual) == 1
    masked, _ = mask_arguments(shlex.split(text))
    assert secret not in " ".join(masked)


@given(SECRET, st.sampled_from(BY_FORM))
def test_no_secret_survives_that_has_no_name(secret: str, form: str) -> None:
    text = form.format(secret=secret)
    for masked, actual in (mask_command(text), mask_text(text)):
        assert secret not in masked, masked
        assert actual


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
        "train s3://bucket@x/key abfss://container@account.dfs.core.windows.net/p hdfs://user@nn:8020/p",
        "train --lang_token en --mem_token 16",
        "train --tokens 300B --pass 2 --auth kerberos --pwd /a/b --client_key /a/b.pem", "train 'bos_token=<s> mask=[MASK] token: 5'",
        "echo 'the bearer of bad news'", "docker run -u 1000:1000 -p 80:80 x",
        "sshpass -f /x ssh -p 22 h", "train --password --verbose --epochs=3", "scp user@host:/path mailto:bob@example.org",
        "train 'it is' \"quoted\"", "train 'unbalanced", "",
    ],
)  # fmt: skip
def test_commands_without_secrets_are_byte_identical(text: str) -> None:
    assert mask_command(text) == (text, [])


def test_a_mapping_is_masked_at_every_depth() -> None:
    given_values = {"optimizer": {"lr": 0.1, "api_key": "x1"}, "db": ["--password", "x2", "a"], "credentials": {"u": "x3"}, "token": None,
                    "text": json.dumps({"secret": "x4"})}  # fmt: skip
    masked, actual = mask_mapping(given_values)
    assert masked == {
        "optimizer": {"lr": 0.1, "api_key": MASK}, "db": ["--password", MASK, "a"], "credentials": MASK, "token": None,
        "text": json.dumps({"secret": MASK}),
    }  # fmt: skip
    assert sorted(actual) == ["--password", "api_key", "credentials", "secret"]
    assert mask_mapping(masked)[0] == masked


def test_mappings_of_other_shapes_are_masked() -> None:
    values: list[dict[str, Any]] = [
        {"argv": ["t.py", "--password", S, 5]}, {"argv": ["t.py", "--password", S, None, {"a": 1}]}, {f"https://u:{S}@h/x": 1},
        {"env": [{"name": "WANDB_API_KEY", "value": S}]}, {"wandb": {"key": S}}, {"api_keys": [S]}, {"tokens": {"hf": S}},
    ]  # fmt: skip
    for value in values:
        masked, actual = mask_mapping(value)
        assert S not in json.dumps(masked)
        assert len(actual) == 1
    assert mask_mapping(values[0])[0] == {"argv": ["t.py", "--password", MASK, 5]}
    plain = {"tokens": 300_000_000_000, "token": 5, "sizes": [1, 2.5, None, True, "a", {"tokens": {"train": 5}}], "key": "x"}
    assert mask_mapping(plain) == (plain, [])


def test_a_mapping_that_is_nested_deeply_is_cut() -> None:
    value: dict[str, Any] = {}
    for _ in range(900):
        value = {"a": [value]}
    text = json.dumps(mask_mapping({"lr": 1, "deep": value})[0], ensure_ascii=False)
    assert text.count('"a"') < 64
    assert TOO_DEEP in text


@pytest.mark.parametrize("form", ["--password {}", "--password '{}'", '{{"password": "{}"}}', "password={}", "https://u:{}@h/x"])
@pytest.mark.parametrize("letter", [" ", ","])
def test_no_secret_survives_at_the_borders_of_windows(form: str, letter: str) -> None:
    for border in (8_192, 16_384, 24_576):
        for position in range(border - 34, border + 2, 3):
            text = "x" * (position - 1) + (" " if form.startswith("--") else letter) + form.format(S) + letter + "z" * 20_000
            masked, actual = mask_text(text)
            assert S[:6] not in masked
            assert S[-6:] not in masked
            assert len(actual) == 1


def test_the_sentence_names_what_was_masked_and_counts_it() -> None:
    assert masked_sentence(["--password", "URL user info"]) == "2 values masked: --password, URL user info."
    assert masked_sentence(["token"]) == "1 value masked: token."


@pytest.mark.parametrize("unit", ["-", "'", "{", "sk-", "eyJ-", "password=", "--password ", "://a:b", 'a=\\"'])
def test_hostile_texts_take_bounded_time(unit: str) -> None:
    began = time.process_time()
    mask_value("command", unit * (100_000 // len(unit)))
    assert time.process_time() - began < 3
