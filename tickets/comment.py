"""The text of a comment: a message and a markup dialect -> at most as many characters as the server accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..analysis.toolkit.wording import count, plural
from .markup import Dialect, FileLink, length, verbatim
from .message import Finding, Message, counts, marker

_WARNINGS: Final = 5
# From the whole comment to its least: the longest text in characters, the rules, and whether figures and findings are included. None: all.
_SIZES: Final[tuple[tuple[int | None, int | None, bool], ...]] = (
    (None, None, True),
    (1000, None, True),
    (300, None, True),
    (120, None, True),
    (120, 50, True),
    (120, 20, True),
    (120, 5, True),
    (80, 0, False),
)


def comment(
    message: Message, dialect: Dialect, files: Sequence[FileLink] = (), left_out: Sequence[str] = (), limit: int | None = None
) -> str:
    """Write the comment in at most ``limit`` UTF-16 units; a cut one states that.

    ``left_out``: files that are not attached, and why."""
    shortened = ""
    for longest, rules, details in _SIZES:
        blocks = _blocks(message, dialect, longest, rules, details)
        notes = [*(f"Not attached: {reason}" for reason in left_out), shortened, f"Written by {message.made}" if message.made else ""]
        if files:
            blocks.append(dialect.paragraph.format(f"Attached: {', '.join(map(dialect.file_link, files))}"))
        blocks += [dialect.paragraph.format(dialect.escape(note)) for note in notes if note]
        text = dialect.page.format("\n\n".join(blocks), marker(message.key))
        if limit is None or length(text) <= limit:
            break
        shortened = f"Cut: a comment here has at most {count(limit)} characters; the rest is in the report."
    return text


def _blocks(message: Message, dialect: Dialect, longest: int | None, rules: int | None, details: bool) -> list[str]:
    def text(value: str) -> str:
        return dialect.escape(value if longest is None or len(value) <= longest else value[: longest - 1].rstrip() + "…")

    def strong(value: str) -> str:
        return dialect.strong.format(escaped) if (escaped := text(value)) else ""

    def finding(number: int, finding: Finding) -> str:
        where = f"({finding.where})" if finding.where and finding.where not in finding.title else ""
        origin = text(f"{': '.join(filter(None, (where, finding.worth)))}." if where or finding.worth else "")
        title = f"{strong(finding.title)}{(' ' if where else ': ') * bool(origin)}{origin}"
        advice = f"What to do: {finding.advice}" if finding.advice else ""
        item = " ".join(filter(None, (title, text(finding.text), text(advice))))
        return dialect.item.format(number=number, item=item)

    listed = [verdict for verdict in message.verdicts if not dialect.brief or verdict.verdict in ("issue", "error")]
    verdicts = listed[:rules]
    rows = [dialect.row.format(*map(text, (verdict.rule, verdict.verdict, verdict.note))).removesuffix(": ") for verdict in verdicts]
    paragraphs = [strong(line) for line in message.lines[: None if rules is None else max(rules, 1)]]
    paragraphs += [strong(message.headline), text(" · ".join(filter(None, (message.subtitle, f"status: {message.status}"))))]
    blocks = [dialect.heading.format(text(f"Training run {message.run}"))]
    if details:
        paragraphs += [text(f"Note: {warning}") for warning in message.warnings[:_WARNINGS]]
        paragraphs += [text("; ".join(f"{label}: {value}" for label, value in message.figures))] if message.figures else []
    blocks += map(dialect.paragraph.format, paragraphs)
    if details and message.findings:
        more = f" of {message.issues}" if message.issues > len(message.findings) else ""
        items = "\n".join(finding(number, item) for number, item in enumerate(message.findings, 1))
        blocks += [
            dialect.paragraph.format(strong(f"Findings to take up first ({len(message.findings)}{more})")),
            dialect.items.format(items),
        ]
    if message.verdicts:
        blocks.append(dialect.paragraph.format(strong(f"Rules: {counts(message.verdicts)}")))
        blocks += [dialect.rows.format("\n".join(rows))] if rows else []
        if more_rules := len(listed) - len(rows):
            blocks.append(dialect.paragraph.format(text(f"{plural(more_rules, 'further rule')}: see the report.")))
    if message.link:
        web = message.link.startswith(("https://", "http://"))  # else a folder or an object store, which no browser opens
        address = f"{text('The whole report:')} {dialect.code.format(verbatim(message.link))}"
        link = dialect.link.format("The whole report", dialect.address(message.link)) if web else address
        blocks.append(dialect.paragraph.format(link))
    return blocks
