"""Jobs of Open MPI and MPICH for a test to profile, over TCP on loopback or through shared memory."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "programs"
_SONAMES = ("libmpi.so.12", "libmpich.so.12")  # what mpi4py asks for, and what Debian calls it
_OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_TCP = {
    "openmpi": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"},
    "mpich": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp"},
}
_SHARED_MEMORY = {"openmpi": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "vader,self"}, "mpich": {}}


@dataclass(frozen=True)
class Mpi:
    """One of the two, as Debian installs it beside the other: "openmpi" or "mpich"."""

    name: str

    @property
    def missing(self) -> str:
        """Say why it cannot be tested here; empty where it can."""
        absent = [tool for tool in (f"mpirun.{self.name}", f"mpicc.{self.name}") if shutil.which(tool) is None]
        return f"{self.name.upper()} IS NOT TESTED: no {', '.join(absent)}; see .ci/prepare" if absent else ""

    def compile(self, source: str, folder: Path, compiler: str = "mpicc", *options: str) -> Path:
        """Compile a program of tests/programs into `folder`."""
        program = folder / f"{Path(source).stem}-{self.name}"
        command = [f"{compiler}.{self.name}", "-O1", str(PROGRAMS / source), "-o", str(program), *options]
        subprocess.run(command, check=True)
        return program

    def environment(self, folder: Path, tcp: bool) -> dict[str, str]:
        """Return the environment of a job; the folder gets what mpi4py needs to find Debian's MPICH."""
        places = (_TCP if tcp else _SHARED_MEMORY)[self.name]
        base = os.environ | _OPEN_MPI | {"OMP_NUM_THREADS": "1", "MPI4PY_MPIABI": self.name} | places
        if self.name == "mpich":
            wanted, debian = _SONAMES
            if not (folder / wanted).exists():
                (folder / wanted).symlink_to(_library(debian))
            base["LD_LIBRARY_PATH"] = str(folder)
        return base

    @contextmanager
    def job(self, folder: Path, command: Sequence[str], *, ranks: int = 2, tcp: bool = True) -> Iterator[Job]:
        """Run a job for the block, once every rank has said its number and its pid."""
        launcher = [f"mpirun.{self.name}", "-np", str(ranks), *(["--oversubscribe"] if self.name == "openmpi" else [])]
        process = subprocess.Popen(
            [*launcher, *command],
            env=self.environment(folder, tcp),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        job = Job(process)
        try:
            job.wait_for_pids(ranks)
            yield job
        finally:
            job.stop()


class Job:
    """A running `mpirun`, and the pids of its ranks in their order."""

    def __init__(self, launcher: subprocess.Popen[bytes]) -> None:
        self.launcher = launcher
        self.output = ""
        self.pids: list[int] = []

    def wait_for_pids(self, ranks: int) -> None:
        """Wait until every rank has said its pid; launchers mix their lines, so which rank it is is looked up."""
        self.wait_for("pid=", ranks)
        self.pids = sorted(map(int, re.findall(r"pid=(\d+)", self.output)), key=_rank)

    def wait_for(self, word: str, times: int) -> None:
        """Wait until the ranks have written a word so many times."""
        assert self.launcher.stdout is not None
        output, deadline = self.launcher.stdout.fileno(), time.monotonic() + 100
        while self.output.count(word) < times or not self.output.endswith("\n"):
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(output, 4096).decode() if ready else ""
            assert more, f"no {word!r} in {self.output!r}"
            self.output += more

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.launcher.poll() is None:
            os.killpg(self.launcher.pid, signal.SIGKILL)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.wait(30)
        assert self.launcher.stdout is not None
        self.launcher.stdout.close()


def _rank(pid: int) -> int:
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    found = re.search(rb"\0(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", environment)
    assert found is not None
    return int(found[1])


def _library(name: str) -> Path:
    """Return where the dynamic linker finds a library."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return Path(next(line.split("=> ")[1] for line in cache.splitlines() if line.split()[:1] == [name]))
