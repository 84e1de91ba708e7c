"""Every link between the documents has a target."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``.+?``|`[^`]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|href|srcset)=\"([^\"]+)\"")


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as common renderers create them.

    Lower case, dashes for spaces, no punctuation.
    """
    seen: dict[str, int] = {}
    results = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        results.add(f"{anchor}-{count}" if count else anchor)
    return results


def _documents(root: Path) -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return sorted(path for path in root.rglob("*.md") if not any(part.startswith((".", "build")) for part in path.parts))
    return [root / line for line in listed.stdout.splitlines() if (root / line).is_file()]


def test_anchors_are_those_of_the_headings() -> None:
    text = "# A\n## What `x` costs, in ns\n```\n# no heading\n```\n## A\n"
    assert _anchors(text) == {"a", "what-x-costs-in-ns", "a-1"}


def test_every_link_leads_somewhere(project_root: Path) -> None:
    documents = _documents(project_root)
    if not documents:
        pytest.skip("no documents beside the tests")
    broken = []
    for page in documents:
        for match in _LINK.finditer(_CODE.sub("", _FENCE.sub("", page.read_text()))):
            target, _, anchor = (match[1] or match[2]).partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            path = (page.parent / target).resolve() if target else page
            if not path.exists():
                broken.append(f"{page.relative_to(project_root)}: {target} is not there")
            elif anchor and path.suffix == ".md" and anchor not in _anchors(path.read_text()):
                broken.append(f"{page.relative_to(project_root)}: {path.name} has no heading #{anchor}")
    assert not broken, "\n".join(broken)


def test_paths_in_the_documents_exist(project_root: Path) -> None:
    """Check paths in backticks below a folder of the tree, without placeholders."""
    documents = _documents(project_root)
    if not documents:
        pytest.skip("no documents beside the tests")
    folders = {entry.name for entry in project_root.iterdir() if entry.is_dir() and entry.name not in ("build", "demo", "site")}
    missing = []
    for page in documents:
        if page.name == "CHANGELOG.md":  # names paths of its time
            continue
        for path in re.findall(r"`([\w.-]+/[\w./-]*)`", _FENCE.sub("", page.read_text())):
            name = path.split("/")[0]
            if name in folders and not re.search(r"NAME|FORMAT|MACHINE", path) and not (project_root / path).exists():
                missing.append(f"{page.relative_to(project_root)}: {path}")
    assert not missing, "\n".join(missing)


def test_the_walk_of_a_number_leads_to_its_definition(project_root: Path) -> None:
    page = project_root / "docs" / "development.md"
    if not page.is_file():
        pytest.skip("no documents beside the tests")
    walk = page.read_text().split("## The walk of a number")[1].split("\n## ")[0]
    steps = re.findall(r"^\d\. `([^`]+)`, `(?:\w+\.)?(\w+)`", walk, re.MULTILINE)
    assert 3 <= len(steps) <= 5
    assert [name for file, name in steps if not re.search(rf"^ *def {name}\(", (project_root / file).read_text(), re.MULTILINE)] == []
