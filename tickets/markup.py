"""How do the blocks of a message look in each ticket system, with every text that comes from a run harmless there?

A kernel's name may hold anything: no markup takes effect, nobody is mentioned and no issue, commit or address is linked. What the systems
look for after the markup is read (``@name``, ``#12``, ``ABC-12``, hex digits of a commit, ``https://``) is parted with a word joiner
(U+2060), which is not seen.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from .message import Block, FileLink, Heading, Inline, Items, Link, Paragraph, Strong, Table, Text, length

JOINER: Final = "\u2060"
# Controls, line and paragraph separators, what turns the direction of text, unseen tags, and halves of a character.
_UNSEEN: Final = re.compile(
    "[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|"
    "([\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff])|([\ud800-\udfff])"
)
_LONGEST_TEXT: Final = 100_000


def plain(text: str) -> str:
    """On one line, without what is not seen."""
    return _UNSEEN.sub(lambda found: "" if found[1] else "\ufffd" if found[2] else " ", text[:_LONGEST_TEXT]).strip()


_REFERENCES: Final = re.compile(
    r"(?P<sign>[@#!\[＠＃](?=\S)|[~%&$^*](?=[\w\"'(\[{]))"  # mentions, issues, labels, milestones, epics, snippets, [issue:1]
    r"|(?P<key>(?:\b|(?<=_))(?:[A-Z][A-Z0-9_]+|[Gg][Hh])-(?=[0-9]))"  # ABC-12, GH-12
    r"|(?P<hex>[0-9a-fA-F]{6}(?=[0-9a-fA-F]))"  # commits
    r"|(?P<scheme>[A-Za-z]:(?=/|[A-Za-z0-9_.+-]+@))"  # https://, mailto:
    r"|(?P<www>[Ww]{3}(?=\.))"
    r"|(?P<revision>(?<![0-9A-Za-z])r(?=[0-9]))"  # r12
    r"|(?P<word>\b(?:user|project|version|commit|source|export|attachment|document|news|forum|board|message|wiki):(?=\S))"
    r"|(?P<pair>[\[{(](?=[\[{(]))"
)


def parted(text: str) -> str:
    """With every reference that systems look for in finished text parted."""
    return _REFERENCES.sub(lambda found: found[0] + JOINER, text)


def address(url: str) -> str:
    """An address with nothing in it that a markup reads."""
    return quote(url, safe="/:?#%&=+,;@~.-_")


# Markdown of GitHub, GitLab, Gitea


def escape_markdown(text: str, *, first: bool = True) -> str:
    """For a line, a table's cell too. ``first``: it stands at the beginning, where characters could begin a block or a quick action."""
    text = parted(plain(text))
    text = re.sub(r"[\\`*_\[\]{}()~$#@!|^]", r"\\\g<0>", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if first:
        text = re.sub(r"^[+=/:.\-\"'%,;?]", r"\\\g<0>", text)
        text = re.sub(r"^([0-9]+)\.", r"\1\\.", text)
    return text


def _inside(text: str, escape: Callable[[str], str]) -> str:
    """A text between others: the blanks at its ends stay."""
    return " " * text[:1].isspace() + escape(text) + " " * (text[-1:].isspace() and bool(text.strip()))


def _markdown_code(text: str, first: bool) -> str:
    """With `names` between backticks as code, in which no system looks for references."""
    made = ""
    for number, piece in enumerate(re.split(r"`([^`|]+)`", text)):
        if number % 2 and plain(piece):
            made += f"`{plain(piece)}`"
        else:
            made += _inside(piece, lambda one: escape_markdown(one, first=first and not made))  # noqa: B023
    return made


def _markdown_part(part: Inline, first: bool) -> str:
    match part:
        case Text():
            return _markdown_code(part.text, first)
        case Strong():
            return f"**{shown}**" if (shown := escape_markdown(part.text)) else ""
        case Link():
            return f"[{escape_markdown(part.text)}](<{address(part.url)}>)"
        case FileLink():
            return f"[{part.name}](<{address(part.url)}>)" if part.url else part.name


def _line(parts: Sequence[Inline], one: Callable[[Inline, bool], str]) -> str:
    """Without a blank before it, which makes it another block in Textile."""
    return "".join(one(part, number == 0) for number, part in enumerate(parts)).strip()


def _markdown_cell(text: str) -> str:
    return _markdown_code(text, True)


def markdown(blocks: Sequence[Block], marker: str) -> str:
    made = []
    for block in blocks:
        match block:
            case Heading():
                made.append(f"### {escape_markdown(block.text)}")
            case Paragraph():
                made.append(_line(block.parts, _markdown_part))
            case Items():
                made.append("\n".join(f"{number}. {_line(item, _markdown_part)}" for number, item in enumerate(block.items, 1)))
            case Table():
                lines = [f"| {' | '.join(block.head)} |", "|" + " --- |" * len(block.head)]
                lines += [f"| {' | '.join(map(_markdown_cell, row))} |" for row in block.rows]
                made.append("\n".join(lines))
    return "\n\n".join([*made, f"<!-- {marker} -->"])


# Jira's wiki markup


def escape_jira(text: str, *, first: bool = True) -> str:
    text = parted(plain(text)).replace("\\", f"\\{JOINER}")
    text = re.sub(r"[{}\[\]|*_+^~?!()#@]|(?<![0-9A-Za-z])-|-(?![0-9A-Za-z])", r"\\\g<0>", text)
    text = text.replace("&", f"&{JOINER}")
    if first:  # what would begin a heading, a quotation, a list or another block
        text = re.sub(r"^(h[1-6]|bq)(?=\.)|^[.;:>%\"'=]", lambda found: found[0] + JOINER, text)
    return text


def _jira_part(part: Inline, first: bool) -> str:
    match part:
        case Text():
            return _inside(part.text.replace("`", ""), lambda one: escape_jira(one, first=first))
        case Strong():
            return f"*{shown}*" if (shown := escape_jira(part.text)) else ""
        case Link():
            return f"[{escape_jira(part.text)}|{address(part.url)}]"
        case FileLink():
            return f"[^{part.name}]"


def jira(blocks: Sequence[Block], marker: str) -> str:
    made = []
    for block in blocks:
        match block:
            case Heading():
                made.append(f"h3. {escape_jira(block.text)}")
            case Paragraph():
                made.append(_line(block.parts, _jira_part))
            case Items():
                made.append("\n".join(f"# {_line(item, _jira_part)}" for item in block.items))
            case Table():
                lines = ["||" + "||".join(block.head) + "||"]
                lines += ["|" + "|".join(escape_jira(cell) or " " for cell in row) + "|" for row in block.rows]
                made.append("\n".join(lines))
    return "\n\n".join([*made, marker])


# Textile, as Redmine reads it


def escape_textile(text: str, *, first: bool = True) -> str:
    """With entities, which Redmine's Textile hands on as they are."""
    text = parted(plain(text))
    text = re.sub(r"[&<>\"'*_+^~%@?!#|\[\]{}()=\\/$`]|(?<![0-9A-Za-z])-|-(?![0-9A-Za-z])", _entity, text)
    if first:  # h1. and its kind
        text = re.sub(r"^[0-9A-Za-z](?=[0-9A-Za-z]*\.)", _entity, text)
    return text


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _textile_part(part: Inline, first: bool) -> str:
    match part:
        case Text():
            return _inside(part.text.replace("`", ""), lambda one: escape_textile(one, first=first))
        case Strong():
            return f"*{shown}*" if (shown := escape_textile(part.text)) else ""
        case Link():
            return f'"{escape_textile(part.text)}":{address(part.url)}'
        case FileLink():
            return f"attachment:{part.name}"


def textile(blocks: Sequence[Block], marker: str) -> str:
    made = []
    for block in blocks:
        match block:
            case Heading():
                made.append(f"h3. {escape_textile(block.text)}")
            case Paragraph():
                made.append(_line(block.parts, _textile_part))
            case Items():
                made.append("\n".join(f"# {_line(item, _textile_part)}" for item in block.items))
            case Table():
                lines = ["|_. " + " |_. ".join(block.head) + " |"]
                lines += ["| " + " | ".join(escape_textile(cell) or " " for cell in row) + " |" for row in block.rows]
                made.append("\n".join(lines))
    return "\n\n".join([*made, f"@{marker}@"])


# Mail


def _plain_part(part: Inline) -> str:
    match part:
        case Text():
            return _inside(part.text, plain)
        case Strong():
            return plain(part.text)
        case Link():
            return f"{plain(part.text)}: {address(part.url)}"
        case FileLink():
            return part.name


def text(blocks: Sequence[Block], marker: str) -> str:
    made = []
    for block in blocks:
        match block:
            case Heading():
                title = plain(block.text)
                made.append(f"{title}\n{'=' * min(length(title), 70)}")
            case Paragraph():
                made.append("".join(map(_plain_part, block.parts)))
            case Items():
                made.append("\n".join(f"{number}. {''.join(map(_plain_part, item))}" for number, item in enumerate(block.items, 1)))
            case Table():
                made.append("\n".join(f"- {plain(row[0])}: {': '.join(filter(None, map(plain, row[1:])))}" for row in block.rows))
    return "\n\n".join([*made, f"[{marker}]", ""])


def _html_part(part: Inline) -> str:
    match part:
        case Text():
            return html.escape(_plain_part(part))
        case Strong():
            return f"<strong>{html.escape(plain(part.text))}</strong>"
        case Link():
            return f'<a href="{html.escape(address(part.url))}">{html.escape(plain(part.text))}</a>'
        case FileLink():
            return html.escape(part.name)


def as_html(blocks: Sequence[Block], marker: str) -> str:
    """A page for mail programs: no script, no style sheet, nothing to load."""
    cell = 'style="border:1px solid #999;padding:4px 8px;text-align:left;vertical-align:top"'
    made = []
    for block in blocks:
        match block:
            case Heading():
                made.append(f"<h2>{html.escape(plain(block.text))}</h2>")
            case Paragraph():
                made.append(f"<p>{''.join(map(_html_part, block.parts))}</p>")
            case Items():
                made.append("<ol>" + "".join(f"<li>{''.join(map(_html_part, item))}</li>" for item in block.items) + "</ol>")
            case Table():
                head = "".join(f"<th {cell}>{html.escape(one)}</th>" for one in block.head)
                rows = "".join(
                    "<tr>" + "".join(f"<td {cell}>{html.escape(plain(one))}</td>" for one in row) + "</tr>" for row in block.rows
                )
                made.append(f'<table style="border-collapse:collapse"><tr>{head}</tr>{rows}</table>')
    body = "\n".join(made)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>postrun</title></head><body>\n{body}\n'
        f"<p><small>{html.escape(marker)}</small></p>\n</body></html>\n"
    )


Renderer = Callable[[Sequence[Block], str], str]
