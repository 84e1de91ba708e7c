"""How does a Python program make a report? ``postrun.analyze`` in one call; ``postrun.render`` writes its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from .analysis import Options
from .analysis import analyze as _analyze
from .analysis.report import Report
from .analysis.rules.base import Preset
from .analysis.rules.bounds import LIMIT_S
from .analysis.rules.config import Attached, selection
from .ingest import ingest
from .ingest.store import Store

__all__ = ["analyze"]


def analyze(
    source: str | Path | Sequence[str | Path] | Store,
    rules: Sequence[Attached] | None = None,
    *,
    preset: Preset = "documented",
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    top: int = 15,
    histograms: Sequence[str] = (),
    generated_at_ns: int | None = None,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    rule_timeout: float = LIMIT_S,
) -> Report:
    """The report of one run: ``source`` is a file, a folder, a list of them, a run store's file, or an open Store.

    ``rules``: objects of ``rule_configs``, ``ProfilerRule`` objects, names, classes derived from ``postrun.Rule`` or objects of them;
    None runs every rule, as the command line does; an empty list none. ``preset``: "documented" or "service", whose defaults hold for
    rules that do not carry their values. ``settings``: "LowGPUUtilization_patience" -> value, over everything. ``name``: of the run in
    the report. ``top``, ``histograms``, ``generated_at_ns``: see :class:`postrun.analysis.Options`. ``memory_limit``, ``threads``: of
    the database. ``max_unpacked``: how much a compressed file may unpack to, such as "50GB" (None: 20 GB or 200 times its size).
    ``rule_timeout``: seconds that a rule file may take to load, and then to judge. An open Store is read and left open;
    everything else goes through a temporary one.

    Raises postrun.errors.PostrunError: UsageError for rules and parameters, before anything is read; InputError for the source.
    """
    chosen = selection(rules, preset=preset, settings=settings, rule_timeout=rule_timeout)
    options = Options(top=top, histograms=tuple(histograms), generated_at_ns=generated_at_ns, name=name, selection=chosen)
    if isinstance(source, Store):
        opened: Any = nullcontext(source)
    else:
        paths = [source] if isinstance(source, str | Path) else list(source)
        opened = ingest(paths, memory_limit=memory_limit, threads=threads, max_unpacked=max_unpacked)
    with opened as store:
        return _analyze(store, options)
