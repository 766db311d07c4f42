"""A live view's source: a recording of our own, or a trace that somebody else is still writing."""

from __future__ import annotations

from collections.abc import Sequence

from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.now import Recent
from netprof.session.recorder import Recorder


class RecordingSource:
    """Hands what a recorder collects to a live view, in memory: `feed` in the recording's thread, `look` in another."""

    left_out: Sequence[str] = ()

    def __init__(self) -> None:
        self._inbox: Inbox | None = None
        self._state: LiveState | None = None
        self.notice = ""

    def feed(self, recorder: Recorder) -> None:
        """Call before the first tick and after every one: takes what the recorder collects and knows of the job."""
        if self._inbox is None:
            self._inbox = inbox = Inbox(recorder.meta)
            self._state = LiveState(inbox, recorder.options.bin_ns)
            recorder.observe(inbox.add)
        self.notice = recorder.job.waiting
        self._inbox.reached(recorder.collected_ns)
        self._inbox.describe(recorder.meta)

    def look(self) -> Recent | None:
        """Return what is going on, None before the recording has begun."""
        return self._state.look() if self._state is not None else None
