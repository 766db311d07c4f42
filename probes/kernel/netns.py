"""Another process's network namespace: hold it open, and run a function inside it.

Only a short-lived thread ever enters the namespace; the caller's own threads stay where they are.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from netprof.closing import Closing
from netprof.errors import NetprofError, NotPermittedError
from netprof.probes.kernel.rights import SYS_ADMIN, SYS_PTRACE, not_permitted

_CLONE_NEWNET = 0x40000000

Result = TypeVar("Result")


class NetworkNamespace(Closing):
    """A network namespace, kept alive by an open descriptor even when its last process ends.

    `inode` is its number, as in the trace's `netns` columns. A context manager: leaving it closes the descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.inode = os.fstat(descriptor).st_ino

    @classmethod
    def of(cls, pid: int) -> NetworkNamespace:
        """Open the network namespace of process `pid`. Raises NetprofError, or NotPermittedError."""
        try:
            return cls(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except PermissionError as error:
            raise not_permitted(f"look into process {pid}", SYS_PTRACE) from error
        except OSError as error:
            raise NetprofError(f"there is no process {pid} any more", "attach again with a pid that runs") from error

    def run(self, function: Callable[[], Result]) -> Result:
        """Call `function` inside the namespace and return what it returns; what it raises is raised here.

        Sockets it opens belong to the namespace for good. Raises NotPermittedError when the kernel refuses entry.
        """
        if self.inode == Path("/proc/thread-self/ns/net").stat().st_ino:
            return function()  # needs no capability
        results: list[Result] = []
        errors: list[BaseException] = []

        def visit() -> None:
            try:
                _enter(self.descriptor)
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=visit, name="netprof-netns", daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Close the descriptor; twice does no harm."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _enter(descriptor: int) -> None:
    """Move the calling thread into the network namespace behind `descriptor`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) == 0:
        return
    number = ctypes.get_errno()
    if isinstance(OSError(number, ""), PermissionError):
        refused = not_permitted("enter the job's network namespace", SYS_ADMIN)
        raise NotPermittedError(refused.message, f"{refused.hint}, or run netprof inside the job's namespace")
    raise NetprofError(f"cannot enter the job's network namespace: {os.strerror(number)}")
