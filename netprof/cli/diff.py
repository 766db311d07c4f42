"""`netprof diff A B`: what changed between two runs of a job, by how much, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.cli.outputs import output
from netprof.cli.recording import Force, Json
from netprof.cli.traces import Bar, open_traces
from netprof.errors import EXIT_WORSE, NetprofError, UsageError

if TYPE_CHECKING:
    from netprof.analysis.compare.difference import Change, Difference
    from netprof.analysis.compare.run import Run
    from netprof.views.output import Target

_LIMIT = re.compile(r"(?:([a-z_]+)=)?([0-9]{1,6}(?:\.[0-9]{1,6})?) ?%")


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A trace, or a directory of those of a job's hosts.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The same of another run.")],
    as_json: Json = False,
    markdown: Annotated[
        Path | None, output(metavar="FILE", help="Write Markdown, to paste into an issue; - prints it.")
    ] = None,
    force: Force = False,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SHARE",
            help="Exit with 4 if iteration time, exposed communication or bytes on the wire (or what JSON calls NAME)"
            " surely got worse, and by more than this, as 3%. May be repeated.",
        ),
    ] = None,
) -> None:
    """Print what changed between two runs of a job, by how much, and how sure that is."""
    from netprof.analysis.compare.difference import compare

    limits = _limits(fail_above or [])
    if as_json and markdown == Path("-"):
        raise UsageError("--json and --markdown - both want standard output", "give --markdown a file")
    target = _target(markdown, force)
    with ExitStack() as stack:
        difference = compare(_read(before, stack), _read(after, stack))
    failed = _failed(difference, limits)
    _show(difference, failed, as_json, target)
    if fail_above and difference.not_comparable:
        raise NetprofError("the runs are not comparable: --fail-above is skipped", difference.not_comparable[0])
    if failed:
        from netprof.views.printed import say, standard_error

        for change in failed:
            allowed = limits[change.quantity.name]
            say(standard_error(), f"netprof: {change.quantity.title} got worse by more than {allowed * 100:g} %")
        raise typer.Exit(EXIT_WORSE)


def _limits(texts: Sequence[str]) -> dict[str, float]:
    """Return by quantity by how much it may get worse, as a share. Raises UsageError."""
    from netprof.analysis.compare.quantities import QUANTITIES

    found: dict[str, float] = {}
    for text in texts:
        match = _LIMIT.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"'{text}' does not say how much is allowed", "write --fail-above 3% or iteration=3%")
        names = [each.name for each in QUANTITIES if each.worse and match[1] in (each.name, each.source)]
        if match[1] is None:
            names = [each.name for each in QUANTITIES if each.main and each.name not in found]
        if not names:
            known = ", ".join(each.name for each in QUANTITIES if each.worse)
            raise UsageError(f"unknown metric '{match[1]}'", f"known: {known}")
        found.update(dict.fromkeys(names, float(match[2]) / 100))
    return found


def _target(markdown: Path | None, force: bool) -> Target | None:
    from netprof.views.output import check
    from netprof.views.reporters import by_name

    return None if markdown is None else check(by_name("markdown"), markdown, force)


def _read(path: Path, stack: ExitStack) -> Run:
    from netprof.analysis.compare.run import read_run

    return replace(read_run(open_traces([path]), Bar(stack, f"analyzing {path.name}")), name=str(path))


def _failed(difference: Difference, limits: Mapping[str, float]) -> list[Change]:
    """Return what surely got worse, and by more than is allowed."""
    own = [each for each in difference.changes if each.quantity.name in limits]
    return [each for each in own if each.worse_share > limits[each.quantity.name]]


def _show(difference: Difference, failed: Sequence[Change], as_json: bool, markdown: Target | None) -> None:
    from netprof.views import difference as view
    from netprof.views.output import STDOUT
    from netprof.views.printed import say, standard_error, standard_output

    if markdown is not None and markdown.path != STDOUT:
        with markdown.opened() as file:
            file.write(view.to_markdown(difference).encode())
        say(standard_error(), f"wrote {markdown.path}")
    console = standard_output()
    if markdown is not None and markdown.path == STDOUT:
        console.file.write(view.to_markdown(difference))
    elif as_json:
        view.write_json(difference, failed, console.file)
    else:
        view.draw(difference, console)
