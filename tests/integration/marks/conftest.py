"""The toy program compiled, running ones, and both ways to attach to them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kernel import kernel_release
from support.toys import BEGIN, PROGRAMS, X86, Toy, toy

from netprof.probes.marks.probe import MarkProbe


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    cc = ["gcc", "-O0", "-g0"] + (["-fcf-protection=none"] if X86 else [])
    library, program = str(PROGRAMS / "toy.c"), str(PROGRAMS / "toy_main.c")
    subprocess.run([*cc, "-shared", "-fPIC", library, "-o", folder / "libtoy.so"], check=True)
    subprocess.run([*cc, program, "-o", folder / "toy", "-ldl", "-lpthread"], check=True)
    static = [*cc, "-DTOY_STATIC", program, library, "-lpthread", "-o"]
    subprocess.run([*static, folder / "libtoy-in-program.so"], check=True)
    return folder


@pytest.fixture
def toys(built: Path) -> Iterator[list[Toy]]:
    running: list[Toy] = []
    yield running
    for each in running:
        assert each.end() == 0, "the program did not survive being probed"


@pytest.fixture(params=["uprobe_multi", "perf events"])
def multi(request: pytest.FixtureRequest) -> bool:
    wanted = bool(request.param == "uprobe_multi")
    if wanted:
        if kernel_release() < (6, 10):
            pytest.skip("uprobe_multi filters by process from Linux 6.10 on")
        with MarkProbe(frameworks=toy(BEGIN)) as probe:
            assert "uprobe_multi" in probe.method
    return wanted
