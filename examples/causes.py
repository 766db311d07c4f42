"""Jobs that wait for a known reason: each case runs a real job between network namespaces, with one cause injected.

    sudo python examples/causes.py --list
    sudo python examples/causes.py late-rank --out /tmp/traces --late-ms 250 --ranks 3
    netprof report /tmp/traces/late-rank.netprof

The job is recorded for some seconds. Beside the trace lies what is true, as JSON: `expected` (what a report should
say), `setting` (what the job was like and what was done to it), `ranks` (who was which rank, where, and the device's
counters before and after), `recorded_ns`, `events` (what happened once), `steps`: what each rank itself logged of
every step (see causes_train.py), and `cpus_away`, the share of the recording in which a CPU of this machine was not
there to play it (see cpus_away.py). All times are CLOCK_MONOTONIC, as in the trace. `report` is what netprof said.

Every field of a case's setting is an option; --help has them. Needs root, `ip`, `tc` and `bridge`, case `nat` also
`nft`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from causes_cases import CASES, Setting
from causes_disturb import LATE_FILE, begin, disturb, prepare_links
from cpus_away import CpusAway
from lab import NETNS_DIR, Host, Lab, LabError
from lab_paths import PathHost, PathLab
from program import NETPROF

TRAIN = Path(__file__).parent / "causes_train.py"


class CauseError(Exception):
    """The case could not be played; the message is one line."""


@dataclass(frozen=True)
class Played:
    """A recorded case: the trace, what is true of it, and what netprof said."""

    trace: Path
    truth: dict[str, Any]

    @property
    def report(self) -> dict[str, Any]:
        """The report as JSON."""
        report: dict[str, Any] = self.truth["report"]
        return report


def play(case: str, setting: Setting, out: Path) -> Played:
    """Run and record a case, and leave CASE.netprof and CASE.json in `out`. Raises CauseError, LabError."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{case}.", dir=out) as unfinished:
        truth = _play(setting, Path(unfinished))
        truth = {"case": case, "about": CASES[case].about, "expected": CASES[case].expected(setting), **truth}
        trace, told = out / f"{case}.netprof", out / f"{case}.json"
        shutil.rmtree(trace, ignore_errors=True)
        (Path(unfinished) / "t.netprof").rename(trace)
        (Path(unfinished) / "truth").write_text(json.dumps(truth, indent=1))
        (Path(unfinished) / "truth").rename(told)
    return Played(trace, truth)


def _play(setting: Setting, folder: Path) -> dict[str, Any]:
    """Run and record a job as `t.netprof` in `folder`; return what is true of it. Raises CauseError, LabError."""
    with _lab(setting) as lab:
        prepare_links(lab, setting)
        processes, pids = _start_job(lab, setting, folder)
        begin(lab, setting, pids)
        before = [_counters(lab[rank]) for rank in range(setting.ranks)]
        targets = [processes[0].pid]
        if setting.start == "each":
            targets = [pids[rank] for rank in setting.record or range(setting.ranks)]
        with CpusAway() as away, recording(targets, setting, folder / "t.netprof") as recorder:
            away.begin()
            events = disturb(lab, setting, pids, folder, recorder)
            told = recorder.communicate()[0]
            if recorder.returncode:
                raise CauseError(f"netprof attach ended with exit code {recorder.returncode}")
            report = json.loads(told)
            cpus_away, samples = away.share(), away.samples()
        after = [_counters(lab[rank]) for rank in range(setting.ranks)]
    meta = json.loads((folder / "t.netprof" / "meta.json").read_text())
    return {
        "setting": asdict(setting),
        "recorded_ns": [meta["started_ns"], meta["stopped_ns"]],
        "cpus_away": cpus_away,
        "cpus_away_samples": samples,
        "events": events,
        "ranks": [
            {"rank": rank, "pid": pids[rank], "address": lab[rank].ipv4, "before": before[rank], "after": after[rank]}
            for rank in range(setting.ranks)
        ],
        "steps": [read_steps(folder / f"rank{rank}.csv") for rank in range(setting.ranks)],
        "report": report,
    }


def _counters(host: Host) -> dict[str, int]:
    """Return what a host's device counted until now."""
    return {"time_ns": time.monotonic_ns(), **host.counters()}


def _lab(setting: Setting) -> Lab:
    """Return the hosts: one a rank, and one more where others talk."""
    others = setting.others != "none"
    if setting.network:
        speeds = {"rate": setting.rate, "slow_rate": setting.slow_rate}
        return PathLab(
            setting.network, setting.ranks + others, **speeds, slow_ranks=setting.slow_ranks, sends_by=setting.sends_by
        )
    return Lab(
        setting.ranks + others,
        rate=setting.rate,
        delay_ms=setting.delay_ms,
        offloads=setting.mtu == 1500,
        switch=setting.blocked_rank >= 0
        or setting.down_rank >= 0
        or setting.mtu != 1500
        or bool(setting.port_latency)
        or setting.slow_direction != "send",
    )


def _start_job(lab: Lab, setting: Setting, log: Path) -> tuple[list[subprocess.Popen[str]], dict[int, int]]:
    """Start the ranks and wait until all train; return the processes and each rank's pid. Raises CauseError."""
    command = [sys.executable, str(TRAIN), "--log", str(log), "--shared", str(log / "shared"), *_job_options(setting)]
    command += [f"--late-file={log / LATE_FILE}"] if setting.after_s else []
    command += ["--hosts", ",".join(str(NETNS_DIR / lab[rank].netns) for rank in range(setting.ranks))]
    port = 20_000 + os.getpid() % 10_000  # by address and port netprof finds the ranks: another lab has other ones
    place = {"MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": str(port), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    place["OMP_NUM_THREADS"] = "1"
    processes = []
    for rank in range(setting.ranks if setting.start == "each" else 1):
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | place
        host = lab[rank]
        environment |= host.environment if isinstance(host, PathHost) else {}
        if setting.start == "each":
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(setting.ranks)}
        if setting.record and rank not in setting.record:
            environment["MASTER_ADDR"] = _second_address(lab)
        processes.append(lab[rank].popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    pids = {}
    for process in processes:
        for _ in range(setting.ranks // len(processes)):
            words = process.stdout.readline().split() if process.stdout else []
            if not words:
                raise CauseError("the training job did not start (its own words are above)")
            pids[int(words[2].partition("=")[2])] = int(words[1].partition("=")[2])
    return processes, pids


def _second_address(lab: Lab) -> str:
    """Return another address of the first host: who meets the job there is not found as one of its ranks."""
    prefix = lab[0].network.rpartition(".")[0]
    lab[0].ip("address", "replace", f"{prefix}.200/24", "dev", lab[0].device)
    return f"{prefix}.200"


def _job_options(setting: Setting) -> list[str]:
    """Return the setting as options of causes_train.py."""
    names = [
        "gradient_mb",
        "layers",
        "batch",
        "compute_ms",
        "shape",
        "hook",
        "start",
        "accumulate",
        "late_ms",
        "late_every",
        "late_by",
    ]
    options = [f"--{name.replace('_', '-')}={getattr(setting, name)}" for name in names]
    options += [f"--late-ranks={','.join(map(str, setting.late_ranks))}"]
    options += [f"--bucket-mb={setting.bucket_mb}"] if setting.bucket_mb else []
    return options + [f"--{flag}" for flag in setting.extra.split(",") if flag]


@contextmanager
def recording(pids: Sequence[int], setting: Setting, trace: Path) -> Iterator[subprocess.Popen[str]]:
    """Record for the block, which has to read the report from the recorder's stdout. Raises CauseError."""
    options = ["--duration", f"{setting.seconds}s", "--bin", setting.bin, "--out", str(trace), "--no-live", "--json"]
    command = [NETPROF, "attach", *map(str, pids), *options]
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while not ((trace / "meta.json").exists() and json.loads((trace / "meta.json").read_text())["probes_started"]):
            if recorder.poll() is not None:
                raise CauseError("netprof did not start (its own words are above)")
            time.sleep(0.05)
        yield recorder
        if recorder.wait():
            raise CauseError(f"netprof attach ended with exit code {recorder.returncode}")
    finally:
        recorder.kill()
        recorder.wait()


def read_steps(path: Path) -> dict[str, list[int]]:
    """Return the whole lines of a rank's log, as columns."""
    text = path.read_text()
    rows = list(csv.DictReader(text[: text.rfind("\n")].splitlines()))
    return {name: [int(row[name]) for row in rows] for name in rows[0]}


def parse_args() -> argparse.Namespace:
    """Read the command line; a field of the setting that is not given is None."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", nargs="?", choices=CASES, metavar="CASE", help="see --list")
    parser.add_argument("--list", action="store_true", help="say which cases there are, and end")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for CASE.netprof and CASE.json")
    group = parser.add_argument_group("what to change of the case")
    for each in fields(Setting):
        kind = ranks_of if isinstance(each.default, tuple) else type(each.default)
        group.add_argument(f"--{each.name.replace('_', '-')}", type=kind, metavar="X", help=each.metadata["help"])
    args = parser.parse_args()
    if not args.case and not args.list:
        parser.error("which case? --list names them")
    return args


def ranks_of(text: str) -> tuple[int, ...]:
    """Read a list of ranks."""
    return tuple(int(number) for number in text.split(",") if number)


def changed(setting: Setting, args: argparse.Namespace) -> Setting:
    """Return a case's setting with what the command line says otherwise."""
    given = {each.name: getattr(args, each.name) for each in fields(Setting)}
    return replace(setting, **{name: value for name, value in given.items() if value is not None})


def main() -> int:
    """Play a case; return the exit code."""
    args = parse_args()
    if args.list:
        for name, case in CASES.items():
            print(f"{name:22} {case.cause or case.verdict_case:14} {case.about}")
        return 0
    try:
        played = play(args.case, changed(CASES[args.case].setting, args), args.out)
    except (CauseError, LabError) as error:
        print(f"causes: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("causes: interrupted; nothing is left", file=sys.stderr)
        return 130
    expected = played.truth["expected"]
    print(f"causes: {played.trace}: true {expected}, netprof said {played.report['verdict']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
