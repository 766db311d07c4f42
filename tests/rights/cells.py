"""One cell of the matrix: who netprof runs as, whose process it attaches to, and where; what comes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import netprof
from netprof.errors import EXIT_NOT_PERMITTED
from netprof.probes.kernel.rights import BPF, DAC_READ_SEARCH, PERFMON, SYS_ADMIN, SYS_PTRACE
from netprof.trace import TraceReader

TALKS = Path(__file__).parents[1] / "programs" / "talks_to_itself.py"
FILTERED = Path(__file__).with_name("filtered.py")
NOBODY, SOMEBODY = 65534, 65533
ALL = (BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH, SYS_ADMIN)

PRIVILEGES: dict[str, tuple[str, ...] | None] = {
    "root": None,
    "all five": ALL,
    "BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH": (BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH),
    "BPF, PERFMON, SYS_PTRACE": (BPF, PERFMON, SYS_PTRACE),
    "BPF, PERFMON": (BPF, PERFMON),
    "BPF": (BPF,),
    "SYS_ADMIN": (SYS_ADMIN,),
    "none": (),
}
"""Names, and the capabilities of a user who is not root."""

WHOSE = ("own", "another's")

_MOUNTS = {
    "host": "",
    "container": "mount -t proc proc /proc; ip link set lo up;",
    "user namespace": "",
    "read-only /sys": "mount -o remount,ro,bind /sys;",
    "hidepid": "mount -t proc -o hidepid=2 proc /proc;",
    "no bpf()": "",
}
ENVIRONMENTS = tuple(_MOUNTS)

RECORDED, SAMPLED, REFUSED = "recorded", "sampled", "exit 3"
_SURELY_MOVED = 5_000_000  # each way ten megabytes a second, of which a second is recorded
_NO_PROGRAMS = ("user namespace", "no bpf()")


@dataclass(frozen=True)
class Cell:
    """A row and a column of the matrix."""

    privilege: str
    whose: str
    environment: str

    def __str__(self) -> str:
        """Return a name for tests."""
        return f"{self.privilege}-{self.whose}-{self.environment}"

    @property
    def expected(self) -> str:
        """What is promised: all is recorded, bytes are sampled, or what is missing is said with exit code 3."""
        held = PRIVILEGES[self.privilege]
        missing = tuple(name for name in (SYS_PTRACE, DAC_READ_SEARCH) if held is not None and name not in held)
        if self.whose != "own" and self.environment == "user namespace":
            return f"{REFUSED}: user namespace"
        if self.whose != "own" and missing:
            return f"{REFUSED}: {' and '.join(missing)} missing"
        loads = held is None or SYS_ADMIN in held or {BPF, PERFMON} <= set(held)
        return RECORDED if loads and self.environment not in _NO_PROGRAMS else SAMPLED


def every_cell() -> Iterator[Cell]:
    """Yield all cells, row by row."""
    for privilege in PRIVILEGES:
        for whose in WHOSE:
            for environment in ENVIRONMENTS:
                yield Cell(privilege, whose, environment)


def tried(cell: Cell) -> str:
    """Attach as the cell says; returns what came of it, in the words of `Cell.expected`, and else all that was said."""
    with tempfile.TemporaryDirectory(prefix="netprof-rights-") as folder:
        Path(folder).chmod(0o777)
        trace = Path(folder) / "t.netprof"
        script = _script(cell, trace)
        outside = ["unshare", "--mount", *_unshared(cell), "sh", "-c", script]
        options: dict[str, Any] = {"env": environment() | {"HOME": folder}, "cwd": folder, "timeout": 90}
        options |= {"capture_output": True, "text": True}
        return _outcome(subprocess.run(outside, check=False, **options), trace)


def _unshared(cell: Cell) -> list[str]:
    return ["--pid", "--fork", "--net", "--kill-child"] if cell.environment == "container" else []


def _script(cell: Cell, trace: Path) -> str:
    """Return what a shell of root does in the environment: start the target, and attach to it as somebody."""
    program = [str(FILTERED)] if cell.environment == "no bpf()" else ["-m", "netprof"]
    netprof_argv = [python(), *program, "attach", "$TARGET", "--duration", "1500ms", "--no-live"]
    attach = " ".join([*_become(cell), *netprof_argv, "--out", str(trace)])
    user = _uid(cell) if cell.whose == "own" else SOMEBODY
    target = f"setpriv --reuid={user} --regid={user} --clear-groups {python()} {TALKS}"
    if cell.environment == "user namespace":
        if cell.whose == "own":  # in there too, or it would be somebody else's
            inside = f"{python()} {TALKS} > talks & TARGET=$!; {_WAIT} {' '.join(netprof_argv)} --out {trace}"
            return f"""{" ".join(_become(cell))} unshare --user --map-root-user sh -c '{inside}; code=$?; {_END}'"""
        attach = " ".join([*_become(cell), "unshare", "--user", "--map-root-user", *netprof_argv, "--out", str(trace)])
    return f"{_MOUNTS[cell.environment]} {target} > talks & TARGET=$!; {_WAIT} {attach}; code=$?; {_END}"


@cache
def python() -> str:
    """Return a Python that nobody may run, with what netprof needs; it can lie in a folder that only root may enter."""
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all"]
    for each in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [*nobody, "sh", "-c", f"{each} -c 'import netprof.cli.main, netprof.analysis'"]
        if subprocess.run(command, env=environment(), capture_output=True, check=False).returncode == 0:
            return each
    return sys.executable


def environment() -> dict[str, str]:
    """Return an environment in which every Python finds netprof, and what it needs."""
    places = [str(Path(netprof.__file__).absolute().parent.parent), *(each for each in sys.path if "-packages" in each)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}


_WAIT = "for turn in $(seq 400); do grep -q . talks && break; sleep 0.05; done;"
_END = "kill $TARGET; exit $code"


def _uid(cell: Cell) -> int:
    return 0 if PRIVILEGES[cell.privilege] is None else NOBODY


def _become(cell: Cell) -> list[str]:
    """Return the prefix of a command that gives up all other rights."""
    held = PRIVILEGES[cell.privilege]
    if held is None:
        return []
    given = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in held)
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *user, f"--inh-caps=-all{given}", f"--ambient-caps=-all{given}"]


def _outcome(done: subprocess.CompletedProcess[str], trace: Path) -> str:
    if done.returncode == EXIT_NOT_PERMITTED:
        first, *hint = [line for line in done.stderr.splitlines() if "bytes are sampled" not in line][-2:]
        if len(hint) == 1 and hint[0].startswith("  "):
            what = "user namespace" if "from a user namespace" in first else first.rpartition(": ")[2]
            return f"{REFUSED}: {what}"
    if done.returncode == 0 and (trace / "meta.json").exists():
        reader = TraceReader(trace)
        moved_bytes = int(reader.table("wire").column("payload_bytes").to_numpy().sum())
        sampled = any(probe.name == "flows" for probe in reader.meta.probes_skipped)
        return (SAMPLED if sampled else RECORDED) if moved_bytes > _SURELY_MOVED else f"nothing moved: {done.stdout}"
    return f"exit code {done.returncode}: {done.stderr or done.stdout}"
