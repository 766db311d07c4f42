"""The `gpus` part of the report as JSON; the keys are described with the others, in `json_report`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netprof.analysis.findings.gpus import GpuSummary, MetricSummary
from netprof.schema import GpuMetric


def gpu_to_json(summary: GpuSummary) -> dict[str, Any]:
    """Return a GPU as plain dicts, lists, strings and finite numbers."""
    gpu = summary.gpu
    return {
        "gpu": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "memory_bytes": gpu.memory_bytes or None,
        "pids": list(gpu.pids),
        "ranks": list(summary.ranks),
        "found_by": gpu.found_by or None,
        "window": summary.window,
        "window_s": summary.window_ns / 1e9,
        "metrics": _metrics(summary.metrics),
        "processes": [{"pid": pid, "metrics": _metrics(found)} for pid, found in summary.processes.items()],
        "throttled": dict(summary.throttled),
        "sources": list(gpu.sources),
    }


def _metrics(found: Mapping[GpuMetric, MetricSummary]) -> dict[str, Any]:
    return {metric.name.lower(): _metric(summary) for metric, summary in found.items()}


def _metric(summary: MetricSummary) -> dict[str, Any]:
    return {
        "samples": summary.samples,
        "interval_s": None if summary.interval_ns is None else summary.interval_ns / 1e9,
        "mean_over_s": summary.mean_over_ns / 1e9,
        "held_s": summary.held_ns / 1e9,
        "resolution_s": summary.resolution_ns / 1e9,
        "mean": summary.mean,
        "min": summary.minimum,
        "max": summary.maximum,
        "bytes": summary.bytes,
        "phases": {name: {"mean": part.mean, "samples": part.samples} for name, part in summary.phases.items()},
    }
