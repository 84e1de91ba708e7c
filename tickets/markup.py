"""Markup dialects of ticket systems and mail: how each writes the parts of a comment, with every text of a run made harmless.

A kernel's name may contain anything: no markup takes effect, nobody is mentioned and no issue, commit or address is linked, because
:func:`..report_templates.text.markdown.parted` splits what systems look for in finished text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ..report_templates.text.markdown import JOINER, parted

# Controls, line and paragraph separators, characters that turn the direction of text, invisible tags, and halves of a character.
_INVISIBLE: Final = re.compile(
    "[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|"
    "([\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff])|([\ud800-\udfff])"
)
_LONGEST_TEXT: Final = 100_000  # characters


def length(text: str) -> int:
    """Count UTF-16 units, the most that any server counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def plain(text: str) -> str:
    """Return the text on one line, without invisible characters."""
    return _INVISIBLE.sub(lambda match: "" if match[1] else "\ufffd" if match[2] else " ", text[:_LONGEST_TEXT]).strip()


def address(url: str) -> str:
    """Quote every character that a markup reads."""
    return quote(url, safe="/:?#%&=+,;@~.-_")


def verbatim(text: str) -> str:
    """Return an address for a piece of code, from which a reader copies it.

    Characters that end code in a markup are percent-encoded."""
    return re.sub(r"[`|{}@<>&\\]", lambda match: f"%{ord(match[0]):02X}", plain(text))


def _markdown_inside(text: str) -> str:
    text = re.sub(r"[\\`*_\[\]{}()~$#@!|^]", r"\\\g<0>", parted(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown_start(text: str) -> str:
    """Escape the beginning of a block or a quick action."""
    return re.sub(r"^([0-9]+)\.", r"\1\\.", re.sub(r"^[+=/:.\-\"'%,;?]", r"\\\g<0>", text))


def escape_markdown(text: str) -> str:
    """Escape for a line or a table's cell of GitHub, GitLab and Gitea."""
    return _markdown_start(_markdown_inside(plain(text)))


def _markdown_with_code(text: str) -> str:
    """Keep `names` between backticks as code, in which no system looks for references."""
    return _markdown_start(re.sub(r"(`[^`|]+`)|[^`]+|`", lambda match: match[1] or _markdown_inside(match[0]), plain(text)))


def escape_jira(text: str) -> str:
    """Escape for Jira's wiki markup, without backticks."""
    text = parted(plain(text)).replace("\\", f"\\{JOINER}")
    text = re.sub(r"[{}\[\]|*_+^~?!()#@]|(?<![0-9A-Za-z])-|-(?![0-9A-Za-z])", r"\\\g<0>", text)
    text = text.replace("&", f"&{JOINER}")
    # The beginning of a heading, a quotation, a list or another block.
    return re.sub(r"^(h[1-6]|bq)(?=\.)|^[.;:>%\"'=]", lambda match: match[0] + JOINER, text)


def escape_textile(text: str) -> str:
    """Escape for Textile with entities, which Redmine passes through."""
    text = re.sub(r"[&<>\"'*_+^~%@?!#|\[\]{}()=\\/$`]|(?<![0-9A-Za-z])-|-(?![0-9A-Za-z])", _entity, parted(plain(text)))
    return re.sub(r"^[0-9A-Za-z](?=[0-9A-Za-z]*\.)", _entity, text)  # h1. and its kind


def escape_slack(text: str) -> str:
    """Escape for Slack's markup, in which mentions and links need < and >.

    It has no escape for * _ ~ and `, so names may look bold or like code."""
    text = re.sub(r"(`[^`]+`)|[^`]+|`", lambda match: match[1] or parted(match[0]), plain(text))
    return re.sub("^(?=>)", JOINER, text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")  # not a quotation


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"


@dataclass(frozen=True, slots=True)
class FileLink:
    """A file that is attached next to the comment. ``url``: its address, if the markup needs one."""

    name: str
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The forms of one markup, which are filled with escaped texts. ``row`` and ``rows`` make the table of rules; ``page`` takes the blocks
    and the marker. ``brief``: whether rules without an issue are only counted."""

    escape: Callable[[str], str]
    address: Callable[[str], str] = address
    heading: str = "h3. {}"
    paragraph: str = "{}"
    strong: str = "*{}*"
    link: str
    code: str = "{}"
    file: str = "{name}"
    item: str = "# {item}"
    items: str = "{}"
    row: str = "| {} | {} | {} |"
    rows: str
    page: str
    brief: bool = False

    def file_link(self, file: FileLink) -> str:
        form = "{name}" if "{url}" in self.file and not file.url else self.file
        return form.format(name=file.name, url=self.address(file.url or ""))


MARKDOWN: Final = Dialect(
    escape=_markdown_with_code,
    heading="### {}",
    strong="**{}**",
    link="[{}](<{}>)",
    code="`{}`",
    file="[{name}](<{url}>)",
    item="{number}. {item}",
    rows="| Rule | Verdict | What was found |\n| --- | --- | --- |\n{}",
    page="{}\n\n<!-- {} -->",
)
JIRA: Final = Dialect(
    escape=lambda text: escape_jira(text.replace("`", "")),
    link="[{}|{}]",
    code="{{noformat}}{}{{noformat}}",
    file="[^{name}]",
    rows="||Rule||Verdict||What was found||\n{}",
    page="{}\n\n{}",
)
TEXTILE: Final = Dialect(
    escape=lambda text: escape_textile(text.replace("`", "")),
    link='"{}":{}',
    code="@{}@",
    file="attachment:{name}",
    rows="|_. Rule |_. Verdict |_. What was found |\n{}",
    page="{}\n\n@{}@",
)
TEXT: Final = Dialect(
    escape=plain,
    heading="{}",
    strong="{}",
    link="{}: {}",
    item="{number}. {item}",
    row="- {}: {}: {}",
    rows="{}",
    page="{}\n\n[{}]\n",
)
SLACK: Final = Dialect(
    escape=escape_slack,
    address=lambda url: address(url).replace("&", "&amp;"),
    heading="*{}*",
    link="<{1}|{0}>",
    code="`{}`",
    item="{number}. {item}",
    row="• {}: {}: {}",
    rows="{}",
    page="{}",
    brief=True,
)
BOLD: Final = ("\x02", "\x03")
"""Around a strong text of `PLAIN`; no other text has them."""
PLAIN: Final = Dialect(
    escape=plain,
    heading="\x02{}\x03",
    strong="\x02{}\x03",
    link="{}: {}",
    item="{number}. {item}",
    row="• {}: {}: {}",
    rows="{}",
    page="{}",
    brief=True,
)
"""For formats that mark strong text outside the text."""
_CELL: Final = 'style="border:1px solid #999;padding:4px 8px;text-align:left;vertical-align:top"'
HTML: Final = Dialect(  # for mail programs: no script, no style sheet, nothing to load
    escape=lambda text: html.escape(plain(text)),
    address=lambda url: html.escape(address(url)),
    heading="<h2>{}</h2>",
    paragraph="<p>{}</p>",
    strong="<strong>{}</strong>",
    link='<a href="{1}">{0}</a>',
    code="<code>{}</code>",
    item="<li>{item}</li>",
    items="<ol>\n{}\n</ol>",
    row="<tr>" + f"<td {_CELL}>{{}}</td>" * 3 + "</tr>",
    rows='<table style="border-collapse:collapse">\n<tr>'
    + "".join(f"<th {_CELL}>{name}</th>" for name in ("Rule", "Verdict", "What was found"))
    + "</tr>\n{}\n</table>",
    page='<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>postrun</title></head><body>\n{}\n\n'
    "<p><small>{}</small></p>\n</body></html>\n",
)
