"""The help of the program: commands and options in groups, which are declared once, and examples to copy."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from netprof.cli.default_address import with_default_address

WIDTH = {"max_content_width": 100}
"""Settings of a command: its help is as wide as the terminal, up to this."""
WHICH, WHAT, ALL_DAY, RESULT = "Which job", "What is recorded", "All day", "Result"
"""Groups of the options with which a job is recorded."""
which, what, all_day, result = (partial(typer.Option, rich_help_panel=each) for each in (WHICH, WHAT, ALL_DAY, RESULT))
"""What declares an option of each."""
_REST = "Options"


@dataclass(frozen=True)
class CommandEntry:
    """A command: the function, the line that says what it is for, its group, and examples of it."""

    command: Callable[..., Any]
    line: str
    group: str
    examples: Sequence[str]
    settings: dict[str, Any] | None = None


class Command(TyperCommand):
    """A command of which the help has options by group, in the order in which they were declared, and examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words of the command line."""
        parameters: list[Any] = self.get_params(ctx)
        options = [each for each in parameters if each.param_type_name == "option"]
        with_value = {name for each in options if not (each.is_flag or each.count) for name in each.opts}
        takes_words = len(options) < len(parameters)
        words = with_default_address(
            args, with_value, interspersed=ctx.allow_interspersed_args, takes_words=takes_words
        )
        return super().parse_args(ctx, words)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                rest = "Arguments" if parameter.param_type_name == "argument" else _REST
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or rest, []).append(record)
        groups[_REST] = groups.pop(_REST)  # --help is in it, and last
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, a line each."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Commands(TyperGroup):
    """The program, of which the help has its commands by group."""

    entries: Sequence[CommandEntry] = ()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what each command is for."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for entry in self.entries:
            groups.setdefault(entry.group, []).append((entry.command.__name__, entry.line))
        width = max(len(name) for each in groups.values() for name, _ in each)
        for group, lines in groups.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:{width}}", line) for name, line in lines])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write where to begin."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every field of the dataclasses among its parameters, which it gets made of these."""
    signature = inspect.signature(command, eval_str=True)
    parameters = signature.parameters.values()
    kinds: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}

    @wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: kind(**{each.name: given.pop(each.name) for each in fields(kind)}) for name, kind in kinds.items()
        }
        command(**given, **made)

    options = [option for parameter in parameters for option in _options(parameter)]
    call.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in options}
    return call


def _options(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    kind = parameter.annotation
    if not is_dataclass(kind):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = typing.get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        yield inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )
