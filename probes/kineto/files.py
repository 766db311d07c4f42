"""Where a process of the job writes its profile: a folder of its own, which only it and the recorder can look into."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from netprof.trace.kineto import Kineto, NoJson, read_kineto

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class ProfileFolder:
    """A folder under /tmp as process `pid` sees it; the recorder holds it open, whatever becomes of the process.

    Every step on the way there is taken from an open folder and follows no link: the job may have put some there.
    Raises OSError.
    """

    def __init__(self, pid: int) -> None:
        self._known_bytes: dict[str, int] = {}
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

    def complete(self) -> Kineto | None:
        """Return the profile, once it is written to its end; None before. Raises TraceError for what is none."""
        for name in sorted(os.listdir(self._folder)):  # noqa: PTH208
            with suppress(OSError, NoJson):
                if name.endswith(".json") and self._may_end(name):
                    return read_kineto(Path(self.file).with_name(name), self._folder)
        return None

    def _may_end(self, name: str) -> bool:
        """Tell whether a file ends as JSON does, and has grown since that was last asked."""
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder), "rb") as file:
            about = os.fstat(file.fileno())
            known, self._known_bytes[name] = self._known_bytes.get(name, 0), about.st_size
            if not stat.S_ISREG(about.st_mode) or about.st_size == known:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) in b"}\n"

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
