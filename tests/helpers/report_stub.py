"""A stub of ``postrun.api.make_report`` for tests of commands: rules are evaluated, nothing else of a run is analyzed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from judging import empty_report
from postrun.analysis import Options
from postrun.analysis.rules.engine.engine import evaluate
from postrun.analysis.rules.engine.selection import Selection
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.analysis.run.actions import actions
from postrun.api import OutputOptions, ReportResult
from postrun.ingest.store import Store
from postrun.report_templates.output.render import PLACES, render


class RulesAlone:
    """A stub of ``make_report`` for one run: evaluates the rules, and writes a report whose other sections are of an empty run.

    It makes a report in a tenth of the time. ``path``: the run store that it accepts as the source.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = Store.open(path)
        self._run = RunData(self._store)

    def __call__(self, source: tuple[str, ...], output: OutputOptions, *, selection: Selection, options: Options, **_: Any) -> ReportResult:
        assert source == (str(self.path),)
        rules, findings = evaluate(self._run, selection)
        report = replace(empty_report(), rules=rules, findings=findings, options={"top": options.top, "histograms": options.histograms})
        report = replace(report, findings=actions(report)[0])
        folder = Path(output.folder)
        written = render(report, folder, output.formats, paper=output.paper, look=output.look)
        stale = [folder / file for kind, file in PLACES.items() if kind not in written and (folder / file).exists()]
        return ReportResult(report, written, tuple(stale))

    def close(self) -> None:
        self._store.close()
