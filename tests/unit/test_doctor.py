"""What is allowed: seen from processes that really lack the rights, not from a mock."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence

import pytest
from rich.console import Console
from support.unprivileged import NOBODY
from typer.testing import CliRunner

from netprof.cli.main import app
from netprof.cli.streams import print_error
from netprof.errors import NetprofError, NotPermittedError
from netprof.model import SkippedProbe, Target
from netprof.probes.doctor import diagnose, machine
from netprof.probes.doctor.capabilities import remedy_for_refusal, require_recording
from netprof.probes.doctor.check import DoctorCheck, Status, can_record
from netprof.probes.doctor.diagnose import examine, try_probes
from netprof.probes.doctor.machine import PROGRAM_KINDS, Feature
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.job.jobs import Found, LocalJob
from netprof.probes.kernel import rights
from netprof.probes.kernel.rights import remedy_for_rights
from netprof.probes.nic.probe import NicProbe
from netprof.probes.probe import Description
from netprof.session import which_job
from netprof.views.doctor import render, to_json

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="rights can only be dropped by root")
REQUIRE = """
import sys
from netprof.errors import NetprofError
from netprof.probes.doctor.capabilities import require_recording
try:
    require_recording()
except NetprofError as error:
    print(error.message)
    print(error.hint)
    sys.exit(error.exit_code)
"""
EXAMINE = """
import json, sys
from netprof.probes.doctor.diagnose import examine
from netprof.probes.doctor.machine import Feature
from netprof.views.doctor import to_json
print(json.dumps(to_json(examine(int(sys.argv[1]) if len(sys.argv) > 1 else None))))
"""


def run(script: str, prefix: Sequence[str] = (), *arguments: str) -> subprocess.CompletedProcess[str]:
    if prefix and subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip(f"{prefix[0]} is refused here")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*prefix, sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def without(*names: str) -> tuple[str, ...]:
    """Return a prefix that takes capabilities away from root for good."""
    dropped = ",".join(f"-{name}" for name in names)
    return ("setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}")


def examined(prefix: Sequence[str] = (), *arguments: str) -> dict[str, dict[str, str]]:
    done = run(EXAMINE, prefix, *arguments)
    assert done.returncode == 0, done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.mark.slow
@ROOT
@pytest.mark.parametrize(
    ("prefix", "missing"),
    [
        (NOBODY, "CAP_BPF and CAP_PERFMON missing"),
        (without("sys_admin", "perfmon"), "CAP_PERFMON missing"),
        (without("sys_admin", "bpf"), "CAP_BPF missing"),
    ],
)
def test_a_user_without_the_rights_gets_exit_code_3_and_their_names(prefix: Sequence[str], missing: str) -> None:
    done = run(REQUIRE, prefix)
    assert done.returncode == NotPermittedError.exit_code == 3, done.stderr
    message, hint = done.stdout.splitlines()
    assert message == f"not permitted to load BPF programs: {missing}"
    assert hint


@pytest.mark.slow
@ROOT
def test_capabilities_suffice_without_being_all_of_root() -> None:
    assert run(REQUIRE, without("sys_admin", "sys_ptrace", "net_admin", "sys_resource")).returncode == 0


@pytest.mark.slow
@ROOT
def test_root_of_a_user_namespace_is_told_apart() -> None:
    done = run(REQUIRE, ("unshare", "--user", "--map-root-user"))
    assert done.returncode == 3
    assert "user namespace" in done.stdout


@pytest.mark.slow
@ROOT
def test_a_pid_namespace_is_no_hindrance() -> None:
    done = run(REQUIRE, ("unshare", "--pid", "--fork", "--mount-proc"))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@ROOT
def test_where_proc_is_of_another_pid_namespace_nothing_is_recorded() -> None:
    done = run(REQUIRE, ("unshare", "--pid", "--fork"))
    assert done.returncode == 3
    message, hint = done.stdout.splitlines()
    assert message == "/proc shows other pids than this PID namespace has"
    assert "--mount-proc" in hint


@ROOT
def test_without_type_information_pids_are_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.probes.doctor.capabilities.described_by_kernel", lambda: False)
    require_recording()
    monkeypatch.setattr("netprof.probes.kernel.pids.in_initial_namespace", lambda: False)
    with pytest.raises(NotPermittedError, match="kernel with BTF") as caught:
        require_recording()
    assert "--pid=host" in caught.value.hint


@ROOT
@pytest.mark.parametrize("release", ["5.14.0-427.el9.x86_64", "4.4.0", "unheard-of"])
def test_what_a_kernel_is_called_does_not_matter(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    require_recording()


@pytest.mark.slow
@ROOT
def test_a_kernel_that_lacks_something_is_refused_in_one_line_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    needed, wanted, there = (Feature(name, "", "test", name == "storage") for name in ("storage", "cookies", "rings"))
    monkeypatch.setattr(machine, "FEATURES", (needed, wanted, there))
    monkeypatch.setattr(machine, "missing_features", lambda: (needed, wanted))
    with pytest.raises(NotPermittedError) as caught:
        require_recording()
    assert caught.value.message == f"this kernel ({platform.release()}) cannot record: it lacks storage"
    checks = {check.name: check.status for check in examine()}
    assert [checks[name] for name in ("storage", "cookies", "rings")] == [Status.BLOCKED, Status.LIMITED, Status.OK]


@pytest.mark.slow
@ROOT
def test_everything_is_allowed_here() -> None:
    checks = examine()
    assert can_record(checks)
    assert {check.name for check in checks if check.status is Status.OK} >= {
        "typed tracepoints", "cookies of uprobes", "kernel BTF", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE",
        "socket_filter program",
        "kprobe program", "tracing program", "probe flows", "probe marks", "uprobes",
    }  # fmt: skip
    assert not [check for check in checks if check.prevents and not check.remedy]


@pytest.mark.slow
@ROOT
def test_every_probe_of_a_recording_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(NicProbe):
        def follow(self, targets: Sequence[Target]) -> None:
            raise NetprofError("it is broken", "repair it")

    class Needed(Broken):
        required = True

    class Lacking(NicProbe):
        def describe(self) -> Description:
            return Description(skipped=(SkippedProbe("nic:lo", "no counters", "plug it in"),))

    monkeypatch.setattr("netprof.probes.doctor.diagnose.PROBES", (Broken, Needed, Lacking, FlowProbe))
    assert list(try_probes()) == [
        DoctorCheck("user", "probe nic", Status.LIMITED, "it is broken", "repair it"),
        DoctorCheck("user", "probe nic", Status.BLOCKED, "it is broken", "repair it"),
        DoctorCheck("user", "probe nic:lo", Status.INFO, "no counters", "plug it in"),
        DoctorCheck("user", "probe flows", Status.OK, "starts"),
    ]


@pytest.mark.slow
@ROOT
def test_what_nobody_may_do_is_said_line_by_line() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        checks = examined(NOBODY, str(process.pid))
        process.kill()
    assert checks["CAP_BPF"]["status"] == checks["CAP_PERFMON"]["status"] == "blocked"
    assert checks["CAP_SYS_PTRACE"]["status"] == "limited"
    assert checks["tracing program"]["status"] == "blocked"
    assert "Operation not permitted" in checks["tracing program"]["detail"]
    assert checks["process"]["status"] == "blocked"
    assert "CAP_SYS_PTRACE" in checks["process"]["detail"]
    assert all(check["remedy"] for check in checks.values() if check["status"] in ("blocked", "limited"))
    assert "probe flows" not in checks  # pointless to try


@pytest.mark.slow
@ROOT
def test_one_missing_right_is_traced_to_the_programs_it_is_for() -> None:
    checks = examined(without("sys_admin", "perfmon"))
    assert checks["socket_filter program"]["status"] == "ok"
    assert checks["kprobe program"]["status"] == checks["tracing program"]["status"] == "blocked"


@pytest.mark.slow
@ROOT
def test_a_target_in_another_network_namespace() -> None:
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        allowed = examined((), str(process.pid))
        limited = examined(without("sys_admin"), str(process.pid))
        process.kill()
    assert allowed["process"]["status"] == allowed["network namespace"]["status"] == "ok"
    assert limited["network namespace"]["status"] == "limited"
    assert "--line-rate" in limited["network namespace"]["remedy"]
    assert (allowed["frameworks"]["status"], allowed["ranks here"]["status"]) == ("limited", "limited")


@pytest.mark.slow
def test_a_target_that_is_not_there() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (check,) = [check for check in examine(ended.pid) if check.area == "target"]
    assert check.prevents
    assert str(ended.pid) in check.detail


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("kubernetes", "add securityContext.capabilities.add: [BPF, PERFMON] to the pod"),
        ("docker", "start the container with --cap-add=BPF --cap-add=PERFMON, or --privileged"),
    ],
)
def test_containers_are_told_their_own_flags(monkeypatch: pytest.MonkeyPatch, kind: str, remedy: str) -> None:
    monkeypatch.setattr(rights, "container", lambda: kind)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert remedy_for_rights(("CAP_BPF", "CAP_PERFMON")).startswith(remedy)


def test_a_person_without_sudo_is_told_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "container", lambda: "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(rights, "effective_capabilities", frozenset)
    assert remedy_for_rights(("CAP_BPF",)) == "run it with sudo"
    monkeypatch.setattr(rights, "effective_capabilities", lambda: frozenset({"CAP_PERFMON"}))
    assert remedy_for_rights(("CAP_BPF",)) == "give it CAP_BPF too, or run it with sudo"


def test_refusals_are_traced_to_their_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = PROGRAM_KINDS[1]
    monkeypatch.setattr(rights, "effective_capabilities", lambda: frozenset({"CAP_BPF", "CAP_PERFMON"}))
    monkeypatch.setattr(machine, "lockdown", lambda: "none")
    monkeypatch.setattr(rights, "seccomp_filtered", lambda: False)
    assert "security module" in remedy_for_refusal(kind, 1)
    monkeypatch.setattr(rights, "seccomp_filtered", lambda: True)
    assert "seccomp" in remedy_for_refusal(kind, 1)
    monkeypatch.setattr(machine, "lockdown", lambda: "confidentiality")
    assert "lockdown" in remedy_for_refusal(kind, 1)
    assert "boot a kernel" in remedy_for_refusal(kind, 22)


def test_names_that_others_chose_control_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    library, device = "\x1b]0;owned\x07\x1b[2Jlib.so", "ip link set dev \x1b[31mx\nroot"
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    render([DoctorCheck("target", f"marks in {library}", Status.BLOCKED, library, device)], console)
    text = console.export_text()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b[31mx\x0aroot" in text
    print_error(NetprofError("no", detail=f"line 1\n\tat {library}"), verbose=True)
    printed = capsys.readouterr().err
    assert printed.splitlines()[1:] == ["line 1", r"        at \x1b]0;owned\x07\x1b[2Jlib.so"]


def test_the_view_prints_every_check_and_its_remedy() -> None:
    checks = [
        DoctorCheck("machine", "kernel", Status.OK, "6.18 [bold]"),
        DoctorCheck("user", "CAP_BPF", Status.BLOCKED, "to load BPF programs", "run it with sudo"),
        DoctorCheck("target", "frameworks", Status.LIMITED, "none loaded", "attach later"),
    ]
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    render(checks, console)
    assert console.export_text() == (
        "This machine\n"
        "  ok       kernel      6.18 [bold]\n"
        "This user\n"
        "  blocked  CAP_BPF     to load BPF programs\n"
        "                       → run it with sudo\n"
        "This target\n"
        "  limited  frameworks  none loaded\n"
        "                       → attach later\n"
        "netprof can only sample the jobs of this user here, without marks: CAP_BPF.\n"
    )
    document = to_json(checks)
    assert document["can_record"] is False
    assert [check["status"] for check in document["checks"]] == ["ok", "blocked", "limited"]
    assert to_json(checks[:1])["can_record"] is True


def test_a_name_that_no_job_has_is_refused_as_attach_does() -> None:
    done = CliRunner().invoke(app, ["doctor", "nobody-trains-this"])
    assert isinstance(done.exception, NetprofError)
    assert "no training job" in done.exception.message


def test_a_name_stands_for_a_process_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def examine(pid: int) -> list[DoctorCheck]:
        asked.append(pid)
        return [DoctorCheck("a", "b", Status.OK, "c")]

    job = LocalJob((Target(4711, 0, "python train.py", rank=0, frameworks=("torch",)),), "user")
    monkeypatch.setattr(which_job, "find_jobs", lambda: Found([job], {}))
    monkeypatch.setattr(diagnose, "examine", examine)
    for named in ("train.py", "4712"):
        done = CliRunner().invoke(app, ["doctor", named])
        assert done.exit_code == 0, done.exc_info
    assert asked == [4711, 4712]
