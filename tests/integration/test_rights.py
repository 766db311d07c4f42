"""What may be recorded with which rights: a part of the matrix that `tests/rights` tries, and what is said of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rights.cells import NOBODY, Cell, every_cell, tried
from rights.words import document
from support.training import netprof, training

from netprof.analysis import analyze
from netprof.trace import TraceReader

pytestmark = pytest.mark.timing

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="rights can only be given up by root")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all")
PAGE = Path(__file__).parents[2] / "docs" / "privileges.md"

TRIED = [
    Cell("root", "another's", "hidepid"),
    Cell("root", "own", "container"),
    Cell("root", "another's", "user namespace"),
    Cell("BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH", "another's", "host"),
    Cell("BPF, PERFMON, SYS_PTRACE", "another's", "host"),
    Cell("BPF, PERFMON", "own", "read-only /sys"),
    Cell("SYS_ADMIN", "own", "no bpf()"),
    Cell("none", "own", "host"),
    Cell("none", "another's", "hidepid"),
]


@pytest.fixture(scope="module")
def nobody() -> None:
    """Skip where nobody may not read Python or netprof: they can lie in a folder that only root may enter."""
    done = subprocess.run([*AS_NOBODY, sys.executable, "-c", "import netprof.cli"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("nobody may not read this installation")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of nobody's; pytest's own are root's."""
    with tempfile.TemporaryDirectory(prefix="netprof-rights-") as folder:
        shutil.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


@needs_root
@pytest.mark.parametrize("cell", TRIED, ids=str)
def test_what_is_promised_is_what_happens(cell: Cell, nobody: None) -> None:
    assert tried(cell) == cell.expected


@pytest.mark.core
def test_the_page_on_rights_says_what_is_tried() -> None:
    assert PAGE.read_text() == document()
    assert len({str(cell) for cell in every_cell()}) == 8 * 2 * 6


@pytest.mark.core
@needs_root
def test_without_any_rights_an_own_job_has_links_and_iterations(nobody: None, place: Path) -> None:
    """Bytes are TCP's own, and iterations, inferred from them, are as long as the job's log says."""
    pytest.importorskip("torch", reason="the job to profile is a PyTorch one")

    def as_nobody(argv: list[str], **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen([*AS_NOBODY, *argv], **options)  # type: ignore[call-overload, no-any-return]

    trace = place / "t.netprof"
    with training([as_nobody] * 2, place, "--gradient-mb", "16", "--data-ms", "150") as job:
        command = [*AS_NOBODY, sys.executable, "-m", "netprof", "attach", str(job.pids[0]), "--duration", "12s"]
        done = subprocess.run([*command, "--out", trace, "--no-live"], capture_output=True, text=True, check=False)
        log = job.log(0)
    assert done.returncode == 0, done.stderr
    assert "not permitted to load BPF programs: CAP_BPF and CAP_PERFMON missing: bytes are sampled" in done.stderr
    assert done.stderr.splitlines()[1].startswith("  "), "how to get the rights"
    analysis = analyze(TraceReader(trace))
    report = analysis.document()
    (link,) = report["links"]
    true_s = float((log["begin_ns"][-1] - log["begin_ns"][0]) / (len(log["begin_ns"]) - 1)) / 1e9
    assert link["device"] == "lo"
    assert link["tx_bytes"] == pytest.approx(link["rx_bytes"], rel=0.02)
    assert report["iterations"]["inferred"]
    assert report["iterations"]["median_s"] == pytest.approx(true_s, rel=0.1)
    sent = sum(flow["tx"]["payload_bytes"] for flow in report["flows"])
    assert sent == pytest.approx(2 * 16e6 * report["recording_s"] / true_s, rel=0.1)
    assert any("probe marks was skipped" in note for note in analysis.notes)


@needs_root
def test_a_job_that_is_started_without_rights_ends_as_it_would(nobody: None, place: Path) -> None:
    command = [
        *AS_NOBODY,
        sys.executable,
        "-m",
        "netprof",
        "run",
        "--out",
        str(place / "t"),
        "--",
        "sh",
        "-c",
        "exit 7",
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 7
    assert netprof("report", str(place / "t")).returncode == 0
