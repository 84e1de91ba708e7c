"""`postrun compare` as a user meets it: from traces and reports, what is printed and written, which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from junit_reading import read
from postrun.analysis.report.schema import schema
from postrun.cli import main
from postrun.simulate import Changes, Problems, write_demo

NONE = Problems(straggler_rank=None, exposed_communication=False, idle_tail=False, data_stall=False)


def run(*words: object, **env: str) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], env=env)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base/ and new/ with traces, and base-report/ with the report.json of the first."""
    folder = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {"steps": 7, "problems": NONE, "nodes": 1, "gpus_per_node": 1}
    write_demo(folder / "base", **common)
    write_demo(folder / "new", changes=Changes(slower_kernel=("bwd_dq_dk_dv", 1.5)), **common)
    for name in ("base", "new"):
        done = run("report", folder / name / "kineto", "-o", folder / f"{name}-report", "--format", "json", "-q")
        assert done.exit_code == 0, done.output
    return folder


def compared(runs: Path, out: Path, *words: object, base: str = "base-report", new: str = "new-report", **env: str) -> Result:
    return run("compare", runs / base, runs / new, "-o", out, "--format", "json", *words, **env)


def test_traces_and_their_reports_give_the_same_comparison(runs: Path, tmp_path: Path) -> None:
    when = ("--generated-at", "2026-11-21T06:40:00")
    done = run("compare", runs / "base" / "kineto", runs / "new" / "kineto", "-o", tmp_path / "a", "--format", "html,json", *when)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("verdict: slower (+")
    assert "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel grew by" in done.stdout
    assert done.stdout.rstrip().endswith(f"{tmp_path / 'a' / 'comparison.json'}")
    assert (tmp_path / "a" / "comparison.html").is_file()
    again = compared(runs, tmp_path / "b", *when)
    assert again.exit_code == 0, again.output
    assert "report.json was read, not the traces" in again.stderr
    first, second = (json.loads((tmp_path / name / "comparison.json").read_text("utf-8")) for name in "ab")
    jsonschema.validate(first, schema("comparison"))
    assert first["generator"]["generated_at_ns"] == 1_795_243_200 * 10**9
    assert [one["text"] for one in first["changes"]] == [one["text"] for one in second["changes"]]
    assert first["headline"] == second["headline"]
    assert (first["base"]["read_from"], second["base"]["read_from"]) == ("traces", "report.json")


def test_a_summary_for_programs(runs: Path, tmp_path: Path) -> None:
    done = compared(runs, tmp_path, "--json", base="base-report/report.json", new="new-report/report.json")
    summary = json.loads(done.stdout)
    assert (summary["verdict"], done.stderr) == ("slower", "")
    assert summary["step_time_ns"]["change_percent"] > 3
    assert summary["written"] == {"json": str(tmp_path / "comparison.json")}


@pytest.mark.parametrize(
    ("words", "code"),
    [("slower", 3), ("faster,verdicts", 0), ("kernels", 3), ("changed", 3), ("unlike", 0), ("memory", 0), ("undecided", 0)],
)
def test_fail_on(runs: Path, tmp_path: Path, words: str, code: int) -> None:
    done = compared(runs, tmp_path, "-q", "--fail-on", words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert (f"--fail-on: {words}" in done.stderr) == bool(code)


@pytest.fixture(scope="module")
def other_program(runs: Path) -> Path:
    """Make other-report/: base/ with other names of its work, twice as fast."""
    report = json.loads((runs / "base-report" / "report.json").read_text("utf-8"))
    for row in report["kernels"]:
        row["name"] = row["short_name"] = f"other_{row['short_name']}"
    for row in report["operators"]["rows"]:
        row["name"] = f"other::{row['name']}"
    for row in report["operator_calls"]["rows"]:
        row["module"] = row["module"] and f"Other_0/{row['module']}"
    for step in report["steps"]["steps"]:
        step["start_ns"], step["duration_ns"] = step["start_ns"] // 2, step["duration_ns"] // 2
    folder = runs / "other-report"
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "code"),
    [("slower", 0), ("faster", 0), ("verdicts", 0), ("memory", 0), ("kernels", 3), ("changed", 3), ("unlike", 3), ("undecided", 3)],
)
def test_fail_on_of_different_programs(runs: Path, other_program: Path, tmp_path: Path, words: str, code: int) -> None:
    done = compared(runs, tmp_path, "-q", "--fail-on", words, new=other_program.name)
    assert (done.exit_code, done.stdout) == (code, "")
    assert ("so slower, faster and verdicts cannot match" in done.stderr) == (words in ("slower", "faster", "verdicts"))


def test_different_programs_are_reported_first(runs: Path, other_program: Path, tmp_path: Path) -> None:
    done = compared(runs, tmp_path, new=other_program.name)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["verdict: cannot say", "These runs execute different programs; compare totals with care."]
    assert lines[2].startswith("The runs have no kernels or operators in common, apart from communication.")
    assert lines[3].startswith("not alike: recording: ")
    assert lines[4].startswith("  computation, percent of GPU time: ")
    assert not any(" vanished" in line or line.startswith("not alike: program") for line in lines)


def test_each_format_option_adds_files(runs: Path, tmp_path: Path) -> None:
    done = compared(runs, tmp_path, "-q", "--format", "html", "--format", "json,html")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.html", "comparison.json"]


def test_the_markdown_begins_with_the_verdict(runs: Path, tmp_path: Path) -> None:
    done = compared(runs, tmp_path, "--format", "md", "--generated-at", "2026-11-21T06:40:00")
    assert done.exit_code == 0, done.output
    assert done.stdout.rstrip().endswith(f"{tmp_path / 'comparison.md'}")
    first = (tmp_path / "comparison.md").read_bytes()
    assert first.startswith(b"**The new run is ")
    assert compared(runs, tmp_path, "--format", "md", "--generated-at", "2026-11-21T06:40:00").exit_code == 0
    assert (tmp_path / "comparison.md").read_bytes() == first


@pytest.mark.parametrize("words", [(), ("--fail-on", "slower")])
def test_junit_does_not_depend_on_fail_on(runs: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = compared(runs, tmp_path, "--format", "junit", *words)
    assert done.exit_code == (3 if words else 0)
    cases = {
        case.get("name"): [child.tag for child in case] for case in read((tmp_path / "comparison.junit.xml").read_bytes()).iter("testcase")
    }
    assert (cases["time"], cases["computation"], cases["kernels"], cases["idle"]) == (["failure"], ["failure"], ["failure"], [])


def test_further_base_runs(runs: Path, tmp_path: Path) -> None:
    report = json.loads((runs / "base-report" / "report.json").read_text("utf-8"))
    further = []
    for number in (1, 2):
        for source in report["run"]["sources"]:
            source["sha256"] = f"{number:064}"
        further.append(tmp_path / f"further-{number}.json")
        further[-1].write_text(json.dumps(report), "utf-8")
    paths = [runs / "base-report" / "report.json", *further, further[0]]
    done = compared(runs, tmp_path, *(word for path in paths for word in ("--baseline", path)), "--json")
    assert done.exit_code == 0, done.output
    assert "from 3 base runs" in json.loads(done.stdout)["details"]
    written = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    jsonschema.validate(written, schema("comparison"))
    assert [side["given"] for side in written["baselines"]] == [str(path) for path in further]
    assert [row["new"] for row in written["differences"] if "counts once" in (row["limits"] or "")] == [
        f"the same ({paths[0]})", f"the same ({paths[3]})"
    ]  # fmt: skip


def test_fail_on_says_that_base_runs_vary(runs: Path, tmp_path: Path) -> None:
    report = json.loads((runs / "base-report" / "report.json").read_text("utf-8"))
    for source in report["run"]["sources"]:
        source["sha256"] = "1" * 64
    for step in report["steps"]["steps"]:
        step["start_ns"], step["duration_ns"] = 2 * step["start_ns"], 2 * step["duration_ns"]
    slow = tmp_path / "slow.json"
    slow.write_text(json.dumps(report), "utf-8")
    done = compared(runs, tmp_path, "-q", "--fail-on", "slower", "--baseline", slow)
    assert done.exit_code == 0
    assert "the base runs vary too much, so slower and faster cannot match" in done.stderr


def test_theme_title_and_logo(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 2"><rect width="4" height="2"/></svg>')
    (tmp_path / "own.toml").write_text('title = "Company report"\ntheme = "dark"\nlogo = "logo.svg"\n', encoding="utf-8")
    out = tmp_path / "out"
    done = compared(runs, out, "--format", "html", "--config", tmp_path / "own.toml", "--theme", "light")
    assert done.exit_code == 0, done.output
    text = (out / "comparison.html").read_text("utf-8")
    assert '<html lang="en" data-theme="light">' in text
    assert "<bdi>Company report</bdi>" in text
    assert 'alt="Company report"' in text
    plain = compared(runs, out, "--format", "html")
    assert plain.exit_code == 0, plain.output
    text = (out / "comparison.html").read_text("utf-8")
    assert '<html lang="en">' in text
    assert "<bdi>Comparison</bdi>" in text
    assert '<img class="logo"' not in text


def test_a_threshold_above_the_change(runs: Path, tmp_path: Path) -> None:
    assert compared(runs, tmp_path, "--threshold", "60", "--fail-on", "changed").exit_code == 0
    (tmp_path / "own.toml").write_text('[compare]\nthreshold = 60\nfail-on = "slower"\n', encoding="utf-8")
    assert compared(runs, tmp_path, "--config", tmp_path / "own.toml").exit_code == 0
    assert compared(runs, tmp_path, "--config", tmp_path / "own.toml", POSTRUN_THRESHOLD="1").exit_code == 3


def test_fail_on_says_what_cannot_be_told(runs: Path, tmp_path: Path) -> None:
    report = json.loads((runs / "base-report" / "report.json").read_text("utf-8"))
    report["steps"]["steps"] = report["steps"]["steps"][:3]
    report["annotations"]["groups"] = []  # ranges that repeat would be evidence
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    done = run("compare", tmp_path, runs / "new-report", "-o", tmp_path / "out", "--format", "json", "--fail-on", "slower")
    assert done.exit_code == 0
    assert "the steps are too few, or vary too much, so slower and faster cannot match" in done.stderr


def test_a_gate_without_evidence_does_not_pass(runs: Path, tmp_path: Path) -> None:
    report = json.loads((runs / "base-report" / "report.json").read_text("utf-8"))
    report["steps"]["steps"] = []
    report["annotations"]["groups"] = []
    for device in report["time_breakdown"]:
        device["span_ns"] = 0  # else equal work by counts is compared
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    for words, code in (("slower", 3), ("faster", 0)):
        done = run("compare", tmp_path, runs / "new-report", "-o", tmp_path / "out", "--format", "json", "--fail-on", words)
        assert done.exit_code == code
        assert "so it is not known whether the run is slower; --fail-on kernels compares kernels" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("compare",), 2, "BASE"),
        (("compare", "RUNS/base-report"), 2, "NEW"),
        (("compare", "RUNS/absent", "RUNS/new-report"), 4, "absent"),
        (("compare", "RUNS/base-report", "RUNS/new-report", "--format", "docx"), 2, "docx is not a format of a comparison"),
        (("compare", "RUNS/base-report", "RUNS/new-report", "--fail-on", "sad"), 2, "choose from slower,faster"),
        (("compare", "RUNS/base-report", "RUNS/new-report", "--threshold", "-1"), 2, "--threshold"),
        (("compare", "RUNS/base-report", "RUNS/new-report", "--set", "Nothing_x=1"), 2, "--set"),
        (("compare", "broken/report.json", "RUNS/new-report"), 4, "is not a whole report.json"),
        (("compare", "later/report.json", "RUNS/new-report"), 4, "schema_version is 99"),
        (("compare", "cut/report.json", "RUNS/new-report"), 4, "report.run.status is missing"),
    ],
)
def test_mistakes_are_answered_with_one_clear_message(
    runs: Path, tmp_path: Path, words: tuple[str, ...], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    complete = (runs / "base-report" / "report.json").read_text("utf-8")
    data = json.loads(complete)
    for name, text in (
        ("broken", complete[:-200]),
        ("later", json.dumps({**data, "schema_version": 99})),
        ("cut", json.dumps({**data, "run": {key: value for key, value in data["run"].items() if key != "status"}})),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(text, encoding="utf-8")
    done = run(*(word.replace("RUNS", str(runs)) for word in words))
    assert done.exit_code == code, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not (tmp_path / "postrun-comparison" / "comparison.html").exists()


def test_fields_of_another_version_are_named(runs: Path, tmp_path: Path) -> None:
    base, new = (runs / name / "report.json" for name in ("base-report", "new-report"))
    same = run("compare", str(base), str(new), "-o", str(tmp_path / "same"))
    assert (same.exit_code, "does not know" in same.stderr) == (0, False)
    data = json.loads(new.read_text("utf-8"))
    data["zeta"] = {"a": 1}
    data["run"]["alpha"] = 1
    for kernel in data["kernels"]:
        kernel["warp\x1b"] = 2
    (tmp_path / "report.json").write_text(json.dumps(data), encoding="utf-8")
    done = run("compare", str(base), str(tmp_path / "report.json"), "-o", str(tmp_path / "out"))
    assert done.exit_code == 0
    fields = "kernels.warp\\x1b, run.alpha, zeta"
    line = f"note: {tmp_path / 'report.json'}: fields that this version of postrun does not know are left out: {fields}"
    assert line in done.stderr.splitlines()
    quiet = run("compare", str(base), str(tmp_path / "report.json"), "-o", str(tmp_path / "out2"), "--quiet")
    assert "does not know" not in quiet.stderr
