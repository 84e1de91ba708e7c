"""postrun: a training job ends, one command turns what was captured into a report.

The one way through: ``postrun.ingest`` loads trace files into a run store (DuckDB),
``postrun.analysis`` asks it (Polars) and returns a :class:`postrun.analysis.report.Report`,
``postrun.report_templates`` renders that as HTML, PDF and JSON. ``postrun.cli`` is the command line.
"""

from __future__ import annotations

__version__ = "0.1.0"
