"""A machine under QEMU, without KVM: a kernel, Debian's Python, numpy, and netprof as it is in this checkout."""

from __future__ import annotations

import gzip
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kernels.debian import CACHE, Debian, unpack

TOP = Path(__file__).resolve().parents[2]
_PYTHON = "3.11"  # of Debian's suite
_PACKAGES = ("python3", "libbpf1", "libstdc++6", "busybox-static")
_NEEDLESS = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/lib/python3/dist-packages")
_LONGEST_S = 600
_RDMA_PACKAGES = ("perftest", "rdma-core", "ibverbs-providers", "iproute2")
_RDMA_MODULES = (  # in this order; that crc32_generic is needed, no module says
    *("crc32_generic", "udp_tunnel", "ip6_udp_tunnel", "ib_core", "ib_uverbs", "rdma_rxe"),
    *("configfs", "ib_cm", "iw_cm", "rdma_cm", "rdma_ucm", "veth"),
)
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tracefs tracefs /sys/kernel/tracing
/bin/busybox ip link set lo up
[ ! -e /hide-types ] || /bin/busybox mount -t tmpfs none /sys/kernel/btf
check=check.py
[ ! -e /modules ] || check=check_rdma.py
PYTHONPATH=/app:/site /usr/bin/python3 -S /app/$check 2>&1
/bin/busybox poweroff -f
"""


@dataclass(frozen=True)
class Machine:
    """A kind of machine, by its names: Debian's, Python's, and how QEMU is called for one."""

    debian: str
    name: str
    compiler: str
    console: str
    qemu: tuple[str, ...]


AMD64 = Machine("amd64", "x86_64", "x86_64-linux-gnu-gcc", "ttyS0", ("qemu-system-x86_64", "-cpu", "Nehalem"))
ARM64 = Machine(
    "arm64", "aarch64", "aarch64-linux-gnu-gcc", "ttyAMA0", ("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a57")
)


class Guest:
    """What boots on a kind of machine. The part that is not netprof's is kept between runs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.debian = Debian(machine.debian)
        self._folder = tempfile.TemporaryDirectory(prefix="netprof-kernels-")
        self._initrd = Path(self._folder.name) / "initrd"
        system = CACHE / f"system-{machine.debian}-{'-'.join(_PACKAGES)}-numpy-{np.__version__}.cpio"
        if not system.exists():
            self._make_system(system)
        with self._initrd.open("wb") as file:  # the kernel unpacks one archive after the other
            file.write(system.read_bytes())
            file.write(self._netprof())

    def boot(self, package: str, *, hide_types: bool = False, rdma: bool = False) -> Iterator[str]:
        """Boot a kernel and yield the lines of its console as they come; no line ends in a carriage return.

        With `hide_types` its type information is not to be seen, but bcc and the kernel's headers are there; with
        `rdma` there is soft-RoCE, and `received` is what the guest writes to its second serial line.
        """
        initrd, memory = self._initrd, "3000" if hide_types else "1500"
        if hide_types:
            initrd = Path(self._folder.name) / "initrd-headers"
            initrd.write_bytes(self._initrd.read_bytes() + self._headers(package))
        if rdma:
            initrd = Path(self._folder.name) / "initrd-rdma"
            initrd.write_bytes(self._initrd.read_bytes() + self._rdma(package))
        kernel = Path(self._folder.name) / "vmlinuz"
        kernel.write_bytes(_bootable(self.debian.vmlinuz(package).read_bytes()))
        command = [
            *(
                *self.machine.qemu,
                "-m",
                memory,
                "-smp",
                "2",
                "-nographic",
                "-no-reboot",
                "-nic",
                "none",
            ),
            *(("-serial", "mon:stdio", "-serial", f"file:{self.received}") if rdma else ()),
            *("-kernel", str(kernel), "-initrd", str(initrd)),
            *("-append", f"console={self.machine.console} quiet panic=-1"),
        ]
        command = ["timeout", str(_LONGEST_S), *command]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as qemu:
            assert qemu.stdout is not None
            for line in qemu.stdout:
                yield line.decode(errors="replace").strip("\r\n")

    @property
    def received(self) -> Path:
        """The file that holds what the guest wrote to its second serial line."""
        return Path(self._folder.name) / "received"

    def close(self) -> None:
        """Remove what is not kept."""
        self._folder.cleanup()

    def _make_system(self, target: Path) -> None:
        """Put together what netprof runs on."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder)
            for name in ("proc", "sys", "dev", "tmp", "site", "app"):
                (root / name).mkdir()
            for archive in self.debian.download(*_PACKAGES):
                unpack(archive, root)
            for name in _NEEDLESS:
                shutil.rmtree(root / name, ignore_errors=True)
            for name in ("bin", "sbin", "lib"):  # as Debian's init would have merged them
                _merge(root / name, root / "usr" / name)
            _numpy(self.machine, root / "site")
            partial = target.with_suffix(".partial")
            partial.write_bytes(_cpio(root))
            partial.replace(target)

    def _headers(self, package: str) -> bytes:
        """Return bcc and the headers of a kernel as an archive."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder)
            for archive in [*self.debian.download("python3-bpfcc"), *self.debian.headers(package)]:
                unpack(archive, root)
            for name in _NEEDLESS[:-1]:
                shutil.rmtree(root / name, ignore_errors=True)
            for name in ("bin", "sbin", "lib"):
                _merge(root / name, root / "usr" / name)
            (root / "hide-types").touch()
            return _cpio(root)

    def _rdma(self, package: str) -> bytes:
        """Return soft-RoCE's modules of a kernel and the programs to use it with, as an archive."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            root = Path(folder)
            for archive in self.debian.download(*_RDMA_PACKAGES):
                unpack(archive, root)
            for name in _NEEDLESS:
                shutil.rmtree(root / name, ignore_errors=True)
            for name in ("bin", "sbin", "lib"):
                _merge(root / name, root / "usr" / name)
            (root / "modules").mkdir()
            found = self.debian.modules(package, _RDMA_MODULES)
            for file in found.values():
                shutil.copy(file, root / "modules")
            (root / "modules" / "order").write_text(" ".join(found))
            return _cpio(root)

    def _netprof(self) -> bytes:
        """Return this checkout, compiled for the machine, as an archive, with what runs it."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            app = Path(folder) / "app"
            shutil.copytree(TOP / "netprof", app / "netprof", ignore=shutil.ignore_patterns("__pycache__", "views"))
            for name in ("check.py", "check_rdma.py"):
                shutil.copy(TOP / "tests" / "kernels" / name, app)
            if self.machine.name != platform.machine():
                self._cross_compile(app / "netprof" / "probes")
            init = Path(folder) / "init"
            init.write_text(INIT)
            init.chmod(0o755)
            return _cpio(Path(folder))

    def _cross_compile(self, probes: Path) -> None:
        """Compile the programs and the native library for the machine, against its libbpf."""
        with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
            for archive in self.debian.download("libbpf-dev"):
                if archive.name.startswith(("libbpf", "libelf", "zlib1g")):
                    unpack(archive, Path(folder))
            name = f"{self.machine.name}-linux-gnu"
            flags = f"-L{folder}/usr/lib/{name} -Wl,-rpath-link={folder}/usr/lib/{name}:{folder}/lib/{name}"
            environment = {**os.environ, "CC": self.machine.compiler, "LDFLAGS": flags}
            shutil.rmtree(probes / "kernel" / "native")
            script = str(TOP / "probes" / "build.py")
            subprocess.run([sys.executable, script, str(probes)], env=environment, check=True)


def _numpy(machine: Machine, target: Path) -> None:
    """Unpack the wheel of numpy, of the version that is here."""
    platforms = [f"--platform=manylinux{tag}_{machine.name}" for tag in ("2014", "_2_27", "_2_28")]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--target", str(target), "--only-binary=:all:", f"--python-version={_PYTHON}", *platforms),
            f"numpy=={np.__version__}",
        ],
        check=True,
    )
    for tests in list(target.rglob("tests")):
        shutil.rmtree(tests)


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
