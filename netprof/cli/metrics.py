"""The options that put metrics where Prometheus finds them, and what serves them while something is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from netprof.cli.default_address import DEFAULT_ADDRESS
from netprof.cli.help import ALL_DAY, all_day
from netprof.cli.outputs import output
from netprof.errors import UsageError
from netprof.files import User, caller
from netprof.units import parse_size_bytes
from netprof.views.printed import say

if TYPE_CHECKING:
    from rich.console import Console

    from netprof.metrics.board import Board
    from netprof.metrics.event_actions import EventCommand, SaveLimits
    from netprof.metrics.rules import Rule
    from netprof.metrics.server import MetricsServer
    from netprof.metrics.textfile import Textfile
    from netprof.session.attach import Watcher
    from netprof.session.recorder import Recorder
    from netprof.session.save import Saver

    Say = Callable[[str], None]

MetricsAddress = Annotated[
    str | None,
    all_day(
        "--metrics",
        metavar="[ADDR:PORT]",
        help=f"Serve totals to Prometheus here (/metrics, /healthz).  [without a value: {DEFAULT_ADDRESS}]",
    ),
]


@dataclass(frozen=True)
class MetricsOptions:
    """Where metrics are served or written; None for nowhere."""

    address: MetricsAddress = None
    textfile: Annotated[
        Path | None,
        output(
            "--metrics-textfile",
            metavar="DIR",
            help="Write totals for node_exporter's textfile collector to this folder.",
            group=ALL_DAY,
        ),
    ] = None
    web_config: Annotated[
        Path | None,
        all_day(metavar="FILE", help="TLS and passwords for --metrics, as in Prometheus' web.config files."),
    ] = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody is to be served."""
        return self.address is not None or self.textfile is not None


@dataclass(frozen=True)
class RuleOptions:
    """Rules as typed, what is done when one holds, and how much is saved at most."""

    save_when: Annotated[
        list[str] | None,
        all_day(
            metavar="RULE",
            help="Save what --keep holds when this comes to hold: 'waiting > 30 % for 60s', stalled, straggler, loss. "
            "Repeatable.",
        ),
    ] = None
    on_event: Annotated[
        str | None, all_day(metavar="CMD", help="Run this when a rule holds, with one JSON document on its stdin.")
    ] = None
    as_root: Annotated[
        bool,
        all_day("--as-root", help="Run commands as root even if sudo was called by somebody else: else as who did."),
    ] = False
    per_hour: Annotated[
        int, all_day("--save-per-hour", metavar="N", min=1, max=1000, help="Let rules save N times an hour at most.")
    ] = 4
    total: Annotated[
        str, all_day("--save-total", metavar="SIZE", help="Let rules save no more once they saved so much.")
    ] = "2GB"

    @property
    def user(self) -> User | None:
        """As whom commands are run; None for as who this process is."""
        return None if self.as_root else caller()

    def say_as_whom(self, what: str, talk: Console) -> None:
        """Say who runs a command, where that is not who this process is."""
        if self.user is not None:
            say(talk, f"netprof: {what} runs as {self.user}, who called sudo; with --as-root it runs as root")

    def parsed(
        self, *, has_ring: bool, saved: Iterable[Path] = ()
    ) -> tuple[SaveLimits, list[Rule], EventCommand | None]:
        """Return them as they are used; what was `saved` before counts. Raises UsageError."""
        from netprof.metrics.event_actions import EventCommand, SaveLimits
        from netprof.metrics.rules import Rule

        if self.save_when and not has_ring:
            raise UsageError("--save-when saves what --keep holds, which is missing", "add --keep 10m")
        if self.on_event is not None and not self.save_when:
            raise UsageError("--on-event needs --save-when: it takes what that finds", "add --save-when RULE")
        command = None if self.on_event is None else EventCommand(self.on_event, self.user)
        limits = SaveLimits(self.per_hour, parse_size_bytes(self.total), saved)
        return limits, [Rule.parse(text) for text in self.save_when or ()], command


class Shown:
    """A board, and what shows it from `start` on. Raises NetprofError where it cannot be shown.

    Threads begin with `start`: a process that is to fork has none before.
    """

    def __init__(self, options: MetricsOptions, talk: Console, name: str) -> None:
        from netprof.metrics.board import Board
        from netprof.metrics.server import MetricsServer
        from netprof.metrics.textfile import Textfile
        from netprof.metrics.web_config import WebConfig

        if options.web_config is not None and options.address is None:
            raise UsageError("--web-config is for --metrics, which is missing", "add --metrics")
        self.board = Board()
        self._outputs: list[MetricsServer | Textfile] = []
        self._is_started = False
        if options.address is not None:
            web = None if options.web_config is None else WebConfig.read(options.web_config)
            server = MetricsServer(self.board, options.address, web)
            self._outputs.append(server)
            say(talk, f"metrics at {server.url}")
        if options.textfile is not None:
            self._outputs.append(Textfile(self.board, options.textfile, name))

    def start(self) -> None:
        """Begin to show the board, once."""
        for place in [] if self._is_started else self._outputs:
            place.start()
        self._is_started = True

    def close(self) -> None:
        """Show it no more."""
        for place in self._outputs:
            place.close()


class Watching:
    """What watches a recording besides a person: its account, the rules that are held against it, and its ring.

    `limits` are those of several recordings, else those of its `rules`. Raises NetprofError for what cannot be, before
    anything is recorded.
    """

    def __init__(
        self,
        options: MetricsOptions,
        rules: RuleOptions,
        tell: Say,
        ring: Path | None,
        board: Board | None,
        limits: SaveLimits | None = None,
    ) -> None:
        from netprof.metrics.accountant import Accountant
        from netprof.metrics.event_actions import EventActions
        from netprof.session.save import Saver

        rule_limits, parsed, self._command = rules.parsed(has_ring=ring is not None)
        self.saver = Saver(ring) if ring is not None else None
        events = EventActions(parsed, tell, limits or rule_limits, board=board, saver=self.saver, command=self._command)
        self.accountant = Accountant([events] if parsed else [])
        self._is_wanted = options.is_wanted or bool(parsed)

    def __call__(self, recorder: Recorder) -> None:
        """Take what the recorder has; a watcher of the recording."""
        if self._is_wanted:
            self.accountant.feed(recorder)
        if self.saver is not None:
            self.saver(recorder)

    def close(self) -> None:
        """Conclude from what is left, and wait for what is being saved and told."""
        self.accountant.close()
        if self.saver is not None:
            self.saver.close()
        if self._command is not None:
            self._command.close()


@contextmanager
def measuring(
    options: MetricsOptions, rules: RuleOptions, talk: Console, ring: Path | None, *, quiet: bool = False
) -> Iterator[tuple[Watcher, Saver | None]]:
    """Watch a recording, shown where the options say; yields what the recording calls, and what saves its ring.

    What is to be said waits for the end where a view has the terminal (`quiet`).
    """
    if options == MetricsOptions() and not rules.save_when and rules.on_event is None and ring is None:
        parse_size_bytes(rules.total)
        yield lambda recorder: None, None  # as nearly always: what analyses is not imported while a job waits for us
        return
    from netprof.session.save import saved_on_signal

    if rules.on_event is not None:
        rules.say_as_whom("--on-event", talk)
    later: list[str] = []
    tell: Say = later.append if quiet else lambda text: say(talk, text)

    def done(out: Path, code: int) -> None:
        tell(f"saved as {out}" if code == 0 else f"{out} could not be saved: netprof save ended with {code}")

    with ExitStack() as stack:
        shown = stack.enter_context(closing(Shown(options, talk, str(os.getpid()))))
        watched = stack.enter_context(closing(Watching(options, rules, tell, ring, shown.board)))
        shown.board.add(watched.accountant)
        if watched.saver is not None:
            stack.enter_context(saved_on_signal(watched.saver, done))

        def watch(recorder: Recorder) -> None:
            shown.start()
            watched(recorder)

        yield watch, watched.saver
    for text in later:
        say(talk, text)


@contextmanager
def following(options: MetricsOptions, traces: Sequence[Path], talk: Console) -> Iterator[None]:
    """Make the account of each trace that another netprof writes, shown where the options say."""
    if not options.is_wanted:
        yield
        return
    from netprof.metrics.accountant import Accountant, FollowedAccount

    with closing(Shown(options, talk, str(os.getpid()))) as shown, ExitStack() as stack:
        shown.start()
        for path in traces:
            accountant = Accountant()
            stack.callback(FollowedAccount(path, accountant).close)
            shown.board.add(accountant)
        yield


def together(*watchers: Watcher) -> Watcher:
    """Return what calls several watchers, each until it fails; the first reason to stop counts."""
    from netprof.session.attach import heeded

    each_heeded = [heeded(watcher) for watcher in watchers]

    def watch(recorder: Recorder) -> str | None:
        reasons = [watcher(recorder) for watcher in each_heeded]
        return next((reason for reason in reasons if reason), None)

    return watch
