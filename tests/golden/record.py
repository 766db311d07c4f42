"""Record the golden traces again: real jobs from examples/, between network namespaces.

    sudo .venv/bin/python tests/golden/record.py            all of them
    sudo .venv/bin/python tests/golden/record.py late-rank  some of them
    make golden UPDATE=1                                    then what netprof concludes from them

Each recording is a folder tests/golden/recordings/NAME with one trace (several for a job on several hosts) and
truth.json: what was done to the job and what a report should therefore say. Paths of this checkout and the kernel's
local version are removed from the description. Needs root, torch, tcpdump, Open MPI with mpi4py, and for `horovod`
what examples/build_horovod installs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT / "examples"), str(CHECKOUT / "tests")]

from causes import play  # noqa: E402
from causes_cases import CASES  # noqa: E402
from lab import Lab  # noqa: E402
from program import NETPROF  # noqa: E402
from separate_recorders import record as record_hosts  # noqa: E402

RECORDINGS = Path(__file__).parent / "recordings"
EXAMPLES = CHECKOUT / "examples"
_SECONDS = 3.0

Recorder = Callable[[Path], Mapping[str, Any]]
"""Leaves traces in a folder, and returns what is true of them."""


def case(name: str, **changes: Any) -> Recorder:
    """A case of examples/causes.py, with other settings."""

    def record(out: Path) -> Mapping[str, Any]:
        played = play(name, replace(CASES[name].setting, **({"seconds": _SECONDS} | changes)), out)
        (out / f"{name}.json").unlink()
        setting = {key: value for key, value in played.truth["setting"].items() if value}
        return {"about": CASES[name].about, "setting": setting, "expected": played.truth["expected"]}

    return record


def hidden_ends(out: Path) -> Mapping[str, Any]:
    """A job on gloo of which only begins are seen, as of a library whose functions end inline."""
    from support.hidden_ends import ENDS, without

    truth = case("undisturbed", gradient_mb=6.0)(out)
    _changed(out, lambda trace, to: without(trace, to, ENDS))
    return {**truth, "about": "the same without any mark that tells the end of something"}


def launches_only(out: Path) -> Mapping[str, Any]:
    """A job on gloo as if NCCL performed it on GPUs, whose host launches twice as fast as they compute."""
    from support.hidden_ends import on_gpu

    truth = case("undisturbed", gradient_mb=6.0)(out)
    _changed(out, lambda trace, to: on_gpu(trace, to, 2.0))
    return {**truth, "about": "launches of NCCL, and bytes that move long after them"}


def _changed(out: Path, change: Callable[[Path, Path], Path]) -> None:
    (trace,) = out.glob("*.netprof")
    whole = trace.rename(out / "whole")
    change(whole, trace)
    shutil.rmtree(whole)


def rdma_ports(out: Path) -> Mapping[str, Any]:
    """Two ranks whose gradients go over scripted RDMA ports (tests/programs/port_ddp.py)."""
    from integration.test_rdma import recorded
    from support.rdma_tree import Tree
    from support.training import training

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tree = Tree(place / "sys")
        for _ in range(2):
            tree.port("mlx5", rate="1 Gb/sec (4X NDR)")
        options = ("--root", str(tree.root), "--gbit", "0.97", "--megabytes", "12")
        program = CHECKOUT / "tests" / "programs" / "port_ddp.py"
        with training([subprocess.Popen] * 2, place, *options, program=program) as job:
            recorded(tree, job.pids, out / "rdma-ports.netprof", _SECONDS)
    return {"about": "gradients over RDMA ports of 1 Gbit/s", "expected": {"verdict_case": "link_full"}}


def capture(out: Path) -> Mapping[str, Any]:
    """What tcpdump captured beside a DDP job, imported."""
    with _training(rate="1gbit", job=("--gradient-mb", "6")) as (lab, _), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.pcap"
        command = ["tcpdump", "-i", lab[0].device, "-w", str(file), "-U", "-Z", "root", "-s", "96", "-B", "65536"]
        tcpdump = lab[0].popen(command, stderr=subprocess.DEVNULL)
        time.sleep(_SECONDS)
        tcpdump.send_signal(signal.SIGINT)
        tcpdump.wait(30)
        _run(NETPROF, "capture", str(file), "--line-rate", "1gbit", "-o", str(out / "capture.netprof"))
    return {"about": "a packet capture of two ranks that exchange 6 MB a step over 1 Gbit/s"}


def two_hosts(out: Path) -> Mapping[str, Any]:
    """A job whose hosts are recorded by a recorder each, the second with another clock."""
    from shifted_clock import shift

    with tempfile.TemporaryDirectory() as folder:
        parts, _ = record_hosts(Path(folder), hosts=2, seconds=3, job=["--gradient-mb", "6", "--data-ms", "20"])
        shift(parts[0], out / "host0.netprof")
        shift(parts[1], out / "host1.netprof", -412_345_678, 50e-6, host="other")
    return {"about": "two hosts, the second's clock 0.41 s behind and 50 ppm fast"}


def fsdp_accumulating(out: Path) -> Mapping[str, Any]:
    """FSDP whose steps have two backward passes."""
    command = [sys.executable, str(EXAMPLES / "fsdp_train.py"), "--accumulate", "2", "--gradient-mb", "6"]
    return _attached(out, command, "FSDP on loopback, two backward passes before each step")


def mpi(out: Path) -> Mapping[str, Any]:
    """Gradients averaged by MPI."""
    from support.mpi import Mpi

    command = [sys.executable, str(EXAMPLES / "mpi_train.py"), "--how", "posted", "--gradient-mb", "4"]
    with tempfile.TemporaryDirectory() as folder, Mpi("openmpi").job(Path(folder), command) as job:
        job.wait_for("training", 2)
        _attach(job.pids, out / "mpi.netprof")
    return {"about": "gradients averaged by Open MPI over TCP on loopback"}


def collectives(call: str, ranks: int, late: int) -> Recorder:
    """Collectives of torch's between steps, one rank late: examples/late_collectives.py."""

    def record(out: Path) -> Mapping[str, Any]:
        from late_collectives import parse, play

        options = parse(["--ranks", str(ranks), "--seconds", "1.5"])
        is_right, report = play(call, late, options, out / f"{out.name}.netprof")
        assert is_right, report["headline"]
        return {"about": f"{call}, {ranks} ranks", "expected": {"late_rank": late}}

    return record


def horovod(out: Path) -> Mapping[str, Any]:
    """Gradients averaged by Horovod."""
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "--gloo"]
    command = [*launcher, sys.executable, str(EXAMPLES / "horovod_train.py"), "--gradient-mb", "4", "--seconds", "60"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with tempfile.TemporaryFile("w+") as said:
        job = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | {"PATH": path}, start_new_session=True
        )
        try:
            pids = list[int]()
            while len(pids) < 2:
                time.sleep(0.1)
                said.seek(0)
                pids = [int(pid) for pid in re.findall(r"pid=(\d+)", said.read())]
            time.sleep(1)
            _attach(pids, out / "horovod.netprof")
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return {"about": "gradients averaged by Horovod on gloo"}


def sampled(out: Path) -> Mapping[str, Any]:
    """A recorder without rights beside its own user's job: bytes sampled, iterations inferred."""
    from support.unprivileged import NOBODY

    job = ("--gradient-mb", "12", "--data-ms", "120")
    with _training(rate="1gbit", job=job, user=NOBODY) as (lab, pids), tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        trace = Path(folder) / "sampled.netprof"
        command = [*NOBODY, *_command(pids[:1], trace, seconds=6.0)]
        subprocess.run(lab[0].command(command), check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(trace, out / trace.name)
    return {"about": "bytes sampled by TCP's own totals, without a mark"}


def damaged(out: Path) -> Mapping[str, Any]:
    """A trace that was cut and of which some bytes were changed."""
    truth = case("late-rank")(out)
    (trace,) = out.glob("*.netprof")
    wire, tcp = (trace / f"{name}.arrows" for name in ("wire", "tcp"))
    wire.write_bytes(wire.read_bytes()[: wire.stat().st_size * 2 // 3])
    bytes_of_tcp = bytearray(tcp.read_bytes())
    bytes_of_tcp[len(bytes_of_tcp) // 2] ^= 0xFF
    tcp.write_bytes(bytes_of_tcp)
    return {**truth, "about": "two thirds of table wire, and a flipped byte in table tcp"}


def evaluation(out: Path) -> Mapping[str, Any]:
    """A job that only evaluates while it is recorded: no gradient moves."""
    with _training(rate="1gbit", job=("--gradient-mb", "2", "--eval-every", "1", "--data-ms", "400")) as (_, pids):
        _attach(pids, out / "evaluation.netprof")
    return {"about": "hardly a step: each is followed by an evaluation and slow data"}


CAUSES = (
    "undisturbed", "late-rank", "late-in-turn", "others-udp", "delay", "small-receive-buffers", "host",
    "slow-to-unpack", "unseen-way", "unseen-member", "compute-bound", "two-in-one-step", "two-in-turn", "accumulate",
    "sharded", "no-rank-environment",
)  # fmt: skip
EVERY: dict[str, Recorder] = {name: case(name) for name in CAUSES} | {
    "slow-leg": case("slow-leg", seconds=2.0),
    "slow-leg-receive": case("slow-leg-receive", seconds=2.0),
    "many-small": case("many-small", seconds=2.0),
    "pairs": case("pairs", gradient_mb=4.0, seconds=2.0),
    "fifth-step-late": case("fifth-step-late", late_every=3, late_ms=500.0, compute_ms=60.0, seconds=4.0),
    "loss": case("loss-10", seconds=4.0),
    "pipeline-of-three": case("pipeline-of-three", seconds=2.0),
    "sockets": case("sockets", seconds=2.0, bin="5ms"),
    "garbage-in-turn": case("garbage-in-turn", seconds=3.0, bin="5ms"),
    "hung": case("hung"),
    "link-stalls": case("link-stalls", seconds=4.0, compute_ms=60.0, blocked_every_s=1.0, blocked_s=0.3),
    "stopped": case("stopped", seconds=4.0, stopped_after_s=1.5),
    "stopped-a-while": case("stopped-a-while", seconds=4.0, stopped_after_s=1.0, stopped_s=1.0),
    "pod-limit": case("pod-limit", seconds=1.5, gradient_mb=6.0),
    "two-nics-one-subnet": case("two-nics-one-subnet", seconds=2.0, gradient_mb=4.0),
    "mtu-hole": case("mtu-hole", seconds=4.0, mtu_hole_s=1.0),
    "link-down": case("link-down", seconds=4.0, compute_ms=60.0, blocked_every_s=1.5, blocked_s=0.5),
    "batch-norm-late": collectives("ddp batch_norm", ranks=3, late=2),
    "gather-late": collectives("gather+broadcast", ranks=4, late=2),
    "hidden-ends": hidden_ends,
    "launches-only": launches_only,
    "rdma-ports": rdma_ports,
    "capture": capture,
    "two-hosts": two_hosts,
    "fsdp-accumulating": fsdp_accumulating,
    "mpi": mpi,
    "horovod": horovod,
    "sampled": sampled,
    "damaged": damaged,
    "evaluation": evaluation,
}


def pack(folder: Path) -> None:
    """Compress the tables of a folder's traces as far as goes, batch by batch: the repository keeps them."""
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=19))
    for path in folder.rglob("*.arrows"):
        with (
            suppress(pa.ArrowInvalid, OSError),
            pa.ipc.open_stream(path.read_bytes()) as stream,
        ):  # a damaged one stays as it is
            batches, packed = list(stream), pa.BufferOutputStream()
            with pa.ipc.new_stream(packed, stream.schema, options=options) as out:
                for batch in batches:
                    out.write_batch(batch)
            if packed.tell() < path.stat().st_size:
                path.write_bytes(packed.getvalue())


@contextmanager
def _training(
    *, rate: str, job: tuple[str, ...], user: tuple[str, ...] = (), ranks: int = 2
) -> Iterator[tuple[Lab, list[int]]]:
    """Run examples/train.py, a rank a host, for the block."""
    with Lab(ranks, rate=rate) as lab:
        processes = []
        for rank in range(ranks):
            place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": "29511"}
            environment = os.environ | place | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
            command = [*user, sys.executable, str(EXAMPLES / "train.py"), "--seconds", "100", *job]
            processes.append(lab[rank].popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("training")
        time.sleep(1)
        yield lab, [process.pid for process in processes]


def _attached(out: Path, command: list[str], about: str) -> Mapping[str, Any]:
    """Run two ranks on loopback, and record them."""
    processes = []
    for rank in range(2):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
        environment = os.environ | place | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("training")
        time.sleep(0.5)
        _attach([process.pid for process in processes], out / f"{out.name}.netprof")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {"about": about}


def _command(pids: list[int], trace: Path, seconds: float = _SECONDS) -> list[str]:
    duration = ("--duration", f"{seconds}s", "--no-live", "--json", "--out", str(trace))
    return [NETPROF, "attach", *map(str, pids), *duration]


def _attach(pids: list[int], trace: Path) -> None:
    _run(*_command(pids, trace))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)


def record(name: str) -> None:
    """Record one, and put it in the place of the one before."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        out = Path(folder) / name
        out.mkdir()
        truth = EVERY[name](out)
        for meta in out.glob("*/meta.json"):
            meta.write_text(_of_no_machine(meta.read_text(), folder))
        (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        shutil.rmtree(RECORDINGS / name, ignore_errors=True)
        shutil.copytree(out, RECORDINGS / name)


def _of_no_machine(text: str, folder: str) -> str:
    """Remove what names this machine's folders and its kernel's local version."""
    release = platform.release()
    text = text.replace(str(CHECKOUT), "/opt/netprof").replace(folder, "/tmp/golden")
    return text.replace(release, release.partition("-")[0])


def main() -> int:
    """Record what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*EVERY, []], metavar="NAME", help="default: all")
    for name in parser.parse_args().names or EVERY:
        begin_s = time.monotonic()
        record(name)
        pack(RECORDINGS / name)
        size = sum(file.stat().st_size for file in (RECORDINGS / name).rglob("*") if file.is_file())
        print(f"{name:24} {time.monotonic() - begin_s:5.1f} s {size / 1e3:8.1f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
