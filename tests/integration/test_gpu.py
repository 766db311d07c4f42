"""GPUs without a GPU: a stub libnvidia-ml.so.1 with the real signatures, loaded through the real pynvml."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.training import netprof, training

from netprof.schema import GpuMetric
from netprof.trace import TraceReader

pytest.importorskip("pynvml")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the stub needs gcc to be compiled"),
    pytest.mark.usefixtures("stub"),
]
PROGRAMS = Path(__file__).parents[1] / "programs"
GRID_US = 166_667
JOB = 4242  # a pid that the stub's GPUs name; no process needs to have it
M = GpuMetric


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the stub."""
    folder = tmp_path_factory.mktemp("nvml")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / "libnvidia-ml.so.1")]
    subprocess.run([*command, str(PROGRAMS / "nvml_stub.c")], check=True)
    return folder


class Machine:
    """The stub's script, and the environment in which programs find the stub."""

    def __init__(self, stub: Path, folder: Path) -> None:
        self._script = folder / "script"
        self.shutdowns = folder / "shutdowns"
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": str(stub),
            "NVML_STUB": str(self._script),
            "NVML_STUB_SHUTDOWN": str(self.shutdowns),
        }

    def has(self, text: str) -> None:
        """Replace the script in one step."""
        partial = self._script.with_suffix(".new")
        partial.write_text(text)
        partial.rename(self._script)


@pytest.fixture
def machine(stub: Path, tmp_path: Path) -> Machine:
    return Machine(stub, tmp_path)


class Prober:
    """The probe in a process of its own."""

    def __init__(self, environment: dict[str, str], *pids: object) -> None:
        command = [sys.executable, str(PROGRAMS / "gpu_probe.py"), *map(str, pids)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._answer()["pid"]
        self.rows: list[dict[str, float]] = []
        self.clock_ns = 0  # real time minus monotonic

    def say(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer = self._answer()
        if columns := answer.pop("rows", None):
            self.rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            self.clock_ns = answer["realtime_ns"] - answer["monotonic_ns"]
        return answer

    def until(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Sample until the answer is as wanted; a minute at most."""
        for _ in range(240):
            if condition(answer := self.say("sample 0.25")):
                return answer
        raise AssertionError(f"not within a minute: {answer}")

    def of(self, metric: GpuMetric, gpu: int | None = None, since: int = 0) -> list[dict[str, float]]:
        return [row for row in self.rows[since:] if row["metric"] == metric and gpu in (None, row["gpu"])]

    def end(self) -> dict[str, Any]:
        answer = self.say("stop")
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture
def prober() -> Iterator[Callable[..., Prober]]:
    started: list[Prober] = []

    def start(environment: dict[str, str], *pids: object) -> Prober:
        started.append(Prober(environment, *pids))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def lines(answer: dict[str, Any]) -> str:
    return "\n".join(f"{entry['name']}: {entry['reason']} ({entry['remedy']})" for entry in answer["skipped"])


@pytest.mark.core
def test_only_the_jobs_gpu_with_its_values(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has(
        f"gpus 3\n0.pids 77\n1.pids 77,{JOB}\n1.power_mw 612000\n1.used 5000000000\n1.sm_mhz 1410\n1.mem_mhz 1593\n"
        "1.reasons 68\n1.mem_util 33\n1.process_util 44\n1.pcie_bps 20000000000\n1.nvlink_bps 90000000000\n"
    )
    probe = prober(machine.environment, JOB)
    probe.until(lambda answer: len(probe.of(M.PCIE_TX_BYTES_PER_S)) > 20 and len(probe.of(M.PROCESS_BUSY_PERCENT)) > 2)
    answer = probe.end()
    assert {row["gpu"] for row in probe.rows} == {1}
    (gpu,) = answer["gpus"]
    assert (gpu["index"], gpu["pids"], gpu["memory_bytes"]) == (1, [JOB], 80 << 30)
    assert gpu["found_by"] == "NVML lists the processes as computing on it"
    assert answer["skipped"] == []
    exact = {
        M.MEMORY_BUSY_PERCENT: 33,
        M.MEMORY_USED_BYTES: 5e9,
        M.POWER_W: 612,
        M.SM_CLOCK_MHZ: 1410,
        M.MEMORY_CLOCK_MHZ: 1593,
        M.THROTTLE_REASONS: 68,
        M.SM_ACTIVE_PERCENT: 42,
        M.SM_OCCUPANCY_PERCENT: 43,
        M.TENSOR_ACTIVE_PERCENT: 45,
        M.DRAM_BANDWIDTH_PERCENT: 50,
        M.PROCESS_BUSY_PERCENT: 44,
    }
    for metric, value in exact.items():
        assert {row["value"] for row in probe.of(metric)} == {value}, metric
    assert {row["pid"] for row in probe.rows} == {0, JOB}
    rates = {
        M.PCIE_TX_BYTES_PER_S: 20e9,  # a counter of 32 bits wraps every 0.21 s at that
        M.PCIE_RX_BYTES_PER_S: 10e9,
        M.NVLINK_TX_BYTES_PER_S: 90e9,
        M.NVLINK_RX_BYTES_PER_S: 45e9,
    }
    for metric, value in rates.items():
        found = np.array([row["value"] for row in probe.of(metric)])
        assert np.abs(found / value - 1).max() < 0.01, metric
    assert machine.shutdowns.read_text() == "shutdown\n"


def test_utilization_has_nvmls_own_times_on_our_clock(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has(f"0.pids {JOB}\n0.util 80\n0.util2 20\n")
    probe = prober(machine.environment, JOB)
    probe.until(lambda answer: len(probe.of(M.BUSY_PERCENT)) >= 15)
    samples = probe.of(M.BUSY_PERCENT)
    real_us = np.array([(row["time_ns"] + probe.clock_ns) / 1000 for row in samples])
    ticks = np.round(real_us / GRID_US)
    assert (np.diff(ticks) == 1).all(), "a sample is missing or was taken twice"
    assert np.abs(real_us - ticks * GRID_US).max() < 1000
    expected = [20.0 if int(tick) * GRID_US // 1_000_000 % 2 else 80.0 for tick in ticks]
    assert [row["value"] for row in samples] == expected
    assert {row["period_ns"] for row in samples} <= {GRID_US * 1000, 1_000_000_000 // 6}


@pytest.mark.core
def test_a_gpu_lost_while_recording_ends_alone(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has(f"gpus 2\n0.pids {JOB}\n1.pids {JOB}\n")
    probe = prober(machine.environment, JOB)
    probe.until(lambda answer: len(answer["gpus"]) == 2 and probe.of(M.POWER_W, 1))
    machine.has(f"gpus 2\n0.pids {JOB}\n1.pids {JOB}\n1.lost 1\n")
    answer = probe.until(lambda answer: answer["skipped"])
    assert [(entry["name"], entry["reason"]) for entry in answer["skipped"]] == [
        ("gpu:1", "GPU 1 gives no more samples: GPU is lost")
    ]
    assert "dmesg" in answer["skipped"][0]["remedy"]
    before = len(probe.rows)
    probe.until(lambda answer: len(probe.of(M.POWER_W, 0, before)) > 10)
    assert {row["gpu"] for row in probe.rows[before:]} == {0}
    assert [gpu["index"] for gpu in probe.end()["gpus"]] == [0, 1]


def test_what_one_gpu_lacks_is_one_line_and_the_next_best_source_takes_over(
    machine: Machine, prober: Callable[..., Prober]
) -> None:
    machine.has(
        f"gpus 2\n0.pids {JOB}\n1.pids {JOB}\nfail.nvmlDeviceGetSamples 3\nfail.field.186 3\n1.fail.field.197 3\n"
        "fail.field.138 3\nfail.gpm.60 3\nfail.gpm.61 3\n1.fail.nvmlGpmSampleGet 4\n"
        "fail.nvmlDeviceGetCurrentClocksEventReasons 13\n1.pcie_bps 8000000000\n0.power_mw 250000\n1.power_mw 250000\n"
    )
    probe = prober(machine.environment, JOB)
    answer = probe.until(lambda answer: len(answer["skipped"]) >= 3 and len(probe.of(M.PCIE_TX_BYTES_PER_S, 1)) > 1)
    text = lines(answer)
    assert "GPU 0, 1: no memory utilization: Not Supported" in text
    assert "GPU 1: no GPM (SM, tensor and memory bandwidth activity)" in text
    assert "Insufficient Permissions (run as root" in text
    assert "NVLink bytes" in text
    assert "Insufficient Permissions" not in "".join(line for line in text.splitlines() if "GPU 0" in line)
    for gpu in answer["gpus"]:
        sources = " ".join(gpu["sources"])
        assert "nvmlDeviceGetUtilizationRates, polled" in sources
        assert "nvmlDeviceGetPowerUsage" in sources
        assert "nvmlDeviceGetCurrentClocksThrottleReasons" in sources
    assert {row["value"] for row in probe.of(M.POWER_W)} == {250}
    assert {row["period_ns"] for row in probe.of(M.POWER_W)} == {1_000_000_000}
    assert {row["value"] for row in probe.of(M.PCIE_TX_BYTES_PER_S, 1)} == {8e9}
    assert {row["period_ns"] for row in probe.of(M.PCIE_TX_BYTES_PER_S, 1)} == {20_000_000}
    assert probe.of(M.SM_ACTIVE_PERCENT, 0)
    assert not probe.of(M.SM_ACTIVE_PERCENT, 1)
    assert not probe.of(M.NVLINK_TX_BYTES_PER_S)


@pytest.mark.core
def test_gpm_takes_over_pcie_and_nvlink(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has(f"0.pids {JOB}\nfail.field.197 3\nfail.field.139 3\n")
    probe = prober(machine.environment, JOB)
    probe.until(lambda answer: len(probe.of(M.NVLINK_RX_BYTES_PER_S)) > 2 and len(probe.of(M.PCIE_RX_BYTES_PER_S)) > 2)
    for metric in (M.PCIE_TX_BYTES_PER_S, M.PCIE_RX_BYTES_PER_S, M.NVLINK_TX_BYTES_PER_S, M.NVLINK_RX_BYTES_PER_S):
        assert {row["value"] for row in probe.of(metric)} == {100.0 * (1 << 20)}
    assert probe.end()["skipped"] == []


def test_an_error_that_passes_costs_nothing_but_its_samples(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has(f"0.pids {JOB}\n")
    probe = prober(machine.environment, JOB)
    probe.until(lambda answer: probe.of(M.POWER_W))
    machine.has(f"0.pids {JOB}\nfail.nvmlDeviceGetMemoryInfo 999\n")
    probe.say("sample 0.5")
    machine.has(f"0.pids {JOB}\n0.used 7\n")
    probe.until(lambda answer: 7 in {row["value"] for row in probe.of(M.MEMORY_USED_BYTES)})
    assert probe.end()["skipped"] == []


def test_a_call_that_never_returns_delays_nothing(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has(f"0.pids {JOB}\n")
    probe = prober(machine.environment, JOB)
    probe.until(lambda answer: probe.of(M.POWER_W))
    machine.has(f"0.pids {JOB}\ndelay.nvmlDeviceGetFieldValues 3600000000\n")
    answer = probe.until(lambda answer: answer["skipped"])
    assert "NVML has not answered the fast readings of GPU 0 for" in lines(answer)
    before = len(probe.rows)
    probe.until(lambda answer: len(probe.of(M.BUSY_PERCENT, 0, before)) > 2)  # the slow thread goes on
    assert "has not answered" in lines(probe.say("stop"))
    probe.say("sample 3")  # time in which the slow thread could do harm
    probe.end()  # the process ends although the call does not
    assert not machine.shutdowns.exists(), "NVML was shut down under a call"


def test_a_gpu_that_the_job_begins_to_use_later(machine: Machine, prober: Callable[..., Prober]) -> None:
    machine.has("gpus 2\n0.pids 77\n")
    probe = prober(machine.environment, JOB)
    answer = probe.until(lambda answer: answer["skipped"])
    assert lines(answer) == "gpu: none of the 2 GPUs of this machine is used by the job ()"
    assert answer["started"] == []
    probe.say(f"follow {JOB},77")
    answer = probe.until(lambda answer: answer["gpus"])
    assert answer["gpus"][0]["pids"] == [77]
    machine.has(f"gpus 2\n0.pids 77,{JOB}\n")
    answer = probe.until(lambda answer: len(answer["gpus"][0]["pids"]) == 2)
    assert answer["skipped"] == []
    assert answer["started"][0]["detail"].startswith("GPU 0: polled at up to 50 Hz")


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device file's stand-in needs root")
def test_in_a_container_open_device_files_tell(machine: Machine, prober: Callable[..., Prober]) -> None:
    names = [Path(f"/dev/nvidia{minor}") for minor in (96, 97)]
    machine.has("gpus 2\n0.minor 96\n1.minor 97\n0.pids 9000001\n1.pids 9000001\n")  # the host's pids
    try:
        for name in names:
            name.touch()
        hold = "import sys; files = [open(name) for name in sys.argv[1:]]; print(flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", hold, *map(str, names)]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "GPU-00000001"}
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            probe = prober(machine.environment, holder.pid)
            answer = probe.until(lambda answer: answer["gpus"])
            holder.kill()
        (gpu,) = answer["gpus"]
        assert (gpu["index"], gpu["pids"]) == (1, [holder.pid])
        assert gpu["found_by"] == (
            "inferred: the processes hold its device file open and CUDA_VISIBLE_DEVICES names it"
        )
    finally:
        for name in names:
            name.unlink()


@pytest.mark.core
@pytest.mark.parametrize(
    ("script", "reason", "remedy"),
    [
        ("init 9\n", "NVML does not start: Driver Not Loaded", "load the nvidia kernel module"),
        ("init 18\n", "RM has detected an NVML/RM version mismatch", "reload the module or restart"),
        ("init 999\n", "NVML does not start: Unknown Error", "nvidia-smi"),
        ("fail.nvmlDeviceGetCount_v2 999\n", "NVML does not count the GPUs: Unknown Error", "nvidia-smi"),
        ("0.fail.nvmlDeviceGetHandleByIndex_v2 15\n", "GPU 0 cannot be opened: GPU is lost", "dmesg"),
    ],
)
def test_a_driver_that_does_not_work(
    machine: Machine, prober: Callable[..., Prober], script: str, reason: str, remedy: str
) -> None:
    machine.has(script)
    probe = prober(machine.environment, JOB)
    answer = probe.until(lambda answer: answer["skipped"])
    assert reason in answer["skipped"][0]["reason"]
    assert remedy in answer["skipped"][0]["remedy"]
    probe.end()
    assert probe.rows == []


def test_doctor_names_the_gpus_what_they_lack_and_the_jobs(machine: Machine) -> None:
    machine.has(f"gpus 2\n1.pids {os.getpid()}\nfail.field.138 3\nfail.gpm.60 3\nfail.gpm.61 3\n")
    done = netprof("doctor", str(os.getpid()), "--json", env=machine.environment)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["GPUs"]["detail"] == "2 (Stub GPU), driver 580.00.stub"
    assert checks["metrics of GPU 0"]["detail"] == "no NVLink bytes: Not Supported"
    assert checks["GPU 1"]["detail"].startswith(f"used by {os.getpid()}: NVML lists")
    assert "GPU 0" not in checks
    machine.has("init 9\n")
    done = netprof("doctor", "--json", env=machine.environment)
    (check,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "GPUs"]
    assert (check["status"], check["detail"]) == (
        "info",
        "NVML does not start: Driver Not Loaded: GPU activity is not sampled",
    )


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(_has_driver(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_nothing_is_even_imported(prober: Callable[..., Prober]) -> None:
    probe = prober(dict(os.environ), JOB)
    answer = probe.until(lambda answer: answer["skipped"])
    assert lines(answer).startswith("gpu: no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded (where there are GPUs")
    assert not probe.end()["pynvml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="attaching needs root")
def test_a_recording_holds_the_gpus_and_the_report_shows_them(machine: Machine, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
    trace = tmp_path / "gpu.netprof"
    with training([subprocess.Popen] * 2, tmp_path) as job:
        machine.has(
            f"gpus 3\n0.pids {job.pids[0]}\n1.pids 1\n2.pids {job.pids[1]}\n0.reasons 4\n2.util 90\n"
            "fail.nvmlGpmQueryDeviceSupport 3\n"
        )
        command = ("attach", str(job.pids[0]), "--out", str(trace), "--json", "--no-live", "--duration", "4s")
        done = netprof(*command, env=machine.environment)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        pids = job.pids
    meta = TraceReader(trace).meta
    assert [(gpu.index, gpu.pids) for gpu in meta.gpus] == [(0, (pids[0],)), (2, (pids[1],))]
    assert [gpu["ranks"] for gpu in report["gpus"]] == [[0], [1]]
    busy = report["gpus"][1]["metrics"]["busy_percent"]
    assert busy["mean"] == pytest.approx(90)
    assert busy["resolution_s"] == pytest.approx(1 / 6, rel=0.01)
    assert report["gpus"][1]["window"] == "iterations"
    assert report["gpus"][0]["throttled"] == {"power cap": 1.0}
    times = TraceReader(trace).table("gpu").column("time_ns").to_numpy()
    assert (times > meta.clock.monotonic_ns - 1_000_000_000).all()
    assert (times <= (meta.stopped_ns or 0) + 3_000_000_000).all()
    text = netprof("report", "--full", str(trace)).stdout
    assert "GPUs  means over the iterations" in text
    words = " ".join(text.split())
    assert "probe gpu:metrics was skipped: GPU 0, 2: no GPM" in words
    assert "GPU 0 was slowed down in 100% of the samples: power cap" in words
    assert "busy 166.7 ms" in words
