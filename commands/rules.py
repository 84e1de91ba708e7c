"""``postrun rules`` and ``postrun rules explain``: the rules, their parameters and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..messages import echo
from .parts import option, print_json

if TYPE_CHECKING:
    from ..analysis.rules.evidence.base import Preset

_PRESET = option("--preset", type=click.Choice(["documented", "service"], case_sensitive=False),
                 help="Show the defaults of this preset only.")  # fmt: skip


class _RulesGroup(click.Group):
    """Group whose error for ``postrun rules HostBound`` names the correct command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            from ..analysis.rules.engine.catalogue import PROFILER_REPORT
            from ..analysis.rules.engine.selection import known

            names = {name.lower(): name for name in (PROFILER_REPORT, *known())}
            if meant := names.get(args[0].lower()):
                raise click.UsageError(f"write: postrun rules explain {meant}", ctx)
            raise click.UsageError(f"{args[0]!r} is not a command of postrun rules; write: postrun rules explain NAME", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_RulesGroup, invoke_without_command=True, short_help="List every rule with its parameters and defaults.")
@_PRESET
@click.option("--json", "as_json", is_flag=True, help="Print the rules as JSON on standard output.")
@click.pass_context
def rules(ctx: click.Context, preset: Preset | None, as_json: bool) -> None:
    """List every rule: what it checks, its parameters and their defaults.
    `postrun rules explain NAME...` describes rules in full."""
    if ctx.invoked_subcommand is not None:
        return
    from . import rule_texts

    if as_json:
        print_json(rule_texts.as_data())
        return
    for line in rule_texts.listed(preset):
        echo(line)


@rules.command("explain", short_help="Describe rules in full.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_PRESET
@click.pass_context
def explain(ctx: click.Context, names: tuple[str, ...], preset: Preset | None) -> None:
    """Describe each rule NAME in full:
    what it checks, when it finds an issue, what it needs, what to do."""
    from . import rule_texts

    outer = ctx.parent.params.get("preset") if ctx.parent else None
    texts = ["\n".join(rule_texts.explained(name, preset or outer or "documented")) for name in dict.fromkeys(names)]
    echo("\n\n".join(texts))
