"""Where a process of the job writes its profile: a folder of this host's /tmp that is its user's.

Nothing is made in a folder that the job shows: one with a mount namespace or a root of its own could have put anything
in the place of its /tmp. All that is done in the folder is done with the rights of the process's user, and never leaves
the file system that it was made on, which is not one of the job's.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from netprof.errors import NotPermittedError
from netprof.files import OutputPlace, User
from netprof.trace.kineto import Kineto, NoJson, read_kineto

_ABOVE = Path("/tmp")  # noqa: S108 - the folder is new, and its name cannot be guessed


class ProfileFolder:
    """A folder in which process `pid` can write; the recorder holds it open, whatever becomes of the process.

    Raises OSError, NotPermittedError where the process does not see this host's files.
    """

    def __init__(self, pid: int) -> None:
        self._known_bytes: dict[str, int] = {}
        _require_our_files(pid)
        self._name = f"netprof-{token_hex(8)}"
        self.file = f"{_ABOVE}/{self._name}/{pid}.json"
        owner = os.stat(f"/proc/{pid}")  # noqa: PTH116
        user = User.of(owner.st_uid, owner.st_gid) if owner.st_uid != os.geteuid() else None
        self._above = OutputPlace(_ABOVE, follow=True, our_rights=True, user=user).folder
        self._folder = self._above.make(self._name, 0o700)
        about = os.fstat(self._folder.descriptor)
        if (about.st_uid, stat.S_IMODE(about.st_mode)) != (owner.st_uid, 0o700):
            raise PermissionError(0, "it was exchanged", self.file)

    def complete(self) -> Kineto | None:
        """Return the profile, once it is written to its end; None before. Raises TraceError for what is none."""
        for name in sorted(self._folder.names()):
            with suppress(OSError, NoJson):
                if name.endswith(".json") and self._may_end(name):
                    return read_kineto(Path(self.file).with_name(name), self._folder)
        return None

    def _may_end(self, name: str) -> bool:
        """Tell whether a file ends as JSON does, and has grown since that was last asked."""
        with open(self._folder.open(name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            known, self._known_bytes[name] = self._known_bytes.get(name, 0), size
            if size in (0, known):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) in b"}\n"

    def close(self) -> None:
        """Remove it with what is in it. May be called twice."""
        if self._folder.close.alive:
            with suppress(OSError):
                self._folder.clear()
            with suppress(OSError):
                self._above.remove_folder(self._name)
            self._folder.close()


def _require_our_files(pid: int) -> None:
    """Raise NotPermittedError where a process has a mount namespace or a root of its own, OSError where it is gone."""
    same = all(os.readlink(f"/proc/{pid}/{each}") == os.readlink(f"/proc/self/{each}") for each in ("ns/mnt", "root"))  # noqa: PTH115
    if not same:
        raise NotPermittedError(
            f"process {pid} sees other files than this host's: there is no folder that it can write to and only it",
            "profile it by torch.profiler, and give the file to netprof report --with-kineto",
        )
