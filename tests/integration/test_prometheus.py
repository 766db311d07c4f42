"""A real Prometheus reads a real exporter of a real job: an injected late rank fires the alert, and clears it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from monitoring.dashboard import dashboard, queries
from support.all_day import netprof, plain, until
from support.prometheus import MONITORING, PROGRAM, asked, prometheus
from support.training import free_port, training

pytest.importorskip("torch", reason="the job is a PyTorch one")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root"),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Prometheus: apt-get install prometheus"),
]


def test_a_late_rank_fires_the_alert_and_clears_it(tmp_path: Path) -> None:
    exporter, switch = free_port(), tmp_path / "late"
    os.environ["LATE_WHILE"] = str(switch)
    late = 'ALERTS{alertname="NetprofLateRank",alertstate="firing",rank="1"}'
    with (
        netprof("exporter", "--metrics", f"127.0.0.1:{exporter}", "--name", str(tmp_path), folder=tmp_path),
        prometheus(tmp_path, exporter) as port,
        training((plain, plain), tmp_path, "--gradient-mb", "1", "--data-ms", "5", program=PROGRAM),
    ):
        until(lambda: asked(port, "rate(netprof_steps_total[40s]) > 0"), 200, tmp_path / "said")
        assert not asked(port, late)
        switch.touch()
        began_s = time.monotonic()
        until(lambda: asked(port, late), 150, tmp_path / "said")
        print(f"fired {time.monotonic() - began_s:.0f} s after the rank came to be late")
        missing = [query for query in queries() if not asked(port, ready(query))]
        assert not missing, "every query of the dashboard returns data"
        switch.unlink()
        began_s = time.monotonic()
        until(lambda: not asked(port, late), 150)
        print(f"cleared {time.monotonic() - began_s:.0f} s after it was on time again")
        assert asked(port, 'up{job="netprof"} == 1')


def ready(query: str) -> str:
    """A query as Grafana sends it."""
    return query.replace("$__rate_interval", "40s").replace("$job", ".*").replace("$host", ".*")


def test_rules_and_dashboard_are_what_they_say(tmp_path: Path) -> None:
    subprocess.run(["promtool", "check", "rules", str(MONITORING / "rules.yml")], check=True)
    subprocess.run(["promtool", "test", "rules", str(MONITORING / "rules_test.yml")], check=True)
    assert json.loads((MONITORING / "dashboard.json").read_text()) == dashboard()


def test_the_collector_scrapes_as_prometheus_does(tmp_path: Path) -> None:
    """The Prometheus receiver of OpenTelemetry's Collector takes Prometheus' own configuration."""
    collector = yaml.safe_load((MONITORING.parent / "deploy" / "otel-collector.yaml").read_text())
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(collector["receivers"]["prometheus"]["config"]))
    subprocess.run(["promtool", "check", "config", str(tmp_path / "prometheus.yml")], check=True)
    pipeline = collector["service"]["pipelines"]["metrics"]
    parts = [(kind, name) for kind in ("receivers", "processors", "exporters") for name in pipeline[kind]]
    assert [name in collector[kind] for kind, name in parts] == [True] * 3
    own = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    (scraped,) = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert scraped == {**own[0], "scrape_interval": scraped["scrape_interval"]}
