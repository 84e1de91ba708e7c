"""The command `postrun attach`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import option_values
from ..errors import PostrunError, UsageError
from ..messages import echo, echo_line
from .parts import CONFIG, VERBOSITY, option, parsed, print_json, with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tickets.http import Options, Upload
    from ..tickets.message import Message
    from ..tickets.settings import Settings
    from ..tickets.target import Target


@parsed
def _targets(texts: Sequence[str]) -> tuple[Target, ...]:
    from ..tickets.target import parse

    return tuple(dict.fromkeys(map(parse, texts)))


@parsed
def _formats(value: Any) -> tuple[str, ...]:
    from ..tickets.report_files import FORMATS

    words = [word.lower() for word in option_values.words(value)]
    if words == ["none"]:
        return ()
    if not words or any(word not in FORMATS for word in words):
        raise UsageError(f"{','.join(words)!r} is not a list of formats; write one or more of {', '.join(FORMATS)}, or none")
    return tuple(dict.fromkeys(words))


@parsed
def _link(value: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value)
        valid = parts.scheme in ("https", "http") and parts.hostname
    except ValueError:
        valid = None
    if not valid or any(ord(char) < 33 for char in value):
        raise UsageError(f"{value!r} is not an address; write for example https://reports.example.org/run/report.html")
    return value


@click.command(short_help="Attach a report to a ticket.")
@click.argument("report", type=click.Path(path_type=Path), metavar="REPORT")
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    callback=_targets,
    metavar="TARGET",
    help="jira:PROJ-12, gitlab:group/project#7 (or !7), github:owner/repo#7, gitea:owner/repo#7, redmine:123, roundup:issue12, "
    "mailto:team@example.org, slack, teams, webhook or https://...; may be repeated.",
)
@with_options([
    option("--attach", "formats", type=click.UNPROCESSED, default="pdf", show_default=True, callback=_formats, metavar="LIST",
           help="Files to attach, of pdf, html, json; none for the comment alone."),
    option("--link", callback=_link, metavar="URL", help="Address of the report, for the comment."),
    option("--key", metavar="TEXT", help="Key that identifies the comment to update (default: the name of the run)."),
    option("--github-release", metavar="TAG", help="Upload the files to this release of the GitHub repository (comments take no files)."),
    option("--dry-run", is_flag=True, help="Print the comment and its files; send nothing."),
    option("--timeout", type=click.FloatRange(0.1, 3600), default=60, show_default=True, metavar="SECONDS",
           help="Time limit of each request."),
    option("--insecure-http", is_flag=True, help="Allow unencrypted connections, which expose the token."),
    option("--json", "as_json", is_flag=True, help="Print what was done as JSON on standard output."),
], [CONFIG], VERBOSITY)  # fmt: skip
def attach(
    report: Path, targets: tuple[Target, ...], formats: tuple[str, ...], link: str | None, key: str | None, github_release: str | None,
    dry_run: bool, timeout: float, insecure_http: bool, as_json: bool, quiet: bool, verbose: bool,
) -> None:  # fmt: skip
    """Attach a report to a ticket: the file, and a comment with headline, verdicts
    and top findings. Attached again, the comment is updated.

    REPORT is report.pdf, report.html or report.json, or the folder that holds them. Servers and tokens come from the environment
    (POSTRUN_JIRA_URL, POSTRUN_JIRA_TOKEN, ...) or ~/.config/postrun/tickets.toml: see docs/tickets.md.
    """
    from ..tickets import report_files, settings
    from ..tickets.http import Options
    from ..tickets.message import from_report

    read = report_files.read(report)
    message = from_report(read.report, key=key, link=link, source=read.source)
    files = report_files.uploads(read, formats, message.key)
    known = settings.load()
    options = Options(
        timeout_s=timeout,
        insecure_http=insecure_http,
        ca_bundle=known.environment.get(settings.CA_BUNDLE) or None,
        release=github_release,
        tell=(lambda text: None) if quiet else (lambda text: echo(f"postrun: {text}", err=True)),
    )
    if dry_run:
        from ..tickets import dry

        for target in targets:
            echo(dry.preview(target, known, options, message, files))
        return
    _send(targets, known, options, message, files, as_json=as_json, quiet=quiet)


def _send(
    targets: Sequence[Target], known: Settings, options: Options, message: Message, files: Sequence[Upload], *, as_json: bool, quiet: bool
) -> None:
    """Send to every target, even if one fails; check all settings before sending."""
    from ..tickets.systems import delivery

    deliveries = [(target, delivery(target, known, options)) for target in targets]
    done, code = [], 0
    for target, delivered in deliveries:
        entry: dict[str, Any] = {"target": target.text, "done": None, "notes": [], "error": None}
        done.append(entry)
        try:
            outcome = delivered.deliver(message, files)
        except PostrunError as error:
            entry["error"] = str(error)
            code = code or (error.exit_code if isinstance(error, UsageError) else 1)
            text = str(error)
            echo(f"postrun: {text if text.startswith(target.text) else f'{target.text}: {text}'}", err=True)
            continue
        entry |= {"done": outcome.did, "notes": list(outcome.notes), "error": outcome.problem}
        if not quiet and not as_json:
            echo(f"{target.text}: {outcome.did}")
            for note in outcome.notes:
                echo_line(f"note: {target.text}: {note}", err=True)
        if outcome.problem:
            code = code or 1
            echo(f"postrun: {target.text}: {outcome.problem}", err=True)
    if as_json:
        print_json(done)
    if code:
        sys.exit(code)
