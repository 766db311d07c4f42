"""The wheel of this checkout for another kind of machine, compiled here against Debian's libraries for it.

    PYTHONPATH=.:tests python -m kernels.wheel aarch64 FOLDER

Needs a cross compiler (aarch64-linux-gnu-gcc) and clang. Raises CalledProcessError where one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kernels.debian import Debian, unpack

TOP = Path(__file__).resolve().parents[2]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def build_wheel(machine: str, debian: Debian, folder: Path) -> Path:
    """Build the wheel for a machine (x86_64, aarch64) into `folder`; its platform is linux_MACHINE."""
    with tempfile.TemporaryDirectory(prefix="netprof-wheel-") as place:
        root, source = Path(place, "root"), Path(place, "source")
        source.mkdir()
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["cpio", "--quiet", "--null", "-pd", str(source)], cwd=TOP, input=tracked, check=True)
        for archive in debian.download("libbpf-dev"):
            if archive.name.startswith(("libbpf", "libelf", "zlib1g")):
                unpack(archive, root)
                _register(archive, root / "var" / "lib" / "dpkg")
        libraries = [root / top / f"{machine}-linux-gnu" for top in ("usr/lib", "lib")]
        flags = [f"-L{each}" for each in libraries] + [f"-Wl,-rpath-link={':'.join(map(str, libraries))}"]
        environment = os.environ | {
            "CC": f"{machine}-linux-gnu-gcc",
            "LDFLAGS": " ".join(flags),
            "DPKG_ADMINDIR": str(root / "var" / "lib" / "dpkg"),
        }
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--wheel-dir", str(folder), str(source)], env=environment, check=True)
    (wheel,) = folder.glob(f"*linux_{machine}.whl")
    return wheel


def _register(archive: Path, known: Path) -> None:
    """Write down what a package is and which files are its own, where dpkg-query looks."""

    def said(option: str) -> str:
        return subprocess.run(["dpkg-deb", option, str(archive)], capture_output=True, text=True, check=True).stdout

    (known / "info").mkdir(parents=True, exist_ok=True)
    (known / "info" / "format").write_text("1\n")
    with (known / "status").open("a") as status:
        status.write(f"Status: install ok installed\n{said('--field').rstrip()}\n\n")
    name, _, architecture = archive.stem.split("_")
    files = [line.split(maxsplit=5)[5].split(" -> ")[0][1:].rstrip("/") for line in said("--contents").splitlines()]
    (known / "info" / f"{name}:{architecture}.list").write_text("".join(f"{file or '/.'}\n" for file in files))


if __name__ == "__main__":
    print(build_wheel(sys.argv[1], Debian(ARCHITECTURES[sys.argv[1]]), Path(sys.argv[2])))
