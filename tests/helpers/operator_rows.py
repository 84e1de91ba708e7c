"""Device time by operator as the report has it, of a store."""

from __future__ import annotations

from postrun.analysis.device import operators as rows
from postrun.analysis.efficiency.operator_work import attributed, operator_work
from postrun.analysis.framework import framework as section
from postrun.analysis.report.device import OperatorAttribution
from postrun.analysis.report.framework import Framework
from postrun.ingest.store import Store


def operators(store: Store) -> OperatorAttribution:
    return rows.operators(store, attributed(store, operator_work(store)))


def framework(store: Store) -> Framework:
    return section.framework(store, attributed(store, operator_work(store)))
