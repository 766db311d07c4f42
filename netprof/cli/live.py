"""`netprof live`, and the live view of `netprof attach`: which display there is, and what it is fed with."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from netprof.cli.recording import Json, print_report
from netprof.errors import EXIT_INTERRUPTED, NetprofError
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from rich.console import Console

    from netprof.analysis.live.recent import Recent
    from netprof.session.attach import Watcher
    from netprof.session.live import RecordingSource
    from netprof.session.live_follow import TraceSource
    from netprof.session.recorder import Recorder

STOPPED = "stopped"
_SILENT_S = 5.0
_WAIT_S = 0.1


class Display(Protocol):
    """What shows how it goes: the live view, or lines."""

    @property
    def stopping(self) -> bool:
        """Whether the person asked to stop."""

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is shown any more."""


def live(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="The trace that is being recorded.")],
    as_json: Json = False,
) -> None:
    """Watch a trace that another netprof is recording, until it ends or you leave (q); then print the report so far."""
    from rich.console import Console

    from netprof.session import live_follow
    from netprof.session.attach import stop_on_signals
    from netprof.views.printed import standard_output

    talk = Console(stderr=True)
    source = live_follow.TraceSource(trace)
    with stop_on_signals() as request, _displayed(source.look, f"following {trace}", talk, _silence(source)) as display:
        while not (display.stopping or display.failure or source.ended or request.reason()):
            time.sleep(_WAIT_S)
    if display.failure is not None:
        raise display.failure
    talk.print(
        safe_text(f"{source.ended or 'the recording goes on'}; the trace is {trace}"), markup=False, soft_wrap=True
    )
    print_report(trace, as_json=as_json, console=standard_output())
    if request.reason():
        raise typer.Exit(EXIT_INTERRUPTED)


@contextmanager
def watching(trace: Path, talk: Console, *, show: bool) -> Iterator[Watcher]:
    """Give the recording something to call; it is shown live, as lines on stderr, or not at all."""
    if not show:
        yield lambda recorder: None
        return
    from netprof.session.live import RecordingSource

    source = RecordingSource()
    with _displayed(source.look, f"recording {trace}", talk) as display:
        yield _Feeder(source, display, talk)


class _Feeder:
    """Feeds the display from the recording's loop, and tells the recording what the person wants."""

    def __init__(self, source: RecordingSource, display: Display, talk: Console) -> None:
        self._source, self._display, self._talk = source, display, talk
        self._failure_said = False

    def __call__(self, recorder: Recorder) -> str | None:
        self._source.feed(recorder)
        if self._display.failure is not None and not self._failure_said:
            self._failure_said = True
            said = f"nothing is shown any more ({_said(self._display.failure)}); the recording goes on, ctrl-C ends it"
            self._talk.print(said, markup=False, highlight=False, soft_wrap=True)
        return STOPPED if self._display.stopping else None


@contextmanager
def _displayed(
    look: Callable[[], Recent | None], source: str, talk: Console, notice: Callable[[], str] = str
) -> Iterator[Display]:
    """Show what `look` returns on the terminal, or in lines where stdout is none."""
    from rich.console import Console

    from netprof.views.live.display import LiveDisplay
    from netprof.views.live.terminal import can_show
    from netprof.views.progress import LineDisplay

    console = Console()
    if can_show(sys.stdout) and (console.encoding or "").lower().startswith("utf"):
        with LiveDisplay(console, look, source, notice) as display:
            yield display
    else:
        with LineDisplay(talk, look) as lines:
            yield lines


def _silence(source: TraceSource) -> Callable[[], str]:
    """Return what says for how long nothing has been added to a trace."""

    def notice() -> str:
        return f"nothing new for {source.silent_s:.0f} s" if source.silent_s > _SILENT_S else ""

    return notice


def _said(failure: BaseException) -> str:
    text = failure.message if isinstance(failure, NetprofError) else f"{type(failure).__name__}: {failure}"
    return safe_text(text, 200)
