"""Debian's packages for any machine, of suites that this system need not use: looked up, downloaded and unpacked.

apt does all of it, with a configuration, lists and a cache of its own. What was downloaded is kept.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "netprof" / "kernels"
USERLAND = "bookworm"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MIRROR, _SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
_SUITES = (
    (_MIRROR, "bullseye"),
    (_SECURITY, "bullseye-security"),
    (_MIRROR, USERLAND),
    (_SECURITY, f"{USERLAND}-security"),
    (_MIRROR, f"{USERLAND}-backports"),
    (_MIRROR, "trixie"),
    (_MIRROR, "trixie-backports"),
    (_MIRROR, "sid"),
)
_LISTS_LAST_S = 24 * 3600


class Debian:
    """The packages for one of Debian's architectures (amd64, arm64). Its lists are fetched where they are a day old."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self._folder = CACHE / f"apt-{architecture}"
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()  # nothing is installed: dependencies are all downloaded
        sources, fetched = self._folder / "sources.list", self._folder / "fetched"
        wanted = "".join(f"deb [signed-by={_KEYS}] {mirror} {suite} main\n" for mirror, suite in _SUITES)
        known = sources.read_text() if sources.exists() else ""
        if known != wanted or not fetched.exists() or time.time() - fetched.stat().st_mtime > _LISTS_LAST_S:
            sources.write_text(wanted)
            self._apt("apt-get", "update", "-qq")
            fetched.touch()

    def kernel(self, series: str, flavour: str) -> str | None:
        """Return the newest kernel package of a series ("6.12") and flavour ("cloud", "rt", "" for the full one)."""
        kind = f"{flavour}-" if flavour else ""
        ending = f"-{kind}{self.architecture}"
        names = re.findall(rf"^linux-image-{re.escape(series)}\.\S+{ending}$", self._names(), re.MULTILINE)
        if not flavour:
            names = [name for name in names if "-cloud-" not in name and "-rt-" not in name]
        return max(names, key=_by_numbers, default=None)

    def newest_series(self) -> str:
        """Return the newest series that there is a cloud kernel of."""
        found = re.findall(rf"^linux-image-(\d+\.\d+)\.\S+-cloud-{self.architecture}$", self._names(), re.MULTILINE)
        return str(max(found, key=_by_numbers))

    def download(self, *names: str) -> list[Path]:
        """Download packages with all that they depend on; return the files."""
        wanted = ("install", "-y", "-qq", "--no-install-recommends", "-t", USERLAND, *names)
        self._apt("apt-get", "--download-only", *wanted)
        # apt prints where from it would get what it has not got already: with an empty cache, everything.
        listed = self._apt("apt-get", "-o", f"Dir::Cache::archives={self._folder / 'parts'}", "--print-uris", *wanted)
        archives = self._folder / "cache" / "archives"
        return [archives / line.split()[1] for line in listed.splitlines() if line.startswith("'")]

    def headers(self, package: str) -> list[Path]:
        """Download the headers of a kernel package, without what it takes to build modules; return the files."""
        name = package.replace("linux-image-", "linux-headers-")
        common = re.sub(rf"(-cloud|-rt)?-{self.architecture}$", "-common", name)
        folder = self._folder / "headers"
        folder.mkdir(exist_ok=True)
        if len(list(folder.glob(f"{name}_*.deb"))) == 0:
            self._apt("apt-get", "download", "-qq", name, common, cwd=folder)
        return [*folder.glob(f"{name}_*.deb"), *folder.glob(f"{common}_*.deb")]

    def vmlinuz(self, package: str) -> Path:
        """Download a kernel package and return its kernel."""
        kernel = self._folder / "vmlinuz" / package
        if not kernel.exists():
            kernel.parent.mkdir(exist_ok=True)
            apart = package.replace("linux-image-", "linux-binary-")  # from 7.2 on
            holder = apart if apart in self._names("linux-binary-").split() else package
            archive = self._one(holder, kernel.parent)
            kernel.write_bytes(_member(archive, "*/vmlinuz*"))
            archive.unlink()
        return kernel

    def modules(self, package: str, names: Sequence[str]) -> dict[str, Path]:
        """Download a kernel package and return those of its modules that it has, unpacked."""
        wanted = hashlib.sha256(" ".join(names).encode()).hexdigest()[:8]
        folder = self._folder / "modules" / f"{package}-{wanted}"
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            partial.mkdir(parents=True, exist_ok=True)
            apart = package.replace("linux-image-", "linux-modules-")  # from 7.2 on
            holder = apart if apart in self._names("linux-modules-").split() else package
            archive = self._one(holder, partial)
            for name in names:
                with suppress(subprocess.CalledProcessError):  # it is built in, or of another kernel
                    (partial / f"{name}.ko").write_bytes(_unpacked(_member(archive, f"*/{name}.ko*")))
            archive.unlink()
            partial.rename(folder)
        return {name: folder / f"{name}.ko" for name in names if (folder / f"{name}.ko").exists()}

    def _one(self, package: str, folder: Path) -> Path:
        """Download a package, and nothing that it depends on."""
        self._apt("apt-get", "download", "-qq", package, cwd=folder)
        (archive,) = folder.glob(f"{package}_*.deb")
        return archive

    def _names(self, beginning: str = "linux-image-") -> str:
        return self._apt("apt-cache", "pkgnames", beginning)

    def _apt(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        settings = {
            "Dir::State::lists": self._folder / "lists",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder / "cache",
            "Dir::Etc::sourcelist": self._folder / "sources.list",
            "Dir::Etc::sourceparts": self._folder / "parts",
            "Dir::Etc::preferencesparts": self._folder / "parts",
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::Retries": 3,
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        done = subprocess.run([program, *options, *arguments], cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the files of a package."""
    subprocess.run(["dpkg-deb", "--extract", str(archive), str(folder)], check=True)


def _member(archive: Path, pattern: str) -> bytes:
    """Return the one file of a package whose name matches."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as package:
        done = subprocess.run(
            ["tar", "--extract", "--to-stdout", "--wildcards", pattern],
            stdin=package.stdout,
            capture_output=True,
            check=True,
        )
    return done.stdout


def _unpacked(module: bytes) -> bytes:
    return lzma.decompress(module) if module[:6] == b"\xfd7zXZ\0" else module


def _by_numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]
