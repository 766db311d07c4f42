"""What examples/causes.py does to a job: to its links, its hosts, and its processes."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from causes_cases import Setting
from lab import Host, Lab, LabError
from lab_links import CONGESTION_CONTROL, lose

Event = dict[str, Any]  # what happened to whom: "what", "rank", "begin_ns", "end_ns"

_PIDFD_GETFD, _SO_MAX_PACING_RATE = 438, 47
_BUSY = "print('busy', flush=True)\nwhile True: pass"
LATE_FILE = "late"
"""While this is not in the folder of the logs, nobody is late: with Setting.after_s."""
_TRAFFIC = Path(__file__).parent / "causes_traffic.py"


def prepare_links(lab: Lab, setting: Setting) -> None:
    """Make links slow and buffers small, before the job begins."""
    if not setting.after_s:
        _slow_links(lab, setting)
    for host in lab:
        _set_buffers(host, "tcp_rmem", setting.receive_buffer)
        _set_buffers(host, "tcp_wmem", setting.send_buffer)
        if setting.least_rto_ms:
            route = ["route", "change", host.network, "dev", host.device, "congctl", CONGESTION_CONTROL]
            host.ip(*route, "rto_min", f"{setting.least_rto_ms}ms")
    if setting.others != "none" and not setting.network:
        lab.shape_towards(setting.others_rank, setting.rate)
    if setting.port_latency:
        lab.shape_towards(0, setting.rate, setting.port_latency)
    if setting.mtu != 1500:
        for index, host in enumerate(lab):
            host.ip("link", "set", host.device, "mtu", str(setting.mtu))
            lab.set_port(index, "mtu", str(setting.mtu))


def _slow_links(lab: Lab, setting: Setting) -> None:
    for rank in () if setting.network else setting.slow_ranks:
        if setting.slow_direction in ("send", "both"):
            lab[rank].shape(setting.slow_rate)
        if setting.slow_direction in ("receive", "both"):
            lab.shape_towards(rank, setting.slow_rate)


def _set_buffers(host: Host, name: str, size: int) -> None:
    if size:
        host.run("sh", "-c", f"echo 4096 {size} {size} > /proc/sys/net/ipv4/{name}")


def begin(lab: Lab, setting: Setting, pids: dict[int, int]) -> None:
    """Begin what goes on as long as the job, once it trains: losses, others' traffic, a CPU that is taken."""
    if not setting.after_s:
        _begin(lab, setting, pids)


def _begin(lab: Lab, setting: Setting, pids: dict[int, int]) -> None:
    if setting.loss_percent:
        for rank in setting.loss_ranks or range(setting.ranks):
            lose(lab[rank].netns, lab[rank].device, setting.loss_percent)
    if setting.others != "none":
        _send_others_traffic(lab, setting)
    if setting.paced_mbit:
        for pid in pids.values():
            pace(pid, round(setting.paced_mbit * 1e6 / 8))
    if setting.starved_rank >= 0:
        _starve(lab[setting.starved_rank], pids[setting.starved_rank], setting.starved_nice)
    if setting.stolen_rank >= 0:
        _steal(lab[setting.stolen_rank], pids[setting.stolen_rank], setting)


def _send_others_traffic(lab: Lab, setting: Setting) -> None:
    """Let a program beside the rank, and one on a host of its own, talk."""
    shared, other = lab.beside(setting.others_rank), lab[setting.ranks]
    for direction, source, sink in (("send", shared, other), ("receive", other, shared)):
        if setting.others_direction in (direction, "both"):
            ready = _start(sink, sys.executable, str(_TRAFFIC), "receive", setting.others)
            where = (sink.ipv4, ready.split()[1])
            _start(source, sys.executable, str(_TRAFFIC), "send", setting.others, *where, str(setting.others_rate))


def _starve(host: Host, pid: int, nice: int) -> None:
    """Leave all threads of a rank but its main one little of one CPU, and the main one the others."""
    cpus = sorted(os.sched_getaffinity(0))
    for tid in (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()):
        os.sched_setaffinity(tid, cpus[:-1] if tid == pid else cpus[-1:])
        if tid != pid:
            os.setpriority(os.PRIO_PROCESS, tid, nice)
    _start(host, "taskset", "--cpu-list", str(cpus[-1]), sys.executable, "-c", _BUSY)


def _steal(host: Host, pid: int, setting: Setting) -> None:
    """Leave all threads of a rank one CPU, and let other programs run there."""
    cpu = max(os.sched_getaffinity(0))
    for tid in (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()):
        os.sched_setaffinity(tid, [cpu])
        os.setpriority(os.PRIO_PROCESS, tid, setting.stolen_nice)
    for _ in range(setting.stolen_loops):
        _start(host, "taskset", "--cpu-list", str(cpu), sys.executable, "-c", _BUSY)


def _start(host: Host, *command: str) -> str:
    """Start a program in a host, and return its first line, which says that it is ready."""
    process = host.popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise LabError(f"{' '.join(command)} did not start (its own words are above)")
    return line


def disturb(
    lab: Lab, setting: Setting, pids: dict[int, int], logs: Path, recorder: subprocess.Popen[str]
) -> list[Event]:
    """Do what is done while it is recorded, and return what happened when."""
    if setting.after_s:
        return [_begin_late(lab, setting, pids, logs)]
    if setting.stopped_rank >= 0:
        return [_stop(setting, pids[setting.stopped_rank], logs / f"rank{setting.stopped_rank}.csv")]
    if setting.mtu_hole_s:
        time.sleep(setting.mtu_hole_s)
        for rank in range(setting.ranks):
            lab.set_port(rank, "mtu", "1500")
        return [{"what": "mtu", "rank": -1, "begin_ns": time.monotonic_ns(), "end_ns": None}]
    events = []
    while max(setting.blocked_rank, setting.down_rank) >= 0 and recorder.poll() is None:
        time.sleep(setting.blocked_every_s - setting.blocked_s)
        events.append(_block(lab, setting))
    return events


def _begin_late(lab: Lab, setting: Setting, pids: dict[int, int], logs: Path) -> Event:
    """Begin in the middle of the recording."""
    time.sleep(setting.after_s)
    begin_ns = time.monotonic_ns()
    _slow_links(lab, setting)
    _begin(lab, setting, pids)
    (logs / LATE_FILE).touch()
    return {"what": "begun", "rank": -1, "begin_ns": begin_ns, "end_ns": None, "effective_ns": time.monotonic_ns()}


def _stop(setting: Setting, pid: int, log: Path) -> Event:
    """Stop a rank where a step of it begins: it computes then."""
    time.sleep(setting.stopped_after_s)
    logged_bytes = log.stat().st_size
    while log.stat().st_size == logged_bytes:
        time.sleep(0.001)
    begin_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGSTOP)
    if setting.stopped_s:
        time.sleep(setting.stopped_s)
        os.kill(pid, signal.SIGCONT)
    end_ns = time.monotonic_ns() if setting.stopped_s else None
    return {"what": "stopped", "rank": setting.stopped_rank, "begin_ns": begin_ns, "end_ns": end_ns}


def _block(lab: Lab, setting: Setting) -> Event:
    begin_ns = time.monotonic_ns()
    if setting.down_rank >= 0:
        lab.set_port(setting.down_rank, "down")
        time.sleep(setting.blocked_s)
        lab.set_port(setting.down_rank, "up")
        return {"what": "down", "rank": setting.down_rank, "begin_ns": begin_ns, "end_ns": time.monotonic_ns()}
    lab.block(setting.blocked_rank, True)
    time.sleep(setting.blocked_s)
    lab.block(setting.blocked_rank, False)
    return {"what": "blocked", "rank": setting.blocked_rank, "begin_ns": begin_ns, "end_ns": time.monotonic_ns()}


def pace(pid: int, bytes_per_s: int) -> None:
    """Let a process's TCP connections send no faster (SO_MAX_PACING_RATE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    for entry in os.scandir(f"/proc/{pid}/fd"):
        if not str(Path(entry.path).readlink()).startswith("socket:"):
            continue
        descriptor = libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
        if descriptor >= 0:
            with socket.socket(fileno=descriptor) as held:
                if held.family == socket.AF_INET and held.type == socket.SOCK_STREAM:
                    held.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("Q", bytes_per_s))
    os.close(process)
