"""Builds the site: documents -> a folder with figures and samples -> HTML pages, by Sphinx.

python -P docs/site/build.py [-o site] [--quick]      (needs: pip install "postrun[docs]")

Nothing is fetched, and the pages name no file of another machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from samples import Sample

HERE: Final = Path(__file__).resolve().parent
DOCS: Final = HERE.parent
ROOT: Final = DOCS.parent

# The pages in the order of the navigation; a page of docs/ that is not listed is under "More".
NAVIGATION: Final[dict[str, tuple[str, ...]]] = {
    "Tutorial": ("quick-start", "samples"),
    "How-to guides": (
        "recipes", "record", "profiling-configuration", "compare", "nightly", "scale", "tickets", "export", "custom-rules", "troubleshooting",
        "gpu-acceptance", "development",
    ),
    "Reference": (
        "command-line", "configuration", "inputs", "definitions", "rules", "timeline", "programs", "rules-api", "report-json", "run-store",
        "trace-format", "capture", "c-library", "capture-metrics", "gpu-capture", "checklist", "changes",
    ),
    "Explanation": ("advice", "decisions", "security", "other-tools", "benchmarks"),
}  # fmt: skip
# Pages whose text is outside docs/.
OUTSIDE: Final = {"changes": "CHANGELOG.md", "benchmarks": "benchmarks/README.md"}
WRITTEN_HERE: Final = frozenset({"samples"})  # pages that are written here

_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def build(out: Path, *, quick: bool = False) -> None:
    """Write the site to ``out``; ``quick``: with a smaller run and without samples."""
    sys.path.insert(0, str(HERE))
    from postrun.analysis.report import schema
    from rule_figures import examples
    from samples import write_samples

    if out.exists():
        if not (out / "searchindex.js").is_file():
            raise SystemExit(f"{out} is there and is no site of postrun's: choose another folder with -o")
        shutil.rmtree(out)
    with tempfile.TemporaryDirectory(prefix="postrun-site-") as scratch:
        stage = Path(scratch) / "docs"
        lay_out(stage, examples(12, 1, 2) if quick else examples())
        samples: Sequence[Sample] = [] if quick else write_samples(Path(scratch) / "samples")
        (stage / "samples.md").write_text(_samples_page(samples), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", str(HERE)]
        done = subprocess.run([*command, "-d", str(Path(scratch) / "doctrees"), str(stage), str(out)], check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
        if samples:
            shutil.copytree(Path(scratch) / "samples", out / "samples")
    for name in ("report", "comparison"):
        (out / f"{name}.schema.json").write_text(schema.text(name), encoding="utf-8")
    for page in out.glob("*.html"):
        page.write_text(_reachable(page.read_text(encoding="utf-8")), encoding="utf-8")
    for leftover in (".buildinfo", "objects.inv"):
        (out / leftover).unlink(missing_ok=True)


def _reachable(page: str) -> str:
    """Make ``page`` usable without a mouse: focusable tables, headings with a level."""
    page = page.replace('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">')
    page = page.replace("<pre>", '<pre tabindex="0">')
    return re.sub(r'<div class="table-wrapper[^"]*"', r'\g<0> tabindex="0"', page)


def navigation() -> dict[str, list[str]]:
    """Heading -> pages that there are, every one once."""
    there = {file.stem for file in DOCS.glob("*.md")} - {"index"} | set(OUTSIDE) | WRITTEN_HERE
    listed = {heading: [page for page in pages if page in there] for heading, pages in NAVIGATION.items()}
    more = sorted(there.difference(*listed.values()))
    return {**listed, **({"More": more} if more else {})}


def lay_out(stage: Path, figures: Mapping[str, str]) -> None:
    """Copy the documents to ``stage``, with links to copies of other files."""
    stage.mkdir(parents=True)
    shutil.copytree(DOCS / "images", stage / "images")
    for source in sorted(DOCS.glob("*.md")):
        _write_page(source, stage / source.name, stage, figures if source.stem == "rules" else {})
    for name, file in OUTSIDE.items():
        _write_page(ROOT / file, stage / f"{name}.md", stage, {})
    with (stage / "index.md").open("a", encoding="utf-8") as index:
        for heading, pages in navigation().items():
            index.write("\n```{toctree}\n:hidden:\n:caption: " + heading + "\n\n" + "\n".join(pages) + "\n```\n")


def _write_page(source: Path, page: Path, stage: Path, figures: Mapping[str, str]) -> None:
    pieces, at = [], 0
    text = source.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        pieces += [_linked(text[at : fence.start()], source, stage), fence[0]]
        at = fence.end()
    text = "".join([*pieces, _linked(text[at:], source, stage)])
    for rule, figure in figures.items():
        # The description of the rule, its formula, then the figure.
        heading = re.search(rf"^## {rule}\n\n.+?\n\n```text\n.+?\n```\n\n", text, re.MULTILINE | re.DOTALL)
        if heading is None:
            raise SystemExit(f"{source.name} has no heading ## {rule} with a sentence and a formula below it")
        text = f"{text[: heading.end()]}{figure}\n\n{text[heading.end() :]}"
    page.write_text(text, encoding="utf-8")


def _linked(text: str, source: Path, stage: Path) -> str:
    """Point links to files that are not pages to copies below ``files/``."""

    def lead(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (source.parent / target).resolve()
        for name, file in OUTSIDE.items():
            if path == ROOT / file:
                return f"]({name}.md{anchor})"
        if path.is_relative_to(DOCS) and path.suffix == ".md":
            return f"]({path.relative_to(DOCS).as_posix()}{anchor})"
        if not path.is_file():
            return match[0]
        if path.is_relative_to(DOCS / "images"):
            return f"]({path.relative_to(DOCS).as_posix()})"
        copy = stage / "files" / path.relative_to(ROOT)
        if copy.suffix == ".md":  # no page: a text
            copy = copy.with_suffix(".md.txt")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        return f"]({copy.relative_to(stage).as_posix()})"

    return _LINK.sub(lead, text)


def _samples_page(samples: Sequence[Sample]) -> str:
    lines = ["# Sample reports", "", "The build of this site made these reports from simulated runs, with the commands in the table.", ""]
    if not samples:
        return "\n".join([*lines, "This site was built without them (`--quick`): `make docs` makes all.", ""])
    rows = "".join(
        f'<tr><td><a href="samples/{sample.file}">{escape(sample.what)}</a></td><td><code>{escape(sample.command)}</code></td></tr>'
        for sample in samples
    )
    table = f'<table class="docutils"><thead><tr><th>Sample</th><th>Made by</th></tr></thead><tbody>{rows}</tbody></table>'
    more = "`postrun demo` writes the first of them to your disk, and the report of a small training that it records on your machine."
    return "\n".join([*lines, f'<div class="table-wrapper">{table}</div>', "", more, ""])


def main() -> None:
    options = argparse.ArgumentParser(description="Builds the site of the documents.")
    options.add_argument("-o", "--output", type=Path, default=ROOT / "site", help="folder of the site (default: site/ in the checkout)")
    options.add_argument("--quick", action="store_true", help="without the sample reports, with figures of a smaller run")
    arguments = options.parse_args()
    build(arguments.output.resolve(), quick=arguments.quick)
    print(arguments.output / "index.html")


if __name__ == "__main__":
    main()
