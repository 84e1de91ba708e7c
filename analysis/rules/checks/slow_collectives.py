"""SlowCollectives: process groups whose transfers are far slower than their link, or than equal groups (docs/rules.md).

A transfer does not contain waiting, and small messages, which latency bounds, do not count. A group is slow only if nearly all of its large
collectives are: contention with other transfers or computation slows some of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import polars as pl

from ...causes.bandwidth import bus_of_all, group_transfers
from ...causes.links import NETWORK, Link
from ...device.gpu_products import NVLINK, PCIE
from ...efficiency.largest_site import Site
from ...report.communication_details import GroupBandwidth, SlowCollectivesDetails
from ...toolkit.wording import capitalized, percent, plural, significant, size, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import span_of_all
from ..evidence.run_data import RunData

# Collectives of a group: if each is slow by chance in one case of two, 7 of 7 are in 0.8% of the groups, and 10 of 11 in 0.6%.
_LEAST: Final = 7
_LEAST_MIXED: Final = 11  # from which one in ten may be fast
_NEARLY_ALL: Final = 0.9

_GROUP: Final = ("group", "group_description", "operation", "group_size", "nodes")
_ALL_RANKS: Final = "Profile all ranks of a process group at the same time with PyTorch 2.3 or newer, and load their traces together."


class SlowCollectives(Rule):
    name = "SlowCollectives"
    category = "trace"
    explains = ("ExposedCommunication",)
    parameters = (
        Parameter("link_threshold", "%", 40, 40, "percentile", "share of the link's bandwidth below which a large collective is slow"),
        Parameter(
            "peer_threshold", "%", 70, 70, "percentile", "share of the bandwidth of equal groups below which a large collective is slow"
        ),
    )
    needs = "Traces of all ranks of a process group, with the group and size of each collective."
    checks = "Finds process groups whose transfers are far slower than their link, or than those of equal groups."
    condition = (
        "the bus bandwidth is below `link_threshold` of the link's bandwidth, or below `peer_threshold` of that of equal groups, in at"
        " least 90% of at least 11 large collectives of a process group, or in all of 7 to 10"
    )
    advice = "Find out which transport NCCL uses in the slow group, and check the links of that group."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if reason := _of_one_rank(run):
            return not_evaluated(reason, _ALL_RANKS)
        calls, links = group_transfers(run.store)
        if calls.is_empty():
            return not_evaluated("no large collective whose size and group are recorded and whose ranks are all in this run", _ALL_RANKS)
        compared = calls.filter(pl.col("expected").is_not_null() | pl.col("peers").is_not_null())
        if compared.is_empty():
            return not_evaluated("no link of known bandwidth, and no second group of the same kind to compare with")
        marked = compared.with_columns(
            by_link=(100 * pl.col("bus") < parameters["link_threshold"] * pl.col("expected")).fill_null(False),
            by_peers=(100 * pl.col("bus") < parameters["peer_threshold"] * pl.col("peers")).fill_null(False),
        )
        groups = _groups(marked)
        enough = groups.filter(pl.col("of_group") >= _LEAST)
        details = SlowCollectivesDetails(tuple(_row(row, links) for row in groups.head(run.top).to_dicts()))
        if enough.is_empty():
            most = int(groups["of_group"].max())  # type: ignore[arg-type]
            return not_evaluated(f"{most} of at least {_LEAST} large collectives of a group needed", details=details)
        bad = enough.filter("slow").to_dicts()
        slow = marked.join(enough.filter("slow").select(_GROUP), on=list(_GROUP), how="semi", nulls_equal=True)
        top = max(bad, key=lambda row: row["transfer"]) if bad else None
        if top:
            details = replace(details, explained_ns=_explained(run, slow))
        return concluded(
            bad,
            len(enough),
            details=details,
            finding=_finding(top or enough.sort("share", *_GROUP).row(0, named=True), bad, links, parameters),
            recommendation=_recommendation(top, links) if top else None,
            cost=_cost(run, slow, top) if top else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        names = run.store.frame("SELECT id FROM communication_name")["id"]
        return run.site_of_work(pl.col("kernel").is_in(names.to_list()))


def _of_one_rank(run: RunData) -> str | None:
    """Return why the transfers of no group can be known."""
    ranks = {(device.node, device.rank, device.pid) for device in run.breakdown if device.communication_ns}
    if not ranks:
        return "no collective kernels in this run"
    return "only one rank has collectives, and their time contains the wait for the others" if len(ranks) == 1 else None


def _groups(marked: pl.DataFrame) -> pl.DataFrame:
    """Sum the calls by group and operation, the slow groups first.

    ``of_group``: calls of all operations of the group that are compared with the same reference."""
    slow = _nearly_all("slow_by_link", "linked") | _nearly_all("slow_by_peers", "peered")
    return (
        marked.group_by(_GROUP)
        .agg(
            pl.len().alias("count"),
            pl.col("bytes").min().alias("smallest_bytes"),
            pl.col("bytes").max().alias("largest_bytes"),
            pl.col("transfer").sum(),
            bus_of_all().alias("bus"),
            pl.col("expected").max(),
            pl.col("peers").median(),
            pl.col("expected").count().alias("linked"),
            pl.col("peers").count().alias("peered"),
            pl.col("peer_groups").max().fill_null(0),
            pl.col("by_link").sum().alias("slow_by_link"),
            pl.col("by_peers").sum().alias("slow_by_peers"),
        )
        .with_columns(
            slow=slow,
            of_group=pl.max_horizontal(pl.col("linked", "peered").sum().over("group")),
            share=pl.min_horizontal(pl.col("bus") / pl.col("expected"), pl.col("bus") / pl.col("peers")),
        )
        .sort("slow", "share", *_GROUP, descending=[True, False, *(False for _ in _GROUP)], nulls_last=True)
    )


def _row(row: dict[str, Any], links: dict[str, Link]) -> GroupBandwidth:
    link = links.get(row["group"])
    return GroupBandwidth.of(
        row,
        description=row["group_description"],
        ranks=row["group_size"],
        transfer_ns=row["transfer"],
        bus_gb_per_s=row["bus"],
        link=link.kind if link else None,
        link_gb_per_s=row["expected"],
        peers_gb_per_s=row["peers"],
        issue=row["slow"] if row["of_group"] >= _LEAST else None,
    )


def _nearly_all(slow: str, count: str) -> pl.Expr:
    """Return whether nearly all calls of a row are slow, and of all rows of its group."""
    slow_of_group, of_group = pl.col(slow).sum().over("group"), pl.col(count).sum().over("group")
    enough = (of_group >= _LEAST_MIXED) | ((of_group >= _LEAST) & (slow_of_group == of_group))
    return enough & (slow_of_group >= _NEARLY_ALL * of_group) & (pl.col(slow) >= _NEARLY_ALL * pl.col(count)) & (pl.col(slow) > 0)


def _by_peers(row: dict[str, Any]) -> bool:
    """Return whether equal groups are the reference, and not the link."""
    if row["peers"] is None or row["expected"] is None:
        return row["peers"] is not None
    return bool(row["slow_by_peers"] >= _NEARLY_ALL * row["peered"])


def _finding(row: dict[str, Any], bad: list[dict[str, Any]], links: dict[str, Link], parameters: Parameters) -> str:
    sizes = size(row["smallest_bytes"])
    if row["largest_bytes"] != row["smallest_bytes"]:
        sizes += f" to {size(row['largest_bytes'])}"
    where = f" on {plural(row['nodes'], 'node')}"
    subject = (
        f"{row['operation']} of {sizes} in {_name(row)} ({plural(row['group_size'], 'rank')}{where}) reaches {significant(row['bus'])} GB/s"
    )
    if _by_peers(row):
        base = f"{significant(row['peers'])} GB/s of {plural(row['peer_groups'], 'equal group')}"
        share, limit, slow, count = row["bus"] / row["peers"], parameters["peer_threshold"], row["slow_by_peers"], row["peered"]
    else:
        base = f"{significant(row['expected'])} GB/s of its {links[row['group']].kind}"
        share, limit, slow, count = row["bus"] / row["expected"], parameters["link_threshold"], row["slow_by_link"], row["linked"]
    more = f"; {plural(len(bad) - 1, 'more group is', 'more groups are')} slow" if len(bad) > 1 else ""
    often = f", and is slow in {slow} of {plural(count, 'collective')}" if bad else ""
    return f"{capitalized(subject)}, {percent(100 * share)} of the {base} (threshold {threshold_text(limit)}){often}{more}."


def _name(row: dict[str, Any]) -> str:
    """Name a group by its description, and by its key if that is short."""
    key = row["group"] if len(row["group"]) <= 40 else ""
    return f"{row['group_description'][:60]} {key}".strip() if row["group_description"] else f"group {row['group'][:60]}"


def _recommendation(row: dict[str, Any], links: dict[str, Link]) -> str:
    link = links.get(row["group"])
    if link is not None and link.vendor == "AMD":
        look = "the links with `rocm-smi --showtopo` and their errors with `rocm-smi --showrasinfo xgmi_wafl`"
    elif link is not None and link.kind == NVLINK:
        look = "the links with `nvidia-smi nvlink -s`, their errors with `nvidia-smi nvlink -e`, and the topology with `nvidia-smi topo -m`"
    elif link is not None and link.kind == PCIE:
        look = (
            "the topology with `nvidia-smi topo -m`, and generation and width of each slot with"
            " `nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv`"
        )
    elif row["nodes"] > 1:
        look = "which network adapters NCCL may use (`NCCL_IB_HCA`), and the counters of their ports with `perfquery`"
    else:
        look = "the topology with `nvidia-smi topo -m` or `rocm-smi --showtopo`"
    what = "network" if link is not None and link.kind == NETWORK else "transport"
    return f"Run with `NCCL_DEBUG=INFO` to see which {what} the group uses, and check {look}."


def _explained(run: RunData, slow: pl.DataFrame) -> int:
    """Return the exposed communication that the slow transfers cause.

    It is their exposed part, and the exposed wait of ranks for a rank that a slow transfer holds up."""
    calls = run.exposed_calls.filter(pl.col("exposed_waiting").is_not_null())
    of_slow = calls.join(slow.select("match"), on="match", how="semi")
    held_up = of_slow["process"].unique()
    waits = calls.join(slow.select("match"), on="match", how="anti").filter(
        pl.col("last").is_in(held_up.to_list()), ~pl.col("process").is_in(held_up.to_list())
    )
    transfers = int((of_slow["exposed"] - of_slow["exposed_waiting"]).sum())
    return transfers + int(waits["exposed_waiting"].sum())


def _cost(run: RunData, slow: pl.DataFrame, top: dict[str, Any]) -> Cost:
    """Return the exposed transfers of the slow groups, and their saving.

    It is what they would take less at the bandwidth of the reference: that of equal groups, else of the link."""
    by_peers = _by_peers(top)
    reference = pl.coalesce("peers", "expected") if by_peers else pl.coalesce("expected", "peers")
    share = slow.select("match", faster=(1 - pl.col("bus") / reference).clip(0, 1), transfer="transfer")
    calls = run.exposed_calls.filter(pl.col("exposed_waiting").is_not_null()).join(share, on="match")
    transfers = calls.select(
        exposed=pl.min_horizontal(pl.col("exposed") - pl.col("exposed_waiting"), "transfer"), faster=pl.col("faster") * pl.col("transfer")
    )
    ns = int(transfers["exposed"].sum())
    saving = int(transfers.select(pl.min_horizontal("exposed", "faster").sum()).item())
    return Cost(
        title="Check the links of the slow process group",
        ns=ns,
        of_ns=span_of_all(run),
        saving_ns=saving,
        where=_name(top),
        saving_kind="predicted" if by_peers else "upper_bound",
    )
