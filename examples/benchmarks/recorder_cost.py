"""What the recorder itself costs: CPU, memory and bytes of trace. Needs root, gcc and torch.

    python examples/benchmarks/recorder_cost.py [--seconds 20]

Two jobs. `64 busy flows`: a C program that sends on each of 64 connections in every millisecond and gets an answer, so
that every bin of both directions of every flow holds something: the most that 64 flows can ask of the recorder.
`2-rank DDP`: examples/train.py over a 1 Gbit/s link. CPU is the recorder's own user and system time over the
recording, attaching and detaching included; `CPU, steady` leaves the first two seconds out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _places  # noqa: F401 - finds lab
from lab import Lab

TRAIN = Path(__file__).parent.parent / "train.py"
TRAFFIC = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int flows = atoi(argv[1]), one = 1, sockets[1024];
	char message[512] = { 0 };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (void *)&address, sizeof(address));
	getsockname(listener, (void *)&address, &length);
	listen(listener, 1024);
	if (fork() == 0) { /* the other end: answers; not a process of the profiled job */
		for (int i = 0; i < flows; i++) {
			sockets[i] = accept(listener, NULL, NULL);
			setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		}
		for (int i = 0;; i = (i + 1) % flows) {
			if (recv(sockets[i], message, sizeof(message), 0) <= 0)
				return 0;
			send(sockets[i], message, sizeof(message), 0);
		}
	}
	for (int i = 0; i < flows; i++) {
		sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
		connect(sockets[i], (void *)&address, sizeof(address));
		setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	puts("ready");
	fflush(stdout);
	struct timespec next;
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		for (int i = 0; i < flows; i++)
			send(sockets[i], message, sizeof(message), MSG_NOSIGNAL);
		for (int i = 0; i < flows; i++)
			if (recv(sockets[i], message, sizeof(message), 0) <= 0)
				return 0;
		next.tv_nsec += 1000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_sec++;
			next.tv_nsec -= 1000000000;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
"""


@contextmanager
def busy_flows(flows: int) -> Iterator[list[int]]:
    """Run the C program; gives the pid of the profiled end."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "traffic"
        subprocess.run(["gcc", "-O2", "-x", "c", "-", "-o", str(program)], input=TRAFFIC, text=True, check=True)
        process = subprocess.Popen([program, str(flows)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        yield [process.pid]
        process.kill()
        process.wait()


@contextmanager
def ddp_job() -> Iterator[list[int]]:
    """Run two ranks over a 1 Gbit/s link."""
    with Lab(rate="1gbit") as lab:
        ranks = []
        for rank, host in enumerate(lab):
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": "29500"}
            command = [sys.executable, str(TRAIN)]
            options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            ranks.append(host.popen(command, env=os.environ | place, **options))
        for process in ranks:
            assert process.stdout is not None
            process.stdout.readline()
        yield [process.pid for process in ranks]


def record(pids: list[int], seconds: float, results: Any) -> None:
    """Record in a fresh process, as `netprof attach` would."""
    from netprof.probes.job.processes import find_job
    from netprof.session.options import RecordingOptions
    from netprof.session.recorder import TICK_S, Recorder
    from netprof.trace import TraceReader

    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "t.netprof"
        targets = [target for target in find_job(pids) if target.pid in pids]
        recorder = Recorder(targets, RecordingOptions(out=trace), [])
        recorder.start()
        begin = time.monotonic()
        steady_cpu, steady_begin = 0.0, 0.0
        while time.monotonic() - begin < seconds:
            recorder.job.wait(TICK_S)
            recorder.tick()
            if not steady_begin and time.monotonic() - begin > 2:
                steady_cpu, steady_begin = cpu_s(), time.monotonic()
        steady = (cpu_s() - steady_cpu) / (time.monotonic() - steady_begin)
        meta = recorder.stop("measured")
        rows = sum(batch.num_rows for batch in TraceReader(trace).batches("wire"))
    results.send((meta.cost, steady, rows, meta.losses))


def cpu_s() -> float:
    """Return this process's user and system time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    print(
        f"{'job':14} {'rows/s':>8} {'CPU':>7} {'CPU, steady':>12} {'peak memory':>12} {'trace':>10} {'merged bins':>12}"
    )
    for name, job in (("64 busy flows", busy_flows(64)), ("2-rank DDP", ddp_job())):
        with job as pids:
            results, theirs = multiprocessing.Pipe()
            arguments = (pids, options.seconds, theirs)
            process = multiprocessing.get_context("spawn").Process(target=record, args=arguments)
            process.start()
            cost, steady, rows, losses = results.recv()
            process.join()
        per_s = cost.trace_bytes / cost.wall_s / 1e3
        print(
            f"{name:14} {rows / cost.wall_s:8.0f} {cost.cpu_s / cost.wall_s:7.2%} {steady:12.2%} "
            f"{cost.peak_memory_bytes / 1e6:9.0f} MB {per_s:5.0f} kB/s {losses.merged_bins:12d}",
            flush=True,
        )


if __name__ == "__main__":
    main()
