"""examples/deploy/netprof-exporter.service under a systemd that is booted for it: a user's job is recorded as ever."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rights.cells import environment, python

pytest.importorskip("torch", reason="the job is a PyTorch one")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="booting needs root"),
    pytest.mark.skipif(not Path("/lib/systemd/systemd").exists(), reason="needs systemd: apt-get install systemd"),
]

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "examples" / "deploy" / "netprof-exporter.service"
CAPABILITIES = ("bpf", "perfmon", "sys_ptrace", "dac_read_search", "sys_admin")
_BITS = {"dac_read_search": 2, "sys_ptrace": 19, "sys_admin": 21, "perfmon": 38, "bpf": 39}
_EXPOSURE = 4.2
"""What `systemd-analyze security` may say at most, of ten: 4.1 with systemd 252."""


def test_the_unit_is_as_hardened_as_its_page_says() -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= _EXPOSURE, said
    bounding = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert bounding is not None
    assert bounding[1].split() == [f"CAP_{name.upper()}" for name in CAPABILITIES]


@pytest.mark.skipif(ROOT.is_relative_to("/tmp"), reason="a systemd that boots empties /tmp, where this checkout is")
def test_the_unit_records_a_job_of_another_user(tmp_path: Path) -> None:
    script = _SCRIPT.format(
        unit=UNIT,
        exporter=_variables(sys.executable, "-m", "netprof"),
        rank=_variables(python(), str(ROOT / "examples" / "train.py"), "--gradient-mb", "1", "--data-ms"),
        fetch=shlex.join([sys.executable, "-c", _FETCH]),
    )
    done = subprocess.run(
        [str(ROOT / ".ci" / "boot"), "/", script],
        env=os.environ | {"NETWORK": "own"}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    said, _, served = done.stdout.partition("== metrics\n")
    served, _, kept = served.partition("== kept\n")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "are sampled" not in said, said
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", said, re.MULTILINE)
    assert held is not None, said
    assert int(held[1], 16) == sum(1 << _BITS[name] for name in CAPABILITIES)
    values = {
        (sample.name, sample.labels.get("rank", ""), sample.labels.get("cause", "")): sample.value
        for family in text_string_to_metric_families(served)
        for sample in family.samples
    }
    steps = values["netprof_steps_total", "0", ""]
    assert steps > 10
    assert values["netprof_waiting_seconds_total", "0", "late_rank"] > 0.03 * steps, "rank 1 is 60 ms late"
    assert values["netprof_attach_failures_total", "", ""] == 0
    assert "HELD UP BY RANK 1" in kept, "the ring opens after the unit was stopped"


def _variables(*words: str) -> str:
    """A line of shell that runs words with the variables that every Python here needs."""
    path = {"PYTHONPATH": environment()["PYTHONPATH"], "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return shlex.join(["env", *(f"{name}={value}" for name, value in path.items()), *words])


_FETCH = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9963/metrics', timeout=5).read().decode())"
_SCRIPT = """
set -e
mkdir -p /opt/netprof/bin
printf '#!/bin/sh\\nexec %s "$@"\\n' {exporter!r} >/opt/netprof/bin/netprof
chmod 755 /opt/netprof/bin/netprof
cp {unit} /etc/systemd/system/
cat >/run/systemd/system/rank@.service <<'UNIT'
[Service]
User=nobody
Environment=RANK=%i WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
ExecStart=/bin/sh -c "exec {rank} $$((%i * 60))"
UNIT
systemctl daemon-reload
systemctl start netprof-exporter rank@0 rank@1
for turn in $(seq 100); do
    sleep 2
    {fetch} >/run/metrics 2>/dev/null || continue
    grep -q '^netprof_steps_total.* [1-9][0-9]' /run/metrics && break
done
journalctl --no-pager --output=cat --unit=netprof-exporter --unit='rank@*'
grep CapEff "/proc/$(systemctl show --property=MainPID --value netprof-exporter)/status"
systemctl stop netprof-exporter
systemctl show --property=Result --value netprof-exporter
echo '== metrics'
cat /run/metrics
echo '== kept'
/opt/netprof/bin/netprof report /var/lib/netprof/*.netprof
"""
