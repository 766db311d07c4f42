"""The options that put metrics where Prometheus finds them, and what serves them while something is recorded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netprof.cli.outputs import output
from netprof.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from netprof.metrics.server import MetricsServer
    from netprof.metrics.textfile import Textfile
    from netprof.session.attach import Watcher
    from netprof.session.recorder import Recorder

DEFAULT_ADDRESS = "127.0.0.1:9963"
_ADDRESS = re.compile(r"[^\s-][^\s]*:\d{1,5}|:\d{1,5}")

MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[ADDR:PORT]",
        help=f"Serve totals to Prometheus here (/metrics, /healthz).  [without a value: {DEFAULT_ADDRESS}]",
    ),
]
TextfileOption = Annotated[
    Path | None,
    output(
        "--metrics-textfile", metavar="DIR", help="Write totals for node_exporter's textfile collector to this folder."
    ),
]
WebConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--web-config", metavar="FILE", help="TLS and passwords for --metrics, as in Prometheus' web.config files."
    ),
]


def with_default_address(arguments: Sequence[str]) -> list[str]:
    """Return a command line in which `--metrics` alone has the default address."""
    found = list(arguments)
    end = found.index("--") if "--" in found else len(found)
    for place in [place for place in range(end) if found[place] == "--metrics"]:
        if place + 1 >= end or not _ADDRESS.fullmatch(found[place + 1]):
            found[place] = f"--metrics={DEFAULT_ADDRESS}"
    return found


@dataclass(frozen=True)
class MetricsOptions:
    """Where metrics are served or written; None for nowhere."""

    address: str | None = None
    textfile: Path | None = None
    web_config: Path | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody is to be served."""
        return self.address is not None or self.textfile is not None


class Shown:
    """A board, and what shows it from `start` on. Raises NetprofError where it cannot be shown.

    Threads begin with `start`: a process that is to fork has none before.
    """

    def __init__(self, options: MetricsOptions, talk: Console, name: str) -> None:
        from netprof.metrics.board import Board
        from netprof.metrics.server import MetricsServer
        from netprof.metrics.textfile import Textfile
        from netprof.metrics.web_config import WebConfig
        from netprof.views.printed import say

        if options.web_config is not None and options.address is None:
            raise UsageError("--web-config is for --metrics, which is missing", "add --metrics")
        self.board = Board()
        self._by: list[MetricsServer | Textfile] = []
        self._is_started = False
        if options.address is not None:
            web = None if options.web_config is None else WebConfig.read(options.web_config)
            server = MetricsServer(self.board, options.address, web)
            self._by.append(server)
            say(talk, f"metrics at {server.url}")
        if options.textfile is not None:
            self._by.append(Textfile(self.board, options.textfile, name))

    def start(self) -> None:
        """Begin to show the board, once."""
        for each in [] if self._is_started else self._by:
            each.start()
        self._is_started = True

    def close(self) -> None:
        """Show it no more."""
        for each in self._by:
            each.close()


@contextmanager
def measuring(options: MetricsOptions, talk: Console) -> Iterator[Watcher]:
    """Make the account of a recording, shown where the options say; yields what the recording calls."""
    if not options.is_wanted:
        yield lambda recorder: None
        return
    from netprof.metrics.accountant import Accountant

    with closing(Shown(options, talk, str(os.getpid()))) as shown:
        accountant = Accountant()
        shown.board.add(accountant)

        def watch(recorder: Recorder) -> None:
            shown.start()
            accountant.feed(recorder)

        try:
            yield watch
        finally:
            accountant.close()


@contextmanager
def following(options: MetricsOptions, traces: Sequence[Path], talk: Console) -> Iterator[None]:
    """Make the account of each trace that another netprof writes, shown where the options say."""
    if not options.is_wanted:
        yield
        return
    from netprof.metrics.accountant import Accountant
    from netprof.metrics.follow import FollowedAccount

    with closing(Shown(options, talk, str(os.getpid()))) as shown, ExitStack() as stack:
        shown.start()
        for path in traces:
            accountant = Accountant()
            stack.callback(FollowedAccount(path, accountant).close)
            shown.board.add(accountant)
        yield


def together(*watchers: Watcher) -> Watcher:
    """Return what calls several watchers; the first reason to stop counts."""

    def watch(recorder: Recorder) -> str | None:
        reasons = [watcher(recorder) for watcher in watchers]
        return next((reason for reason in reasons if reason), None)

    return watch
