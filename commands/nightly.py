"""The command `postrun nightly`: parses options, runs the night, prints, sets the exit code."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from .. import modes, option_values
from ..errors import InputError, PostrunError, UsageError
from ..messages import echo, echo_line
from ..nightly import options as words
from .parts import CONFIG, FILE_SETTINGS, VERBOSITY, Listed, Number, bad_parameter, option, parsed, print_json, progress_line, with_options
from .report_options import (
    CHOICE_OF_RULES,
    CUSTOM_RULES,
    FORMAT,
    GENERATED_AT,
    LOOK,
    MAX_UNPACKED,
    MEMORY_LIMIT,
    MODE,
    PAPER,
    PEAK,
    PRICE,
    REDACT,
    TIMELINE_EVENTS,
    TOP,
    checked_settings,
    chosen_look,
    fail_on_words,
    loaded_rules,
    size_of,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from ..nightly.event_log import EventLog
    from ..nightly.history import Settings
    from ..nightly.model import ReportOptions, Row
    from ..nightly.night import Night, Wanted
    from ..nightly.run_night import Parts, Result
    from ..report_templates.text.look import Look

_LONGEST_S: Final = 86_400 * 30
_LEAST_MEMORY: Final = 16_000_000
_FAR: Final = 256  # runs that a cluster has at a time
_NAMED: Final = 5  # Files that a message names
_REPORT_OPTIONS: Final = (
    "formats", "top", "paper", "timeline_events", "rules", "preset", "memory_limit", "max_unpacked", "redact", "rule_timeout",
    "price_per_gpu_hour",
)  # fmt: skip


_moment = parsed(lambda text: words.moment(text, time.time_ns()))


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    size = size_of(ctx, param, value)
    if param.name == "memory" and size is not None and size < _LEAST_MEMORY:
        raise click.BadParameter(f"no report is made in {value}; give several hundred MB, or leave it out")
    return size


def _families(value: Sequence[str | Sequence[str]]) -> tuple[re.Pattern[str], ...]:
    from ..nightly.families import patterns_of

    return patterns_of([text for texts in value for text in ((texts,) if isinstance(texts, str) else texts)])


@parsed
def _engine(value: str) -> str:
    from ..nightly.engines import checked

    checked(value)
    return value


def _base_url(value: str) -> str:
    from ..nightly.addresses import template

    return template(value)


_validity = parsed(words.validity)


def _metrics_file(value: Path) -> Path:
    from ..nightly.prometheus import checked

    return checked(value)


FAMILY = option(
    "--family", "families", multiple=True, type=Listed(r"[\n;]+"), callback=parsed(_families, absent=()), metavar="REGEX",
    help="Group runs in trends by the groups of this regular expression on their name or path; may be repeated.",
)  # fmt: skip
BASE_URL = option(
    "--base-url", callback=parsed(_base_url), metavar="TEMPLATE",
    help="Address of --out on a web server, for links in tickets, the index and the digest: https://reports.example.org/{path}.",
)  # fmt: skip
COMPARISON = [
    FAMILY,
    option("--regression-threshold", type=click.FloatRange(0, 10_000), default=10.0, show_default=True, metavar="PERCENT",
            help="Increase of the step time, in percent of the baseline median, that is a regression."),
    option("--regression", "regressions", multiple=True, type=Listed(r"[\s,;]+"), metavar="FIGURE=LIMIT",
            help="Limit of another figure: gpu-busy=5 (percentage points), mfu=20 (percent), data-loading=off; may be repeated."),
    option("--baseline", metavar="PATTERN",
            help="Compare runs with the runs of this name or path, such as 'gpt-7b-release-*', instead of the runs before."),
    option("--regression-deviations", type=click.FloatRange(0, 1000), default=3.0, show_default=True, metavar="NUMBER",
            help="The increase must also exceed this many robust standard deviations of the baseline."),
    option("--regression-history", type=Number(3, 50), default=8, show_default=True, metavar="RUNS",
            help="Maximum number of earlier comparable runs in the baseline; at least 3 are needed."),
]  # fmt: skip
NIGHT_OPTIONS = [
    option("--out", "-o", required=True, metavar="PLACE",
            help="Folder or URL that the reports and the index are written to; may lie below SOURCE."),
    option("--engine", default="processes", show_default=True, callback=_engine, metavar="NAME",
            help="Execution backend: processes (of this machine), none (this process), dask, or dask:ADDRESS of a scheduler."),
    option("--workers", type=Number(1, 10_000), help="Number of reports at a time (default: one per processor)."),
    option("--shard", callback=parsed(words.shard), metavar="I/N",
            help="Process part I of N, counted from 0, such as 0/4, for arrays of jobs. Each part updates the index."),
    option("--since", callback=_moment, metavar="TIME",
            help="Only runs with an object written since: 2026-11-20, 2026-11-20T06:00 (UTC), or 36h (ago)."),
    option("--until", callback=_moment, metavar="TIME", help="Only runs without an object written since."),
    option("--settle", type=Number(0, 525_600), default=10, show_default=True, metavar="MINUTES",
            help="A run without an end marker has ended if nothing was written to it for this long."),
    option("--limit", type=Number(1, 10_000_000), help="Report at most N runs, oldest first."),
    option("--max-failures", type=Number(0, 10_000_000), help="Stop starting runs after more failures than this."),
    option("--timeout", type=Number(1, _LONGEST_S), default=3600, show_default=True, metavar="SECONDS",
            help="Fail a run after this time."),
    option("--memory", callback=_size, metavar="SIZE",
            help="Fail a run whose process needs more memory (default: its share of this machine's)."),
    option("--split-above", callback=_size, default="4GB", show_default=True, metavar="SIZE",
            help="Read the files of a larger run in several tasks, and combine their results."),
    *COMPARISON,
    option("--new-issue-history", type=Number(1, 50), default=3, show_default=True, metavar="RUNS",
            help="An issue is new if its rule passed in this many earlier comparable runs; a regression alarms again after"
            " this many without one."),
    option("--fail-on", type=click.UNPROCESSED, callback=fail_on_words, metavar="LIST",
            help="Exit with code 3 if a run of this night has any of: issues (any rule), error (a rule or the report failed), regression, "
            "names of rules."),
    option("--inventory", metavar="URL",
            help="Read an S3 inventory instead of listing SOURCE: the folder of dated inventories, or a manifest.json in it."),
    option("--index-only", is_flag=True, help="Only update the index."),
    option("--dry-run", is_flag=True, help="Only list the runs that would be reported, and why."),
    option("--run-stores", is_flag=True,
            help="Also report run stores (.duckdb) below SOURCE; by default they are left out, and a note lists them."),
    option("--force", is_flag=True, help="Report all runs again."),
    option("--redo", is_flag=True,
            help="Also make reports again that an earlier version of postrun made with another analysis or layout."),
    option("--retry-failed", is_flag=True, help="Also retry runs that failed in an earlier night and have not changed."),
    option("--attach", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="RULES.toml",
            help="Open or update tickets by the rules of this file."),
    BASE_URL,
    option("--presign", callback=_validity, metavar="TIME",
            help="Link tickets to the object store with a signature valid for this long, such as 7d. Whoever has the link can read the"
            " report."),
    option("--metrics", type=click.Path(dir_okay=False, path_type=Path), callback=parsed(_metrics_file), metavar="FILE.prom",
            help="Write figures of the night to this file for the textfile collector of Prometheus."),
    option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.jsonl",
            help="Append the events of the night to this file, a JSON object per line."),
    option("--json", "as_json", is_flag=True, help="Print a summary as JSON on standard output."),
]  # fmt: skip


@click.command(short_help="Report every new or changed run of a folder or an object store.")
@click.argument("source", metavar="SOURCE")
@with_options(
    NIGHT_OPTIONS,
    [FORMAT],
    CHOICE_OF_RULES,
    CUSTOM_RULES,
    [TOP, PAPER, *LOOK, TIMELINE_EVENTS, PEAK, PRICE, REDACT, MODE, GENERATED_AT, CONFIG, MEMORY_LIMIT, MAX_UNPACKED],
    VERBOSITY,
)
def nightly(source: str, quiet: bool, verbose: bool, as_json: bool, **options: Any) -> None:
    """Report every run below SOURCE that is new or has changed since its last report,
    and write an index of all.

    SOURCE and --out are folders, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. SOURCE may contain the date, as in
    s3://bucket/{yyyy}/{mm}/{dd}/: only the days since --since are listed (default: a week). Below --out: index.html, index.json and
    index.parquet, and the reports in runs/. Unchanged runs are not reported again; a night that was ended is resumed by the next one,
    and nights at the same time share the work. `postrun nightly digest` sums up a week, `postrun nightly prune` removes old reports.
    """
    from ..nightly.event_log import night_log

    with night_log(None if options["dry_run"] else options["log"]) as log:
        _nightly(log, source, quiet, verbose, as_json, options)


def _nightly(log: EventLog, source: str, quiet: bool, verbose: bool, as_json: bool, options: dict[str, Any]) -> None:
    from ..ingest.object_store.open import open_objects
    from ..nightly import outbox, places
    from ..nightly import run_night as course
    from ..nightly import summary as texts
    from ..nightly.addresses import Addresses

    if options["dry_run"] and options["index_only"]:
        raise click.UsageError("--dry-run and --index-only exclude each other; --index-only reports nothing anyway")
    wanted, fail_on = _wanted(source, options)
    parts = _parts(options, wanted.options.look)
    out = open_objects(wanted.out, side="out")
    displayed_out = course.displayed(wanted.out, wanted.options.redact)
    log.start(course.displayed(wanted.source, wanted.options.redact), displayed_out)
    addresses = Addresses(out, options["base_url"], options["presign"])
    if addresses.presigned_s is not None:
        out.signed(places.INDEX_FILES[0], addresses.presigned_s)  # fails before the work, not after it
    rules = None
    if options["attach"] is not None:
        from ..nightly import notify

        rules = notify.load(options["attach"])
    if options["dry_run"]:
        night, _ = course.look(wanted, parts)
        _check_found(source, False, night)
        _print(texts.plan_lines(night, wanted.limit), texts.plan_data(night), as_json, quiet)
        for line in () if quiet else texts.left_out(night.not_read):
            echo_line(f"note: {line}", err=True)
        return
    with progress_line(quiet, verbose) as progress:
        if options["index_only"]:
            ending: AbstractContextManager[Result] = course.index_only(wanted, parts, announces=rules is not None)
        else:
            progress("looking for runs", None)
            tell = partial(_report_progress, progress, quiet, log)
            options["tell_parts"] = None if quiet else partial(_tell_parts, progress)
            ending = course.full_night(wanted, parts, tell, partial(_check_found, source, verbose))
        with ending as result:
            progress("", None)
            index = course.displayed(out.place(places.INDEX_FILES[0]), wanted.options.redact)
            log.write("index_written", index=index, runs=result.index.total)
            new = [*result.night.rows, *result.taken_over]
            rows = [*result.rows.values(), *result.only_in_index] if options["index_only"] else new
            regressed = result.index.regressions if options["index_only"] else result.index.new
            # Alarms come first: a full disk must not hide them.
            matched = texts.matched(rows, [texts.regression_line(one) for one in regressed], fail_on)
            if matched:
                echo(f"postrun: --fail-on: {matched}", err=True)
            if quiet and result.night.stopped is not None:
                echo(f"postrun: the night ended early: {result.night.stopped}", err=True)
            sent, damaged, earlier = [], 0, list[str]()
            if rules is not None:
                from ..nightly.sending import Sender

                sender = Sender(rules, addresses, result.rows, options["families"], partial(_tell_ticket, quiet), _warn_of_ticket, log)
                sent = sender.night(result.claims, new, result.index.new, matched)
                damaged, earlier = sender.damaged, sender.earlier
                for line in earlier:
                    echo_line(f"postrun: --fail-on, in a night that was ended while it sent messages: {line}", err=True)
    matches = [*([matched] if matched else []), *earlier]
    _print(texts.lines(result, out), texts.summary(result, out, regressed, sent, matches), as_json, quiet)
    if quiet:
        notes = texts.alarm_notes(rows, regressed, fail_on)
    else:
        of_night = (texts.regression_notes(regressed, fail_on), texts.notes(result), texts.closed(wanted.out, wanted.options.mode))
        notes = chain.from_iterable(of_night)
    for line in notes:
        echo_line(f"note: {line}", err=True)
    unsent = [one for one in sent if "error" in one]
    if any("given_up" not in one for one in unsent):
        echo("postrun: the next call with --attach sends what could not be sent; --index-only sends it without reports", err=True)
    code = 3 if matches else 1 if unsent or damaged or result.night.stopped is not None else 0
    try:
        waiting = outbox.waiting(out)
        if waiting and rules is None and not quiet:
            echo_line(f"note: waiting messages of other nights: {waiting}; a call with --attach sends them", err=True)
        if options["metrics"] is not None:
            from ..nightly import prometheus

            due = sum(decision.due for decision in result.night.decisions)
            complete = due <= (wanted.limit or due) and not result.night.source_is_empty
            given_up, is_night = sum("given_up" in one for one in sent), not options["index_only"]
            ended = prometheus.Ended(result, rows, regressed, code, log.seconds, time.time(), complete, waiting, given_up, is_night)
            prometheus.write(options["metrics"], ended, displayed_out)
    except PostrunError as error:
        echo(f"postrun: {error}", err=True)
        code = code or error.exit_code
    if code:
        sys.exit(code)


def _tell_ticket(quiet: bool, line: str) -> None:
    if not quiet:
        echo_line(f"ticket: {line}", err=True)


def _warn_of_ticket(line: str) -> None:
    echo(f"postrun: --attach: {line}", err=True)


def _wanted(source: str, options: dict[str, Any]) -> tuple[Wanted, tuple[str, ...]]:
    """Check the options; return them, and the words of --fail-on as in the rows."""
    from ..nightly import dated
    from ..nightly import run_night as course
    from ..nightly.night import Wanted

    report, fail_on = _report_options(options)
    undated, pattern = dated.divided(source)
    options["prefixes"] = pattern and dated.prefixes(pattern, options["since"], options["until"], time.time_ns())
    source_place, out = course.places_of(undated, options["out"])
    wanted = Wanted(
        source=source_place,
        out=out,
        options=report,
        now_ns=time.time_ns(),
        settle_ns=options["settle"] * 60 * 10**9,
        since_ns=options["since"],
        until_ns=options["until"],
        in_flight=_in_flight(options["engine"], options["workers"]),
        generated_at_ns=option_values.generated_at(options["generated_at"]),
        inventory=options["inventory"],
        **{name: options[name] for name in ("shard", "limit", "max_failures", "force", "retry_failed", "redo", "run_stores", "prefixes")},
    )
    return wanted, fail_on


def _report_options(options: dict[str, Any]) -> tuple[ReportOptions, tuple[str, ...]]:
    from ..analysis.rules.engine import choose as rule_options
    from ..analysis.rules.engine import selection as rules
    from ..nightly.model import CustomRule, ReportOptions
    from ..nightly.summary import REGRESSION

    texts = options["custom_rules"]
    custom = loaded_rules(texts, options["rule_timeout"], click.get_current_context().params["quiet"])
    values = checked_settings(options["settings"], custom)
    of_file = click.get_current_context().meta.get(FILE_SETTINGS, {})
    of_rules = [word for word in options["fail_on"] if word.lower() != REGRESSION]
    try:
        selection, fail_on = rule_options.chosen(
            options["rules"], options["preset"], settings=values, of_file=of_file, custom_rules=custom, fail_on=of_rules
        )
    except UsageError as error:
        raise UsageError(f"{error}, {REGRESSION}" if str(error).startswith("--fail-on") else str(error)) from error
    running = {one.rule.name for one in selection.rules}
    brought = {f"{one.name}_{parameter.name}" for one in custom for parameter in type(one).all_parameters()}
    settings = {key: str(value) for key, value in {**of_file, **values}.items() if key in brought or rules.setting(key)[0].name in running}
    look = chosen_look(options)
    report = ReportOptions(
        settings=tuple(sorted(settings.items())),
        sections=look.sections,
        theme=look.theme,
        title=look.title,
        logo=None if look.logo is None else (look.logo.uri, look.logo.alt),
        dashboard=look.dashboard,
        mode=modes.current(),
        peaks=tuple(sorted(options["peaks"].items())),
        custom_rules=tuple(CustomRule(one.kind, tuple(one.values.items()), Path(one.source).read_bytes()) for one in texts),
        custom_files=tuple(str(Path(one.source).absolute()) for one in texts),
        **{name: options[name] for name in _REPORT_OPTIONS},
    )
    return report, fail_on + (REGRESSION,) * (len(of_rules) < len(options["fail_on"]))


def _in_flight(engine: str, workers: int | None) -> int:
    """Return enough runs in flight that no worker waits for its next run."""
    from ..nightly.pool import processors

    if engine == "none":
        return 1
    return _FAR if engine.startswith("dask:") else 2 * (workers or processors())


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Return the settings of the options COMPARISON. Raise UsageError."""
    from ..nightly.history import Settings
    from ..nightly.metrics import with_limits

    with bad_parameter(option="--regression"):
        metrics = with_limits(options["regressions"], options["regression_threshold"])
    return Settings(
        patterns=options["families"],
        metrics=metrics,
        baseline=options["baseline"],
        deviations=options["regression_deviations"],
        history=options["regression_history"],
        **({"fine_runs": options["new_issue_history"]} if "new_issue_history" in options else {}),
    )


def _parts(options: dict[str, Any], look: Look) -> Parts:
    from ..nightly import engines, partials
    from ..nightly import run_night as course
    from ..nightly.index import Book
    from ..nightly.work import report_run

    settings = settings_of(options)
    part = options["index_only"] or any(options[name] is not None for name in ("shard", "since", "until", "prefixes"))
    generated_at_ns = option_values.generated_at(options["generated_at"])
    base_url, redact = options["base_url"], options["redact"]
    book = Book(settings, every_run=not part, generated_at_ns=generated_at_ns, redact=redact, look=look, base_url=base_url)
    workers, memory = options["workers"], options["memory"]
    if options["engine"] == "none" and not click.get_current_context().params["quiet"]:
        for name in ("timeout", "memory", "workers"):
            if click.get_current_context().get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
                echo_line(f"note: --{name} has no effect with --engine none, which does the work in this process", err=True)
    if memory is None and options["engine"] in ("processes", "dask"):
        memory = course.share_of_memory(workers)

    def executor() -> AbstractContextManager[Executor]:
        pool = engines.executor(options["engine"], workers=workers, timeout_s=options["timeout"], memory_bytes=memory)
        return partials.splitting(pool, options["split_above"], options["tell_parts"])

    return course.Parts(known=book.known, index=book.write, executor=executor, work=report_run, refused=book.refused)


def _check_found(source: str, verbose: bool, night: Night) -> None:
    if not night.runs_found and not night.runs_known and not night.divided:
        if night.not_read:
            more = len(night.not_read) - _NAMED
            rest = [f"and {more} more"] if more > 0 else []
            raise InputError("\n".join([f"{source}: no run found. Left out:", *night.not_read[:_NAMED], *rest]))
        from ..ingest.discover import KNOWN

        echo(f"postrun: {source}: no run found; what is looked for: {KNOWN}, these only with --run-stores", err=True)
    if night.source_is_empty:
        from ..analysis.toolkit.wording import plural

        known = plural(len(night.gone), "run")
        echo(f"postrun: {source}: no run found, but the index has {known} of it; check the path, and that its storage is mounted", err=True)
    if verbose:
        echo(f"{night.runs_found} runs found, {sum(decision.due for decision in night.decisions)} to report", err=True)


def _report_progress(progress: Callable[[str, float | None], None], silent: bool, log: EventLog, row: Row, done: int, due: int) -> None:
    from ..nightly.summary import row_line

    log.run(row)
    if not silent:
        progress("", None)
        echo_line(row_line(row, done, due), err=True)
        progress("reporting", done / max(1, due))


def _tell_parts(progress: Callable[[str, float | None], None], run: str, parts: int) -> None:
    progress("", None)
    echo_line(f"{run}: is read in {parts} parts", err=True)


def _print(lines: Iterable[str], data: Mapping[str, Any], as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json(data)
        return
    for line in () if quiet else lines:
        echo_line(line)
