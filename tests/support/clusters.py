"""Clusters on one machine, for the recipes of docs/many-hosts.md: hosts with an sshd each, or nodes of a Slurm.

A host is a network namespace with a host name of its own. Daemons run with configuration files of their own, below a
temporary folder; nothing of the system's is touched. Needs root, and Debian's openssh-server, or slurmctld, slurmd,
slurm-client and munge.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import Host, Lab

from support.host_of_a_user import UserHost

PATIENCE_S = 60.0
SSHD, SLURM = ("sshd", "ssh-keygen"), ("slurmctld", "slurmd", "munged", "srun")


def has(programs: Sequence[str]) -> bool:
    """Say whether programs are installed."""
    return all(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for name in programs)


class SshHosts:
    """Hosts node0 and node1, to which ssh leads from anywhere in the lab; `shared` is a folder that all see.

    On each the program `netprof` may look only at processes of a user of its own, as whom `ssh(host, "job ...")` runs
    what comes after: on one machine a recorder would see the processes of the other host too.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
        Path("/run/sshd").mkdir(exist_ok=True)
        self.users = [UserHost(number, folder / f"home{number}") for number in range(len(lab.hosts))]
        for number, host in enumerate(lab.hosts):
            self._start(number, host)

    def ssh(self, number: int, line: str) -> list[str]:
        """Return the command that runs a line on a host, by ssh."""
        how = ["-i", str(self.folder / "key"), "-F", "none", "-o", "UserKnownHostsFile=/dev/null"]
        how += ["-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]
        return self.lab[0].command(["ssh", *how, f"root@{self.lab[number].ipv4}", line])

    def _start(self, number: int, host: Host) -> None:
        programs = self.folder / f"bin{number}"
        programs.mkdir()
        user = self.users[number]
        _script(programs / "netprof", user.command([sys.executable, "-m", "netprof"], ("bpf", "perfmon", _READ)))
        _script(programs / "job", user.command(["env", "OMP_NUM_THREADS=1", sys.executable]))
        configuration = self.folder / f"sshd{number}"
        configuration.write_text(
            f"ListenAddress {host.ipv4}\nHostKey {self.folder}/key\nAuthorizedKeysFile {self.folder}/key.pub\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n"
            f"SetEnv PATH={programs}:/usr/local/bin:/usr/bin:/bin PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n"
        )
        daemon = f"hostname node{number}; exec /usr/sbin/sshd -D -e -f {configuration}"
        host.popen(["unshare", "--uts", "sh", "-c", daemon], stderr=(self.folder / f"sshd{number}.log").open("w"))
        _until(lambda: subprocess.run(self.ssh(number, "true"), capture_output=True, check=False).returncode == 0)

    def stop(self) -> None:
        """Kill what still runs as the hosts' users."""
        for user in self.users:
            user.stop()


class SlurmNodes:
    """Nodes node0 and node1 of a Slurm whose controller is on a third host, `head`.

    Each node has a PID namespace of its own, and so processes of its own.
    """

    def __init__(self, lab: Lab, folder: Path, *configuration: str) -> None:
        self.lab, self.folder = lab, folder
        self.head = lab[2]
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._munge()
        lines = (_SLURM_CONF.format(folder=folder, cpus=os.cpu_count()), *configuration, "")
        (folder / "slurm.conf").write_text("\n".join(lines))
        (folder / "state").mkdir()
        self._daemon(self.head, "head", ["slurmctld", "-D", "-i"], ["--uts"])
        for number in range(2):
            own = ["--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
            self._daemon(lab[number], f"node{number}", ["slurmd", "-D"], own)
        _until(lambda: self.run("sinfo", "-h", "-o", "%T", check=False).split() == ["idle"])

    def command(self, *words: str) -> list[str]:
        """Return a command of Slurm that runs on the head."""
        return self.head.command(["unshare", "--uts", "sh", "-c", f"hostname head; exec {shlex.join(words)}"])

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command of Slurm on the head and return what it prints."""
        done = subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True, check=check, timeout=120
        )
        return done.stdout

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command of Slurm on the head."""
        process = subprocess.Popen(self.command(*words), env=self.environment, text=True, **options)
        self.head.processes.append(process)
        return process

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        places = {"key": key.name, "socket": "munge.sock", "pid": "munge.pid", "log": "munge.log", "seed": "munge.seed"}
        words = [
            f"--{name}{'' if name == 'socket' else '-file'}={self.folder / place}" for name, place in places.items()
        ]
        with (self.folder / "munged.out").open("w") as log:
            self.head.processes.append(subprocess.Popen(["/usr/sbin/munged", "-F", "--force", *words], stderr=log))
        _until(lambda: (self.folder / "munge.sock").exists())

    def _daemon(self, host: Host, name: str, words: Sequence[str], own: Sequence[str]) -> None:
        line = f"hostname {name}; exec /usr/sbin/{shlex.join(words)}"
        log = (self.folder / f"{name}.log").open("w")
        host.popen(["unshare", *own, "sh", "-c", line], env=self.environment, stdout=log, stderr=log)


_READ = "dac_read_search"
_SLURM_CONF = """
ClusterName=lab
SlurmctldHost=head(10.77.0.3)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=node0 NodeAddr=10.77.0.1 CPUs={cpus} State=UNKNOWN
NodeName=node1 NodeAddr=10.77.0.2 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


@contextmanager
def ssh_hosts(folder: Path) -> Iterator[SshHosts]:
    """Give two hosts with an sshd each for the block."""
    with Lab(2, rate="1gbit") as lab:
        hosts = SshHosts(lab, folder)
        try:
            yield hosts
        finally:
            hosts.stop()


@contextmanager
def slurm_nodes(folder: Path, *configuration: str) -> Iterator[SlurmNodes]:
    """Give a Slurm of two nodes for the block, with more lines for its configuration."""
    with Lab(3, rate="1gbit") as lab:
        yield SlurmNodes(lab, folder, *configuration)


def _script(path: Path, command: Sequence[str]) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _until(is_so: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the cluster did not come up: see the logs beside its configuration")
        time.sleep(0.2)
