"""How is a command listed without loading its module? By a table of names, places and short helps; the module is loaded when it is called.

Imports click only: `postrun --help` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """``lazy``: name -> ("module:object" inside the package, such as "nightly.command:nightly", short help)."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module, _, name = self.lazy[cmd_name][0].partition(":")
            self.commands[cmd_name] = getattr(import_module(f".{module}", __package__), name)
        return self.commands.get(cmd_name)

    def all_commands(self, ctx: click.Context) -> dict[str, click.Command]:
        """Every command by its name; loads those that are not yet."""
        return {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        shown = [(name, self.lazy[name][1] if name in self.lazy else self.commands[name].get_short_help_str(limit)) for name in names]
        with formatter.section("Commands"):
            formatter.write_dl(shown)
