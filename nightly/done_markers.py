"""Done-markers: all that is known of a run, next to its reports; written last."""

from __future__ import annotations

import json
from dataclasses import replace

from ..ingest.object_store.objects import Objects, ObjectStoreError
from . import places
from .model import Row, row_of


def marker(row: Row) -> bytes:
    """Encode a row as a done-marker."""
    return json.dumps(row.to_json(), ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace")


def read_row(out: Objects, run_id: str) -> Row | None:
    """Return the done-marker of a run; None if it is missing or unreadable."""
    path = places.done(run_id)
    row = None if out.head(path) is None else read_marker(out, path)
    return row if row is not None and row.id == run_id else None


def read_marker(out: Objects, path: str) -> Row | None:
    """Return the row of a done-marker; None if no night could have written it."""
    from .table import sound

    try:
        data = out.read(path, count=places.MOST_MARKER + 1)
        row = row_of(json.loads(data)) if len(data) <= places.MOST_MARKER else None
        return row if row is not None and sound(row) and places.is_own(row) else None
    except ObjectStoreError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def record_ticket(out: Objects, row: Row, ticket: str) -> None:
    """Add a ticket that links to a run's report to the done-marker of the run."""
    known = read_row(out, row.id)
    if known is not None and (known.fingerprint, known.folder) == (row.fingerprint, row.folder) and ticket not in known.tickets:
        out.write(places.done(row.id), marker(replace(known, tickets=(*known.tickets, ticket))), content_type="application/json")
