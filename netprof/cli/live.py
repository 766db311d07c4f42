"""`netprof live`, and the live view of `netprof attach`: which display there is, and what it is fed with."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from netprof.cli.metrics import MetricsOptions, following
from netprof.cli.recording import Json, print_report
from netprof.cli.traces import ProgressBar, Traces, open_traces
from netprof.copies import as_named
from netprof.errors import EXIT_INTERRUPTED, NetprofError
from netprof.files import is_file, is_folder, matching
from netprof.views.printed import say, standard_error, standard_output
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis.live.now import Recent
    from netprof.session.attach import Watcher
    from netprof.session.live import RecordingSource
    from netprof.session.live_follow import FollowedTraceSource
    from netprof.session.live_job import JobSource
    from netprof.session.recorder import Recorder
    from netprof.session.save import Saver
    from netprof.views.live.display import LiveDisplay
    from netprof.views.progress import LineDisplay

    Watched = RecordingSource | FollowedTraceSource | JobSource
    Display = LiveDisplay | LineDisplay

STOPPED = "stopped"
_WAIT_S = 0.1


def live(
    traces: Traces,
    *,
    metrics: MetricsOptions,
    as_json: Json = False,
) -> None:
    """Watch a job that is being recorded, on one host or many, until it ends or you leave (q); then report on it."""
    from netprof.session.attach import stop_on_signals

    talk = standard_error()
    _wait_for_one(traces, talk)
    source, called = _source(traces), _called(traces)
    with (
        following(metrics, source.paths, talk),
        stop_on_signals() as request,
        _displayed(source, f"following {called}", talk, "reading what there is for the report") as display,
    ):
        while not (display.stopping or display.failure or source.ended or request.reason()):
            time.sleep(_WAIT_S)
    if display.failure is not None:
        raise display.failure
    outcome = dict.fromkeys((_outcome(source), source.notice, f"the trace is {called}"))
    say(talk, as_named("; ".join(filter(None, outcome))))
    print_report(open_traces(source.paths), as_json=as_json, console=standard_output())
    if request.reason():
        raise typer.Exit(EXIT_INTERRUPTED)


def _wait_for_one(named: Sequence[Path], talk: Console) -> None:
    """Wait until there is a trace in the folders that a person named, where those are there and hold nothing yet."""
    if _are_empty(named):
        say(talk, as_named(f"there is nothing in {_called(named)} yet: waiting for a trace (ctrl-C ends that)"))
    while _are_empty(named):
        time.sleep(_WAIT_S)


def _are_empty(named: Sequence[Path]) -> bool:
    """Say whether all are folders, and no file is in any, nor in a folder in it: a recorder may have begun just now."""
    entries = (entry for path in named for pattern in ("*", "*/*") for entry in matching(path, pattern))
    return all(map(is_folder, named)) and not any(map(is_file, entries))


def _source(named: Sequence[Path]) -> FollowedTraceSource | JobSource:
    """Return what follows one trace, or those of a job: of a folder or a pattern also those that are yet to come."""
    from netprof.session.live_follow import FollowedTraceSource
    from netprof.session.live_job import JobSource
    from netprof.trace.named import traces_named

    if traces_named(named) == [*named] and len(named) == 1:
        return FollowedTraceSource(named[0])
    with ExitStack() as stack:
        ProgressBar(stack, as_named(f"reading the last part of {_called(named)}"))(0, 0)
        return JobSource(lambda: traces_named(named))


def _outcome(source: FollowedTraceSource | JobSource) -> str:
    """Return what became of the recording."""
    if source.ended or source.goes_on:
        return source.ended or "the recording goes on"
    return "whether the recording goes on is unknown"


def _called(named: Sequence[Path]) -> str:
    return str(named[0]) if len(named) == 1 else f"{named[0]} and {len(named) - 1} more"


@contextmanager
def watching(trace: Path, talk: Console, *, show: bool, saver: Saver | None = None) -> Iterator[Watcher]:
    """Give the recording something to call; it is shown live, as lines on stderr, or not at all.

    The view's `w` has the `saver` save the recording's ring.
    """
    if not show:
        yield _Waiting(talk)
        return
    with ExitStack() as stack:
        feeder: Watcher | None = None

        def feed(recorder: Recorder) -> str | None:
            nonlocal feeder
            if feeder is None:  # the recording has begun: only now is imported what shows it
                from netprof.session.live import RecordingSource

                source = RecordingSource()
                farewell = "stopping; writing the trace and the report"
                display = stack.enter_context(_displayed(source, f"recording {trace}", talk, farewell))
                feeder = _Feeder(source, display, talk, saver)
            return feeder(recorder)

        yield feed


class _Waiting:
    """Says, where nothing else is shown, that the recording waits for ranks to be started again: each time once."""

    def __init__(self, talk: Console) -> None:
        self._talk, self._waiting = talk, ""

    def __call__(self, recorder: Recorder) -> None:
        if recorder.job.waiting and not self._waiting:
            say(self._talk, recorder.job.waiting)
        self._waiting = recorder.job.waiting


class _Feeder:
    """Feeds the display from the recording's loop, and tells the recording what the person wants."""

    def __init__(self, source: RecordingSource, display: Display, talk: Console, saver: Saver | None) -> None:
        self._source, self._display, self._talk, self._saver = source, display, talk, saver
        self._saves = 0
        self._failure_shown = False

    def __call__(self, recorder: Recorder) -> str | None:
        self._source.feed(recorder)
        if (failure := self._display.failure) is not None and not self._failure_shown:
            self._failure_shown = True
            why = failure.message if isinstance(failure, NetprofError) else f"{type(failure).__name__}: {failure}"
            shown = safe_text(why, 200)
            say(self._talk, f"nothing is shown any more ({shown}); the recording goes on, ctrl-C ends it")
        if self._saver is not None and self._display.saves > self._saves:
            self._saver.ask()
        self._saves = self._display.saves
        return STOPPED if self._display.stopping else None


@contextmanager
def _displayed(source: Watched, title: str, talk: Console, farewell: str) -> Iterator[Display]:
    """Show a source on the terminal, or in lines where stdout is none; what it leaves out comes once, too.

    `farewell` says what happens once the person leaves.
    """
    from netprof.views.live.display import LiveDisplay
    from netprof.views.live.terminal import can_show
    from netprof.views.progress import LineDisplay

    console, left_out = Console(), _LeftOut(source, talk)
    left_out.say()
    if can_show(sys.stdout) and (console.encoding or "").lower().startswith("utf"):
        with LiveDisplay(console, source.look, title, left_out.notice, farewell) as display:
            yield display
    else:
        with LineDisplay(talk, left_out.look, lambda: source.notice) as lines:
            yield lines
    left_out.say()


class _LeftOut:
    """Says each thing that a source leaves out once; until then, as part of a notice where nothing can be said."""

    def __init__(self, source: Watched, talk: Console) -> None:
        self._source, self._talk = source, talk
        self._announced: set[str] = set()

    def say(self) -> None:
        """Say what is news."""
        for sentence in self._news():
            self._announced.add(sentence)
            say(self._talk, as_named(sentence))

    def look(self) -> Recent | None:
        """Look at the source, and say what is news of it."""
        recent = self._source.look()
        self.say()
        return recent

    def notice(self) -> str:
        """Return what is wrong with what is shown."""
        return "; ".join(filter(None, (self._source.notice, *self._news())))

    def _news(self) -> list[str]:
        return [sentence for sentence in self._source.left_out if sentence not in self._announced]
