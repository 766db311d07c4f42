"""A machine under QEMU, without KVM: a kernel, Debian's Python, numpy, Arrow, and netprof as it is in this checkout."""

from __future__ import annotations

import gzip
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from kernels.debian import CACHE, Debian, unpack
from kernels.wheel import TOP, build_wheel

_PYTHON = "3.11"  # of Debian's suite
_PACKAGES = ("python3", "libbpf1", "libstdc++6", "busybox-static")
_WHEELS = (f"numpy=={np.__version__}", f"pyarrow=={pa.__version__}")
_NEEDLESS = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/lib/python3/dist-packages")
_LONGEST_S = 600
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tracefs tracefs /sys/kernel/tracing
/bin/busybox ip link set lo up
[ ! -e /hide-types ] || /bin/busybox mount -t tmpfs none /sys/kernel/btf
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in check=*) check=${word#*=} ;; esac
done
PYTHONPATH=/app:/site /usr/bin/python3 -S /app/$check 2>&1
/bin/busybox poweroff -f
"""


@dataclass(frozen=True)
class Machine:
    """A kind of machine, by its names: Debian's, Python's, and how QEMU is called for one."""

    debian: str
    name: str
    console: str
    qemu: tuple[str, ...]


_ONE_THREAD = ("-accel", "tcg,thread=single")
"""How a machine's CPUs take turns. With a thread each, Linux 6.12 under QEMU 7.2 panics (int3, at a jump it patches)
where tracepoints are switched on and off under load, by tracefs alone too (`toggling`)."""
AMD64 = Machine("amd64", "x86_64", "ttyS0", ("qemu-system-x86_64", "-cpu", "Nehalem", *_ONE_THREAD))
ARM64 = Machine("arm64", "aarch64", "ttyAMA0", ("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a57"))


class Guest:
    """What boots on a kind of machine. The part that is not netprof's is kept between runs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.debian = Debian(machine.debian)
        self._folder = tempfile.TemporaryDirectory(prefix="netprof-kernels-")
        self.folder = Path(self._folder.name)
        system = CACHE / f"system-{machine.debian}-{'-'.join((*_PACKAGES, *_WHEELS))}.cpio"
        if not system.exists():
            self._make_system(system)
        self._archives = [system.read_bytes(), self._netprof()]

    def prepare(self, image: Path, *more: bytes) -> tuple[Path, Path]:
        """Return the files of a kernel's `image` and of what it unpacks: the system, netprof, and `more` archives."""
        kernel, initrd = self.folder / "vmlinuz", self.folder / "initrd"
        kernel.write_bytes(_bootable(image.read_bytes()))
        with initrd.open("wb") as file:  # the kernel unpacks one archive after the other
            file.writelines([*self._archives, *more])
        return kernel, initrd

    def boot(
        self, files: tuple[Path, Path], *qemu: str, check: str = "check.py", memory_mb: int = 2500, words: str = ""
    ) -> Iterator[str]:
        """Boot what was prepared, and yield the lines of its console as they come, without their ends.

        It runs `check`. More arguments of QEMU, and words for the kernel's command line, may be given.
        """
        kernel, initrd = files
        command = [
            *("timeout", str(_LONGEST_S), *self.machine.qemu, "-m", str(memory_mb), "-smp", "2"),
            *("-nographic", "-no-reboot", "-nic", "none", "-kernel", str(kernel), "-initrd", str(initrd)),
            *("-append", f"console={self.machine.console} quiet panic=-1 check={check} {words}", *qemu),
        ]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield line.decode(errors="replace").strip("\r\n")

    def close(self) -> None:
        """Remove what is not kept."""
        self._folder.cleanup()

    def _make_system(self, target: Path) -> None:
        """Put together what netprof runs on."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder)
            for name in ("proc", "sys", "dev", "tmp", "site", "app"):
                (root / name).mkdir()
            self._unpack(self.debian.download(*_PACKAGES), root)
            _wheels(self.machine, root / "site", *_WHEELS)
            partial = target.with_suffix(".partial")
            partial.write_bytes(_cpio(root))
            partial.replace(target)

    def headers(self, package: str) -> bytes:
        """Return bcc and the headers of a kernel as an archive that hides the kernel's type information."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder)
            self._unpack([*self.debian.download("python3-bpfcc"), *self.debian.headers(package)], root, _NEEDLESS[:-1])
            (root / "hide-types").touch()
            return _cpio(root)

    def programs(self, *packages: str) -> bytes:
        """Return packages with all that they depend on, as an archive."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            self._unpack(self.debian.download(*packages), Path(folder))
            return _cpio(Path(folder))

    def modules(self, package: str, *names: str) -> bytes:
        """Return those modules that a kernel has, as an archive, with a file that says in which order to load them."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder) / "modules"
            root.mkdir()
            found = self.debian.modules(package, names)
            for file in found.values():
                shutil.copy(file, root)
            (root / "order").write_text(" ".join(found))
            return _cpio(Path(folder))

    def libraries(self, *names: str) -> bytes:
        """Return packages of PyPI with all that they depend on, for the guest's Python, as an archive."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            _wheels(self.machine, Path(folder) / "site", *names)
            return _cpio(Path(folder))

    def _unpack(self, archives: Iterable[Path], root: Path, needless: Iterable[str] = _NEEDLESS) -> None:
        """Unpack Debian's packages, as its init would have merged their folders."""
        for archive in archives:
            unpack(archive, root)
        for name in needless:
            shutil.rmtree(root / name, ignore_errors=True)
        for name in ("bin", "sbin", "lib"):
            _merge(root / name, root / "usr" / name)

    def _netprof(self) -> bytes:
        """Return this checkout as an archive, with what runs it: for another kind of machine a wheel, unpacked."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder) / "root"
            app = root / "app"
            app.mkdir(parents=True)
            if self.machine.name == platform.machine():
                shutil.copytree(TOP / "netprof", app / "netprof", ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.unpack_archive(build_wheel(self.machine.name, self.debian, Path(folder)), app, "zip")
            for check in (TOP / "tests" / "kernels").glob("check*.py"):
                shutil.copy(check, app)
            init = root / "init"
            init.write_text(INIT)
            init.chmod(0o755)
            return _cpio(root)


def _wheels(machine: Machine, target: Path, *names: str) -> None:
    """Unpack the wheels of packages and of what they depend on, without their tests and what compiles against them."""
    platforms = [f"--platform=manylinux{tag}_{machine.name}" for tag in ("2014", "_2_27", "_2_28")]
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--target",
                str(target),
            ),
            *("--only-binary=:all:", f"--python-version={_PYTHON}", *platforms, *names),
        ],
        check=True,
    )
    for name in ("tests", "include"):
        for needless in list(target.rglob(name)):
            shutil.rmtree(needless)


def _merge(old: Path, new: Path) -> None:
    """Move the files of one folder to another and leave a link."""
    if old.is_symlink() or not old.exists():
        return
    new.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{old}/.", str(new)], check=True)
    shutil.rmtree(old)
    old.symlink_to(f"usr/{new.name}")


def _cpio(folder: Path) -> bytes:
    """Return a folder's files as the kernel unpacks them."""
    names = "\0".join(_below(folder))
    done = subprocess.run(
        ["cpio", "--quiet", "--null", "--owner=+0:+0", "-o", "-H", "newc"],
        input=names.encode(),
        cwd=folder,
        capture_output=True,
        check=True,
    )
    return done.stdout


def _below(folder: Path) -> Iterable[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _bootable(image: bytes) -> bytes:
    """Take the kernel out of an EFI program that unpacks itself: QEMU does not run it."""
    if image[:2] != b"MZ" or image[4:8] != b"zimg":
        return image
    start, size = (int.from_bytes(image[at : at + 4], "little") for at in (8, 12))
    payload, packer = image[start : start + size], image[24:32].rstrip(b"\0")
    if packer == b"gzip":
        return gzip.decompress(payload)
    return subprocess.run([packer.decode(), "-dc"], input=payload, capture_output=True, check=True).stdout
