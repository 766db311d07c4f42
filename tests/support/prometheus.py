"""A Prometheus with the configuration and the rules of examples/monitoring, beside a netprof exporter."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.training import free_port

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
PROGRAM = Path(__file__).parents[1] / "programs" / "late_on_demand.py"


def faster(text: str) -> str:
    """The same rules over 40 s instead of two minutes: this is a test."""
    text = text.replace("[2m]", "[40s]").replace("[10m]", "[1m]")
    return re.sub(r"(interval|for): \w+", lambda match: f"{match[1]}: 2s", text)


@contextmanager
def prometheus(folder: Path, exporter: int) -> Iterator[int]:
    """A Prometheus with the rules and the configuration of examples/monitoring; yields its port."""
    port = free_port()
    config = (MONITORING / "prometheus.yml").read_text().replace("9963", str(exporter)).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config)
    (folder / "rules.yml").write_text(faster((MONITORING / "rules.yml").read_text()))
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(30)


def asked(port: int, expression: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result
