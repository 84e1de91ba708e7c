"""Details of the built-in rules: what each one measured, per node, device, process or kernel.

A class per rule, in :data:`DETAILS` by the rule's name. The order of the fields is the order of the keys in report.json. All classes can be
imported from here.
"""

from __future__ import annotations

from typing import Final

from .cause_details import *  # noqa: F403
from .communication_details import *  # noqa: F403
from .communication_details import SlowCollectivesDetails
from .detail_rows import *  # noqa: F403
from .details import DetailsRow, RuleDetails
from .loop_details import *  # noqa: F403
from .sample_details import *  # noqa: F403
from .sample_details import BottleneckDetails
from .trace_details import *  # noqa: F403
from .work_details import *  # noqa: F403


class RuleVerdict(DetailsRow):
    rule: str
    verdict: str


class ProfilerReportDetails(RuleDetails):
    rules: tuple[RuleVerdict, ...]


DETAILS: Final[dict[str, type[RuleDetails]]] = {
    "CPUBottleneck": BottleneckDetails,
    "IOBottleneck": BottleneckDetails,
    "SlowCollectives": SlowCollectivesDetails,
    **{kind.__name__.removesuffix("Details"): kind for kind in RuleDetails.__subclasses__() if kind is not BottleneckDetails},
}
