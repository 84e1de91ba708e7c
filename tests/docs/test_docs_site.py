"""The site of the documents is complete: every page is in its navigation, every link has a target, and nothing is loaded from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from postrun.analysis.report.schema import schema
from postrun.analysis.rules.engine.catalogue import RULES

pytestmark = pytest.mark.slow

ROWS = 67
CONTRADICTIONS = 29
STATES = {"done", "N/A", "open"}

_ROW = re.compile(r"^\| (\d+) \| (.+?) \| ([^|]+?) \| (.+) \|$", re.MULTILINE)
_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:py|toml|md))`")
_CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
# Attributes by which a page loads something, and those that only lead somewhere.
_LOADS = {"src", "srcset", "poster", "data", "action", "formaction", "background"}


@pytest.fixture(scope="module")
def docs(project_root: Path) -> Path:
    folder = project_root / "docs"
    if not folder.is_dir():
        pytest.skip("no documents beside the tests")
    return folder


@pytest.fixture(scope="module")
def site(docs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package} (pip install postrun[docs])")
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-P", str(docs / "site" / "build.py"), "-o", str(out), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class _Page(HTMLParser):
    """The ids of a page, where its links lead, what it loads, and its styles."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.styles: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._style = tag == "style"
        arguments = {name: value or "" for name, value in attributes}
        self.ids.update(value for name, value in arguments.items() if name == "id" or (name == "name" and tag == "a"))
        self.loaded += [value for name, value in arguments.items() if name in _LOADS and tag != "form"]
        self.styles += [value for name, value in arguments.items() if name == "style"]
        if "href" in arguments or "xlink:href" in arguments:
            target = arguments.get("href") or arguments.get("xlink:href", "")
            (self.links if tag == "a" else self.loaded).append(target)

    def handle_data(self, data: str) -> None:
        if self._style:
            self.styles.append(data)


def _pages(site: Path) -> dict[Path, _Page]:
    results = {}
    for file in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(file.read_text(encoding="utf-8"))
        results[file] = page
    return results


def _external(address: str) -> bool:
    split = urlsplit(address)
    return bool(split.netloc) or split.scheme not in ("", "data", "mailto")


def _tables(docs: Path) -> tuple[list[tuple[int, str, str]], list[tuple[int, str, str]]]:
    features, contradictions = (docs / "checklist.md").read_text(encoding="utf-8").split("## Contradictions of the documentation")
    return tuple([(int(n), state, where) for n, _, state, where in _ROW.findall(part)] for part in (features, contradictions))  # type: ignore[return-value]


def test_no_row_of_the_checklist_is_missing(docs: Path) -> None:
    features, contradictions = _tables(docs)
    assert [number for number, _, _ in features] == list(range(1, ROWS + 1))
    assert [number for number, _, _ in contradictions] == list(range(1, CONTRADICTIONS + 1))
    assert {state for _, state, _ in features + contradictions} <= STATES


def test_what_is_done_names_a_place_that_is_there(docs: Path) -> None:
    wrong = []
    for number, state, where in [row for table in _tables(docs) for row in table]:
        places = _PATH.findall(where)
        wrong += [f"{number}: {place} is not there" for place in places if not (docs.parent / place).is_file()]
        if state == "done" and "](" not in where:
            wrong.append(f"{number}: done, but where?")
    assert not wrong, "\n".join(wrong)


def test_the_sums_of_the_checklist(docs: Path) -> None:
    text = (docs / "checklist.md").read_text(encoding="utf-8")
    sums = re.findall(r"(\d+) done, (\d+) N/A, (\d+) open", text)
    counted = [tuple(str([state for _, state, _ in table].count(one)) for one in ("done", "N/A", "open")) for table in _tables(docs)]
    assert sums == counted


def test_every_document_is_in_the_navigation(site: Path, docs: Path) -> None:
    led = {urlsplit(target).path for target in _pages(site)[site / "index.html"].links}
    assert {f"{file.stem}.html" for file in docs.glob("*.md")} - {"index.html"} <= led
    assert {"samples.html", "changes.html", "benchmarks.html"} <= led


def test_every_rule_has_an_example(site: Path, docs: Path) -> None:
    page = (site / "rules.html").read_text(encoding="utf-8")
    rules = re.findall(r"^## (\w+)$", (docs / "rules.md").read_text(encoding="utf-8"), re.MULTILINE)
    rules = [rule for rule in rules if rule not in ("Verdicts", "Presets")]
    assert len(rules) == len(RULES) + 1  # ProfilerReport
    examples = re.findall(r'<figure class="example">.*?</figure>', page, re.DOTALL)
    assert len(examples) == len(rules)
    for rule, example in zip(rules, examples, strict=True):
        assert page.index(f'id="{rule.lower()}"') < page.index(example), rule
        assert re.search(r"<(?:path|rect|line|circle|polyline)\b", example), rule
        assert 'aria-label="' in example, rule


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = _pages(site)
    assert len(pages) > 20
    broken = []
    for file, page in pages.items():
        for target in page.links + page.loaded:
            split = urlsplit(target)
            if _external(target) or split.scheme:
                continue
            reached = (file.parent / unquote(split.path)).resolve() if split.path else file
            if not reached.is_file():
                broken.append(f"{file.name}: {target}")
            elif split.fragment and reached in pages and unquote(split.fragment) not in pages[reached].ids:
                broken.append(f"{file.name}: no such place: {target}")
    assert not broken, "\n".join(broken)


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = []
    for file, page in _pages(site).items():
        loaded += [f"{file.name}: {address}" for address in page.loaded if _external(address)]
        styles = "".join(page.styles)
        loaded += [f"{file.name}: {found[1] or found[2]}" for found in _CSS_URL.finditer(styles) if _external(found[1] or found[2])]
    for file in site.rglob("*.css"):
        text = file.read_text(encoding="utf-8")
        loaded += [f"{file.name}: {found[1] or found[2]}" for found in _CSS_URL.finditer(text) if _external(found[1] or found[2])]
    for file in site.rglob("*.js"):
        # Comments may name a home page; what fetches or imports may not name another machine.
        calls = re.findall(
            r"(?:fetch|import|open|\.src\s*=|\.href\s*=)\s*\(?\s*[\"'`](?:https?:)?//[^\"'`]*", file.read_text(encoding="utf-8")
        )
        loaded += [f"{file.name}: {call}" for call in calls]
    assert not loaded, "\n".join(loaded)


def test_the_search_works_without_a_server(site: Path) -> None:
    page = _pages(site)[site / "search.html"]
    assert any(urlsplit(address).path == "searchindex.js" for address in page.loaded)
    assert "exposedcommunication" in (site / "searchindex.js").read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("name", ["report", "comparison"])
def test_the_schemas_are_published(site: Path, name: str) -> None:
    assert json.loads((site / f"{name}.schema.json").read_text(encoding="utf-8")) == schema(name)


def test_what_scrolls_can_be_reached_by_keys(site: Path) -> None:
    page = (site / "rules.html").read_text(encoding="utf-8")
    assert "<pre>" not in page
    assert not re.search(r'<div class="table-wrapper[^"]*">', page)
    assert 'role="heading">' not in page
