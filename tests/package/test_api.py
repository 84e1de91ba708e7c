"""A Python program gets reports with the rules that it chose, as documented."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postrun
import pytest
from postrun import IngestOptions, OutputOptions, ProfilerRule, make_report, rule_configs
from postrun.analysis import Options
from postrun.analysis.rules.engine.catalogue import DOCUMENTED, RULES
from postrun.errors import InputError, RenderError, UsageError
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.report_templates.output.pdf import PrinterHere
from rule_details import plain_details

T0 = 1_700_000_040  # a full minute


def metric(kind: str, name: str, dimension: str, value: float, at: float) -> str:
    return json.dumps({"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": "algo-1", "Timestamp": at})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write one sample per second for two minutes of one machine.

    A GPU is at 30%, a core at 99%, and three cores at 1%.
    """
    folder = tmp_path / "run" / "system" / "incremental" / "2023111422"
    folder.mkdir(parents=True)
    for minute in range(2):
        lines = []
        for second in range(60):
            at = T0 + 60 * minute + second
            lines.append(metric("gpu", "gpu0", "GPUUtilization", 30, at))
            lines += [metric("cpu", f"cpu{core}", "CPUUtilization", 99 if core == 2 else 1, at) for core in range(4)]
        (folder / f"{T0 + 60 * minute}.algo-1.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "run"


def verdicts(report: postrun.Report) -> dict[str, str]:
    return {result.rule: result.verdict for result in report.rules}


def test_everything_runs_where_nothing_is_chosen(run: Path) -> None:
    report = postrun.analyze(run)
    assert list(verdicts(report)) == ["ProfilerReport", *RULES]
    assert "Error" not in verdicts(report).values()
    assert report.options["preset"] == "documented"
    assert verdicts(postrun.analyze([str(run)], [])) == {}


def test_the_chosen_rules_run_with_their_values(run: Path) -> None:
    report = postrun.analyze(
        run, [rule_configs.LowGPUUtilization(patience=50, window=20), "overallsystemusage"], name="mine", preset="service"
    )
    assert verdicts(report) == {"LowGPUUtilization": "IssuesFound", "OverallSystemUsage": "NoIssuesFound"}
    assert report.run.name == "mine"
    # more than 50 samples, starting with the second window
    assert (report.rules[0].triggered, report.rules[0].parameters["window"]) == (2, 20)
    assert report.findings[0].rule == "LowGPUUtilization"
    assert verdicts(postrun.analyze(run, ["LowGPUUtilization"])) == {"LowGPUUtilization": "NotEvaluated"}
    patient = postrun.analyze(run, [rule_configs.LowGPUUtilization(patience=50)], settings={"LowGPUUtilization_patience": 119})
    assert (patient.rules[0].triggered, patient.rules[0].windows_triggered) == (1, 1)


def test_profiler_report_counts_its_own_rules_only(run: Path) -> None:
    report = postrun.analyze(run, [
        rule_configs.ProfilerReport(LowGPUUtilization_patience=10), "HostBound",
        ProfilerRule.sagemaker(rule_configs.LowGPUUtilization(patience=10), name="again"),
    ])  # fmt: skip
    assert report.rules[0].rule == "ProfilerReport"
    assert len(report.rules) == 1 + len(DOCUMENTED) + 2
    assert verdicts(report)["again"] == verdicts(report)["LowGPUUtilization"] == verdicts(report)["ProfilerReport"] == "IssuesFound"
    assert len(plain_details(report.rules[0])["rules"]) == len(DOCUMENTED) == 11


def test_an_open_store_is_read_and_left_open(run: Path, tmp_path: Path) -> None:
    with ingest([run], tmp_path / "run.duckdb") as store:
        once = postrun.analyze(store, ["OverallSystemUsage"], generated_at_ns=0)
        assert postrun.analyze(store, ["OverallSystemUsage"], generated_at_ns=0) == once
        assert store.frame("SELECT 1").item() == 1
    again = postrun.analyze(tmp_path / "run.duckdb", ["OverallSystemUsage"], generated_at_ns=0)
    assert again.to_json() == once.to_json()


def test_a_report_can_be_written(run: Path, tmp_path: Path) -> None:
    written = postrun.render(postrun.analyze(run), tmp_path / "out", ["html", "json"])
    assert sorted(written) == ["html", "json"]
    assert all(path.is_file() for path in written.values())


def test_make_report_gives_the_report_and_its_files(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.pdf").write_bytes(b"of an earlier report")
    output = OutputOptions(tmp_path / "out", ("html", "json"), timeline_events=0)
    stages: list[str] = []
    result = make_report(
        run, output, selection=rule_configs.selection(["LowGPUUtilization"]), options=Options(name="mine", generated_at_ns=0),
        ingest_options=IngestOptions(threads=1, redact=("hosts",)), progress=lambda stage, fraction: stages.append(stage),
    )  # fmt: skip
    assert verdicts(result.report) == {"LowGPUUtilization": "NotEvaluated"}
    assert result.report.run.name == "mine"
    assert "algo-1" not in result.report.to_json()
    assert result.written == {"html": tmp_path / "out" / "report.html", "json": tmp_path / "out" / "report.json"}
    assert result.written["json"].read_text("utf-8") == result.report.to_json()
    assert result.stale == (tmp_path / "out" / "report.pdf",)
    assert [stage for stage in dict.fromkeys(stages) if stage in ("analyzing", "drawing")] == ["analyzing", "drawing"]


def test_make_report_takes_an_open_store_and_a_context_that_yields_one(run: Path, tmp_path: Path) -> None:
    order: list[str] = []

    @contextmanager
    def opened() -> Iterator[Store]:
        with ingest([run]) as store:
            yield store
        order.append("closed")

    options = Options(generated_at_ns=0)
    output = OutputOptions(tmp_path / "yielded", ("json",))
    yielded = make_report(opened(), output, options=options, progress=lambda stage, fraction: order.append(stage))
    assert order == ["analyzing", "drawing", "closed"], "the store is closed before the files are written"
    with ingest([run]) as store:
        again = make_report(store, OutputOptions(tmp_path / "open", ("json",)), options=options)
        assert store.frame("SELECT 1").item() == 1
    assert again.written["json"].read_bytes() == yielded.written["json"].read_bytes()


def test_wrong_options_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="docx is not a report format"):
        make_report(tmp_path / "not there", OutputOptions(tmp_path / "out", ("docx",)))
    with pytest.raises(UsageError, match="A7 is not a paper size"):
        make_report(tmp_path / "not there", OutputOptions(tmp_path / "out", paper="A7"))
    with pytest.raises(InputError, match="not there"):
        make_report(tmp_path / "not there", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_report_without_its_pdf_is_in_the_error(run: Path, tmp_path: Path) -> None:
    class Broken(PrinterHere):
        def finish(self, timeout_s: float) -> str:
            return f"not within {timeout_s:g} s"

    output = OutputOptions(tmp_path, ("pdf", "json"), pdf_timeout_s=7)
    with pytest.raises(RenderError, match="no PDF: not within 7 s") as caught:
        make_report(run, output, selection=rule_configs.selection([]), printer=Broken())
    assert caught.value.written == {"json": tmp_path / "report.json"}
    assert caught.value.report.to_json() == (tmp_path / "report.json").read_text("utf-8")


def test_wrong_rules_are_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'Nothing' is not a rule"):
        postrun.analyze(tmp_path / "not there", ["Nothing"])
    with pytest.raises(InputError, match="not there"):
        postrun.analyze(tmp_path / "not there")


def test_the_public_names() -> None:
    assert set(postrun.__all__) <= set(dir(postrun))
    assert {name for name in postrun.__all__ if getattr(postrun, name) is None} == set()
    with pytest.raises(AttributeError, match="module 'postrun' has no attribute 'nothing'"):
        _ = postrun.nothing


def test_importing_postrun_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, postrun\ndir(postrun)\nprint(sorted(m for m in sys.modules if m.startswith('postrun') or m in ('polars', 'duckdb')))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "['postrun', 'postrun.version']\n"


@pytest.mark.slow
def test_the_example(run: Path, project_root: Path, tmp_path: Path) -> None:
    example = project_root / "examples" / "custom_rule.py"
    done = subprocess.run([sys.executable, "-P", str(example), str(run)], capture_output=True, text=True, cwd=tmp_path, check=True)
    # the mean of 99, 1, 1 and 1 is 25.5
    assert done.stdout == (
        "OneBusyCore: IssuesFound. Core 2 of algo-1 is at 99% (median) while the mean of the machine's cores is 26%;"
        " thresholds 90% and 50%.\n"
    )
    rule = ProfilerRule.custom(source=str(example), rule_to_invoke="OneBusyCore", rule_parameters={"mean_threshold": 25})
    assert verdicts(postrun.analyze(run, [rule])) == {"OneBusyCore": "NoIssuesFound"}
    assert subprocess.run([sys.executable, "-P", str(example)], capture_output=True, cwd=tmp_path).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("page", ["rules-api.md", "custom-rules.md"])
def test_the_examples_of_the_documentation(
    page: str, run: Path, project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (project_root / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for block in blocks:
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
        else:
            exec(compile(block, page, "exec"), names)
    assert "Error" not in verdicts(names["report"]).values()
    printed = capsys.readouterr().out
    if page == "custom-rules.md":
        # 120 samples; all of them are above 5%
        assert printed.splitlines()[0] == "120 GPU samples; 500 are wanted."
        assert "IssuesFound {'RuleTriggered': 0, 'Violations': 120" in printed
        # and only windows with such a sample are triggered: above 101% there is none
        rule = ProfilerRule.custom(source="my_rule.py", rule_to_invoke="HotGPU", rule_parameters={"threshold": 101})
        assert postrun.analyze(run, [rule]).rules[-1].verdict == "NoIssuesFound"
    else:
        assert "('LowGPUUtilization', 'IssuesFound')" in printed
        assert "ProfilerReport IssuesFound" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (IngestOptions(redact=("host",)), "host cannot be redacted .did you mean hosts"),
        (IngestOptions(redact="hosts,comand"), "comand cannot be redacted"),  # type: ignore[arg-type]
        (IngestOptions(same="a.csv,b.json"), "same: .* is not a list of groups"),
        (IngestOptions(same=["a.csv,b.json"]), "same: .* is not a list of groups"),
        (IngestOptions(clock_offsets={"smi.csv": "-2h"}), "'-2h' for smi.csv is not an int of nanoseconds"),  # type: ignore[dict-item]
        (IngestOptions(clock_offsets={"smi.csv": -7200e9}), "is not an int of nanoseconds"),  # type: ignore[dict-item]
        (IngestOptions(clock_offsets={"smi.csv": True}), "is not an int of nanoseconds"),
    ],
)
def test_wrong_values_of_a_program_are_refused(options: IngestOptions, message: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        make_report(run, tmp_path / "out", ingest_options=options)
    assert not (tmp_path / "out").exists()


def test_redaction_takes_words_as_the_command_line_does(run: Path) -> None:
    with ingest([run], redact="hosts,users") as store:
        assert store.frame("SELECT hostname FROM node").item() != "algo-1"


def test_wrong_output_and_selection_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="formats: 'json' is not a list"):
        OutputOptions(tmp_path, formats="json")
    with pytest.raises(UsageError, match="timeline_events: -1 is negative"):
        OutputOptions(tmp_path, timeline_events=-1)
    selection: Any = ["HostBound"]
    with pytest.raises(UsageError, match=r"give what rule_configs.selection\(rules\) returns"):
        make_report(run, tmp_path / "out", selection=selection)


def test_a_store_is_opened_by_a_text_path(run: Path, tmp_path: Path) -> None:
    ingest([run], tmp_path / "run.duckdb").close()
    path: Any = str(tmp_path / "run.duckdb")
    with Store.open(path) as store:
        assert store.frame("SELECT count(*) FROM node").item() == 1


def test_public_modules_need_no_import_of_their_own() -> None:
    code = "import postrun; print(postrun.capture.annotate.__name__, postrun.errors.InputError.__name__)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "annotate InputError\n"
