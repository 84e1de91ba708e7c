"""A rule of your own: finds machines on which one core does all the work while the others wait.

    python custom_rule.py RUN             # the folder, trace or run store of a run
    postrun report RUN --custom-rule custom_rule.py:OneBusyCore

docs/custom-rules.md describes the data that a rule receives and the results that it can return.
"""

from __future__ import annotations

import sys

import postrun


class OneBusyCore(postrun.Rule):
    """Compares the busiest core of every machine with the mean of its cores."""

    name = "OneBusyCore"
    parameters = (
        postrun.Parameter("core_threshold", "%", 90, 90, "percentile", "a core is busy if its median is above this"),
        postrun.Parameter("mean_threshold", "%", 50, 50, "percentile", "the machine is idle if the mean of its cores is below this"),
    )
    condition = "the median of one core is above `core_threshold` and the mean of all cores of its machine is below `mean_threshold`"
    advice = "Spread the work of the busy core over more processes."

    def evaluate(self, run, parameters):
        if not run.samples.has("core"):
            return postrun.not_evaluated("no CPU samples in this run", "Record the utilization of every core.")
        machines = []
        for block in run.samples.blocks():  # whole machines at a time, so that memory stays bounded
            cores = block.boxes("core")  # a row per core: node, unit, samples, min, p5, p25, p50, p75, p95, max, mean
            for (node,), rows in cores.group_by("node", maintain_order=True):
                busiest = rows.sort("p50", descending=True).row(0, named=True)
                row = {"node": run.places.node(node), "core": busiest["unit"], "median": busiest["p50"], "mean": rows["mean"].mean()}
                row["issue"] = row["median"] > parameters["core_threshold"] and row["mean"] < parameters["mean_threshold"]
                machines.append(row)
        issues = [row for row in machines if row["issue"]]
        details = {"machines": machines}
        if not issues:
            return postrun.Outcome("NoIssuesFound", datapoints=len(machines), details=details)
        worst = max(issues, key=lambda row: row["median"] - row["mean"])
        return postrun.Outcome(
            "IssuesFound",
            triggered=len(issues),
            violations=len(issues),
            datapoints=len(machines),
            details=details,
            finding=f"Core {worst['core']} of {worst['node']} is at {worst['median']:.0f}% (median) while the mean of the machine's cores"
            f" is {worst['mean']:.0f}%; thresholds {parameters['core_threshold']}% and {parameters['mean_threshold']}%.",
            recommendation="Give the data loader more worker processes (`num_workers=4`), so that one core does not hold up the others.",
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python custom_rule.py RUN")
    for result in postrun.analyze(sys.argv[1], [OneBusyCore]).rules:
        print(f"{result.rule}: {result.verdict}. {result.finding or result.reason or ''}")
