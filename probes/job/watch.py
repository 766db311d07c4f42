"""Watching the job's processes: which still live, and which have joined since."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from types import TracebackType

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.job.processes import find_more, is_same

THOROUGH_EVERY_S = 2.0


class Watch:
    """Holds a pid descriptor of each process, so that a pid given to another process cannot be mistaken for it.

    A context manager. Raises NetprofError when the process may not open so many files.
    """

    def __init__(self, targets: Iterable[Target]) -> None:
        self._poll = select.poll()
        self._alive: dict[int, Target] = {}  # by pid descriptor
        self._known: dict[tuple[int, int], Target] = {}  # as last seen
        self._thorough_at_s = 0.0
        for target in targets:
            self._add(target)

    def alive(self) -> list[Target]:
        """Return the processes that have not ended."""
        self._reap(0)
        return list(self._alive.values())

    def training(self) -> list[Target]:
        """Return the processes that have not ended and that train, as far as one can tell."""
        return [target for target in self.alive() if target.frameworks]

    def wait(self, timeout_s: float) -> bool:
        """Wait until a process ends, at most `timeout_s` seconds; tell whether one did."""
        return self._reap(max(0, round(timeout_s * 1000)))

    def refresh(self) -> list[Target]:
        """Look at the job again, and return the processes that have joined or changed: executed, loaded a framework.

        Cheap enough for several times a second: ranks elsewhere that join, and a second framework in a process, are
        looked for only every `THOROUGH_EVERY_S` seconds.
        """
        now_s = time.monotonic()
        thorough = now_s >= self._thorough_at_s
        if thorough:
            self._thorough_at_s = now_s + THOROUGH_EVERY_S
        found = [target for target in find_more(self.alive(), thorough=thorough) if self._is_news(target)]
        return [target for target in found if self._add(target)]

    def close(self) -> None:
        """Close every descriptor."""
        for descriptor in self._alive:
            os.close(descriptor)
        self._alive.clear()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_news(self, target: Target) -> bool:
        """Tell whether a process is not known, or not as it is now."""
        return self._known.get(_identity(target)) != target

    def _add(self, target: Target) -> bool:
        """Watch a process, or note how one has changed; tell whether it is (still) there."""
        known = _identity(target) in self._known
        self._known[_identity(target)] = target
        if known:
            return self._note_change(target)
        try:
            descriptor = os.pidfd_open(target.pid)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise NetprofError(
                f"cannot watch process {target.pid}: {error.strerror}", "allow more open files with 'ulimit -n 65536'"
            ) from error
        if not is_same(target):  # checked with the descriptor open: from here on it cannot become another process
            os.close(descriptor)
            return False
        self._alive[descriptor] = target
        self._poll.register(descriptor, select.POLLIN)
        return True

    def _note_change(self, target: Target) -> bool:
        for descriptor, known in self._alive.items():
            if _identity(known) == _identity(target):
                self._alive[descriptor] = target
                return True
        return False

    def _reap(self, timeout_ms: int) -> bool:
        """Forget the processes that have ended; tell whether there were any."""
        ended = self._poll.poll(timeout_ms)
        for descriptor, _ in ended:
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._alive[descriptor]
        return bool(ended)


def _identity(target: Target) -> tuple[int, int]:
    return target.pid, target.start_ticks
