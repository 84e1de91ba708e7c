"""Faults of a report's PDF: its text on the page, and the structure that screen readers and readers' panes use.

``python tests/helpers/pdf_checks.py FILE.pdf...`` prints the faults of each.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pikepdf

MARGIN_PT: Final = 14 / 25.4 * 72
_SLACK_PT: Final = 1.5
_PAGE: Final = re.compile(r'<page width="([\d.]+)" height="([\d.]+)">(.*?)</page>', re.DOTALL)
_WORD: Final = re.compile(r'<word xMin="([-\d.]+)" yMin="([-\d.]+)" xMax="([-\d.]+)" yMax="([-\d.]+)">(.*?)</word>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Word:
    left: float
    top: float
    right: float
    bottom: float
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    width: float
    height: float
    words: tuple[Word, ...]

    @property
    def body(self) -> list[Word]:
        """Words outside of the running header and footer."""
        return [word for word in self.words if MARGIN_PT - 1 < (word.top + word.bottom) / 2 < self.height - MARGIN_PT + 1]

    @property
    def open(self) -> float:
        """The share of the page below its last line."""
        inside = self.height - 2 * MARGIN_PT
        return 1 - max((word.bottom - MARGIN_PT for word in self.body), default=0.0) / inside


def pages(path: Path) -> list[Page]:
    """The words of each page, as poppler finds them."""
    output = subprocess.run(["pdftotext", "-bbox", str(path), "-"], capture_output=True, text=True, check=True).stdout
    result = []
    for width, height, body in _PAGE.findall(output):
        words = tuple(Word(*map(float, corners), html.unescape(text)) for *corners, text in _WORD.findall(body))
        result.append(Page(float(width), float(height), words))
    return result


def faults_of_text(pages_of_report: list[Page]) -> list[str]:
    """Words over each other, and words in the margins or off the page."""
    faults = []
    for number, page in enumerate(pages_of_report, 1):
        if not page.body:
            faults.append(f"page {number} is empty")
        for word in page.words:
            if word.left < MARGIN_PT - _SLACK_PT or word.right > page.width - MARGIN_PT + _SLACK_PT:
                faults.append(f"page {number}: {word.text!r} stands in the margin")
        order = sorted(page.words, key=lambda word: word.left)
        for i, box in enumerate(order):
            for later in order[i + 1 :]:
                if later.left > box.right - 1:
                    break
                if _overlap(box, later):
                    faults.append(f"page {number}: {box.text!r} and {later.text!r} overlap")
    return faults


def _overlap(word: Word, later: Word) -> bool:
    """Whether the letters overlap: they fill the middle of the box of a line."""
    (top, bottom), (high, low) = (
        (box.top + 0.2 * (box.bottom - box.top), box.bottom - 0.2 * (box.bottom - box.top)) for box in (word, later)
    )
    return min(bottom, low) - max(top, high) > 1


def faults_of_structure(path: Path, sections: list[str]) -> list[str]:
    """Check title, language, tags, headings, tables and links; ``sections``: titles."""
    with pikepdf.open(path) as document:
        return [
            *_general(document),
            *_tags(document),
            *_bookmarks(document, sections),
            *_links(document),
        ]


def _general(document: pikepdf.Pdf) -> Iterator[str]:
    root = document.Root
    if not str(root.get("/Lang", "")):
        yield "no language is given"
    if not str(document.docinfo.get("/Title", "")):
        yield "no title is given"
    if not bool(root.get("/MarkInfo", {}).get("/Marked", False)):
        yield "the document is not marked as tagged"
    if not bool(root.get("/ViewerPreferences", {}).get("/DisplayDocTitle", False)):
        yield "the window shows the name of the file, not the title"


def _nodes(node: Any) -> Iterator[Any]:
    """Every element below ``node`` in the order of reading."""
    waiting = [node]
    while waiting:
        now = waiting.pop()
        if not isinstance(now, pikepdf.Dictionary):
            continue
        yield now
        children = now.get("/K")
        waiting += reversed(list(children) if isinstance(children, pikepdf.Array) else [children])


def _tags(document: pikepdf.Pdf) -> Iterator[str]:
    tree = document.Root.get("/StructTreeRoot")
    if tree is None:
        yield "there are no tags"
        return
    level = 0
    for node in _nodes(tree):
        tag = str(node.get("/S", ""))
        if tag == "/Figure" and not str(node.get("/Alt", "")).strip():
            yield "a figure has no alternative text"
        if re.fullmatch("/H[1-6]", tag):
            if int(tag[2]) > level + 1:
                yield f"after a heading of level {level} comes one of level {tag[2]}"
            level = int(tag[2])
        if tag == "/Table":
            inner = {str(part.get("/S", "")) for part in _nodes(node)}
            yield from (f"a table has no {wanted[1:]}" for wanted in ("/TR", "/TH", "/TD") if wanted not in inner)
    if level == 0:
        yield "there are no headings"


def _bookmarks(document: pikepdf.Pdf, sections: list[str]) -> Iterator[str]:
    with document.open_outline() as outline:
        titles = [str(item.title) for chapter in outline.root for item in (chapter, *chapter.children)]
    for title in sections:
        if not any(re.sub(r"^\d+ +", "", one) == title for one in titles):
            yield f"no bookmark leads to the section {title}"


def _links(document: pikepdf.Pdf) -> Iterator[str]:
    named: set[str] = set()
    names = document.Root.get("/Names", {}).get("/Dests")
    for node in [] if names is None else _nodes_of_names(names):
        named |= {str(name) for name in list(node.get("/Names", []))[::2]}
    for number, page in enumerate(document.pages, 1):
        for note in page.get("/Annots", []):
            target = note.get("/Dest", note.get("/A", {}).get("/D"))
            if str(note.get("/Subtype")) == "/Link" and "/URI" in note.get("/A", {}):
                yield f"page {number} leads out of the document: {note['/A']['/URI']}"
            elif isinstance(target, pikepdf.String) and str(target) not in named:
                yield f"page {number}: a link leads nowhere: {target}"


def _nodes_of_names(node: Any) -> Iterator[Any]:
    yield node
    for child in node.get("/Kids", []):
        yield from _nodes_of_names(child)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        report = pages(Path(file))
        print(f"{file}: {len(report)} pages; open at the end of each: {' '.join(f'{100 * page.open:.0f}%' for page in report)}")
        for fault in [*faults_of_text(report), *faults_of_structure(Path(file), [])]:
            print("   ", fault)
