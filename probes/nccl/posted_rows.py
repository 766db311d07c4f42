"""From the kernel's totals of connections to rows of table `nccl_posted`: each bin holds what they grew by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.btf import layout

TOTALS = layout("nccl", "net_totals")
"""`struct net_totals` of posts.h."""

CONNECTION = layout("nccl", "connection")
"""`struct connection` of posts.h."""

RECORD = layout("nccl", "post_record")
"""`struct post_record` of posts.h."""

_SILENT_AFTER_BINS = 2


class PostedRows:
    """Knows of each connection which totals are in rows already.

    The kernel hands totals over when a bin has ended and the next begins; of a connection that falls silent they are
    read in place. So rows add up to the totals, whichever way they came.
    """

    def __init__(self, bin_ns: int, slots: int) -> None:
        self._bin_ns = np.uint64(bin_ns)
        self._given = np.zeros(slots, TOTALS)

    def silent(self, connections: NDArray[Any], now_ns: int, *, final: bool = False) -> NDArray[Any]:
        """Return totals (RECORD) of connections, live kernel memory, whose last bin ended a while ago; `final`: of all.

        What changes while it is read is left for the next time. To be called before the ring is drained.
        """
        news = np.flatnonzero(connections["totals"] != self._given[: len(connections)])
        kept, again = connections[news].copy(), connections[news].copy()
        ended = kept["bin_end_ns"] + np.uint64(_SILENT_AFTER_BINS) * self._bin_ns < np.uint64(now_ns)
        same = (kept == again) & (ended | final)
        records = np.zeros(int(same.sum()), RECORD)
        records["slot"] = news[same]
        for name in ("first_ns", "last_ns", "totals"):
            records[name] = kept[name][same]
        return records

    def columns(self, connections: NDArray[Any], records: NDArray[Any], silent: NDArray[Any]) -> dict[str, Any]:
        """Return the columns of table `nccl_posted` for new records, in the order in which they came, and silent ones.

        Of a silent connection, what was handed over since it was read counts already.
        """
        silent = silent[self._is_newer(silent, records)]
        every = np.concatenate([records, silent])
        every = every[np.argsort(every["slot"], kind="stable")]
        slots = every["slot"].astype(np.int64)
        first = np.append(True, slots[1:] != slots[:-1])[: len(slots)]
        before = np.empty(len(every), TOTALS)
        before[1:] = every["totals"][:-1]
        before[first] = self._given[slots[first]]
        grown = {name: every["totals"][name] - before[name] for name in TOTALS.names or ()}
        self._given[slots] = every["totals"]  # of several of a slot the last one stays
        moved = np.flatnonzero((grown["posts"] > 0) | (grown["refused"] > 0))
        moved = moved[np.argsort(every["first_ns"][moved], kind="stable")]
        about = connections[slots[moved]]
        return {
            "pid": about["pid"].astype(np.int32),
            "connection": about["address"],
            "direction": about["direction"],
            "network": about["network"],
            "bin_start_ns": (every["first_ns"] // self._bin_ns * self._bin_ns)[moved].astype(np.int64),
            "posted_bytes": grown["bytes"][moved],
            "posts": grown["posts"][moved],
            "refused": grown["refused"][moved],
            "first_ns": every["first_ns"][moved].astype(np.int64),
            "last_ns": every["last_ns"][moved].astype(np.int64),
        }

    def _is_newer(self, silent: NDArray[Any], records: NDArray[Any]) -> NDArray[np.bool_]:
        """Say which silent connections had no record since they were read: the latest end of a bin tells."""
        latest = np.zeros(len(self._given), np.uint64)
        np.maximum.at(latest, records["slot"], records["last_ns"])
        newer: NDArray[np.bool_] = silent["last_ns"] > latest[silent["slot"]]
        return newer
