"""`netprof diff A B`: text, JSON and Markdown, and exit codes for CI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shifted_clock import shift
from support import synthetic
from support.synthetic import Job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    Job(iterations=20).fill().write(made / "a.netprof")
    Job(iterations=20).fill().write(made / "same.netprof")
    Job(iterations=20, rate_bps=1e10).fill().write(made / "fast.netprof")
    Job(iterations=20, ranks=4, world_size=4).fill().write(made / "four.netprof")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "DONE", 160 * synthetic.MS)  # of 200
        patch.setattr(synthetic, "WIRE_TO", 134 * synthetic.MS)  # 5 % more bytes
        Job(iterations=20).fill().write(made / "slow.netprof")
    hosts = made / "hosts"
    hosts.mkdir()
    for rank in (0, 1):
        shift(made / "slow.netprof", hosts / f"h{rank}.netprof", rank * 10**8, host=f"h{rank}", pids=[100 + rank])
    return made


def diff(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "netprof", "diff", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def document(folder: Path, *arguments: str) -> Any:
    return json.loads(diff(folder, *arguments, "--json").stdout)


@pytest.mark.slow
def test_the_same_run_twice(folder: Path) -> None:
    done = diff(folder, "a.netprof", "same.netprof", "--fail-above", "0%")
    assert done.returncode == 0, done.stderr
    assert "Nothing changed." in done.stdout
    found = document(folder, "a.netprof", "same.netprof")
    assert found["changed"] is False
    assert found["comparable"] is True
    assert {each["verdict"] for each in found["changes"]} == {"same"}


@pytest.mark.slow
def test_a_limit_of_what_a_run_does_not_know_fails(folder: Path) -> None:
    """A recording that lost its bytes must not pass for one that sends no more of them."""
    job = Job(iterations=20).fill()
    job.wire = []
    job.write(folder / "no-wire.netprof")
    done = diff(folder, "a.netprof", "no-wire.netprof", "--fail-above", "retransmitted_bytes=1%")
    assert done.returncode == 1, done.stdout
    assert "retransmitted_bytes is unknown in one of these runs" in done.stderr
    assert diff(folder, "a.netprof", "no-wire.netprof", "--fail-above", "iteration=3%").returncode == 0


@pytest.mark.slow
def test_what_of_a_run_cannot_be_read_is_said(folder: Path) -> None:
    trace = folder / "damaged.netprof"
    Job(iterations=20).fill().write(trace)
    marks = trace / "marks.arrows"
    marks.write_bytes(marks.read_bytes()[:-100])
    said = "of B, marks.arrows is damaged: it is cut off, or holds what cannot be read"
    assert said in " ".join(diff(folder, "a.netprof", trace.name).stdout.split())


@pytest.mark.slow
def test_what_changed_is_said(folder: Path) -> None:
    done = diff(folder, "a.netprof", "slow.netprof")
    assert done.returncode == 0, done.stderr
    assert "exposed communication +20.4 %" in done.stdout
    changes = {each["name"]: each for each in document(folder, "a.netprof", "slow.netprof")["changes"]}
    assert changes["exposed_communication"]["difference"] == pytest.approx(0.020, abs=1e-6)
    assert changes["exposed_communication"]["verdict"] == "more"
    assert changes["wire_bytes"]["difference_share"] == pytest.approx(0.05)
    least_share = changes["wire_bytes"]["told"] / changes["wire_bytes"]["a"]
    assert 0.001 < least_share < changes["wire_bytes"]["difference_share"]
    assert changes["compute"]["verdict"] == "less"
    assert changes["iteration"]["verdict"] == "same"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (("3%",), 4),
        (("25%",), 0),
        (("10%",), 4),
        (("10%", "exposed_communication=30%"), 0),
        (("wire_bytes=3.5%",), 4),
        (("iteration=0.1 %",), 0),
        (("3",), 2),
        (("nonsense=3%",), 2),
    ],
)
def test_a_change_for_the_worse_fails(folder: Path, limits: tuple[str, ...], code: int) -> None:
    options = [text for limit in limits for text in ("--fail-above", limit)]
    done = diff(folder, "a.netprof", "slow.netprof", *options)
    assert done.returncode == code, done.stderr
    assert diff(folder, "slow.netprof", "a.netprof", "--fail-above", "1%").returncode in (0, 4)


@pytest.mark.slow
def test_what_got_better_does_not_fail(folder: Path) -> None:
    done = diff(folder, "slow.netprof", "a.netprof", "--fail-above", "exposed_communication=1%")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_cannot_be_compared_is_said_and_does_not_pass(folder: Path) -> None:
    done = diff(folder, "a.netprof", "four.netprof")
    assert done.returncode == 0
    assert done.stdout.startswith("These runs cannot be compared: A is a job of 2 ranks, B of 4 ranks")
    done = diff(folder, "a.netprof", "four.netprof", "--fail-above", "3%")
    assert done.returncode == 1
    assert "--fail-above is skipped" in done.stderr


@pytest.mark.slow
def test_another_line_rate_is_the_first_line_and_compared(folder: Path) -> None:
    done = diff(folder, "a.netprof", "fast.netprof", "--fail-above", "3%")
    assert done.returncode == 0, done.stderr
    first, second = (line.rstrip() for line in done.stdout.splitlines()[:2])
    assert first == "The line rate of all ranks is 1.00 Gbit/s in A and 10.0 Gbit/s in B."
    assert second.startswith("  Iterations take as long as before")


@pytest.mark.slow
def test_a_folder_of_hosts_is_a_run(folder: Path) -> None:
    found = document(folder, "slow.netprof", "hosts")
    assert found["b"]["ranks"] == [0, 1]
    assert sorted(found["b"]["hosts"]) == ["h0", "h1"]
    assert all(each["verdict"] == "same" for each in found["changes"] if each["name"] != "late_rank")
    assert any("recorded on" in note for note in found["notes"])


@pytest.mark.slow
def test_markdown(folder: Path) -> None:
    done = diff(folder, "a.netprof", "slow.netprof", "--markdown", "-")
    assert done.returncode == 0, done.stderr
    assert "|  exposed communication | 98.0 ms | 118.0 ms |" in done.stdout
    assert "<details><summary>Rests on</summary>" in done.stdout
    assert diff(folder, "a.netprof", "same.netprof", "--markdown", "d.md").returncode == 0
    assert (folder / "d.md").read_text().startswith("**Iterations take as long as before")
    assert diff(folder, "a.netprof", "same.netprof", "--markdown", "d.md").returncode == 1


@pytest.mark.slow
def test_what_is_no_run_is_refused(folder: Path) -> None:
    done = diff(folder, "a.netprof", "nothing")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
