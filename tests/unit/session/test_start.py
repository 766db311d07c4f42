"""How a recording begins: nothing is imported that it does not need by then, and probes are opened side by side."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Target
from netprof.probes.job.processes import find_job
from netprof.probes.probe import Probe, Shared, Tables
from netprof.session.options import RecordingOptions
from netprof.session.recorder import Recorder

REFUSED = NotPermittedError("not permitted", "get the rights")
HEAVY = ("ijson", "jinja2", "numpy.ma", "pandas", "pyarrow", "rich", "scapy")


def test_the_kernel_is_asked_before_anything_heavy_is_imported() -> None:
    code = f"import sys, netprof.session.attach; print(*[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


BEGINS = """
import sys, netprof.session.attach
from netprof.cli import main

def attach(*arguments):
    print(*sorted({each for each in sys.modules if each in %r}))
    sys.exit()

netprof.session.attach.attach = attach
main()
"""


@pytest.mark.parametrize("shown", [[], ["--no-live"]])
def test_the_command_analyses_nothing_before_it_records(shown: list[str], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        BEGINS % (("netprof.analysis", *HEAVY),),
        "attach",
        "1",
        "--out",
        str(tmp_path / "t"),
    ]
    found = subprocess.run([*command, *shown], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["rich"], "with which it talks"


class Open(Probe):
    """A probe that notes when it is closed."""

    name = "open"
    period_s = 1.0
    required = True
    met: ClassVar[threading.Barrier]
    closed: ClassVar[list[str]]

    @classmethod
    def open(cls, shared: Shared) -> Open:
        cls.met.wait(5.0)  # for the other one, which is opened meanwhile
        return cls()

    def drain(self, *, final: bool = False) -> Tables:
        return {}

    def close(self) -> None:
        self.closed.append(self.name)


class Beside(Open):
    """Another one."""

    name = "beside"


class Fails(Open):
    """A probe without which there is no recording."""

    name = "fails"

    @classmethod
    def open(cls, shared: Shared) -> Open:
        super().open(shared)
        raise NetprofError("it fails", "repair it")


@pytest.fixture
def targets() -> Iterator[Sequence[Target]]:
    """A process to follow; probes that are opened wait for one more."""
    Open.met, Open.closed = threading.Barrier(2), []
    with subprocess.Popen(["sleep", "60"]) as process:
        yield find_job([process.pid])
        process.kill()


def test_probes_are_opened_side_by_side(tmp_path: Path, targets: Sequence[Target]) -> None:
    options = RecordingOptions(out=tmp_path / "t.netprof")
    recorder = Recorder(targets, options, [], [Open, Beside], refused=REFUSED)
    recorder.start()
    meta = recorder.stop("done")
    assert Open.closed == ["beside", "open"]
    assert not [each for each in meta.probes_skipped if each.name in ("open", "beside")]


def test_what_was_opened_beside_a_probe_that_fails_is_closed(tmp_path: Path, targets: Sequence[Target]) -> None:
    options = RecordingOptions(out=tmp_path / "t.netprof")
    with pytest.raises(NetprofError, match="it fails"):
        Recorder(targets, options, [], [Open, Fails], refused=REFUSED)
    assert Open.closed == ["open"]
    assert not options.out.exists()


INTERRUPTED = """
import importlib.abc, os, signal, sys

class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from netprof.__main__ import start
start()
"""


@pytest.mark.parametrize("module", ["netprof.cli", "typer", "netprof.cli.main", "netprof.files.drop"])
def test_ctrl_c_while_it_is_imported_ends_it_in_silence(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (-signal.SIGINT, "", "")
