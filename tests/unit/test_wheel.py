"""The wheel and the sdist: everything that running needs is inside, and nothing else."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

FOLDERS = {"netprof": "netprof", "probes": "netprof/probes", "analysis": "netprof/analysis"}
LEFT_OUT = {"netprof/probes/build.py"}
LIBC = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux")
BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("clang") or not shutil.which("cc"), reason="building the wheel needs clang and cc (make test)"
    ),
]


def build(kind: str, source: Path, target: Path) -> Path:
    """Run the build backend on a source tree, as pip does."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout without anything built, links kept as links."""
    target = tmp_path_factory.mktemp("source") / "netprof"
    built = shutil.ignore_patterns(".*", "build", "dist", "out", "*.egg-info", "*.o", "*.so*", "tests")
    shutil.copytree(checkout, target, symlinks=True, ignore=built)
    shutil.rmtree(target / "probes" / "kernel" / "native" / "licenses", ignore_errors=True)
    return target


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def run_installed(installed: Path, code: str) -> str:
    """Run Python code that sees this wheel's netprof and no compiler."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PATH": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_netprof_lands_in_site_packages(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in names(wheel)}
    assert tops == {"netprof", next(top for top in tops if top.endswith(".dist-info"))}


def test_every_module_is_in_it(source: Path, wheel: Path) -> None:
    modules = {
        f"{package}/{path.relative_to(source / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (source / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    }
    assert "netprof/probes/kernel/loader.py" in modules
    assert {name for name in names(wheel) if name.endswith(".py")} == modules - LEFT_OUT
    assert "netprof/py.typed" in names(wheel)


def test_it_is_for_this_kind_of_machine_and_any_python(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-linux_{platform.machine()}.whl")
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
    assert b"Root-Is-Purelib: false" in archive.read(metadata)


def test_every_bpf_program_is_compiled_and_relocatable(source: Path, installed: Path) -> None:
    programs = sorted(path.relative_to(source) for path in (source / "probes").glob("*/*.bpf.c"))
    assert programs
    for program in programs:
        with open(installed / "netprof" / program.with_suffix(".o"), "rb") as file:
            elf = ELFFile(file)
            sections = {section.name for section in elf.iter_sections()}
            assert elf.header.e_machine == "EM_BPF"
            assert {".BTF", ".BTF.ext"} <= sections
            types = elf.get_section_by_name(".BTF")
            assert types is not None
            assert str(source).encode() not in types.data()
            if shutil.which("llvm-strip"):
                assert ".debug_info" not in sections


def test_the_native_libraries_need_only_each_other_and_libc(installed: Path) -> None:
    folder = installed / "netprof" / "probes" / "kernel" / "native"
    bundled = {path.name for path in folder.glob("*.so*")}
    assert "libnetprof.so" in bundled
    for name in bundled:
        with open(folder / name, "rb") as file:
            dynamic = ELFFile(file).get_section_by_name(".dynamic")
            assert isinstance(dynamic, DynamicSection)
            tags: list[Any] = list(dynamic.iter_tags())
        needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
        assert {other for other in needed - bundled if not other.startswith(LIBC)} == set()
        if name == "libnetprof.so":
            assert [tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"] == ["$ORIGIN"]


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="the notices of bundled libraries come from dpkg")
def test_bundled_libraries_bring_their_licences(installed: Path) -> None:
    folder = installed / "netprof" / "probes" / "kernel" / "native"
    notices = {path.name for path in (folder / "licenses").iterdir() if path.stat().st_size}
    for name in ("libbpf", "libelf", "zlib"):
        assert any(notice.startswith(name) for notice in notices)
    bundled = len(list(folder.glob("*.so*"))) - 1  # all but our own
    assert len(notices - {"BUNDLED.txt"}) == bundled
    assert (folder / "licenses" / "BUNDLED.txt").read_text().count(".so") >= bundled


def test_its_licences_come_with_it(wheel: Path, sdist: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))).decode()
    assert "License-Expression: Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause) AND (LGPL-2.1-only OR BSD" in metadata
    assert "AND (LGPL-3.0-or-later OR GPL-2.0-or-later) AND Zlib\n" in metadata
    with tarfile.open(sdist) as source:
        for name in ("LICENSE", "NOTICE", "licenses/LGPL-3.txt", "licenses/GPL-2.txt"):
            assert any(path.endswith(f".dist-info/licenses/{name}") for path in archive.namelist())
            assert f"{sdist.name.removesuffix('.tar.gz')}/{name}" in source.getnames()


def test_what_runs_in_the_kernel_says_its_licence(source: Path) -> None:
    files = list((source / "probes").rglob("*.[ch]"))
    assert files
    for path in files:
        assert "SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause" in path.read_text().partition("\n")[0], path


def test_it_loads_its_own_libbpf_without_a_compiler(installed: Path) -> None:
    code = "from netprof.probes.kernel.libbpf import libbpf; libbpf(); print(open('/proc/self/maps').read())"
    loaded = {line.split()[-1] for line in run_installed(installed, code).splitlines() if ".so" in line}
    for name in ("libnetprof.so", "libbpf.so.1", "libelf.so.1"):
        assert str(installed / "netprof" / "probes" / "kernel" / "native" / name) in loaded


def test_starting_the_program_imports_nothing_heavy(installed: Path) -> None:
    code = "import sys, netprof.cli.main; print(*sorted({'pandas', 'pyarrow', 'numpy'} & set(sys.modules)))"
    assert not {"pandas", "pyarrow"} & set(run_installed(installed, code).split())


def test_no_links(wheel: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if not (member.isfile() or member.isdir())]
    modes = {info.filename: info.external_attr >> 16 for info in zipfile.ZipFile(wheel).infolist()}
    assert not [name for name, mode in modes.items() if mode & 0o170000 == 0o120000]


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    folder = next(path for path in tmp_path.iterdir() if path.is_dir())
    assert names(build("wheel", folder, tmp_path)) == names(wheel)


def test_a_missing_compiler_is_one_line_that_says_what_to_install(source: Path, tmp_path: Path) -> None:
    for tool in ("cc", "as", "ld"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/nonexistent")
    command = [sys.executable, "probes/build.py"]
    done = subprocess.run(command, cwd=source, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "needs clang" in done.stderr
    assert "apt-get install clang" in done.stderr
