"""Every text from a run is harmless in every markup, and remains readable.

Each markup has a small reader here, written from its documentation and independent of the escapers: it undoes escapes and reports all
markup that would have taken effect.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from postrun.tickets import markup
from postrun.tickets.comment import comment
from postrun.tickets.markup import FileLink, length
from postrun.tickets.message import Finding, Message, from_report, marker
from ticket_fakes import report_json

PIECES = [
    "@root",
    "#12",
    "!3",
    "~bug",
    "%1.0",
    "&4",
    "^alert",
    "GH-12",
    "PROJ-7",
    "[~user]",
    "[~accountid:1:2]",
    "{code}",
    "{color:red}",
    "{{m()}}",
    "[[Wiki]]",
    "`",
    "```",
    "|",
    "||",
    "\\",
    "\\\\",
    "\n",
    "\r\n",
    "\u2028",
    "/close",
    "<img src=x onerror=1>",
    "<!-- x -->",
    "-->",
    "*b*",
    "_i_",
    "https://github.com/a/b/issues/1",
    "http://x.y",
    "www.x.y",
    "mailto:a@b.org",
    "a@b.org",
    "0123456789abcdef",
    "r12",
    "commit:abc1234",
    "h1. ",
    "bq. ",
    "# ",
    "- ",
    "1. ",
    "> ",
    "![x](y)",
    "[x](y)",
    "[x|y]",
    "[^f]",
    "!i.png!",
    '"l":http://x.y',
    "@code@",
    "==x==",
    "<pre>",
    "&lt;b&gt;",
    "\u202e",
    "\u200b",
    "\x00",
    "\x1b[31m",
    "user#1",
    "attachment:x",
    "x",
    "7",
    " ",
    "é",
    "😀",
    ":)",
    "$1",
    "[issue:1]",
    "##",
    "void f<int>(a*, b&)",
]
hostile = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=8).map("".join)

# The references that systems search in finished text, from their documentation of references and mentions.
REFERENCES = (
    r"(?<![A-Za-z0-9_])@[A-Za-z0-9_]",
    r"@[A-Za-z0-9]",
    r"#[0-9]",
    r"(?<!\w)![0-9]",
    r"\$[0-9]",
    r"(?i)\bgh-[0-9]",
    r"\b[A-Z][A-Z0-9_]+-[0-9]",
    r"[a-z]+://",
    r"\bwww\.",
    r"(?i)[0-9a-f]{7}",
    r"\[~",
    r"\{\{",
    r"\[\[",
    r"\[[a-z]+:",
    r"\b(user|version|commit|attachment):[a-z0-9]",
    r"(?<![0-9A-Za-z])r[0-9]",
)


BEGINS = {
    "markdown": r"[-+=>#/:*]|[0-9]+[.)]( |$)|    ",
    "jira": r"(h[1-6]|bq)\.|[-*#|]",
    "textile": r"(h[1-6]|bq|p|fn[0-9]+|table|notextile)\.|[*#>|-]",
}


def check_references(output: str) -> None:
    for reference in REFERENCES:
        assert re.search(reference, output) is None, (reference, output)


def same_words(output: str, text: str) -> None:
    """The output is the text, except for invisible characters."""
    assert "".join(output.replace(markup.JOINER, "").split()) == "".join(markup.plain(text).split())


def read_markdown(source: str) -> str:
    """Undo backslashes and entities (CommonMark 6.1, 2.5).

    Any other character must have no meaning in Markdown.
    """
    result = []
    position = 0
    while position < len(source):
        first = source[position]
        if first == "\\":
            assert re.match(r"[!-/:-@\[-`{-~]", source[position + 1 :]), source
            result.append(source[position + 1])
            position += 2
        elif first == "&":
            match = re.match(r"&(amp|lt|gt);", source[position:])
            assert match, source
            result.append(html.unescape(match[0]))
            position += len(match[0])
        else:
            assert first not in "*_`[]<>|~\n\r", source
            result.append(first)
            position += 1
    return "".join(result)


def read_jira(source: str) -> str:
    r"""Undo backslashes before a special character; ``\`` before others stands for itself."""
    result = []
    position = 0
    while position < len(source):
        first = source[position]
        if first == "\\" and re.match(r"[^0-9A-Za-z\s\u2060]", source[position + 1 :]):
            assert source[position + 1] != "\\", source  # a line break
            result.append(source[position + 1])
            position += 2
        else:
            assert first not in "{}[]|*_+^~?!\n\r", source
            result.append(first)
            position += 1
    return "".join(result)


def read_textile(source: str) -> str:
    assert re.search(r"[*_+^~@?!|\[\]{}()=\"'<>\n\r]", source) is None, source
    assert re.search(r"&(?!#[0-9]+;)", source) is None, source
    return html.unescape(source)


READERS: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "markdown": (markup.escape_markdown, read_markdown),
    "jira": (markup.escape_jira, read_jira),
    "textile": (markup.escape_textile, read_textile),
}


@pytest.mark.parametrize("name", READERS)
@given(text=hostile)
@example("".join(PIECES))
@example("\\\\server\\share")
def test_a_text_is_shown_as_it_is_and_refers_to_nothing(name: str, text: str) -> None:
    escape, read = READERS[name]
    source = escape(text)
    output = read(source)
    same_words(output, text)
    check_references(output)
    assert not re.match(BEGINS[name], source), source


@given(text=hostile)
def test_every_comment_has_the_blocks_it_should_have(text: str) -> None:
    """Nothing of a run's text makes or ends a line, a cell or a block."""
    plain, evil = _message("x"), _message(text or "x")
    for dialect in (markup.MARKDOWN, markup.JIRA, markup.TEXTILE):
        first = comment(plain, dialect, [FileLink("a.pdf", "https://x.y/a.pdf")]).splitlines()
        second = comment(evil, dialect, [FileLink("a.pdf", "https://x.y/a.pdf")]).splitlines()
        assert len(first) == len(second) or not markup.plain(text)
        assert first[-1] == second[-1]
        assert not any(line[:1].isspace() for line in second)
        cells = [[len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")] for lines in (first, second)]
        assert cells[0] == cells[1]


def _message(text: str) -> Message:
    report = report_json(
        run={"name": text, "status": text},
        summary={"headline": text, "subtitle": text, "tiles": [{"label": text, "value": text}], "warnings": [text]},
        rules=[{"rule": text, "category": "trace", "verdict": "IssuesFound", "finding": text}],
        findings=[{"title": text, "where": text, "text": text, "recommendation": text, "rank": 1}],
        actions={
            "base": "",
            "rows": [
                {"finding": 1, "rule": text, "percent": 1.0, "time_ns": 5, "saving_kind": None, "base": text, "cost_percent": 1.0},
            ],
        },
    )
    return from_report(report, key="a", link='https://x.y/a b|c]">)(*_')


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"lang", "charset", "style", "href"}, attrs
        assert all(name != "href" or (value or "").startswith("https://x.y/") for name, value in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(text=hostile)
@example("".join(PIECES))
def test_html_for_mail_holds_our_tags_alone(text: str) -> None:
    pages = []
    for message in (_message("x"), _message(text)):
        reader = Tags()
        reader.feed(comment(message, markup.HTML))
        pages.append(reader)
    assert [tag for tag in pages[1].tags if tag != "strong"] == [tag for tag in pages[0].tags if tag != "strong"]
    assert markup.plain(text) in pages[1].text


@given(text=st.text(max_size=80))
def test_a_key_makes_a_marker_that_means_nothing_anywhere(text: str) -> None:
    result = marker(text)
    assert re.fullmatch(r"postrun:[a-z0-9]+(-[a-z0-9]+)*-x[0-9a-f]{12}", result)
    assert length(result) <= 70


def test_markers_of_similar_names_differ() -> None:
    names = ["a b", "a-b", "A B", "a  b", "a_b", "", " ", "ü", "ö"]
    assert len({marker(name) for name in names}) == len(names)


@pytest.mark.parametrize("limit", [700, 1000, 3000, 10_000, 32_767, 65_536])
@pytest.mark.parametrize("dialect", [markup.MARKDOWN, markup.JIRA, markup.TEXTILE, markup.TEXT])
def test_a_comment_never_exceeds_the_limit(limit: int, dialect: markup.Dialect) -> None:
    report = report_json(rules=[{"rule": "R" * 300, "category": "x", "verdict": "IssuesFound", "finding": "ü*😀" * 300}] * 60)
    message = replace(from_report(report, key="a"), headline="head " * 1000, lines=("line " * 1000,))
    result = comment(message, dialect, limit=limit)
    assert length(result) <= limit
    assert marker("a") in result.splitlines()[-1]
    assert "Cut" in result


def test_a_comment_that_fits_is_whole() -> None:
    message = from_report(report_json(), link="https://x.y/r")
    result = comment(message, markup.MARKDOWN, [FileLink("a.pdf", "https://x.y/a.pdf")], limit=65_536)
    assert result.startswith("### Training run gpt-350m\n\n**GPUs were busy 91% of the time.**\n")
    assert "| LowGPUUtilization | issue | 8 of 8 GPUs are used too little. |" in result
    assert "1. **Feed GPU 1** \\(algo-1\\): saves up to 40% of the run. It idles. What to do: Use `num_workers=4`." in result
    assert "2. **Feed GPU 2** \\(algo-1\\): saves up to 20% of the run. It idles. Explained by StragglerRank: take that" in result
    assert "**Findings to take up first \\(3 of 4\\)**" in result
    assert "[The whole report](<https://x.y/r>)" in result
    assert "Attached: [a.pdf](<https://x.y/a.pdf>)" in result
    assert result.endswith(f"<!-- {marker('gpt-350m')} -->")
    assert "Cut" not in result
    assert "ProfilerReport" not in result


@pytest.mark.parametrize(("where", "title"), [("", "Record less: saves 20%."), ("rank 1", "Record less (rank 1): saves 20%.")])
def test_a_finding_without_a_place_has_a_colon_before_its_saving(where: str, title: str) -> None:
    finding = Finding("Record less", where, "saves 20%", "It is slow.", "")
    message = replace(from_report(report_json()), findings=(finding,))
    assert f"1. {title} It is slow." in comment(message, markup.TEXT)


def test_limits_of_the_recording_are_in_the_comment() -> None:
    summary = report_json()["summary"] | {"warnings": [f"file {n} is cut" for n in range(6)], "caveats": ["Only 6 steps were profiled."]}
    text = comment(from_report(report_json(summary=summary)), markup.MARKDOWN)
    assert "Note: Only 6 steps were profiled.\n\nNote: file 0 is cut\n\n" in text


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (markup.MARKDOWN, "The whole report: `s3://reports/runs/resnet-2026-11-01/latest/report.html`"),
        (markup.JIRA, "The whole report: {noformat}s3://reports/runs/resnet-2026-11-01/latest/report.html{noformat}"),
        (markup.TEXTILE, "The whole report: @s3://reports/runs/resnet-2026-11-01/latest/report.html@"),
        (markup.TEXT, "The whole report: s3://reports/runs/resnet-2026-11-01/latest/report.html"),
        (markup.HTML, "The whole report: <code>s3://reports/runs/resnet-2026-11-01/latest/report.html</code>"),
    ],
)
def test_a_place_that_no_browser_opens_can_be_copied(dialect: markup.Dialect, expected: str) -> None:
    """No invisible character is in it, and no name in it ends the code."""
    link = "s3://reports/runs/resnet-2026-11-01/latest/report.html"
    message = Message("k", "run", "completed", "It was busy.", link=link)
    assert expected in comment(message, dialect)
    assert "s3://b/%7Bnoformat%7D%60%40x%7C%3Cb%3E/r" in comment(replace(message, link="s3://b/{noformat}`@x|<b>/r"), dialect)
