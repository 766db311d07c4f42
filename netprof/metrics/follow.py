"""The account of a recording that another netprof writes: what its trace grows by."""

from __future__ import annotations

import threading
from pathlib import Path

from netprof.analysis.live.in_step import InStep
from netprof.errors import TraceError
from netprof.metrics.accountant import Accountant
from netprof.session.live_follow import FollowedTrace, recent_rows

_EVERY_S = 1.0


class FollowedAccount:
    """Follows one trace in a thread of its own, until the recording ends. Raises TraceError where there is none."""

    def __init__(self, path: Path, accountant: Accountant) -> None:
        self._trace, self._accountant = FollowedTrace(path), accountant
        self._inbox = accountant.begin(self._trace.meta)
        self._in_step, self._is_first = InStep(1), True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netprof-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Follow no more; what was read is concluded from."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not (self._stop.wait(_EVERY_S) or self._trace.ended):
            try:
                self._look()
            except TraceError as error:
                self._accountant.failure = error
                break
        self._accountant.close(self._trace.meta if self._trace.meta.stopped_ns is not None else None)

    def _look(self) -> None:
        self._trace.describe()
        for name, batch in self._trace.fresh():
            self._in_step.add(0, name, recent_rows(name, batch))
        if self._is_first:
            self._is_first = False
            self._in_step.settle()
        through_ns, tables = self._in_step.take()
        for name, rows in tables:
            self._inbox.add(name, rows)
        if through_ns is not None:
            self._accountant.reached(self._trace.meta, through_ns)
