"""Standard output that is closed, full or left early, and reports that go to devices and pipes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.synthetic import Job

PROGRAM = f"{sys.executable} -m netprof"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Job().fill().write(tmp_path_factory.mktemp("streams") / "t.netprof")


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = command.replace("netprof", PROGRAM, 1)
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["report {}", "report {} --json", "report {} --html -", "whatif {} --json"])
def test_a_full_standard_output_is_one_line(what: str, trace: Path) -> None:
    done = shell(f"netprof {what.format(trace)} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("netprof: cannot write standard output: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["report {}", "report {} --json", "report {} --html -", "whatif {}", "whatif {} --csv -"]
)
def test_a_reader_who_leaves_early_has_what_he_wanted(what: str, trace: Path) -> None:
    done = shell(f"netprof {what.format(trace)} | head -c 1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed_are_no_error(closed: str, trace: Path) -> None:
    done = shell(f"netprof report {trace} {closed}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_error_that_nobody_can_hear_keeps_its_exit_code(trace: Path) -> None:
    for stream in ("2>&-", "2>/dev/full"):
        assert shell(f"netprof report {trace}/nothing {stream}").returncode == 1
        assert shell(f"netprof report --no-such-option {stream}").returncode == 2


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
@pytest.mark.parametrize("options", ["report {} --html", "report {} --html {} --force", "whatif {} --csv"])
def test_a_device_is_written_to_and_stays_one(options: str, trace: Path, tmp_path: Path) -> None:
    os.mknod(tmp_path / "full.html", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    os.mknod(tmp_path / "null.html", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for name, code in (("full.html", 1), ("null.html", 0)):
        words = options.replace("{}", str(trace), 1)
        words = words.format(tmp_path / name) if "{}" in words else f"{words} {tmp_path / name}"
        done = shell(f"netprof {words}")
        assert done.returncode == code, done.stderr
        assert ("No space left" in done.stderr) == bool(code)
        assert stat.S_ISCHR((tmp_path / name).stat().st_mode)
    assert {entry.name for entry in tmp_path.iterdir()} == {"full.html", "null.html"}


@pytest.mark.slow
def test_a_pipe_is_written_to_and_stays_one(trace: Path, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "p.json")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert shell(f"netprof report {trace} -o {pipe}").returncode == 0
    reader.join(10)
    assert read[0].startswith(b"{")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.slow
def test_what_stands_for_standard_output_is_written_to(trace: Path) -> None:
    done = shell(f"netprof report {trace} --markdown /dev/stdout | cat")
    assert done.returncode == 0, done.stderr
    assert "#" in done.stdout
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.slow
def test_a_link_is_replaced_and_not_followed(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "x.html").symlink_to(tmp_path / "precious")
    assert shell(f"netprof report {trace} --html {tmp_path / 'x.html'}").returncode == 1
    assert shell(f"netprof report {trace} --html {tmp_path / 'x.html'} --force").returncode == 0
    assert not (tmp_path / "x.html").is_symlink()
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(("umask", "mode"), [("077", 0o600), ("022", 0o644), ("027", 0o640)])
def test_files_have_the_mode_that_the_umask_allows(umask: str, mode: int, trace: Path, tmp_path: Path) -> None:
    words = f"--html {tmp_path}/x.html --csv {tmp_path}/csv"
    assert shell(f"umask {umask}; netprof report {trace} {words}").returncode == 0
    assert shell(f"umask {umask}; netprof whatif {trace} --csv {tmp_path}/w.csv").returncode == 0
    make = "from support.synthetic import *; import sys; Job().fill().write(Path(sys.argv[1]))"
    assert shell(f"umask {umask}; {sys.executable} -c '{make}' {tmp_path}/t").returncode == 0
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) > 10
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {mode}


DROPPED = """
import os, signal, time, weakref
from netprof.cli import streams
class Thing: pass
streams.RAISE_AGAIN_S = 0.2
streams.end_orderly()
def work():
    thing = Thing()
    weakref.finalize(thing, os.kill, os.getpid(), signal.SIGTERM)
    del thing  # the signal's handler raises inside the finalizer
    print("goes on", flush=True)
    time.sleep(60)
streams.exit_code_of(work)
"""


def test_a_signal_ends_a_process_although_python_dropped_the_exception() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, env=ENVIRONMENT, timeout=30)
    assert "goes on" in done.stdout, "the exception was not dropped"
    assert done.stderr == ""
    assert done.returncode == -signal.SIGTERM
