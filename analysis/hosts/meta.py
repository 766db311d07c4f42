"""What describes the recording of a job, put together from what describes each host's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

from netprof.analysis.hosts.numbers import Numbers
from netprof.model import Cost, Device, Gpu, Host, Meta, ProbeCost, ProgramCost, Series, SkippedProbe, Target
from netprof.units import count

_NAMED = 4
T = TypeVar("T")


def meta_of_job(hosts: Sequence[Host], numbers: Sequence[Numbers], span_ns: tuple[int, int | None]) -> Meta:
    """Return the description of the job's recording, which lasts from when to when on the reference's clock.

    None: it goes on. What differs between the hosts names the host.
    """
    pairs = list(zip(hosts, numbers, strict=True))
    return replace(
        meta_of_hosts(hosts, span_ns),
        targets=tuple(_target(target, own) for host, own in pairs for target in host.meta.targets),
        devices=_each(_device(device, own) for host, own in pairs for device in host.meta.devices),
        gpus=tuple(_gpu(gpu, own, host) for host, own in pairs for gpu in host.meta.gpus),
        series=_all_series(pairs),
    )


def meta_of_hosts(hosts: Sequence[Host], span_ns: tuple[int, int | None]) -> Meta:
    """Return the same but for what each host numbers by itself, which is the first one's."""
    metas = [host.meta for host in hosts]
    return replace(
        metas[0],
        host=names_of_hosts(hosts),
        kernel=", ".join(_each(meta.kernel for meta in metas)),
        bin_ns=max(meta.bin_ns for meta in metas),
        started_ns=span_ns[0],
        stopped_ns=span_ns[1],
        stop_reason=", ".join(_each(meta.stop_reason for meta in metas)),
        schema_version=min(meta.schema_version for meta in metas),
        probes_started=_each(probe for meta in metas for probe in meta.probes_started),
        probes_skipped=_on_hosts(hosts, lambda meta: meta.probes_skipped, _skipped_on),
        warnings=_on_hosts(hosts, lambda meta: meta.warnings, lambda warning, name: f"{name}: {warning}"),
        losses=reduce(lambda one, other: one + other, (meta.losses for meta in metas)),
        cost=_cost([meta.cost for meta in metas]),
    )


def names_of_hosts(hosts: Sequence[Host]) -> str:
    """Return how many hosts there are, and the names of some."""
    if len(hosts) == 1:
        return hosts[0].name
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    return f"{count(len(hosts), 'host')}: {', '.join(host.name for host in hosts[:_NAMED])}{more}"


def _each(values: Iterable[T]) -> tuple[T, ...]:
    """Return values in their order, each once."""
    return tuple(dict.fromkeys(values))


def _on_hosts(
    hosts: Sequence[Host], get: Callable[[Meta], Sequence[T]], on_host: Callable[[T, str], T]
) -> tuple[T, ...]:
    """Return what holds for all hosts as it is, and what holds for some with their names."""
    every = set.intersection(*(set(get(host.meta)) for host in hosts))
    alone = [on_host(each, host.name) for host in hosts for each in get(host.meta) if each not in every]
    return _each([*(each for each in get(hosts[0].meta) if each in every), *alone])


def _skipped_on(probe: SkippedProbe, name: str) -> SkippedProbe:
    return replace(probe, reason=f"on {name}: {probe.reason}")


def _target(target: Target, own: Numbers) -> Target:
    return replace(target, pid=own.pid(target.pid), netns=own.namespace(target.netns))


def _device(device: Device, own: Numbers) -> Device:
    return replace(device, netns=own.namespace(device.netns))


def _gpu(gpu: Gpu, own: Numbers, host: Host) -> Gpu:
    name = f"{gpu.name} ({host.name})"
    return replace(gpu, index=gpu.index + own.gpu, name=name, pids=tuple(own.pid(pid) for pid in gpu.pids))


def _all_series(pairs: Sequence[tuple[Host, Numbers]]) -> tuple[Series, ...]:
    """Return the series of all hosts; what two recorders on one host counted is the same, and there once."""
    found: dict[tuple[str, str, str, str], Series] = {}
    for host, own in pairs:
        for series in host.meta.series:
            key = host.meta.boot_id, series.source, series.name, series.subject
            found.setdefault(key, _series(series, own, host))
    return tuple(found.values())


def _series(series: Series, own: Numbers, host: Host) -> Series:
    return replace(series, id=series.id + own.series, subject=f"{series.subject} of {host.name}")


def _cost(costs: Sequence[Cost]) -> Cost:
    """Return what all recorders cost together; memory is that of the one that took most.

    CPU time over the time that they recorded stays what a recorder takes of a core.
    """
    programs: dict[str, ProgramCost] = {}
    for program in (program for cost in costs for program in cost.programs):
        known = programs.get(program.name, ProgramCost(program.name, 0, 0))
        spent_ns = known.run_time_ns + program.run_time_ns
        programs[program.name] = ProgramCost(program.name, known.runs + program.runs, spent_ns)
    probes: dict[str, float] = {}
    for probe in (probe for cost in costs for probe in cost.probes):
        probes[probe.name] = probes.get(probe.name, 0.0) + probe.cpu_s
    return Cost(
        wall_s=sum(cost.wall_s for cost in costs),
        cpu_s=sum(cost.cpu_s for cost in costs),
        peak_memory_bytes=max(cost.peak_memory_bytes for cost in costs),
        trace_bytes=sum(cost.trace_bytes for cost in costs),
        bpf_sampled_s=sum(cost.bpf_sampled_s for cost in costs),
        programs=tuple(programs.values()),
        probes=tuple(ProbeCost(name, cpu_s) for name, cpu_s in probes.items()),
    )
