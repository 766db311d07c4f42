"""What a cgroup's path tells of containers, pods and jobs: as the engines and schedulers are known to name theirs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from netprof.model import Cgroup
from netprof.probes.job.cgroups import cgroup_of, parse_cgroups, with_names
from netprof.probes.job.procfs import pid_inside
from netprof.probes.kernel import pids

ID = "3f4e5d6c7b8a" + "0123456789abcdef" * 3 + "beef"
OTHER = "a" * 64
UID = "8dbc11aa-1f0e-4c2b-9d3a-7f1e2d3c4b5a"
STATIC = "0123456789abcdef0123456789abcdef"

CASES = {
    "docker, systemd": (f"0::/system.slice/docker-{ID}.scope", Cgroup(ID, "docker")),
    "docker, cgroupfs": (f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/", Cgroup(ID, "docker")),
    "docker, seen from a cgroup namespace beside": (f"0::/../docker-{ID}.scope", Cgroup(ID, "docker")),
    "podman, root": (f"0::/machine.slice/libpod-{ID}.scope/container", Cgroup(ID, "podman")),
    "podman, rootless": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
        Cgroup(ID, "podman"),
    ),
    "podman, cgroupfs": (f"0::/libpod_parent/libpod-{ID}", Cgroup(ID, "podman")),
    "podman's pod, which is not Kubernetes'": (
        f"0::/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope",
        Cgroup(ID, "podman"),
    ),
    "podman's monitor, which is outside": (f"0::/machine.slice/libpod-conmon-{ID}.scope", Cgroup()),
    "nerdctl": (f"0::/system.slice/nerdctl-{ID}.scope", Cgroup(ID, "containerd")),
    "containerd in a pod, systemd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/"
        f"cri-containerd-{ID}.scope",
        Cgroup(ID, "containerd", UID),
    ),
    "containerd in a pod, cgroupfs": (f"5:cpu:/kubepods/besteffort/pod{UID}/{ID}", Cgroup(ID, "", UID)),
    "containerd in a guaranteed pod": (f"0::/kubepods/pod{UID}/{ID}", Cgroup(ID, "", UID)),
    "containerd below its own service": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
        Cgroup(ID, "containerd", UID),
    ),
    "CRI-O": (
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope/container",
        Cgroup(ID, "cri-o", UID),
    ),
    "CRI-O, cgroupfs": (f"0::/kubepods/burstable/pod{UID}/crio-{ID}", Cgroup(ID, "cri-o", UID)),
    "Docker in a pod": (f"0::/kubepods/burstable/pod{UID}/docker-{ID}.scope", Cgroup(ID, "docker", UID)),
    "a static pod": (f"0::/kubepods/burstable/pod{STATIC}/{ID}", Cgroup(ID, "", STATIC)),
    "a node in a container: the innermost counts": (
        f"0::/docker/{OTHER}/kubelet/kubepods/burstable/pod{UID}/cri-containerd-{ID}.scope",
        Cgroup(ID, "containerd", UID),
    ),
    "Slurm, v1": ("8:memory:/slurm/uid_1000/job_4711/step_0/task_1", Cgroup(slurm_job="4711", slurm_step="0")),
    "Slurm, v1, several daemons": ("8:memory:/slurm_n1/uid_0/job_4711", Cgroup(slurm_job="4711")),
    "Slurm, v2": (
        "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0",
        Cgroup(slurm_job="4711", slurm_step="batch"),
    ),
    "Slurm, v2, a named daemon": (
        "0::/system.slice/n1_slurmstepd.scope/job_4711/step_extern/user",
        Cgroup(slurm_job="4711", slurm_step="extern"),
    ),
    "podman in a Slurm step": (
        f"0::/system.slice/slurmstepd.scope/job_1/step_0/user/libpod-{ID}.scope",
        Cgroup(ID, "podman", slurm_job="1", slurm_step="0"),
    ),
    "LXC": ("0::/lxc.payload.web/init.scope", Cgroup(runtime="lxc", container_name="web")),
    "systemd-nspawn": ("0::/machine.slice/machine-web.scope/payload", Cgroup(runtime="systemd", container_name="web")),
    "systemd's escapes": (
        "0::/machine.slice/machine-a\\x2db.scope",
        Cgroup(runtime="systemd", container_name="a\\x2db"),
    ),
    "a name that no engine gives": ("0::/lxc.payload.\x1b[31m/x", Cgroup()),
    "other numbers": ("4:memory:/process_api/07d0019a359c815259788ce394c89460", Cgroup()),
    "a number that is too long": (f"0::/docker/{ID}0", Cgroup()),
    "a job of something else": ("0::/batch/job_5/step_1", Cgroup()),
    "a session": ("0::/user.slice/user-1000.slice/session-3.scope", Cgroup()),
    "nothing": ("0::/", Cgroup()),
    "no cgroups": ("", Cgroup()),
    "no line of this file": ("\x00\x1b[31m", Cgroup()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_path_tells(name: str) -> None:
    text, expected = CASES[name]
    assert parse_cgroups(text + "\n") == expected


def test_of_several_controllers_each_adds_what_it_tells() -> None:
    text = f"3:cpu:/slurm/uid_0/job_7/step_2\n2:memory:/kubepods/pod{UID}/x\n1:name=systemd:/docker/{ID}\n"
    assert parse_cgroups(text) == Cgroup(ID, "docker", UID, slurm_job="7", slurm_step="2")


def test_a_pod_s_logs_tell_its_names(tmp_path: Path) -> None:
    for folder in (f"ml-team_trainer-0_{UID}", f"kube-system_etcd-node1_{STATIC}", "ml-team_trainer-1_x", "stray"):
        (tmp_path / "var/log/pods" / folder).mkdir(parents=True)
    found = with_names(Cgroup(ID, "cri-o", UID), (tmp_path / "absent", tmp_path))
    assert (found.pod, found.pod_namespace) == ("trainer-0", "ml-team")
    assert with_names(Cgroup(ID, "", STATIC), (tmp_path,)).pod == "etcd-node1"
    for unknown in (Cgroup(ID, "", UID.replace("8", "9")), Cgroup(ID, "docker")):
        assert with_names(unknown, (tmp_path,)) == unknown
    assert with_names(Cgroup(ID, "", UID), (tmp_path / "absent",)).pod == ""


KUBERNETES = {"annotations": {"io.kubernetes.cri.container-name": "worker", "io.kubernetes.cri.sandbox-name": "t-0"}}
DESCRIPTIONS = {
    "docker": (f"var/lib/docker/containers/{ID}/config.v2.json", {"Name": "/trainer"}, "trainer"),
    "containerd": (f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", KUBERNETES, "worker"),
    "podman": (
        "var/lib/containers/storage/overlay-containers/containers.json",
        [{"id": OTHER, "names": ["other"]}, {"id": ID, "names": ["trainer-4", "alias"]}, {"id": UID}, 7],
        "trainer-4",
    ),
    "podman without storage for images": (
        "var/lib/containers/storage/vfs-containers/containers.json",
        [{"id": ID, "names": ["trainer-4"]}],
        "trainer-4",
    ),
    "nothing of it": ("var/lib/containers/storage/vfs-containers/containers.json", [{"id": OTHER}], ""),
    "no names": ("var/lib/containers/storage/vfs-containers/containers.json", [{"id": ID, "names": [7]}], ""),
    "no such document": (f"var/lib/docker/containers/{ID}/config.v2.json", [1, {"Name": "x"}], ""),
    "a long name": (f"var/lib/docker/containers/{ID}/config.v2.json", {"Name": "x" * 10_000}, "x" * 128),
    "an escape": (f"var/lib/docker/containers/{ID}/config.v2.json", {"Name": "/a\x1b[31mb"}, "a\\x1b[31mb"),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_an_engine_s_files_tell_a_container_s_name(name: str, tmp_path: Path) -> None:
    place, document, expected = DESCRIPTIONS[name]
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(json.dumps(document))
    assert with_names(Cgroup(ID), (tmp_path / "absent", tmp_path)) == Cgroup(ID, container_name=expected)


def test_an_engine_s_file_that_is_damaged_tells_nothing(tmp_path: Path) -> None:
    for place, _, _ in DESCRIPTIONS.values():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("[" * 100_000)
    assert with_names(Cgroup(ID), (tmp_path,)) == Cgroup(ID)


def test_hostile_folders_name_no_pod(tmp_path: Path) -> None:
    (tmp_path / "var/log/pods" / f"ml_\x1b[31m<b>_{UID}").mkdir(parents=True)
    assert with_names(Cgroup(ID, "", UID), (tmp_path,)).pod == ""


def test_where_no_cgroup_tells_a_slurm_job_the_environment_does() -> None:
    own = cgroup_of(os.getpid(), {})
    told = cgroup_of(os.getpid(), {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"})
    if not own.slurm_job:
        assert (told.slurm_job, told.slurm_step) == ("12", "3")
        assert cgroup_of(os.getpid(), {"SLURM_JOB_ID": "12"}).slurm_step == ""
    for hostile in ("<b>", "12\x1b", "-1", "", "9" * 30):
        assert cgroup_of(os.getpid(), {"SLURM_JOB_ID": hostile}) == own
    assert cgroup_of(os.getpid(), {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "<b>"}).slurm_step in ("", own.slurm_step)


def test_where_no_cgroup_tells_a_container_the_environment_does() -> None:
    own = cgroup_of(os.getpid(), {})
    told = cgroup_of(os.getpid(), {"APPTAINER_NAME": "pytorch.sif"})
    if not own.in_container:
        assert (told.container_name, told.runtime) == ("pytorch.sif", "apptainer")
        assert cgroup_of(os.getpid(), {"SINGULARITY_NAME": "a"}).label == "singularity container a"
        for hostile in ("", "a\x1b[31m", "<b>", "x" * 200, "ü"):
            assert cgroup_of(os.getpid(), {"APPTAINER_NAME": hostile}) == own


def test_a_process_that_is_gone_is_of_nothing() -> None:
    assert cgroup_of(1 << 22, {}) == Cgroup()
    assert pids.numbers_inside(1 << 22, 0) == (0, 0)
    assert pid_inside(1 << 22) == 0


def test_netprof_s_own_numbers() -> None:
    number, namespace = pids.numbers_inside(os.getpid(), 1)
    assert number == os.getpid()
    assert namespace == os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    assert pids.proc_is_of_own_namespace()
    assert pid_inside(os.getpid()) == 0
    assert pids.own_namespace() in (0, namespace)


@pytest.mark.parametrize(
    ("cgroup", "label"),
    [
        (Cgroup(), ""),
        (Cgroup(ID, "docker"), "docker container 3f4e5d6c7b8a"),
        (Cgroup(ID), "container 3f4e5d6c7b8a"),
        (Cgroup(ID, "cri-o", UID), f"pod {UID}, cri-o container 3f4e5d6c7b8a"),
        (Cgroup(ID, "cri-o", UID, "t-0", "ml"), "pod t-0, namespace ml, cri-o container 3f4e5d6c7b8a"),
        (Cgroup(ID, "docker", container_name="trainer"), "docker container trainer"),
        (Cgroup(runtime="lxc", container_name="web"), "lxc container web"),
        (Cgroup(slurm_job="7"), "Slurm job 7"),
        (Cgroup(slurm_job="7", slurm_step="batch"), "Slurm job 7 step batch"),
    ],
)
def test_what_a_person_reads(cgroup: Cgroup, label: str) -> None:
    assert cgroup.label == label
