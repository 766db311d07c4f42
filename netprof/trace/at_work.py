"""Whether a recorder is still writing a trace: a lock on its directory, which the kernel drops with the recorder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def hold(directory: Path) -> int | None:
    """Lock a trace's directory until the descriptor that is returned is closed; None where it cannot be locked."""
    descriptor = None
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without locks: a reader cannot tell, and nothing else depends on it
        let_go(descriptor)
        return None
    return descriptor


def let_go(descriptor: int | None) -> None:
    """Unlock what `hold` returned."""
    if descriptor is not None:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Say whether a recorder holds the lock; False also where that cannot be told."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False
