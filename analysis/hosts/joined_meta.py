"""What describes the recording of a job, put together from what describes each host's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

from netprof.analysis.declared import added, by_key
from netprof.analysis.hosts.numbers import Numbers
from netprof.model import Cost, Device, Gpu, Host, Meta, ProbeCost, ProgramCost, Series, Target
from netprof.schema import PROCESS_SERIES
from netprof.units import count, listed

_NAMED = 4
T = TypeVar("T")


def meta_of_job(hosts: Sequence[Host], numbers: Sequence[Numbers], span_ns: tuple[int, int | None]) -> Meta:
    """Return the description of the job's recording, which lasts from when to when on the reference's clock.

    None: it goes on. What differs between the hosts names the host.
    """
    pairs = list(zip(hosts, numbers, strict=True))
    return replace(
        meta_of_hosts(hosts, span_ns),
        targets=tuple(_target(target, host_numbers) for host, host_numbers in pairs for target in host.meta.targets),
        devices=_each(_device(device, host_numbers) for host, host_numbers in pairs for device in host.meta.devices),
        gpus=tuple(_gpu(gpu, host_numbers, host) for host, host_numbers in pairs for gpu in host.meta.gpus),
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
        probes_skipped=_on_hosts(
            hosts,
            lambda meta: meta.probes_skipped,
            lambda probe, name: replace(probe, reason=f"on {name}: {probe.reason}"),
        ),
        only_devices=_each(device for meta in metas for device in meta.only_devices),
        warnings=_on_hosts(hosts, lambda meta: meta.warnings, lambda warning, name: f"{name}: {warning}"),
        digest=any(meta.digest for meta in metas),
        trimmed=any(meta.trimmed for meta in metas),
        losses=reduce(operator.add, (meta.losses for meta in metas)),
        cost=_cost([meta.cost for meta in metas]),
    )


def names_of_hosts(hosts: Sequence[Host]) -> str:
    """Return how many hosts there are, and the names of some."""
    if len(hosts) == 1:
        return hosts[0].name
    return f"{count(len(hosts), 'host')}: {listed([host.name for host in hosts], _NAMED)}"


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


def _target(target: Target, numbers: Numbers) -> Target:
    return replace(target, pid=numbers.pid(target.pid), netns=numbers.namespace(target.netns))


def _device(device: Device, numbers: Numbers) -> Device:
    return replace(device, netns=numbers.namespace(device.netns))


def _gpu(gpu: Gpu, numbers: Numbers, host: Host) -> Gpu:
    name = f"{gpu.name} ({host.name}: GPU {gpu.index})"
    return replace(gpu, index=gpu.index + numbers.gpu, name=name, pids=tuple(numbers.pid(pid) for pid in gpu.pids))


def _all_series(pairs: Sequence[tuple[Host, Numbers]]) -> tuple[Series, ...]:
    """Return the series of all hosts; what two recorders on one host counted is there once, as the first one's.

    But for processes: those of two containers may have one number, and no process is recorded twice.
    """
    series_of: dict[tuple[str, ...], Series] = {}
    machines: dict[str, str] = {}
    for host, numbers in pairs:
        machine = machines.setdefault(host.meta.boot_id, host.name)  # as `Evidence.machine_of` has it
        for series in host.meta.series:
            whose = host.name if series.source == PROCESS_SERIES else machine
            subject = f"{series.subject} of {whose}" if len(pairs) > 1 else series.subject
            moved = replace(series, id=series.id + numbers.series, subject=subject)
            series_of.setdefault((series.source, series.name, subject), moved)
    return tuple(series_of.values())


def _cost(costs: Sequence[Cost]) -> Cost:
    """Return what all recorders cost together; memory is that of the one that took most.

    CPU time over the time that they recorded stays what a recorder takes of a core.
    """
    programs = by_key([cost.programs for cost in costs], lambda program: program.name)
    probes = by_key([cost.probes for cost in costs], lambda probe: probe.name)
    return Cost(
        peak_memory_bytes=max(cost.peak_memory_bytes for cost in costs),
        programs=tuple(ProgramCost(name, **added(parts, "runs run_time_ns")) for name, parts in programs.items()),
        probes=tuple(ProbeCost(name, **added(parts, "cpu_s")) for name, parts in probes.items()),
        **added(costs, "wall_s cpu_s trace_bytes bpf_sampled_s start_s start_cpu_s"),
    )
