"""The masking of secrets in the C library: the same results as postrun.redaction, and none left in a trace file."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from pathlib import Path

import c_build
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.redaction import mask_arguments, mask_text
from postrun.secret_names import is_secret_name

ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "password", "--password", "PASSWORD", "token", "--max-tokens", "pad_token", "api_key", "APIKey", "AWS_SECRET_ACCESS_KEY", "key", "sig",
    "X-Amz-Signature", "https://", "ssh://", "user", "@", "host", "/", "?", "&", "=", ":", ": ", " ", "'", '"', "\\", '\\"', "{", "}", "[",
    "]", ",", ";", "abc123", "Bearer ", "Basic ", "Authorization", "hf_" + "a1B2" * 6, "sk-" + "aB3d" * 6, "sk-some-long-experiment-name",
    "eyJhbGciOiJI.eyJzdWIiOiI.abc", "AKIA" + "ABCD" * 4, "-c", "-lc", "\u00e9", "\n", "true", "null", "-", "***", "PWD", "cookie", "(",
    "]", "tokens", "api_keys", "GH_PAT", "TOKEN_HF", "setenv ", "os.putenv('", "setdefault(", "-genv", "-Zq9SECRETval77", "5", "300B",
    "<s>", "[MASK]", "en", "/a/b.pem", "kerberos", "wandb", "key", "name", "value", "`", "$(", "-----BEGIN RSA PRIVATE KEY-----",
    "-----END X-----",
    "u:Aa345678@", "dapi" + "a1" * 16, "nvapi-" + "a" * 30, "SG." + "a.-" * 14, "secretkey", "x" * 20, "abc12345",
    "curl ", "curl", "-u", "-uU:x", "sshpass ", "-p", "-pX1", "mysql", "docker", "wandb ", "login ", "login",
    "|", "auth", "use_auth", "pass", "ConnectionString", "base64", "https", "AIza" + "a" * 35, "glpat-" + "x" * 20,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map("".join) | st.text(max_size=30).filter(lambda text: "\0" not in text)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    built = tmp_path_factory.mktemp("redact") / "redact.so"
    c_build.build([ROOT / "native/src/core/redact.c"], built, "-std=c11", "-O1", "-shared", "-fPIC")
    loaded = ctypes.CDLL(str(built))
    loaded.postrun_redact_name.restype = ctypes.c_bool
    for function in (loaded.postrun_redact_text, loaded.postrun_redact_arguments):
        function.restype = ctypes.c_char_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return loaded


@given(TEXTS)
def test_texts_are_masked_as_in_python(library: ctypes.CDLL, text: str) -> None:
    data = text.encode("utf-8", "replace")
    assert library.postrun_redact_text(data, len(data)).decode() == mask_text(data.decode())[0]
    assert library.postrun_redact_name(data, len(data)) == is_secret_name(data.decode())


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_arguments_are_masked_as_in_python(library: ctypes.CDLL, arguments: list[str]) -> None:
    arguments = [argument.encode("utf-8", "replace").decode() for argument in arguments]
    data = "\0".join(arguments).encode()
    if arguments[-1]:  # the command line of a process does not end in an empty argument here
        assert library.postrun_redact_arguments(data, len(data)).decode() == " ".join(mask_arguments(arguments)[0])


PROGRAM = """
import sys
from postrun import capture
with capture.session(sys.argv[1], sample_ms=0, gpu=False):
    capture.metadata("api_key", "PLANTED1")
    capture.metadata("dataset", "s3 https://user:PLANTED2@host/x")
"""


def recorded(folder: Path, *arguments: str, **environment: str) -> tuple[bytes, Path]:
    """Return the trace file of a program that records itself, under a wide umask."""
    environment = {**{key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}, **environment}
    folder.parent.parent.joinpath("program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-P", str(folder.parent.parent / "program.py"), str(folder), *arguments]
    subprocess.run(command, check=True, env=environment, umask=0)
    (file,) = folder.glob("*.prt")
    return file.read_bytes(), file


def test_a_process_that_records_itself_writes_no_secret_and_a_private_file(tmp_path: Path) -> None:
    arguments = ("--password", "PLANTED3", "--token=PLANTED4", "--max-tokens", "512", "sh -c 'x --api-key PLANTED5'")
    data, file = recorded(tmp_path / "new" / "run", *arguments)
    assert b"PLANTED" not in data
    assert b"--password *** --token=*** --max-tokens 512" in data
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (file.parent, file.parent.parent)] == [0o700, 0o700]


def test_the_environment_widens_the_mode_and_redacts(tmp_path: Path) -> None:
    data, file = recorded(tmp_path / "run", "UNIQUECOMMAND", POSTRUN_MODE="0644", POSTRUN_REDACT="hosts,command")
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o644, 0o755)
    assert b"UNIQUECOMMAND" not in data
    assert file.name.startswith("node-")
