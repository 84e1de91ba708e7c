"""A group of commands from a table of names and short helps. A command's module is loaded when the command is called.

Imports click only: `postrun --help` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """``lazy``: name -> short help. The command ``name`` is the object ``name`` of the module ``name`` in this folder.

    A name may have two words ("nightly prune": the object and module nightly_prune)."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.lazy and cmd_name not in self.commands:
            name = cmd_name.replace(" ", "_")
            self.commands[cmd_name] = getattr(import_module(f".{name}", __package__), name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if (two := " ".join(args[:2])) in self.lazy and len(args) > 1:
            return two, self.get_command(ctx, two), args[2:]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            groups = {name: group for name, group in self.all_commands(ctx).items() if isinstance(group, click.Group)}
            within = [f"{name} {args[0]}" for name, group in groups.items() if args[0] in group.commands]
            near = within or difflib.get_close_matches(args[0], self.lazy, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def all_commands(self, ctx: click.Context) -> dict[str, click.Command]:
        """Every command by its name; loads those that are not yet."""
        return {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name]) for name in self.list_commands(ctx)])
