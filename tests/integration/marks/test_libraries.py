"""Which functions of which libraries the mark probe finds and attaches to, wherever those lie and whatever they are."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from support.toys import BEGIN, LARGE, X86, Toy, as_target, rows, start, toy

from netprof.errors import NetprofError
from netprof.probes.frameworks.table import Mark, Register
from netprof.probes.marks import plan
from netprof.probes.marks.costs import CLASSES
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, open_library
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the known program needs gcc to be compiled"),
]


@pytest.mark.core
def test_a_library_loaded_after_the_attach_is_found_by_attaching_again(toys: list[Toy], built: Path) -> None:
    program = Toy([str(built / "toy")])
    toys.append(program)
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([dataclasses.replace(as_target(program), frameworks=())])
        assert probe.attach(program.pid) == ()
        assert "libtoy*.so*" in probe.skipped[0].reason
        program.say(f"load {built / 'libtoy.so'}")
        program.say("call 3")
        assert probe.attach(program.pid) == probe.attach(program.pid) == ("toy",)
        program.say("call 4")
        assert [row[2] for row in rows(probe, MarkKind.DDP_FORWARD)] == [0, 1, 2, 3]
        assert probe.skipped == []
        assert len(probe.started) == 1


@pytest.mark.core
def test_a_library_of_a_launcher_or_helper_is_not_called_absent(toys: list[Toy], built: Path) -> None:
    helper = start(toys, built)
    none = Toy([str(built / "toy")])
    toys.append(none)
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([dataclasses.replace(as_target(none), frameworks=())])
        assert "no process of the job has the library" in probe.describe().skipped[0].reason
        probe.follow([dataclasses.replace(as_target(program), frameworks=()) for program in (none, helper)])
        (said,) = probe.describe().skipped
        assert f"only a launcher or a helper of the job ({helper.pid}) has the library" in said.reason
        assert helper.end() == 0
        assert probe.describe().skipped == (said,), "it had it"


@pytest.mark.core
def test_missing_and_ambiguous_functions_are_said_and_the_rest_recorded(toys: list[Toy], built: Path) -> None:
    missing = Mark(MarkKind.DDP_WAIT, "toy_never_was")
    twins = Mark(MarkKind.DDP_BACKWARD, "toy_twin_")
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(missing, BEGIN, twins)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4
        said = {skipped.name: skipped for skipped in probe.skipped}
        assert probe.started[0].detail.startswith("1 of 3 functions of libtoy.so")
    assert "no function toy_never_was" in said["marks:toy:ddp_wait"].reason
    assert "toy_twin_a, toy_twin_b" in said["marks:toy:ddp_backward"].reason
    assert all(skipped.remedy for skipped in said.values())


@pytest.mark.core
def test_versions_of_a_library_are_told_apart_by_what_they_have(toys: list[Toy], built: Path) -> None:
    older, newer = dataclasses.replace(BEGIN, until="toy_twin_a"), dataclasses.replace(BEGIN, until="toy_never_was")
    since = dataclasses.replace(LARGE, since="toy_twin_b")
    later = dataclasses.replace(LARGE, kind=MarkKind.DDP_WAIT, since="toy_never_was")
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(older, newer, since, later)) as probe:
        program.say("call 6")
        assert Counter(probe.drain()["marks"]["kind"].tolist()) == {
            MarkKind.DDP_FORWARD: 6,
            MarkKind.COLLECTIVE_SIZE: 6,
        }
        assert probe.skipped == []


@pytest.mark.core
@pytest.mark.skipif(not X86, reason="the functions with these first instructions are x86-64 assembly")
def test_first_instructions_that_are_dear_here(toys: list[Toy], built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "DEAR_NS", 500)  # less than any single-stepped one costs
    rare = Mark(MarkKind.DDP_FORWARD, "toy_slow", (Register(1),))
    frequent = Mark(MarkKind.GRADIENT_READY, "toy_slow", sampled=True)
    behind = Mark(MarkKind.BUCKET_LAUNCH, "toy_endbr", (Register(1),))
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(rare, frequent, behind)) as probe:
        program.say("call 3")
        table = probe.drain()["marks"]
        assert [skipped.name for skipped in probe.skipped] == ["marks:toy:gradient_ready"]
        assert len(probe.warnings) == 1
        assert re.search(r"this kernel single-steps: at least \d+\.\d µs a call \(48 89 f8", probe.warnings[0])
    assert Counter(table["kind"].tolist()) == {MarkKind.DDP_FORWARD: 3, MarkKind.BUCKET_LAUNCH: 3}
    for kind in (MarkKind.DDP_FORWARD, MarkKind.BUCKET_LAUNCH):
        assert table["arg0"][table["kind"] == kind].tolist() == [0, 1, 2]


@pytest.mark.core
@pytest.mark.skipif(not X86, reason="the functions with these first instructions are x86-64 assembly")
def test_first_instructions_that_are_not_dear_here(
    toys: list[Toy], built: Path, monkeypatch: pytest.MonkeyPatch, multi: bool
) -> None:
    """What is measured decides, not the kind of instruction."""
    monkeypatch.setattr(plan, "DEAR_NS", 1e9)
    frequent = Mark(MarkKind.GRADIENT_READY, "toy_slow", sampled=True)
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(frequent), multi=multi) as probe:
        program.say("call 3")
        assert probe.drain()["marks"]["kind"].tolist() == [MarkKind.GRADIENT_READY] * 3
        assert (probe.skipped, probe.warnings) == ([], [])
        costs = probe.costs.all()
    assert set(costs) == set(CLASSES["x86_64"])
    assert 0 < costs["push"] < costs["other"]


@pytest.mark.core
@pytest.mark.skipif(not X86, reason="the function that cannot be probed is x86-64 assembly")
def test_a_function_that_the_kernel_refuses_leaves_the_others(toys: list[Toy], built: Path, multi: bool) -> None:
    refused = Mark(MarkKind.DDP_WAIT, "toy_never")
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, refused, LARGE), multi=multi) as probe:
        program.say("call 3")
        assert (
            sorted(probe.drain()["marks"]["kind"].tolist())
            == [MarkKind.DDP_FORWARD] * 3 + [MarkKind.COLLECTIVE_SIZE] * 3
        )
        (skipped,) = probe.skipped
        assert skipped.name == "marks:toy:ddp_wait"
        assert "an instruction that cannot be probed" in skipped.reason
        assert probe.started[0].detail.startswith("2 of 3")


@pytest.mark.core
def test_symbols_of_a_program_without_dynamic_ones_and_none_at_all(toys: list[Toy], built: Path) -> None:
    whole, stripped = built / "libtoy-in-program.so", built / "libtoy-stripped.so"
    subprocess.run(["strip", "--strip-all", "-o", stripped, whole], check=True)
    for path in (whole, stripped):
        toys.append(Toy([str(path)]))
        toys[-1].say("call 1")
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        assert [probe.attach(each.pid) for each in toys] == [("toy",), ("toy",)]
        for each in toys:
            each.say("call 2")
        assert {row[0] for row in rows(probe, MarkKind.DDP_FORWARD)} == {toys[0].pid}
        assert "libtoy-stripped.so has no function" in probe.skipped[0].reason


@pytest.mark.core
@pytest.mark.parametrize("name", ["plain", "with space", "new\nline", "x (deleted)", "\\012"])
def test_hostile_paths(toys: list[Toy], built: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(built / "libtoy.so", folder / "libtoy.so")
    program = start(toys, built, folder / "libtoy.so")
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4


@pytest.mark.core
def test_a_library_that_was_deleted_or_replaced(toys: list[Toy], built: Path, tmp_path: Path) -> None:
    path = tmp_path / "libtoy.so"
    shutil.copy(built / "libtoy.so", path)
    program = start(toys, built, path)
    path.unlink()
    shutil.copy("/bin/true", path)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4


@pytest.mark.core
def test_a_library_in_another_mount_namespace(toys: list[Toy], built: Path, tmp_path: Path) -> None:
    script = 'mount -t tmpfs none "$1" && cp "$2"/* "$1" && exec "$1/toy"'
    program = Toy(["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), str(built)])
    toys.append(program)
    program.say(f"load {tmp_path / 'libtoy.so'}")
    assert not list(tmp_path.iterdir()), "the library is visible from here"
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.core
def test_a_process_with_libraries_without_end(
    toys: list[Toy], built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netprof.probes.marks.reading.MAX_LIBRARIES", 3)
    program = start(toys, built)
    for number in range(5):
        shutil.copy(built / "libtoy.so", tmp_path / f"libtoy{number}.so")
        program.say(f"load {tmp_path / f'libtoy{number}.so'}")
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        before = _open_files()
        probe.attach(program.pid)
        assert "more than 3" in probe.skipped[-1].reason
        assert _open_files() - before <= 2 * 3  # a file and a link each


@pytest.mark.core
def test_a_disk_that_does_not_answer_holds_up_nothing_else(
    toys: list[Toy], built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its library is attached to once the disk answers; until then the recording says so and goes on."""
    answers, asked = threading.Event(), threading.Event()
    shutil.copy(built / "libtoy.so", tmp_path / "libtoy_far.so")

    def open_it(pid: int, mapping: Mapping) -> Library:
        if mapping.basename == "libtoy_far.so":
            asked.set()
            answers.wait(60)
        return open_library(pid, mapping)

    monkeypatch.setattr("netprof.probes.marks.reading.open_library", open_it)
    near, far = start(toys, built), start(toys, built, tmp_path / "libtoy_far.so")
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([as_target(near)])
        begin_s = time.monotonic()
        probe.follow([as_target(near), as_target(far)])
        assert asked.wait(10)
        near.say("call 3")
        far.say("call 3")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 3
        assert time.monotonic() - begin_s < 5
        assert f"the libraries of process {far.pid} are not read yet" in probe.skipped[-1].reason
        answers.set()
        probe.settle()
        assert probe.skipped == []
        far.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4
    answers.clear()
    asked.clear()
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([as_target(near)])
        probe.follow([as_target(near), as_target(far)])
        assert asked.wait(10)
        begin_s = time.monotonic()
    assert time.monotonic() - begin_s < 5, "nor does it hold up the end"
    answers.set()


@pytest.mark.core
def test_a_library_is_opened_by_its_path_where_map_files_is_closed(
    toys: list[Toy], built: Path, tmp_path: Path
) -> None:
    path = tmp_path / "lib toy\n.so"
    shutil.copy(built / "libtoy.so", path)
    program = start(toys, built, path)
    mapping = next(each for each in executable_mappings(program.pid) if each.basename == path.name)
    closed = dataclasses.replace(mapping, address_range="0-0")  # no such entry in map_files
    library = open_library(program.pid, closed)
    assert library.identity == (path.stat().st_dev, path.stat().st_ino)
    library.close()
    path.unlink()
    with pytest.raises(NetprofError):
        open_library(program.pid, closed)
    shutil.copy("/bin/true", path)  # another file under the name: not the one that runs
    with pytest.raises(NetprofError, match="replaced"):
        open_library(program.pid, closed)
    path.unlink()
    os.mkfifo(path)  # opening it would wait for ever
    with pytest.raises(NetprofError):
        open_library(program.pid, closed)
