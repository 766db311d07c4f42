"""What a person names to be read: a trace, the traces of a job's hosts, a folder of traces; analyzing it takes time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.views.printed import standard_error

if TYPE_CHECKING:
    from rich.progress import Progress

    from netprof.analysis import Analysis
    from netprof.trace import TraceSource


def place_of(text: str) -> Path:
    """Return where something is that a person named; what a URL names is copied first. Raises NetprofError."""
    from netprof.trace.remote import fetched, is_url

    return fetched(text) if is_url(text) else Path(text)


_WHERE = "The directory that attach or run made; of a job on many hosts one each, or a directory of them; their digests"
Traces = Annotated[
    list[Path], typer.Argument(metavar="TRACE...", parser=place_of, help=f"{_WHERE}; or a URL of any of these.")
]
OnlyHosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME", help="Only the ranks of this host. May be repeated."),
]


def open_traces(named: Sequence[Path], hosts: Collection[str] = ()) -> TraceSource:
    """Open what a person named as one recording. Raises TraceError, UsageError."""
    from netprof.analysis.hosts.open_job import open_job
    from netprof.trace.named import traces_named

    return open_job(traces_named(named), hosts)


def analyzed(reader: TraceSource, baseline_s: float | None = None) -> Analysis:
    """Return the conclusions from a trace; of a long one, a terminal shows meanwhile how much of it is done.

    `baseline_s` is an iteration of one worker alone, in seconds. Raises TraceError.
    """
    from netprof.analysis import analyze

    with ExitStack() as stack:
        return analyze(reader, baseline_s=baseline_s, on_piece=ProgressBar(stack, f"analyzing {reader.path.name}"))


class ProgressBar:
    """A bar on a terminal that appears when the first part of something is done, and goes with the stack."""

    def __init__(self, stack: ExitStack, doing: str) -> None:
        self._stack, self._doing = stack, doing
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show how much of it is done; a `total` of 0 means unknown."""
        if self._progress is None:
            console = standard_error()
            if not console.is_terminal:
                return
            from rich.markup import escape
            from rich.progress import Progress

            from netprof.views.safe import safe_text

            self._progress = self._stack.enter_context(Progress(console=console, transient=True))
            self._progress.add_task(escape(safe_text(self._doing)), total=total or None)
        self._progress.update(self._progress.task_ids[0], completed=done)
