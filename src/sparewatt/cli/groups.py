"""Two kinds of click group, a command without a name, and the examples that each command's help ends with.

`LazyGroup` has the import paths of its commands and imports one only when it is called, so that `--help` is fast.
`DefaultGroup` has a default command: `sparewatt models` is `sparewatt models list`.
`ImplicitCommand` is a default command whose name does not appear in help and usage: `sparewatt match MODEL`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

_COMPARES = re.compile(r"[<>=]|\s(?:not)?in[\s\[]")


def examples(*lines: str) -> Callable[[F], F]:
    """End a command's help with examples. Goes below `@click.command`, which reads the docstring."""

    def add(function: F) -> F:
        # \b keeps click from wrapping the paragraph.
        function.__doc__ = "\n".join(
            [inspect.getdoc(function) or "", "", "\b", "Example:", *(f"  {line}" for line in lines)]
        )
        return function

    return add


class LazyCommand(NamedTuple):
    """A command that is not imported yet."""

    path: str
    """`module:attribute`, where the attribute is a `click.Command`."""
    summary: str
    """One line for the list of commands. It is not read from the command, which would import its module."""

    def load(self) -> click.Command:
        module, _, attribute = self.path.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.path} is not a click command")
        return command


class LazyGroup(click.Group):
    """A group whose help lists its commands in titled sections."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, LazyCommand]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._table = {name: lazy for section in sections.values() for name, lazy in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        lazy = self._table.get(cmd_name)
        return lazy.load() if lazy else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._table and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self._table, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(10), lazy.summary) for name, lazy in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        words = [
            CompletionItem(name, help=lazy.summary) for name, lazy in self._table.items() if name.startswith(incomplete)
        ]
        return words + click.Command.shell_complete(self, ctx, incomplete)


class _ImplicitContext(click.Context):
    @property
    def command_path(self) -> str:
        return self.parent.command_path if self.parent else super().command_path


class ImplicitCommand(click.Command):
    """A command whose usage lines leave out its own name."""

    context_class = _ImplicitContext


class DefaultGroup(click.Group):
    """A group with a default command.

    With `takes_word`, an unknown first word is an argument of the default command and not a mistyped command; with
    `takes_condition`, only a word with an operator is. Options may come before the name of a command:
    `models --json show ID`.
    """

    def __init__(
        self, *args: Any, default: str, takes_word: bool = False, takes_condition: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.no_args_is_help = takes_word
        self.default = default
        self.takes_word = takes_word
        self.takes_condition = takes_condition

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            args = self._name_first(args)
            args = [self.default, *args] if self._means_default(ctx, args) else args
        return super().parse_args(ctx, args)

    def _name_first(self, args: list[str]) -> list[str]:
        at = self._first_word(args)
        return args if at is None or args[at] not in self.commands else [args[at], *args[:at], *args[at + 1 :]]

    def _first_word(self, args: list[str]) -> int | None:
        """The index of the first word that is neither an option nor the value of one."""
        options = [param for param in self.commands[self.default].params if isinstance(param, click.Option)]
        take_value = {name for option in options if not option.is_flag for name in option.opts}
        is_value = False
        for at, word in enumerate(args):
            if word == "--":
                return None
            if not is_value and not word.startswith("-"):
                return at
            is_value = not is_value and word in take_value
        return None

    def _means_default(self, ctx: click.Context, args: list[str]) -> bool:
        if not args:
            return not self.takes_word
        if args[0] in self.commands or args[0] in ctx.help_option_names:
            return False
        return self.takes_word or args[0].startswith("-") or (self.takes_condition and bool(_COMPARES.search(args[0])))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of the default command are options of the group, too."""
        default = self.commands[self.default]
        with click.Context(default, info_name=self.default, parent=ctx) as default_ctx:
            default.format_options(default_ctx, formatter)
        self.format_commands(ctx, formatter)
