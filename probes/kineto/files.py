"""Where a process of the job writes its profile: a folder of its own, which only it and the recorder can look into."""

from __future__ import annotations

import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

_LARGEST_BYTES = 1 << 31
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class ProfileFolder:
    """A folder under /tmp as process `pid` sees it; the recorder holds it open, whatever becomes of the process.

    Every step on the way there is taken from an open folder and follows no link: the job may have put some there.
    Raises OSError.
    """

    def __init__(self, pid: int) -> None:
        self._name = f"netprof-{secrets.token_hex(8)}"
        self.file = f"/tmp/{self._name}/{pid}.json"  # noqa: S108 - the folder is new, and nobody can guess its name
        root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._above = os.open("tmp", _FOLDER, dir_fd=root)
        finally:
            os.close(root)
        owner = os.stat(f"/proc/{pid}")  # noqa: PTH116
        os.mkdir(self._name, 0o700, dir_fd=self._above)
        self._folder = os.open(self._name, _FOLDER, dir_fd=self._above)
        if owner.st_uid != os.geteuid():
            os.fchown(self._folder, owner.st_uid, owner.st_gid)

    def complete(self) -> Path | None:
        """Return the profile, once it is written to its end; None before."""
        with suppress(OSError, ValueError, RecursionError):
            for name in sorted(os.listdir(self._folder)):  # noqa: PTH208
                if name.endswith(".json") and self._ends(name):
                    return Path(f"/proc/self/fd/{self._folder}/{name}")
        return None

    def _ends(self, name: str) -> bool:
        """Tell whether a file is JSON to its end; its last character spares reading all of it most of the time."""
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size < _LARGEST_BYTES:
                return False
            file.seek(-1, os.SEEK_END)
            if file.read(1) not in b"}\n":
                return False
            file.seek(0)
            json.loads(file.read())
        return True

    def close(self) -> None:
        """Remove it with what is in it. May be called twice."""
        if self._folder < 0:
            return
        with suppress(OSError):
            for name in os.listdir(self._folder):  # noqa: PTH208
                os.unlink(name, dir_fd=self._folder)
        with suppress(OSError):
            os.rmdir(self._name, dir_fd=self._above)
        os.close(self._folder)
        os.close(self._above)
        self._folder = -1
