"""The command line as a user meets it: what is written, what is printed where, which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from postrun.cli import main
from postrun.simulate import write_demo
from report_stub import RulesAlone


def run(*arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """postrun in a process of its own, as from a shell."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "postrun.cli", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, steps=3)
    return folder / "kineto"


@pytest.fixture(scope="module")
def small_store(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store") / "run.duckdb"
    trace = sorted(traces.iterdir())[0]
    done = run("ingest", trace, "-o", store)
    assert done.returncode == 0, done.stderr
    assert str(store) in done.stdout
    assert "device events" in done.stdout
    return store


@pytest.fixture(scope="module")
def opened_store(small_store: Path) -> Iterator[RulesAlone]:
    stub = RulesAlone(small_store)
    yield stub
    stub.close()


@pytest.fixture
def call(opened_store: RulesAlone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call postrun in this process and an empty folder; reports contain rules only."""
    monkeypatch.setattr("postrun.api.make_report", opened_store)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **env: CliRunner().invoke(main, [str(word) for word in arguments], env=env)


def test_every_command_explains_itself() -> None:
    for command in ((), ("report",), ("ingest",), ("demo",), ("doctor",)):
        result = CliRunner().invoke(main, [*command, "--help"])
        assert result.exit_code == 0
        assert "Usage:" in result.output


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).output.startswith("postrun, version 0.")


def test_report_of_a_trace_and_of_its_store_are_the_same(traces: Path, small_store: Path, tmp_path: Path) -> None:
    trace = sorted(traces.iterdir())[0]
    common = ("--format", "json", "--generated-at", "2026-11-21T06:40:00")
    assert run("report", trace, "-o", tmp_path / "a", *common).returncode == 0
    assert run("report", small_store, "-o", tmp_path / "b", *common).returncode == 0
    first, second = (json.loads((tmp_path / name / "report.json").read_text("utf-8")) for name in "ab")
    assert first == second
    assert first["generator"]["generated_at_ns"] == 1_795_243_200 * 10**9
    assert sum(kernel["count"] for kernel in first["kernels"]) > 0


def test_summary_goes_to_standard_output_as_json_only(small_store: Path, tmp_path: Path) -> None:
    done = run("report", small_store, "-o", tmp_path, "--format", "json", "--json", "--verbose")
    summary = json.loads(done.stdout)
    assert summary["written"] == {"json": str(tmp_path / "report.json")}
    assert "analyzing" in done.stderr


def test_quiet_says_nothing(small_store: Path, call: Callable[..., Result], tmp_path: Path) -> None:
    done = call("report", small_store, "-o", tmp_path, "--format", "json", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("report", "absent.json"), 4, "absent.json"),
        (("report", "--format", "html,docx", "absent.json"), 2, "docx is not a report format"),
        (("report", "--generated-at", "yesterday", "STORE"), 2, "write it like 2026-11-21T06:40:00"),
        (("report", "--config", "absent.toml", "STORE"), 2, "absent.toml"),
        (("report",), 2, "SOURCE"),
        (("report", "s4://bucket/run"), 2, "s4://bucket/run: not a place that is read"),
        (("report", "STORE", "--top", "0"), 2, "--top"),
    ],
)
def test_mistakes_are_answered_with_one_clear_message(
    small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [str(small_store) if word == "STORE" else word for word in arguments])
    assert done.exit_code == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_configuration_environment_and_command_line_in_their_order(small_store: Path, call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "postrun.toml").write_text('top = 3\nformat = "json"\nhistogram = "Forward"\n', encoding="utf-8")

    def options(*arguments: str, **env: str) -> dict[str, object]:
        done = call("report", small_store, "-o", "out", *arguments, **env)
        assert done.exit_code == 0, done.stderr
        loaded = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["options"]
        assert isinstance(loaded, dict)
        return loaded

    assert options()["top"] == 3
    assert options()["histograms"] == ["Forward"]
    assert options(POSTRUN_TOP="4")["top"] == 4
    assert options("--top", "5", POSTRUN_TOP="4")["top"] == 5
    assert not (tmp_path / "out" / "report.html").exists()


def test_output_that_cannot_be_written_is_said(small_store: Path, call: Callable[..., Result], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    done = call("report", small_store, "-o", blocked / "inside", "--format", "json")
    assert done.exit_code == 1
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr


def test_damaged_store_is_no_usable_input(small_store: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "run.duckdb"
    damaged.write_bytes(small_store.read_bytes()[:5000])
    done = run("report", damaged)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_doctor_names_each_check() -> None:
    done = run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert {"Python", "duckdb", "PDF", "C library", "Fonts"} <= checks.keys()
    assert checks["duckdb"]["state"] == "ok"
    assert done.returncode == (1 if any(check["state"] == "missing" for check in checks.values()) else 0)


def test_sizes_are_checked(small_store: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(small_store), "-o", str(tmp_path), "--memory-limit", "much"])
    assert done.exit_code == 2
    assert "600MB" in done.stderr


def test_a_full_disk_is_said_as_such(small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb
    from postrun import analysis

    def full(*_: object) -> None:
        raise duckdb.IOException("IO Error: Could not write file: No space left on device")

    monkeypatch.setattr(analysis, "analyze", full)
    done = CliRunner().invoke(main, ["report", str(small_store), "-o", str(tmp_path)])
    assert done.exit_code == 1
    assert "No space left on device" in done.output
    assert "free some space" in done.output


def test_nothing_is_left_in_the_temporary_folder(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    trace = sorted(traces.iterdir())[0]
    done = run("report", trace, "-o", tmp_path / "out", "--format", "json", env={"TMPDIR": str(tmp_path / "tmp")})
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_wrong_value_is_traced_to_where_it_stands(small_store: Path, call: Callable[..., Result], tmp_path: Path) -> None:
    from_environment = call("report", small_store, POSTRUN_TOP="many")
    assert from_environment.exit_code == 2
    assert "POSTRUN_TOP" in from_environment.stderr
    (tmp_path / "postrun.toml").write_text('paper = "A0"\n', encoding="utf-8")
    from_file = call("report", small_store)
    assert from_file.exit_code == 2
    assert "postrun.toml" in from_file.stderr


def test_files_of_an_earlier_report_are_pointed_out(small_store: Path, call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(b"earlier")
    done = call("report", small_store, "-o", tmp_path, "--format", "json")
    assert f"{tmp_path / 'report.pdf'} is of an earlier report" in done.stderr
    assert (tmp_path / "report.pdf").read_bytes() == b"earlier"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("Query interrupted")])
def test_interrupted(small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    from postrun import analysis

    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(analysis, "analyze", stop)
    done = CliRunner().invoke(main, ["report", str(small_store), "-o", str(tmp_path)])
    assert (done.exit_code, done.output.strip()) == (130, "postrun: interrupted")


def test_python_dash_m_postrun_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-P", "-m", "postrun", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("postrun, version ")


def test_rules_explain_themselves() -> None:
    for command in (("rules",), ("rules", "explain")):
        result = CliRunner().invoke(main, [*command, "--help"])
        assert result.exit_code == 0
        assert "--preset" in result.output


def test_fail_on_in_a_process_of_its_own_ends_with_code_3(small_store: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "class Always:\n"
        "    def __init__(self, base_trial):\n"
        "        pass\n"
        "    def invoke_for_timerange(self, start, end):\n"
        "        return True\n",
        encoding="utf-8",
    )
    done = run(
        "report", small_store, "-o", "out", "--format", "html,junit", "--rules", "HostBound", "--custom-rule", "own.py:Always",
        "--fail-on", "Always", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert done.stderr.endswith("postrun: --fail-on: Always found issues\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.junit.xml"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc here")
def test_the_advice_fits_the_reason_why_a_place_cannot_be_written(small_store: Path, call: Callable[..., Result], tmp_path: Path) -> None:
    done = call("report", small_store, "-o", "/proc/postrun", "--format", "json")
    assert (done.exit_code, done.stderr.splitlines()[-1].partition("; ")[2]) == (1, "choose another place with -o")
    assert "space" not in done.stderr
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if not os.access(locked, os.W_OK):  # not as root
        done = call("report", small_store, "-o", locked / "report", "--format", "json")
        assert done.stderr.splitlines()[-1].partition("; ")[2] == "check its permissions, or choose another place with -o"
