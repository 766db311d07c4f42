"""The job's processes as the kernel programs know them: one map, shared by every program of a recording."""

from __future__ import annotations

import os

from netprof.closing import Closing
from netprof.probes.kernel.loader import create_hash, map_delete, map_keys, map_lookup, map_update, u32

_MOST = 16_384
_PID_BYTES = 4
_ALIVE, _ENDED = u32(1), u32(2)  # of process_life.h


class TargetMap(Closing):
    """The pids of the job. Programs reuse the map by its descriptor; those of the flow probe keep it up at forks.

    A context manager. Raises NotPermittedError without the rights for BPF maps.
    """

    def __init__(self) -> None:
        self.fd = create_hash("targets", _PID_BYTES, _PID_BYTES, _MOST)

    def add(self, pid: int) -> None:
        """Count process `pid` to the job, and what it forks from now on. Raises NetprofError when the map is full."""
        map_update(self.fd, u32(pid), _ALIVE)

    def discard(self, pid: int) -> None:
        """Count process `pid` to the job no more; an absent one is fine."""
        map_delete(self.fd, u32(pid))

    def drop_ended(self, pid: int) -> None:
        """Count process `pid` to the job no more if it has ended, and no other process of the job has its pid now."""
        if map_lookup(self.fd, u32(pid), _PID_BYTES) == _ENDED:
            self.discard(pid)

    def pids(self) -> list[int]:
        """Return the processes of the job."""
        return [int.from_bytes(key, "little") for key in map_keys(self.fd, _PID_BYTES)]

    def close(self) -> None:
        """Close the descriptor, twice if need be; programs that use the map keep it."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class NoTargets(TargetMap):
    """What stands for the map where no program may be loaded that would look into it."""

    def __init__(self) -> None:
        self.fd = -1

    def add(self, pid: int) -> None:
        """Do nothing."""

    def discard(self, pid: int) -> None:
        """Do nothing."""

    def drop_ended(self, pid: int) -> None:
        """Do nothing."""

    def pids(self) -> list[int]:
        """Return nothing."""
        return []
