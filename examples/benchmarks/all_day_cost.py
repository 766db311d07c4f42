"""What the totals and their scraping cost: seconds of a core for eight ranks, and how long scrapes take.

    python examples/benchmarks/all_day_cost.py [--ranks 8] [--seconds 60]

Real ranks train on loopback while `netprof attach --metrics` records them and is scraped once a second; then fifty
scrapers at once. Needs root.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from _places import NETPROF
from prometheus_client.parser import text_string_to_metric_families

TRAIN = Path(__file__).parents[1] / "train.py"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def started(ranks: int, folder: Path) -> list[subprocess.Popen[str]]:
    """Start a job on loopback, and wait until it trains."""
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = os.environ | place | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    command = [sys.executable, str(TRAIN), "--gradient-mb", "1", "--data-ms", "40", "--log"]
    found = [
        subprocess.Popen(
            [*command, str(folder / f"{rank}.csv")],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for each in found:
        assert each.stdout is not None
        each.stdout.readline()
    return found


def scrape(port: int) -> tuple[float, str]:
    """Return how long a scrape took, and what it got."""
    began_s = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return time.monotonic() - began_s, text


def values(text: str) -> dict[str, float]:
    """Return the sums over all labels, by name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job = started(args.ranks, Path(folder))
        port = free_port()
        words = ["attach", str(job[0].pid), "--no-live", "-o", f"{folder}/t.netprof", "--keep", "1m"]
        recorder = subprocess.Popen([NETPROF, *words, "--metrics", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            report(port, recorder.pid, args.ranks, args.seconds)
        finally:
            recorder.kill()
            for each in job:
                each.kill()


def report(port: int, pid: int, ranks: int, seconds: float) -> None:
    """Scrape for a while, and print what it cost."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if values(scrape(port)[1]).get("netprof_steps_total", 0) > 0:
                break
        except OSError:
            pass
        time.sleep(0.5)
    first, cpu_before_s, began_s = values(scrape(port)[1]), cpu_s(pid), time.monotonic()
    took = []
    while time.monotonic() - began_s < seconds:
        took.append(scrape(port)[0])
        time.sleep(1)
    wall_s = time.monotonic() - began_s
    scraped_s = cpu_s(pid) - cpu_before_s
    last, text = values(scrape(port)[1]), scrape(port)[1]
    name = "netprof_account_cpu_seconds_total"
    print(f"{ranks} ranks, {wall_s:.0f} s, {last['netprof_steps_total'] - first['netprof_steps_total']:.0f} steps")
    print(f"making the totals: {(last[name] - first[name]) / wall_s:.2%} of a core")
    print(f"recorder with totals and scraping: {scraped_s / wall_s:.2%} of a core")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    of_rank = [line for line in lines if 'rank="0"' in line]
    print(f"series: {len(lines)} in all, {len(of_rank)} of rank 0")
    print(f"scrape, once a second: median {statistics.median(took) * 1e3:.1f} ms, p99 {p99(took) * 1e3:.1f} ms")
    many: list[float] = []
    threads = [threading.Thread(target=lambda: many.extend(scrape(port)[0] for _ in range(10))) for _ in range(50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(f"fifty scrapers at once: median {statistics.median(many) * 1e3:.0f} ms, p99 {p99(many) * 1e3:.0f} ms")
    before_s, idle_s = cpu_s(pid), time.monotonic()
    time.sleep(15)
    without = (cpu_s(pid) - before_s) / (time.monotonic() - idle_s)
    print(f"the same without scrapes, 15 s: {without:.2%} of a core")


def p99(times: list[float]) -> float:
    """Return what all but one in a hundred stay below."""
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


if __name__ == "__main__":
    main()
