"""Where streams pass: one device may have as one buffer the bytes that are many packets on the next."""

from __future__ import annotations

import numpy as np

from netprof.probes.capture.grouped import Groups
from netprof.probes.capture.packets import Bool, Int64

_HELD_NS = 10_000_000
"""How much later bytes pass the next device: TCP keeps no more in a queue below it, and waits longer to send again."""
_NONE = -1


class Places:
    """Remembers of every stream where and when it last went further."""

    def __init__(self) -> None:
        self._place = self._time_ns = np.zeros(0, np.int64)

    def grow(self, streams: int) -> None:
        """Make room for so many streams."""
        more = np.full(streams - len(self._place), _NONE)
        self._place, self._time_ns = np.append(self._place, more), np.append(self._time_ns, more)

    def new(self, groups: Groups, time_ns: Int64, place: Int64, advanced: Bool) -> Bool:
        """Say which packets, in `groups` by stream, are no bytes that just passed somewhere else.

        Those that have `advanced` let their stream go further.
        """
        newest = groups.running_maxima(np.where(advanced, np.arange(groups.rows), _NONE))
        inside = newest >= groups.spread(groups.starts)
        at, when = (
            np.where(inside, values[newest], groups.spread(known[groups.keys]))
            for values, known in ((place, self._place), (time_ns, self._time_ns))
        )
        last = groups.last_where(advanced)
        went = last >= 0
        self._place[groups.keys[went]], self._time_ns[groups.keys[went]] = place[last[went]], time_ns[last[went]]
        return np.asarray((at == _NONE) | (at == place) | (np.abs(time_ns - when) > _HELD_NS))
