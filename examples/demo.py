"""What `make demo` runs: two hosts on a 1 Gbit/s link, a real 2-rank DDP job, and netprof attached to it.

Prints netprof's report, and leaves out/demo.netprof (the trace), out/demo.json (the same numbers) and out/demo.html
(the page). The hosts are network namespaces of this machine, gone afterwards. Exits non-zero with one line when
anything is not as it should.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import Lab, LabError
from program import NETPROF

LINE_RATE_BPS = 1e9
START_TIMEOUT_S = 180
TRAIN = Path(__file__).parent / "train.py"
PHASES = ("forward", "backward", "exposed_communication", "rest")
IDLE_CAUSES = ("no_gradient", "gradients_waiting", "nothing_outstanding", "after_last_byte")


class DemoError(Exception):
    """The demo did not do what it should; the message is one line."""


def say(text: str) -> None:
    """Tell the person how far we are."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def start_job(lab: Lab) -> list[subprocess.Popen[str]]:
    """Start one rank per host and wait until both train. Raises DemoError."""
    job = {"WORLD_SIZE": str(len(lab.hosts)), "MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": "29500"}
    job["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # hosts without names make it complain
    ranks = []
    for rank, host in enumerate(lab):
        environment = {**os.environ, **job, "RANK": str(rank)}
        command = [sys.executable, str(TRAIN)]
        ranks.append(host.popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    watchdog = threading.Timer(START_TIMEOUT_S, kill_all, [ranks])
    watchdog.start()
    try:
        for process in ranks:
            if not any(line.startswith("training") for line in process.stdout or ()):  # gloo may have its say first
                raise DemoError("the training job did not start (its own words are above)")
    finally:
        watchdog.cancel()
    return ranks


def kill_all(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill what hangs, so that who waits for its words goes on."""
    for process in processes:
        process.kill()


def record(pids: list[int], duration: str, trace: Path) -> None:
    """Attach netprof to the running job; it prints its report. Raises DemoError."""
    command = [NETPROF, "attach", *map(str, pids), "--duration", duration, "--out", str(trace)]
    process = subprocess.Popen([*command, "--force", "--no-live"])
    try:
        code = process.wait()
    except BaseException:  # ctrl-C, SIGTERM
        let_finish(process)
        raise
    if code:
        raise DemoError(f"netprof attach ended with exit code {code}")


def let_finish(process: subprocess.Popen[bytes]) -> None:
    """Wait until an interrupted netprof has completed its trace (ctrl-C reached it too, SIGTERM did not)."""
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)


def summarize(trace: Path, target: Path, page: Path) -> dict[str, Any]:
    """Write the trace's report as JSON and as a page, and return it. Raises DemoError."""
    command = [NETPROF, "report", str(trace), "--json", "--html", str(page), "--force"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise DemoError(f"netprof report ended with exit code {done.returncode}")
    try:
        summary: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise DemoError(f"netprof report --json did not print JSON: {error}") from error
    target.write_bytes(done.stdout)
    return summary


def problems(summary: dict[str, Any], hosts: int) -> Iterator[str]:
    """Yield what is wrong with a report on this job. A missing entry raises KeyError, one of a wrong kind TypeError."""
    iterations, collectives = summary["iterations"], summary["collectives"]
    if iterations["count"] < 10:
        yield f"only {iterations['count']} iterations were found"
    if min(iterations["phases_s"][phase] for phase in PHASES) < 0:
        yield "a phase of the iteration is negative"
    if not 0 < iterations["phases_s"]["exposed_communication"] < iterations["median_s"]:
        yield "exposed communication is not a part of the iteration"
    if len(summary["links"]) != hosts:
        yield f"{len(summary['links'])} links instead of {hosts}"
    for link in summary["links"]:
        yield from _link_problems(link)
    if not collectives["count"] or not 0 < collectives["line_rate_share"] <= 1.02:
        yield f"all-reduces at {collectives['line_rate_share']} of line rate"
    if not 0.99 < collectives["wire_to_algorithm_ratio"] < 1.2:
        yield f"wire bytes are {collectives['wire_to_algorithm_ratio']} of the algorithm's bytes"
    if not 0 < summary["scaling_factor"] <= 1:
        yield f"a scaling factor of {summary['scaling_factor']}"
    if not isinstance(summary["verdict"], str | dict) or not summary["verdict"]:
        yield "no verdict"
    yield from (f"no {name}" for name in ("losses", "cost") if not summary[name])


def _link_problems(link: dict[str, Any]) -> Iterator[str]:
    if link["line_rate_bps"] != LINE_RATE_BPS:
        yield f"line rate {link['line_rate_bps']} ({link['line_rate_source']}) instead of {LINE_RATE_BPS:.0f}"
    for direction in ("utilization_tx", "utilization_rx"):
        if not 0 < link[direction] <= 1.02:
            yield f"{direction} of {link['device']} is {link[direction]}"
    if min(link["idle_s"][cause] for cause in IDLE_CAUSES) < 0:
        yield f"negative idle time of {link['device']}"


def check(summary: dict[str, Any], hosts: int) -> None:
    """Raise DemoError when the report cannot be one of this job."""
    try:
        found = list(problems(summary, hosts))
    except (KeyError, TypeError) as error:
        raise DemoError(f"the report lacks something: {type(error).__name__} {error}") from error
    if found:
        raise DemoError("the report is not right: " + "; ".join(found))


def demo(duration: str, out: Path) -> None:
    """Do all of it. Raises DemoError."""
    if os.geteuid() != 0:
        raise DemoError("network namespaces and BPF programs need root: sudo make demo")
    out.mkdir(parents=True, exist_ok=True)
    say("two hosts, joined by a veth pair shaped to 1 Gbit/s")
    with Lab(rate="1gbit") as lab:
        say("starting a DDP job of two ranks, 25 MB of gradients")
        pids = [process.pid for process in start_job(lab)]
        say(f"it trains; attaching to pids {' '.join(map(str, pids))} for {duration}")
        record(pids, duration, out / "demo.netprof")
    summary = summarize(out / "demo.netprof", out / "demo.json", out / "demo.html")
    check(summary, hosts=2)
    say(f"wrote {out / 'demo.netprof'}, {out / 'demo.json'} and the page {out / 'demo.html'}: open it in a browser")


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--duration", default="20s", help="how long to record")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for demo.netprof and demo.json")
    args = parser.parse_args()
    try:
        demo(args.duration, args.out)
    except (DemoError, LabError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the hosts are gone")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
