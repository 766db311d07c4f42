"""Run benchmarks by name and write what came of each to a file, with commit, date, machine and the fixed loop.

    python examples/benchmarks/_run.py [NAME[:OPTION ...] ...] [--out out/benchmarks] [--beside DIR --pairs 3]

Without a name: those whose figures the README gives (five minutes). `--beside` names another checkout, with its
programs compiled: each benchmark then runs with that one's netprof and with this one's, in ABBA order, on the same
machine in one sitting. A file NAME.json has every run: which netprof, what was printed, and the rows that the script
kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _pairs import abba
from _places import ROOT
from _results import FILE
from _speed import loop_ms
from cpus_away import CpusAway

HERE = Path(__file__).parent
README = ("recorder_cost", "attach_time", "attach_overhead:--pairs:12:--quick")


def main() -> None:
    """Run what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=README)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "benchmarks")
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, *arguments in (each.split(":") for each in options.names):
        print(f"== {name} {' '.join(arguments)}", flush=True)
        runs = []
        for beside in _order(options.beside, options.pairs):
            runs.append(run(name, arguments, beside))
            (options.out / f"{name}.json").write_text(json.dumps(_about(name, arguments) | {"runs": runs}, indent=1))
        failed += [name] * any(each["exit"] for each in runs)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _order(beside: Path | None, pairs: int) -> list[Path | None]:
    """Return whose netprof each run takes; None: the one that this interpreter would."""
    if beside is None:
        return [None]
    return [ROOT if here else beside for order in abba(pairs) for here in order]


def run(name: str, arguments: list[str], netprof: Path | None) -> dict[str, Any]:
    """Run one benchmark, printing what it prints; returns all that is known of the run."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    away, printed, rows = CpusAway() if os.geteuid() == 0 else None, [], []
    before_ms, begin_s = loop_ms(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "rows"
        environment = os.environ | {FILE: str(kept)} | ({"PYTHONPATH": str(netprof)} if netprof else {})
        if netprof:
            print(f"-- {_commit(netprof)}", flush=True)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                printed.append(line.rstrip("\n"))
        if kept.exists():
            rows = [json.loads(line) for line in kept.read_text().splitlines()]
    took_s, after_ms = time.monotonic() - begin_s, loop_ms()
    share = away.share() if away else None
    if away:
        away.close()
    print(f"loop {before_ms:.0f} ms before, {after_ms:.0f} ms after; {took_s:.0f} s", flush=True)
    return {
        "netprof": _commit(netprof or ROOT),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(took_s, 1),
        "loop_ms": {"before": round(before_ms, 1), "after": round(after_ms, 1)},
        "cpu_away": share and round(share, 4),
        "exit": process.returncode,
        "printed": printed,
        "rows": rows,
    }


def _about(name: str, arguments: list[str]) -> dict[str, Any]:
    """Return what all runs of a benchmark have in common."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    machine = {
        "cpu": cpu.partition(":")[2].strip() or platform.machine(),
        "cpus": os.cpu_count(),
        "memory_kb": int(memory.split()[1]),
        "kernel": platform.release().partition("-")[0],
    }
    return {"benchmark": name, "arguments": arguments, "machine": machine}


def _commit(checkout: Path) -> str:
    """Return the commit of a checkout, with a plus where files differ from it; "" where git does not know."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=10", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
