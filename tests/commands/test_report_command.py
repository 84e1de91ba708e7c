"""The options of `postrun report` reach make_report, and its result is printed. No trace is read here.

Also: the program ends on SIGTERM as on any other exit, and a caller of the command group keeps its own handler.
"""

from __future__ import annotations

import importlib
import json
import signal
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import duckdb
import postrun
import pytest
from click.testing import CliRunner, Result
from postrun import cli, option_values
from postrun.analysis import Options
from postrun.analysis.report import Report
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.api import IngestOptions, OutputOptions, ReportResult
from postrun.errors import InputError, RenderError, Terminated, UsageError
from postrun.report_templates.text.look import Look


class Stub:
    """Replaces make_report: keeps its arguments and returns ``report``, or raises ``error``."""

    def __init__(self, report: Any) -> None:
        self.report = report
        self.error: BaseException | None = None
        self.calls: list[tuple[Any, OutputOptions, dict[str, Any]]] = []
        self.handlers: list[Any] = []

    def __call__(self, source: Any, output: OutputOptions, **named: Any) -> ReportResult:
        self.calls.append((source, output, named))
        self.handlers.append(signal.getsignal(signal.SIGTERM))
        if self.error is not None:
            raise self.error
        folder = Path(output.folder)
        return ReportResult(self.report, {"html": folder / "report.html"}, (folder / "report.pdf",), ("1 character has no glyph",))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of one event."""
    trace = tmp_path_factory.mktemp("run") / "a.pt.trace.json"
    trace.write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}'
    )
    return postrun.analyze(trace, ["HostBound"], generated_at_ns=0)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, report: Report) -> Stub:
    stub = Stub(report)
    monkeypatch.setattr("postrun.api.make_report", stub)
    return stub


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(word) for word in arguments])


def test_without_options_the_defaults_are_those_of_python(stub: Stub) -> None:
    assert call("report", "run").exit_code == 0
    [(source, output, named)] = stub.calls
    assert (source, output) == (("run",), OutputOptions())
    assert (named["options"], named["ingest_options"]) == (Options(), IngestOptions())
    assert [chosen.rule.name for chosen in named["selection"].rules] == list(RULES)


def test_every_option_reaches_the_report(stub: Stub, tmp_path: Path) -> None:
    more = [
        "--format", "json,html", "--rules", "StepOutlier,HostBound", "--preset", "service", "--set", "StepOutlier_stddev=7",
        "--top", "3", "--histogram", "forward", "--timeline-events", "9", "--paper", "letter", "--sections", "steps,-rules",
        "--theme", "dark", "--title", "Mine", "--redact", "hosts,users", "--name", "night", "--generated-at", "1970-01-01T00:00:02",
        "--memory-limit", "2GB", "--threads", "3", "--max-unpacked", "50GB", "--peak", "bf16=900,memory=3e3", "--peak", "FP8=1800",
        "--price-per-gpu-hour", "2.50 USD",
    ]  # fmt: skip
    done = call("report", "a", "b", "-o", tmp_path, *more)
    assert done.exit_code == 0, done.output
    [(source, output, named)] = stub.calls
    assert source == ("a", "b")
    look = Look(("steps", "-rules"), "dark", "Mine")
    assert output == OutputOptions(tmp_path, ("json", "html"), "Letter", look, 9)
    assert named["options"] == Options(
        top=3,
        histograms=("forward",),
        generated_at_ns=2 * 10**9,
        name="night",
        peaks={"bf16": 900, "memory": 3000, "fp8": 1800},
        price_per_gpu_hour=(2.5, "USD"),
    )
    assert named["ingest_options"] == IngestOptions("2GB", 3, "50GB", ("hosts", "users"))
    chosen = {one.rule.name: one.parameters for one in named["selection"].rules}
    assert set(chosen) == {"StepOutlier", "HostBound"}
    assert chosen["StepOutlier"]["stddev"] == 7
    assert named["selection"].preset == "service"


@pytest.mark.parametrize(("text", "price"), [("0.5EUR", (0.5, "EUR")), ("3 €", (3.0, "€")), (" 12.25 CHF ", (12.25, "CHF"))])
def test_a_price_has_an_amount_and_a_currency(text: str, price: tuple[float, str]) -> None:
    assert option_values.price(text) == price


@pytest.mark.parametrize("text", ["2.5", "USD", "-1 USD", "2,5 EUR", "1e3 USD", "2 US dollars", "nan USD", ""])
def test_a_price_without_amount_or_currency_is_wrong(stub: Stub, text: str) -> None:
    done = call("report", "run", "--price-per-gpu-hour", text)
    assert done.exit_code == 2
    assert "write it with its currency, like '2.50 USD'" in done.output
    assert not stub.calls


def test_a_name_of_the_configuration_that_the_run_does_not_have_is_a_note(stub: Stub, tmp_path: Path) -> None:
    config = tmp_path / "postrun.toml"
    config.write_text('[report]\nhistogram = ["forward"]\n')
    done = call("report", "run", "--config", config)
    assert "note: histogram = 'forward' of the configuration: no annotated range of this run has this name" in done.stderr
    assert stub.calls[0][2]["options"].histograms_if_present


def test_the_result_is_printed_on_standard_output_and_notes_are_not(stub: Stub, tmp_path: Path) -> None:
    done = call("report", "run", "-o", tmp_path)
    assert done.stdout.splitlines()[0] == stub.report.summary.headline
    assert done.stdout.splitlines()[-1] == str(tmp_path / "report.html")
    assert "note: 1 character has no glyph" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == f"note: {tmp_path}/report.pdf is of an earlier report; it was left as it is"
    assert call("report", "run", "-o", tmp_path, "--quiet").output == ""
    output = json.loads(call("report", "run", "-o", tmp_path, "--json", "--quiet").stdout)
    assert (output["headline"], output["written"]) == (stub.report.summary.headline, {"html": str(tmp_path / "report.html")})


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("run: not there"), 4, "postrun: run: not there"),
        (UsageError("A7 is not a paper size"), 2, "postrun: A7 is not a paper size"),
        (RenderError("no PDF: no fonts"), 1, "postrun: no PDF: no fonts"),
        (OSError(28, "No space left on device", "out"), 1, "postrun: out: No space left on device; choose another place with -o, or free"),
        (duckdb.OutOfMemoryException("more"), 1, "postrun: the database needs more memory (more); give it more with --memory-limit"),
        (duckdb.IOException("full"), 1, "postrun: the database cannot read or write its file (full); free some space, set TMPDIR, or"),
        (RuntimeError("INTERRUPT Error: interrupted"), 130, "postrun: interrupted"),
        (KeyboardInterrupt(), 130, "postrun: interrupted"),
        (ValueError("odd"), 1, "postrun: internal error: ValueError: odd"),
    ],
)  # fmt: skip
def test_each_error_is_one_message_and_its_exit_code(stub: Stub, error: BaseException, code: int, text: str) -> None:
    stub.error = error
    done = call("report", "run")
    assert done.exit_code == code
    assert done.stderr.lstrip().startswith(text)
    assert "Traceback" not in done.stderr


def test_a_caller_of_the_command_group_keeps_its_handler_of_sigterm(stub: Stub) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert call("report", "run").exit_code == 0
    assert cli.main(["report", "run", "--quiet"]) is None
    assert stub.handlers == [before, before]
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(call("report", "run").exit_code))  # no thread may install a handler
    thread.start()
    thread.join()
    assert results == [0]
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_program_ends_on_sigterm_and_gives_the_handler_back(stub: Stub) -> None:
    before = signal.getsignal(signal.SIGTERM)
    cli.run(["report", "run", "--quiet"])
    assert signal.getsignal(signal.SIGTERM) == before
    [during] = stub.handlers
    assert during != before
    with pytest.raises(Terminated) as ended:
        during(signal.SIGTERM, None)
    assert ended.value.code == 143
    stub.error = InputError("not there")
    with pytest.raises(SystemExit) as left:
        cli.run(["report", "run"])
    assert left.value.code == 4
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_console_script_and_the_module_are_the_program() -> None:
    [script] = entry_points(group="console_scripts", name="postrun")
    assert script.load() is cli.run
    assert importlib.import_module("postrun.__main__").run is cli.run
