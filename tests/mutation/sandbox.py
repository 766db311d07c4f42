"""Where mutants may do no harm: copies of the tree, in which all else is read-only and no process outside is seen.

A mutant of what removes files, or ends processes, removes and ends others than was meant; and tests run as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_INSIDE = "NETPROF_MUTANTS_IN"
_KEPT = ("proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2")
_LEFT_OUT = (".git", ".venv", "out", "build", "dist", ".hypothesis", ".mypy_cache", ".ruff_cache", "__pycache__")


def shut_in(checkout: Path) -> Path:
    """Run this program again where only one new folder can be written; returns the folder, in there.

    It is removed at the end. Ends the program that is not root.
    """
    if _INSIDE in os.environ:
        _make_read_only(checkout, Path(os.environ[_INSIDE]))
        return Path(os.environ[_INSIDE])
    folder = Path(tempfile.mkdtemp(prefix="netprof-mutants-"))
    os.environ |= {_INSIDE: str(folder), "TMPDIR": str(folder / "tmp"), "HOME": str(folder / "home")}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if os.geteuid() != 0:
        raise SystemExit("mutants run as root, who can shut them off from the rest of the system: sudo make mutate")
    shut_off = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    code = subprocess.run([*shut_off, sys.executable, *sys.argv], check=False).returncode
    shutil.rmtree(folder)
    raise SystemExit(code)


def copy_of(checkout: Path, place: Path) -> Path:
    """Copy the tree, with what was compiled into it; times are kept, which tell what Python has compiled already."""
    shutil.copytree(checkout, place, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    return place


def _make_read_only(checkout: Path, folder: Path) -> None:
    for name in ("tmp", "home"):
        (folder / name).mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = {line.split()[4]: line.partition(" - ")[2].split()[0] for line in lines}
    for point, kind in mounts.items():
        if kind not in _KEPT and point != str(folder) and not point.startswith("/dev"):
            subprocess.run(["mount", "-o", "remount,bind,ro", point], capture_output=True, check=False)
    for place in (checkout, Path("/"), Path("/etc"), Path("/usr"), Path("/root")):
        if os.statvfs(place).f_flag & os.ST_RDONLY == 0:
            raise SystemExit(f"{place} could still be written: no mutant is run")
