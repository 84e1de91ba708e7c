"""The advice suite as a page: the first finding of each labeled run against the expected one.

    python -P tests/advice/advice_bench.py [--data FOLDER] [--write docs/advice.md] [--seeds N]

``make bench-advice`` runs all cases, 100 healthy runs and 100 balanced pipelines, prints the confusion matrix and writes the page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("advice", "helpers")]

from advice_cases import KINDS, SEEDS, healthy_seed, pipeline_seed  # noqa: E402
from advice_score import Case, Score, score  # noqa: E402
from published_jobs import Published  # noqa: E402

INTRODUCTION: Final = """# Advice suite

A report is only useful if its first finding is the cause. The advice suite checks this on {count} labeled runs: simulated jobs with
planted causes, healthy jobs, and two published jobs with known causes
([StragglerAnalysis](https://github.com/ByteDance-Seed/StragglerAnalysis), arXiv 2505.05713). The label of a run names the rule that must
come first, rules and words that must not appear, and the saving if it is known. The suite computes the saving by simulating the job without
the cause.

`make bench-advice` runs the suite and writes this page. The runs are in `tests/advice/`: `cases_*.py` contains the table of cases,
`training_jobs.py` and `inference_jobs.py` simulate jobs, and `job_trace.py` writes Kineto traces. `make test` checks the cases;
`make test-slow` also checks their variants and the runs of random shape.
"""


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def expected_first(case: Case) -> str:
    return " or ".join(case.first)


def case_row(kind: str, case: Case) -> tuple[str, str, str]:
    """Return the columns of a case that do not depend on the report."""
    return kind, case.name, expected_first(case)


def confusion(scores: Sequence[Score]) -> str:
    """Return expected first findings against the reported ones.

    A case with several right answers counts as the reported one.
    """
    counts = Counter((s.first if s.first in s.case.first else s.case.first[0], s.first) for s in scores)
    expected = sorted({row for row, _ in counts})
    columns = sorted({column for _, column in counts})
    rows = [[f"**{row}**", *(counts[row, column] or "·" for column in columns)] for row in expected]
    return table(["expected \\ reported", *columns], rows)


def savings(scores: Sequence[Score]) -> str:
    rows = [
        (s.case.name, s.first, f"{s.expected_saving:.1f}%", f"{s.saving:.1f}%", _kind(s), _error(s.saving - s.expected_saving))
        for s in scores
        if s.expected_saving is not None and s.saving is not None
    ]
    return table(["run", "rule", "planted saving", "reported saving", "kind", "error"], rows)


def _kind(result: Score) -> str:
    return (result.saving_kind or "").replace("_", " ")


def _error(percentage_points: float) -> str:
    """Write a signed error; one that rounds to 0 has no sign."""
    rounded = round(percentage_points, 1)
    return f"{rounded:+.1f} pp" if rounded else "0.0 pp"


def seeds_row(title: str, scores: Sequence[Score], accused: Sequence[Score]) -> tuple[str, int, int, str]:
    return title, len(scores), len(accused), ", ".join(sorted({rule for s in accused for rule in s.findings})) or "—"


def page(scores: Sequence[tuple[str, Score]], healthy: Sequence[Score], pipelines: Sequence[Score]) -> str:
    """Return docs/advice.md."""
    plain = [s for _, s in scores]
    right = sum(not s.wrong for s in plain)
    quiet = [s for s in plain if s.case.healthy]
    cases = [(*case_row(kind, s.case), s.first, "; ".join(s.wrong).replace("|", "\\|") or "—") for kind, s in scores]
    predicted = [
        abs(s.saving - s.expected_saving) for s in plain if s.saving_kind == "predicted" and None not in (s.saving, s.expected_saving)
    ]  # type: ignore[operator]
    mean = (
        f"The mean error of the predicted savings is {sum(predicted) / len(predicted):.1f} pp over {len(predicted)} runs."
        if predicted
        else ""
    )
    return "\n\n".join(
        [
            INTRODUCTION.format(count=len(plain)).rstrip(),
            f"## First findings\n\n{right} of {len(plain)} runs meet every expectation.\n"
            "Each row is an expected first finding, and each column is a first finding in a report.",
            confusion(plain),
            "## Healthy runs\n\nA healthy run is a false alarm if its report has any finding. A balanced pipeline is a false alarm if a\n"
            "finding names a culprit, or gives advice against a bubble that every pipeline has.",
            table(
                ["runs", "number", "false alarms", "rules"],
                [
                    row
                    for row in (
                        seeds_row("labeled healthy runs", quiet, [s for s in quiet if s.findings]),
                        seeds_row("healthy runs of random shape", healthy, [s for s in healthy if s.findings]),
                        seeds_row("balanced pipelines of random shape", pipelines, [s for s in pipelines if s.wrong]),
                    )
                    if row[1]
                ],
            ),
            f"## Savings\n\nAn upper bound may exceed the planted saving. {mean}".rstrip(),
            savings(plain),
            "## Cases",
            table(["kind", "run", "expected first finding", "first finding", "failed expectations"], cases),
        ]
    ) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the published recordings")
    parser.add_argument("--write", type=Path, help="file that receives the page")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    begin = time.process_time()
    data = options.data / "stragglers"
    scores = []
    for kind, cases in KINDS.items():
        for case in cases:
            if isinstance(case.job, Published) and not data.is_dir():
                print(f"note: left out {case.name}: no {data}", file=sys.stderr)
                continue
            scores.append((kind, score(case, data)))
    healthy = [score(healthy_seed(seed)) for seed in range(options.seeds)]
    pipelines = [score(pipeline_seed(seed)) for seed in range(options.seeds)]
    text = page(scores, healthy, pipelines)
    print(text[text.index("## First findings") : text.index("## Cases")])
    for _, result in scores:
        for problem in result.wrong:
            print(f"{result.case.name}: {problem}")
    print(f"{time.process_time() - begin:.0f} s of processor time")
    if options.write:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
