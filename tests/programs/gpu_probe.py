"""The GPU probe in a process of its own, so that the dynamic linker finds the stub of NVML: a line in, a line out.

`sample S` sleeps for S seconds and prints, as JSON, the rows since the last one and all that the probe says; `follow
PID,PID` changes the job's processes; `stop` ends the probe and prints the rest likewise, and how long stopping took.
The pids of the job are the arguments; `self` is this process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from netprof.model import Target
from netprof.probes.gpu.probe import GpuProbe


def said(probe: GpuProbe) -> dict[str, Any]:
    started_s = time.monotonic()
    rows, description = probe.drain()["gpu"], probe.describe()
    return {
        "rows": rows,
        "gpus": [dataclasses.asdict(gpu) for gpu in description.gpus],
        "started": [dataclasses.asdict(entry) for entry in description.started],
        "skipped": [dataclasses.asdict(entry) for entry in description.skipped],
        "asking_s": time.monotonic() - started_s,
        "monotonic_ns": time.monotonic_ns(),
        "realtime_ns": time.time_ns(),
        "pynvml": "pynvml" in sys.modules,
        "cpu_s": time.process_time(),
    }


def targets(pids: Iterable[int]) -> list[Target]:
    return [Target(pid, 0) for pid in pids]


def answer(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    probe = GpuProbe()
    probe.follow(targets(os.getpid() if pid == "self" else int(pid) for pid in sys.argv[1:]))
    answer(pid=os.getpid(), **said(probe))
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "sample":
            time.sleep(float(argument))
            answer(**said(probe))
        elif command == "follow":
            probe.follow(targets(map(int, argument.split(","))))
            answer()
        elif command == "stop":
            began_s = time.monotonic()
            probe.close()
            answer(stopping_s=time.monotonic() - began_s, **said(probe))


if __name__ == "__main__":
    main()
