"""Words for the roles of ranks: "stage 0, data 3"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...analysis.report.causes import Role

Location = tuple[str, int | None, int | None]


def role_text(role: Role) -> str | None:
    """Return the coordinates of a rank in words, or None if there is none."""
    parts = (
        ("stage", role.pipeline_stage),
        ("data", role.data_parallel),
        ("tensor", role.tensor_parallel),
        ("context", role.context_parallel),
        ("expert", role.expert_parallel),
    )
    return ", ".join(f"{word} {value}" for word, value in parts if value is not None) or None


def role_texts(roles: Sequence[Role]) -> Mapping[Location, str]:
    """Return the words of each rank with a known coordinate, by its place."""
    return {(role.node, role.rank, role.pid): text for role in roles if (text := role_text(role)) is not None}


def role_sentence(roles: Sequence[Role]) -> str | None:
    """Return where the roles of the ranks come from, or that they are unknown."""
    if len(roles) < 2:
        return None
    sources = {role.source for role in roles}
    if "groups" in sources:
        stages = {role.pipeline_stage for role in roles if role.pipeline_stage is not None}
        shape = f" of {len(stages)} pipeline stages" if len(stages) > 1 else ""
        return f"The roles{shape} come from the process groups."
    if sources == {"same"}:
        return "All ranks are peers; there are no pipeline stages."
    if sources == {"work"}:
        return "The process groups do not give roles: ranks with the same kernels that communicate with each other are peers."
    if "work" in sources:
        return "The roles of some ranks are unknown; the others are peers of ranks with the same kernels."
    return "Roles unknown: no process group gives them, and the ranks run different kernels or no matched collectives."
