"""The Grafana dashboard of netprof's metrics, as JSON: `python examples/monitoring/dashboard.py > dashboard.json`.

Panels are a list here, so that each query is written once; `dashboard.json` beside this file is what it prints.
"""

from __future__ import annotations

import json
from typing import Any

JOB = 'job=~"$job",host=~"$host"'
WAITING = (
    "rate(netprof_waiting_seconds_total{%s}[$__rate_interval])"
    " or rate(netprof_waiting_at_least_seconds_total{%s}[$__rate_interval])"
)  # of ranks of which only launches are seen (NCCL), what they wait at least
PANELS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Ranks", "stat", "short", (("sum(netprof_ranks{%s})", "ranks"),)),
    ("Steps per second", "stat", "short", (("max(rate(netprof_steps_total{%s}[$__rate_interval]))", "steps/s"),)),
    (
        "Waiting for communication",
        "stat",
        "percentunit",
        (
            (
                f"sum({WAITING}) / sum(rate(netprof_step_duration_seconds_sum{{%s}}[$__rate_interval]))",
                "of all time",
            ),
        ),
    ),
    ("Stalled", "stat", "short", (("max(netprof_stalled{%s})", "stalled"),)),
    (
        "Waiting by cause, share of all ranks' time",
        "timeseries",
        "percentunit",
        (
            (
                f"sum by (cause) ({WAITING})"
                " / ignoring (cause) group_left () sum(rate(netprof_step_duration_seconds_sum{%s}[$__rate_interval]))",
                "{{cause}}",
            ),
        ),
    ),
    (
        "Who makes others wait, seconds per second",
        "timeseries",
        "s",
        (
            (
                "sum by (rank, cause) (rate(netprof_blamed_seconds_total{%s}[$__rate_interval]))",
                "rank {{rank}} {{cause}}",
            ),
        ),
    ),
    (
        "Step duration",
        "timeseries",
        "s",
        tuple(
            (
                f"histogram_quantile({quantile}, sum by (le) (rate(netprof_step_duration_seconds_bucket{{%s}}"
                "[$__rate_interval])))",
                f"p{quantile * 100:.0f}",
            )
            for quantile in (0.5, 0.9, 0.99)
        ),
    ),
    (
        "Step by phase",
        "timeseries",
        "percentunit",
        (
            (
                "sum by (phase) (rate(netprof_phase_seconds_total{%s}[$__rate_interval]))"
                " / ignoring (phase) group_left () sum(rate(netprof_phase_seconds_total{%s}[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
    ),
    (
        "Bytes on links",
        "timeseries",
        "Bps",
        (
            (
                "sum by (device, direction) (rate(netprof_link_bytes_total{%s}[$__rate_interval]))",
                "{{device}} {{direction}}",
            ),
        ),
    ),
    (
        "Links busy",
        "timeseries",
        "percentunit",
        (
            (
                "max by (rank, device, direction) (rate(netprof_link_busy_seconds_total{%s}[$__rate_interval]))",
                "rank {{rank}} {{device}} {{direction}}",
            ),
        ),
    ),
    (
        "Collectives, bytes per second",
        "timeseries",
        "Bps",
        (("sum by (kind) (rate(netprof_collective_bytes_total{%s}[$__rate_interval]))", "{{kind}}"),),
    ),
    (
        "Sent again by TCP",
        "timeseries",
        "Bps",
        (("sum by (rank) (rate(netprof_retransmitted_bytes_total{%s}[$__rate_interval]))", "rank {{rank}}"),),
    ),
    (
        "netprof's own CPU",
        "timeseries",
        "percentunit",
        (
            ("max by (host) (rate(netprof_recorder_cpu_seconds_total{%s}[$__rate_interval]))", "{{host}} recorder"),
            ("sum by (host) (rate(netprof_account_cpu_seconds_total{%s}[$__rate_interval]))", "{{host}} totals"),
        ),
    ),
    (
        "netprof's memory",
        "timeseries",
        "bytes",
        (("max by (host) (netprof_recorder_memory_bytes{%s})", "{{host}} recorder"),),
    ),
    (
        "Events that netprof lost, in all",
        "timeseries",
        "short",
        (("sum by (what) (netprof_lost_events_total{%s})", "{{what}}"),),
    ),
)
_INTERVAL = "2m"
"""At least: totals grow every 5 to 60 s, as rarely as their cost demands, and rates over less would jump."""
_WIDTH, _HEIGHT, _STAT_WIDTH, _STAT_HEIGHT = 12, 8, 6, 4
_STATS = sum(kind == "stat" for _, kind, _, _ in PANELS)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "title": "netprof: what training jobs wait for",
        "uid": "netprof",
        "tags": ["netprof"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _variable("job", "netprof_ranks"), _variable("host", "netprof_ranks")]},
        "panels": [_panel(number) for number in range(len(PANELS))],
    }


def queries() -> list[str]:
    """Return every query of the dashboard as it is written in it."""
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def _panel(number: int) -> dict[str, Any]:
    title, kind, unit, targets = PANELS[number]
    if number < _STATS:
        place = {"x": number * _STAT_WIDTH, "y": 0, "w": _STAT_WIDTH, "h": _STAT_HEIGHT}
    else:
        row, column = divmod(number - _STATS, 2)
        place = {"x": column * _WIDTH, "y": _STAT_HEIGHT + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    return {
        "id": number + 1,
        "title": title,
        "type": kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "interval": _INTERVAL,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr.replace("%s", JOB), "legendFormat": legend}
            for at, (expr, legend) in enumerate(targets)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
