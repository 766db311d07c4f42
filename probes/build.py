"""How netprof is built: BPF programs by clang, the native library by cc, both shipped inside the wheel.

setuptools finds the two commands through pyproject.toml. `python probes/build.py` builds into the checkout instead, or
into the folder that it is given. CC names the compiler, and with it the machine to build for; CFLAGS and LDFLAGS say
where that machine's libbpf is:

    CC=aarch64-linux-gnu-gcc LDFLAGS=-L/arm64/usr/lib/aarch64-linux-gnu python probes/build.py FOLDER
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import find_packages
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, PlatformError

HERE = Path(__file__).resolve().parent
NATIVE = Path("kernel", "native")
PACKAGES = "clang llvm libbpf-dev libelf-dev zlib1g-dev gcc libc6-dev"
PACKAGES_OF_DNF = "clang llvm libbpf-devel elfutils-libelf-devel zlib-devel gcc glibc-devel"
_BUNDLED = """Libraries that this wheel bundles, unmodified, as the system that built it has them.

libbpf: LGPL-2.1 or BSD-2-Clause. libelf (elfutils): LGPL-3.0-or-later or GPL-2.0-or-later. zlib: Zlib licence.
libzstd, where libelf needs it: BSD-3-Clause. The full texts are beside netprof's own licence in the wheel's metadata
(licenses/). The sources of exactly these versions lie beside every release of netprof (`make release` gets them), and
where the lines below say. Any of these files may be replaced by another build of the same library: netprof loads them
by name from this folder.
"""
_THIS_MODULE = ("netprof.probes", "build")
_TARGET_ARCH = {"x86_64": "x86", "aarch64": "arm64"}
_PART_OF_LIBC = ("ld-linux", "libc.", "libdl.", "libgcc_s.", "libm.", "libpthread.", "librt.")


class BuildWithBpf(build_py):
    """`build_py` that also compiles the BPF programs and the native library into the package."""

    def finalize_options(self) -> None:
        """Take every package of the tree: a new measurement need not be named anywhere."""
        super().finalize_options()
        folders = {"netprof": "netprof", **(self.distribution.package_dir or {})}
        below = {f"{top}.{name}" for top, folder in folders.items() for name in find_packages(folder)}
        self.packages = sorted(folders.keys() | below)

    def run(self) -> None:
        """Copy the Python modules, then compile (beside the sources for an editable install)."""
        super().run()
        build(HERE if self.editable_mode else Path(self.build_lib) / "netprof" / "probes")

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return (package, module, file) of each module; without this one, except for an sdist."""
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)  # type: ignore[no-untyped-call]
        return [module for module in modules if module[:2] != _THIS_MODULE or "sdist" in self.distribution.commands]


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on one kind of machine: compiled, but not against Python."""

    def finalize_options(self) -> None:
        """Install as platform-dependent although no module is a Python extension."""
        self.distribution.has_ext_modules = lambda: True  # type: ignore[method-assign]
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel's tag: py3-none-PLATFORM, of the machine that is built for."""
        return "py3", "none", f"linux_{_machine()}"


def build(target: Path) -> None:
    """Compile each measurement's programs, and the library, into their folders of `target`.

    Raises PlatformError or CompileError, each one line.
    """
    _check_tools()
    target = target.resolve()  # clang runs in the folder of its source
    for source in sorted(HERE.glob("*/*.bpf.c")):
        _compile_bpf(source, target / source.parent.name / f"{source.stem}.o")
    library = target / NATIVE / "libnetprof.so"
    _compile_library(sorted((HERE / NATIVE).glob("*.c")), library)
    _bundle_dependencies(library)


def _check_tools() -> None:
    missing = [tool for tool in ("clang", _cc()[0]) if not shutil.which(tool)]
    if not missing and not _find_library("libbpf.so").is_absolute():
        missing = ["libbpf.so"]
    if missing:
        how = f"apt-get install {PACKAGES}, or dnf install {PACKAGES_OF_DNF}"
        raise PlatformError(f"building netprof needs {', '.join(missing)}: {how}")
    if _machine() not in _TARGET_ARCH:
        raise PlatformError(f"netprof runs on {' and '.join(_TARGET_ARCH)}, not on {_machine()}")


def _cc() -> list[str]:
    """Return the compiler and its options."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def _machine() -> str:
    """Return the machine that is built for."""
    return _output(*_cc(), "-dumpmachine").partition("-")[0]


def _flags(name: str) -> list[str]:
    return shlex.split(os.environ.get(name, ""))


def _find_library(name: str) -> Path:
    """Return where the linker finds a library: its name alone where it does not."""
    folders = [f"-B{flag.removeprefix('-L')}" for flag in _flags("LDFLAGS") if flag.startswith("-L")]
    return Path(_output(*_cc(), *folders, f"-print-file-name={name}"))


def _compile_bpf(source: Path, target: Path) -> None:
    """Compile one program for the BPF machine, with BTF (for CO-RE) but without DWARF, which is 20 times larger."""
    flags = ["-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{_TARGET_ARCH[_machine()]}"]
    # The paths in the object are relative, so that it does not depend on where it was built.
    flags += [f"-fdebug-prefix-map={source.parent}=.", *_multiarch_include()]
    with _replacing(target) as output:
        _run("clang", *flags, "-c", source.name, "-o", str(output), cwd=source.parent)
        if strip := shutil.which("llvm-strip"):
            _run(strip, "-g", str(output))


def _multiarch_include() -> list[str]:
    """Return where Debian keeps the machine's <asm/types.h>, which clang does not search when the target is BPF."""
    multiarch = _output(*_cc(), "-print-multiarch")
    folders = (
        (f"/usr/include/{multiarch}", f"/usr/{multiarch}/include") if multiarch else ()
    )  # the second for a cross compiler
    return [word for folder in folders for word in ("-idirafter", folder)]


def _compile_library(sources: list[Path], target: Path) -> None:
    """Link our C against libbpf, which is then looked for beside it (libbpf.a is not PIC on Debian)."""
    with _replacing(target) as output:
        _run(
            *(*_cc(), "-shared", "-fPIC", "-O2", "-Wall", *_flags("CFLAGS"), "-o", str(output), *map(str, sources)),
            # Old-style tags: RPATH, unlike RUNPATH, also holds for what libbpf itself needs.
            *(*_flags("LDFLAGS"), "-lbpf", "-pthread", "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags", "-Wl,-s"),
        )


def _bundle_dependencies(library: Path) -> None:
    """Copy what the library needs beyond libc (libbpf, libelf, libz, ...), and write down what each is and its sources.

    Of the machine that is built for, not of this one. Raises PlatformError where one of them is missing.
    """
    notices = library.parent / "licenses"
    notices.mkdir(exist_ok=True)
    lines = []
    for needed in sorted(_needed_by(library).values()):
        with _replacing(library.parent / needed.name) as output:
            shutil.copyfile(needed, output)
        digest = hashlib.sha256(needed.read_bytes()).hexdigest()
        lines.append(f"{needed.name}  {_origin(needed, notices)}  sha256 {digest}")
    with _replacing(notices / "BUNDLED.txt") as output:
        output.write_text("\n".join((_BUNDLED, *lines, "")))


def _needed_by(library: Path) -> dict[str, Path]:
    """Return where the libraries are that one needs beyond libc, and those that they need."""
    needed: dict[str, Path] = {}
    left = [library]
    while left:
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _output("readelf", "-d", str(left.pop()))):
            if name not in needed and not name.startswith(_PART_OF_LIBC):
                needed[name] = _find_library(name)
                left.append(needed[name])
    if missing := [name for name, path in needed.items() if not path.is_absolute()]:
        raise PlatformError(f"the linker does not find {', '.join(missing)}, which the library needs")
    return needed


def _origin(library: Path, notices: Path) -> str:
    """Return the package and version that a file is of, and where its sources are; copy the package's own notice."""
    known = _output("dpkg-query", "-S", f"*/{library.parent.name}/{library.name}") if shutil.which("dpkg-query") else ""
    if package := known.partition(":")[0]:
        of_package = Path("usr", "share", "doc", package, "copyright")
        for notice in (top / of_package for top in library.resolve().parents):
            if notice.is_file():
                shutil.copyfile(notice, notices / f"{package}.txt")
        form = "${source:Package} ${source:Version}\n"
        source, _, version = _output("dpkg-query", "-W", "-f", form, package).partition("\n")[0].partition(" ")
        return f"{package} {version}, sources: https://snapshot.debian.org/package/{source}/{version}/"
    if shutil.which("rpm"):
        source = _output("rpm", "-q", "--whatprovides", "--qf", "%{SOURCERPM}", f"/usr/lib64/{library.name}")
        return f"sources: {source}"
    return "of the system that built this wheel"


class _replacing:
    """A temporary file that becomes `target` at the end, so that no one ever loads half of it."""

    def __init__(self, target: Path) -> None:
        self.target = target
        target.parent.mkdir(parents=True, exist_ok=True)
        self.folder = tempfile.TemporaryDirectory(dir=target.parent)

    def __enter__(self) -> Path:
        return Path(self.folder.name) / self.target.name

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if kind is None:
            output = Path(self.folder.name) / self.target.name
            output.chmod(0o644)
            output.replace(self.target)
        self.folder.cleanup()


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _run(*argv: str, cwd: Path | None = None) -> None:
    """Run a compiler; what it says goes to stderr, as it is. Raises CompileError."""
    if subprocess.run(argv, cwd=cwd, check=False).returncode:
        raise CompileError(f"{Path(argv[0]).name} failed (see above): {' '.join(argv)}")


if __name__ == "__main__":
    try:
        build(Path(sys.argv[1]) if sys.argv[1:] else HERE)
    except (CompileError, PlatformError) as error:
        raise SystemExit(f"error: {error}") from None
