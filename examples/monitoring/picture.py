"""Draw the dashboard without Grafana: a real job, exporter and Prometheus. Writes docs/pictures/dashboard.png.

As root: pip install 'matplotlib>=3.8', apt-get install prometheus, make install; .venv/bin/python
examples/monitoring/picture.py. Takes a quarter of an hour.

Two ranks train on hosts of their own, joined by 1 Gbit/s. After three minutes rank 1 is late to every step; three
minutes later it is on time again and its link is held to 200 Mbit/s; three minutes later all is as before. Each panel
of dashboard.json is drawn where and as that file says, of what Prometheus answers to the panel's own queries; the style
is matplotlib's.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.dates import DateFormatter
from matplotlib.ticker import EngFormatter, FuncFormatter, PercentFormatter

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "examples")]

from lab import Lab  # noqa: E402
from support.all_day import netprof, until  # noqa: E402
from support.prometheus import MONITORING, PROGRAM, asked, prometheus  # noqa: E402
from support.training import free_port, training  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "dashboard.png"
_STEP_S, _PHASE_S = 5, 180
_COLUMNS, _ROW_INCHES, _WIDTH_INCHES = 24, 0.3, 15
_FORMATS = {
    "percentunit": PercentFormatter(1.0, 0),
    "s": EngFormatter("s", 0),
    "Bps": EngFormatter("B/s", 0),
    "bytes": EngFormatter("B", 0),
    "short": FuncFormatter(lambda value, _: f"{value:g}"),
}
_SMALL = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}

Curve = tuple[str, list[tuple[float, float]]]
"""A name, and times with values."""


def main() -> None:
    """Run the job, ask, draw."""
    with tempfile.TemporaryDirectory() as folder, recorded(Path(folder)) as (port, began_s):
        panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
        draw(panels, port, began_s, time.time())
    print(PICTURE)


@contextmanager
def recorded(folder: Path) -> Iterator[tuple[int, float]]:
    """Yield Prometheus' port, and when it first saw steps, once the job's twelve minutes are over."""
    exporter, switch = free_port(), folder / "late"
    os.environ["LATE_WHILE"] = str(switch)
    with (
        Lab(rate="1gbit") as lab,
        netprof("exporter", "--metrics", f"127.0.0.1:{exporter}", "--name", PROGRAM.name, folder=folder),
        prometheus(folder, exporter) as port,
        training(
            [host.popen for host in lab],
            folder,
            "--gradient-mb",
            "6",
            "--data-ms",
            "5",
            master=f"{lab[0].ipv4}:29500",
            program=PROGRAM,
        ),
    ):
        until(lambda: asked(port, "rate(netprof_steps_total[30s]) > 0"), 200, folder / "said")
        began_s = time.time()
        time.sleep(_PHASE_S)
        switch.touch()
        time.sleep(_PHASE_S)
        switch.unlink()
        lab[1].shape("200mbit")
        time.sleep(_PHASE_S)
        lab[1].shape("1gbit")
        time.sleep(_PHASE_S)
        yield port, began_s


def draw(panels: list[dict[str, Any]], port: int, begin_s: float, end_s: float) -> None:
    """Draw every panel at its place in the dashboard's grid."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    with plt.style.context(["dark_background", _SMALL]):
        figure = plt.figure(figsize=(_WIDTH_INCHES, rows * _ROW_INCHES), layout="constrained")
        grid = figure.add_gridspec(rows, _COLUMNS)
        for panel in panels:
            place = panel["gridPos"]
            part = grid[place["y"] : place["y"] + place["h"], place["x"] : place["x"] + place["w"]]
            axes = figure.add_subplot(part)
            axes.set_title(panel["title"], loc="left", fontsize=9)
            over = panel["interval"]
            curves = [curve for target in panel["targets"] for curve in ask(target, over, port, begin_s, end_s)]
            unit = panel["fieldConfig"]["defaults"]["unit"]
            (stat if panel["type"] == "stat" else timeseries)(axes, curves, unit)
            if panel["type"] != "stat":
                axes.set_xlim(*(datetime.fromtimestamp(second, timezone.utc) for second in (begin_s, end_s)))
        figure.savefig(PICTURE, dpi=100)


def stat(axes: Any, curves: list[Curve], unit: str) -> None:
    """Draw the last value of each curve as a number."""
    axes.axis("off")
    text = "  ".join(f"{points[-1][1]:{'.0%' if unit == 'percentunit' else '.3g'}}" for _, points in curves)
    axes.text(0, 0.4, text, fontsize=22, transform=axes.transAxes, va="center")


def timeseries(axes: Any, curves: list[Curve], unit: str) -> None:
    """Draw curves; the legend names them as the dashboard does."""
    for name, points in curves:
        at = [datetime.fromtimestamp(second, timezone.utc) for second, _ in points]
        axes.plot(at, [value for _, value in points], label=name, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_FORMATS[unit])
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.grid(alpha=0.2)
    if curves:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=7)


def ask(target: dict[str, str], over: str, port: int, begin_s: float, end_s: float) -> Iterator[Curve]:
    """Yield each curve of one query, with its name, as Grafana asks for it."""
    query = target["expr"].replace("$__rate_interval", over).replace("$job", ".*").replace("$host", ".*")
    options = urllib.parse.urlencode({"query": query, "start": begin_s, "end": end_s, "step": _STEP_S})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query_range?{options}", timeout=30) as answer:
        curves = json.load(answer)["data"]["result"]
    for curve in curves:
        labels = curve["metric"]
        name = target["legendFormat"]
        for label in re.findall(r"{{(\w+)}}", name):
            name = name.replace(f"{{{{{label}}}}}", labels.get(label, ""))
        points = [(float(second), float(value)) for second, value in curve["values"]]
        yield " ".join(name.split()), points


if __name__ == "__main__":
    main()
