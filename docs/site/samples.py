"""Sample reports of the site: simulated runs, reported by the commands that a user would give."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postrun.simulate import Changes, Problems, write_demo

_AT: Final = "2026-11-20T06:00:00"


@dataclass(frozen=True, slots=True)
class Sample:
    """A file of the site below ``samples/``: its path, description and command."""

    file: str
    what: str
    command: str


SAMPLES: Final = (
    Sample("report/report.html", "Report of a run of 2 nodes with 4 GPUs each, with planted problems", "postrun report run"),
    Sample("report/report.pdf", "The same as a PDF", "postrun report run"),
    Sample("report/report.json", "The same as JSON: every figure", "postrun report run"),
    Sample(
        "comparison/comparison.html",
        "Comparison with a run whose batches come later, and whose rank 2 has a slow link",
        "postrun compare base new",
    ),
    Sample("comparison/comparison.pdf", "The same as a PDF", "postrun compare base new"),
    Sample("comparison/comparison.json", "The same as JSON", "postrun compare base new"),
    Sample("nightly/index.html", "Index of a night: six small runs, the last one slower", "postrun nightly runs --out reports"),
)


def write_samples(folder: Path) -> list[Sample]:
    """Write the samples below ``folder``; return those that exist."""
    with tempfile.TemporaryDirectory(prefix="postrun-samples-") as scratch:
        runs = Path(scratch)
        write_demo(runs / "run")
        write_demo(runs / "new", seed=2, changes=Changes(slower_loading_ns=8_000_000, slow_link_rank=2))
        for night in range(6):
            changes = Changes(slower_kernel=("gemm", 1.5)) if night == 5 else Changes()
            write_demo(
                runs / "nights" / f"gpt-2026-11-{15 + night}",
                seed=night + 1,
                steps=40,
                problems=Problems(straggler_rank=None),
                changes=changes,
                nodes=1,
                gpus_per_node=1,
            )
        # Run in the folder of the runs, so that no sample names a folder of the machine that built it.
        _postrun(runs, "report", "run", "-o", folder / "report", "--generated-at", _AT)
        _postrun(runs, "compare", "run", "new", "-o", folder / "comparison", "--generated-at", _AT)
        _postrun(runs, "nightly", "nights", "--out", folder / "nightly", "--settle", "0", "--workers", "2", "--format", "html,json")
        (folder / "nightly" / ".postrun-lock").unlink(missing_ok=True)
        reports = folder / "nightly"
        for file in reports.rglob("*"):
            if file.suffix in (".html", ".json"):  # a night names whole paths
                text = file.read_text(encoding="utf-8")
                file.write_text(text.replace(f"{runs.resolve()}/", "").replace(str(reports.resolve()), "reports"), encoding="utf-8")
    return [sample for sample in SAMPLES if (folder / sample.file).is_file()]


def _postrun(folder: Path, *words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "postrun", *map(str, words), "--quiet"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("POSTRUN_")},
        check=False,
    )
    if done.returncode:
        print(f"samples: postrun {words[0]} ended with exit code {done.returncode}", file=sys.stderr)
