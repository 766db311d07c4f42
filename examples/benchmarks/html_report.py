"""The offline page: seconds and peak memory of writing it, its size, and what a browser needs to show it.

Traces of 1 and 10 million wire rows, of 64 flows and of one flow (many more bins for as many rows), or a trace that is
named. The browser's column is the time until every chart is drawn in a headless Chromium, `-` where none is installed.

    python examples/benchmarks/html_report.py [--rows 1,10] [--flows 64,1] [--trace DIR]

Goals: at most 6 MB for the demo's trace, at most 20 MB for 10 million rows, each written within 10 s.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from _places import NETPROF
from _speed import say_speed
from report_growth import write_trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,10", help="millions of wire rows, comma-separated (default 1,10)")
    parser.add_argument("--flows", default="64,1", help="numbers of flows, comma-separated (default 64,1)")
    parser.add_argument("--trace", type=Path, default=None, help="measure this trace instead")
    options = parser.parse_args()
    say_speed()
    print(f"{'trace':>24} {'seconds':>8} {'CPU s':>6} {'peak MB':>8} {'page MB':>8} {'drawn s':>8}")
    place = Path(tempfile.mkdtemp(prefix="netprof-page-"))
    try:
        if options.trace is not None:
            measure(options.trace.name, options.trace, place)
            return
        for millions in (float(text) for text in options.rows.split(",")):
            for flows in (int(text) for text in options.flows.split(",")):
                trace = place / "t.netprof"
                write_trace(trace, int(millions * 1e6), flows)
                measure(f"{millions:.0f} M rows, {flows} flows", trace, place)
                shutil.rmtree(trace)
    finally:
        shutil.rmtree(place)


def measure(name: str, trace: Path, place: Path) -> None:
    """Write the page in a process of its own and print one line of the table."""
    page = place / "page.html"
    command = [NETPROF, "report", str(trace), "--html", str(page), "--force"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise SystemExit(f"netprof report failed with status {status}")
    drawn = drawing_seconds(page, place)
    cpu, peak, size = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, page.stat().st_size / 1e6
    shown = "-" if drawn is None else f"{drawn:.2f}"
    print(f"{name:>24} {seconds:8.2f} {cpu:6.2f} {peak:8.0f} {size:8.2f} {shown:>8}", flush=True)


def drawing_seconds(page: Path, place: Path) -> float | None:
    """Return how long a browser needs until every chart is drawn, None without a browser."""
    if shutil.which("chromedriver") is None:
        return None
    from support.browser import chromium

    with chromium(place / "profile") as browser:
        browser.open(page)
        return float(browser.script("return performance.now()")) / 1e3


if __name__ == "__main__":
    main()
