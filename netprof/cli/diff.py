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
from netprof.cli.traces import ProgressBar, open_traces
from netprof.errors import EXIT_WORSE, NetprofError, UsageError
from netprof.views.output import STDOUT, OutputTarget, check
from netprof.views.printed import say, standard_error, standard_output
from netprof.views.reporters import by_name

if TYPE_CHECKING:
    from netprof.analysis.compare.compared_run import Run
    from netprof.analysis.compare.difference import Change, Difference

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
    if as_json and markdown == STDOUT:
        raise UsageError("--json and --markdown - both want standard output", "give --markdown a file")
    target = None if markdown is None else check(by_name("markdown"), markdown, force)
    with ExitStack() as stack:
        difference = compare(_read(before, stack), _read(after, stack))
    failed = _failed(difference, limits)
    _show(difference, failed, as_json, target)
    if fail_above and difference.not_comparable:
        raise NetprofError("the runs are not comparable: --fail-above is skipped", difference.not_comparable[0])
    if failed:
        for change in failed:
            allowed = limits[change.quantity.name]
            say(standard_error(), f"netprof: {change.quantity.title} got worse by more than {allowed * 100:g} %")
        raise typer.Exit(EXIT_WORSE)
    _check_known(difference, fail_above or [])


def _limits(texts: Sequence[str]) -> dict[str, float]:
    """Return by quantity by how much it may get worse, as a share. Raises UsageError."""
    from netprof.analysis.compare.quantities import QUANTITIES

    limits: dict[str, float] = {}
    for text in texts:
        match = _LIMIT.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"'{text}' does not say how much is allowed", "write --fail-above 3% or iteration=3%")
        names = [each.name for each in QUANTITIES if each.worse and match[1] in (each.name, each.source)]
        if match[1] is None:
            names = [each.name for each in QUANTITIES if each.main and each.name not in limits]
        if not names:
            known = ", ".join(each.name for each in QUANTITIES if each.worse)
            raise UsageError(f"unknown metric '{match[1]}'", f"known: {known}")
        limits.update(dict.fromkeys(names, float(match[2]) / 100))
    return limits


def _read(path: Path, stack: ExitStack) -> Run:
    from netprof.analysis.compare.compared_run import read_run

    return replace(read_run(open_traces([path]), ProgressBar(stack, f"analyzing {path.name}")), name=str(path))


def _failed(difference: Difference, limits: Mapping[str, float]) -> list[Change]:
    """Return what surely got worse, and by more than is allowed."""
    limited = [change for change in difference.changes if change.quantity.name in limits]
    return [change for change in limited if change.worse_share > limits[change.quantity.name]]


def _check_known(difference: Difference, limits: Sequence[str]) -> None:
    """Raise NetprofError for a limit of something that is unknown in a run: nothing could exceed it."""
    known = {name for change in difference.changes for name in (change.quantity.name, change.quantity.source)}
    for limit in limits:
        name = limit.rpartition("=")[0].strip() or "iteration"
        if name not in known:
            raise NetprofError(
                f"--fail-above {limit} cannot be checked: {name} is unknown in one of these runs",
                "limit what both runs know: --json lists it under changes",
            )


def _show(difference: Difference, failed: Sequence[Change], as_json: bool, markdown: OutputTarget | None) -> None:
    from netprof.views import difference as view

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
