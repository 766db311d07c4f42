"""Whether a recorder is still writing a trace: a lock on its directory, which the kernel drops with the recorder."""

from __future__ import annotations

import contextlib
import fcntl

from netprof.files import Directory


def hold(directory: Directory) -> bool:
    """Lock a trace's directory until it is closed; False where another recorder holds it.

    On a file system without locks nothing is held: a reader cannot tell there, and nothing else depends on it.
    """
    try:
        fcntl.flock(directory.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def is_held(directory: Directory) -> bool:
    """Say whether a recorder holds the lock; False also where that cannot be told."""
    return _held(directory) is True


def is_free(directory: Directory) -> bool:
    """Say whether surely nobody on this machine holds the lock; False also where that cannot be told."""
    return _held(directory) is False


def _held(directory: Directory) -> bool | None:
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(directory.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(directory.descriptor, fcntl.LOCK_UN)
        return False
    return None
