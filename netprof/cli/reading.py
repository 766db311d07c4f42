"""Analyzing a trace for a person who waits: what takes long shows how far it is."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from netprof.views.printed import standard_error

if TYPE_CHECKING:
    from rich.progress import Progress

    from netprof.analysis import Analysis
    from netprof.trace import TraceSource


def analyzed(reader: TraceSource, baseline_s: float | None = None) -> Analysis:
    """Return the conclusions from a trace; of a long one, a terminal shows meanwhile how much of it is done.

    `baseline_s` is an iteration of one worker alone, in seconds. Raises TraceError.
    """
    from netprof.analysis import analyze

    with ExitStack() as stack:
        return analyze(reader, baseline_s=baseline_s, on_piece=Bar(stack, f"analyzing {reader.path.name}"))


class Bar:
    """A bar on a terminal that appears when the first part of something is done, and goes with the stack."""

    def __init__(self, stack: ExitStack, doing: str) -> None:
        self._stack, self._doing = stack, doing
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show how much of it is done; of a `total` of 0 nobody knows how much there is."""
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
