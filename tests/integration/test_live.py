"""The live view as a person meets it: in a real terminal (tmux), on a real job, and given back on every way out."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.training import TrainingJob, netprof, training

from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to watch is a PyTorch one")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: the live view cannot be driven"),
]
SMALL = ["--gradient-mb", "2", "--width", "256", "--batch", "32", "--data-ms", "20"]
PATIENCE_S = 60.0


class Tmux:
    """A terminal of a given size with a shell in it."""

    def __init__(self, directory: Path) -> None:
        self.socket = str(directory / "tmux")
        self.directory = directory
        self("new-session", "-d", "-x", "120", "-y", "40", "bash --norc --noprofile")
        self.type("PS1='ready> '; cd " + shlex.quote(str(directory)))

    def __call__(self, *arguments: str) -> str:
        command = ["tmux", "-S", self.socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        self("send-keys", *keys)

    def type(self, line: str) -> None:
        self("send-keys", "-l", line)
        self.press("Enter")

    def screen(self, *options: str) -> str:
        return self("capture-pane", "-p", *options)

    def until(self, what: str | Callable[[str], object]) -> str:
        """Wait until the screen shows a text or satisfies a function; returns the screen."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            screen = self.screen()
            if what in screen if isinstance(what, str) else what(screen):
                return screen
            time.sleep(0.1)
        raise AssertionError(f"the screen never showed {what}:\n{screen}")

    def resize(self, columns: int, lines: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(lines))

    def settings(self) -> str:
        """Return what `stty -a` says of the terminal."""
        self.type("stty -a > before; echo wrote")
        self.until(lambda screen: re.search(r"^wrote$", screen, re.MULTILINE))
        return (self.directory / "before").read_text()

    def run(self, *arguments: str, environment: str = "") -> None:
        """Run netprof, print its exit code as rc=N and write the settings that it leaves behind to `after`.

        All in a shell without job control: an interactive one would repair the terminal after it.
        """
        program = shlex.join([sys.executable, "-m", "netprof", *arguments])
        path = shlex.quote(os.environ.get("PYTHONPATH", ""))
        script = f"{environment} PYTHONPATH={path} {program}; code=$?; stty -a > after; echo rc=$code"
        self.type(f"clear; sh -c {shlex.quote(script)}")

    def after(self) -> str:
        """Return the settings that netprof left behind."""
        return (self.directory / "after").read_text()

    def child(self) -> int:
        """Return the pid of the program that runs in the terminal."""
        shell = int(self("display-message", "-p", "#{pane_pid}"))
        return psutil.Process(shell).children(recursive=True)[-1].pid

    def exit_code(self) -> int:
        screen = self.until(lambda screen: re.search(r"^rc=\d+$", screen, re.MULTILINE))
        match = re.search(r"^rc=(\d+)$", screen, re.MULTILINE)
        assert match is not None
        return int(match[1])

    def everything(self) -> str:
        return self.screen("-S", "-", "-J")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path)
    yield terminal
    terminal("kill-server")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrainingJob]:
    with training([subprocess.Popen] * 2, tmp_path, *SMALL) as running:
        yield running


STEPS = "3"
"""The key of the view of steps, the only one with their numbers."""


def iteration(screen: str) -> int:
    """Return the number of rank 0's last iteration in the view of steps, -1 while none is shown."""
    match = re.search(r"^ *#(\d+) +0 ", screen, re.MULTILINE)
    return int(match[1]) if match else -1


def past(number: int) -> Callable[[str], bool]:
    """Return the question whether a screen shows a later iteration."""
    return lambda screen: iteration(screen) > number


@pytest.mark.core
def test_a_person_watches_and_quits(job: TrainingJob, tmux: Tmux, tmp_path: Path) -> None:
    before = tmux.settings()
    tmux.run("attach", str(job.pids[0]), "--out", "live.netprof")
    screen = tmux.until("a step ")
    assert "recording live.netprof" in screen
    assert "last steps" in tmux.until(f" {job.pids[1]} ")
    tmux.press("Down", "Enter")
    tmux.until(f"pid {job.pids[1]}")
    tmux.press("Escape")  # with a key right after it, it would be Alt
    tmux.until("last steps")
    tmux.press("2")
    tmux.until("idle: g no gradient")
    tmux.press("4")
    assert "received" in tmux.until("Flows  last")
    tmux.press("?")
    tmux.until("let the display stand still")
    tmux.press("?", STEPS)
    first = iteration(tmux.until(past(0)))
    tmux.until(past(first + 2))

    tmux.press("p")
    paused = iteration(tmux.until("PAUSED"))
    time.sleep(1.5)
    assert iteration(tmux.screen()) == paused
    tmux.press("p")
    tmux.until(past(paused))

    for columns, lines in ((80, 24), (200, 60), (120, 40)):
        tmux.resize(columns, lines)
        screen = tmux.until(partial(fills, columns=columns, lines=lines))
        tmux.until(past(iteration(screen)))

    tmux.press("q")
    assert tmux.exit_code() == 0
    report = tmux.everything()
    assert "stopped; the trace is live.netprof" in report
    assert " steps of 2 ranks on " in report
    assert tmux.after() == before
    assert tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]
    meta = TraceReader(tmp_path / "live.netprof").meta
    assert meta.stop_reason == "stopped"
    assert all(process.poll() is None for process in job.ranks)


def fills(screen: str, columns: int, lines: int) -> bool:
    """Say whether the view is drawn for this size: the footer in the last row, its keys at the right edge."""
    rows = screen.rstrip("\n").split("\n")
    return len(rows) == lines and len(rows[0].rstrip()) == columns - 1 and rows[-1].startswith(" 1 overview ")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGHUP, 130), (signal.SIGQUIT, 130), (signal.SIGUSR1, 130)],
)
def test_signals_give_the_terminal_back(number: int, code: int, job: TrainingJob, tmux: Tmux) -> None:
    before = tmux.settings()
    tmux.run("attach", str(job.pids[0]), "--out", "live.netprof")
    tmux.until("a step ")
    os.kill(tmux.child(), number)
    assert tmux.exit_code() == code
    assert tmux.after() == before
    assert tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]


def test_a_crash_gives_the_terminal_back_and_the_recording_goes_on(
    job: TrainingJob, tmux: Tmux, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import netprof.views.live.overview as overview\n"
        "calls = iter(range(1000))\n"
        "original = overview.overview\n"
        "import netprof.views.live.draw as draw\n"
        "def broken(*arguments):\n"
        "    if next(calls) > 3:\n"  # a slow machine draws few frames
        "        raise RuntimeError('on purpose')\n"
        "    return original(*arguments)\n"
        "draw.overview = broken\n"
    )
    before = tmux.settings()
    os.environ["PYTHONPATH"], path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", os.environ.get("PYTHONPATH", "")
    try:
        tmux.run("attach", str(job.pids[0]), "--out", "live.netprof", "--duration", "8s")
    finally:
        os.environ["PYTHONPATH"] = path
    assert "the recording goes on" in tmux.until("RuntimeError: on purpose")
    assert tmux.exit_code() == 0
    assert tmux.after() == before
    assert TraceReader(tmp_path / "live.netprof").meta.stop_reason == "the duration was reached"


def test_somebody_elses_recording_is_followed(job: TrainingJob, tmux: Tmux, tmp_path: Path) -> None:
    before = tmux.settings()
    trace = tmp_path / "live.netprof"
    command = [sys.executable, "-m", "netprof", "attach", str(job.pids[0]), "--out", str(trace), "--no-live"]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not (trace / "marks.arrows").exists():
            time.sleep(0.1)
        tmux.run("live", "live.netprof")
        tmux.until("a step ")
        tmux.press(STEPS)
        first = iteration(tmux.until(past(0)))
        assert "following live.netprof" in tmux.until(past(first))
        recorder.send_signal(signal.SIGINT)
        assert tmux.exit_code() == 0
    finally:
        recorder.kill()
        recorder.wait()
    assert "interrupted; the trace is live.netprof" in tmux.everything()
    assert tmux.after() == before


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_recording(job: TrainingJob, tmp_path: Path) -> None:
    """Nobody reads the pseudo-terminal: its buffer is full after a few updates, and writing to it blocks."""
    master, slave = pty.openpty()
    trace = tmp_path / "t.netprof"
    command = [sys.executable, "-m", "netprof", "attach", str(job.pids[0]), "--out", str(trace), "--duration", "8s"]
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}
    )
    os.close(slave)
    deadline_s = time.monotonic() + PATIENCE_S
    while not (trace / "meta.json").exists() or TraceReader(trace).meta.stopped_ns is None:
        assert time.monotonic() < deadline_s, "the recording did not end"
        time.sleep(0.2)
    reader = threading.Thread(target=read_away, args=(master,), daemon=True)
    reader.start()
    assert process.wait(60) == 0
    found = TraceReader(trace)
    times = found.table("marks").column("time_ns").to_numpy()
    assert found.meta.losses.lost_marks == found.meta.losses.merged_bins == 0
    assert found.meta.stopped_ns is not None
    assert np.diff([found.meta.started_ns, *times.tolist(), found.meta.stopped_ns]).max() < 2e9


@pytest.mark.core
def test_a_terminal_that_is_closed_ends_the_recording_and_nothing_is_lost(job: TrainingJob, tmp_path: Path) -> None:
    """As ctrl-C does: exit code 130, the trace whole, and the digest that was asked for there."""
    master, slave = pty.openpty()
    trace, digest = tmp_path / "t.netprof", tmp_path / "digests"
    command = [sys.executable, "-m", "netprof", "attach", str(job.pids[0]), "-o", str(trace), "--digest", str(digest)]
    command = ["env", "--default-signal=HUP", *command]  # whoever runs the tests may have been told not to hang up
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}
    )
    os.close(slave)
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s or not (trace / "meta.json").exists():
        os.read(master, 65536)
    os.close(master)
    assert process.wait(PATIENCE_S) == 130
    assert TraceReader(trace).meta.stop_reason == "interrupted"
    assert not TraceReader(trace).truncated
    assert netprof("report", str(digest), "--json").returncode == 0


def read_away(master: int) -> None:
    """Read a pseudo-terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while os.read(master, 65536):
            pass


@pytest.mark.core
def test_a_rank_that_is_stopped_is_soon_named(tmux: Tmux, tmp_path: Path) -> None:
    with training([subprocess.Popen] * 3, tmp_path, *SMALL[:-1], "300") as job:
        tmux.run("attach", str(job.pids[0]), "--out", "live.netprof")
        tmux.until("a step ")
        tmux.press(STEPS)
        tmux.until(past(4))
        stop_while_loading(job, 1)
        began_s = time.monotonic()
        screen = tmux.until("STALLED")
        took_s = time.monotonic() - began_s
        assert f"rank 1 (pid {job.pids[1]}) is stopped (state T)" in screen, screen
        assert f"kill -CONT {job.pids[1]}" in screen
        os.kill(job.pids[1], signal.SIGCONT)
        screen = tmux.until(past(iteration(screen) + 2))
        assert "STALLED" not in screen
        tmux.press("q")
        assert tmux.exit_code() == 0
    assert took_s < 3, "two seconds, and what tmux and this test take"


def stop_while_loading(job: TrainingJob, rank: int) -> None:
    """Stop a rank that loads its next batch, for which the others will wait.

    Its log tells of a step when its data are there; the next step then takes a few of the 300 ms until the next data.
    """
    done = len(job.log(rank)["iteration"])
    while len(job.log(rank)["iteration"]) == done:
        time.sleep(0.005)
    time.sleep(0.15)
    os.kill(job.pids[rank], signal.SIGSTOP)


def test_a_recording_that_is_left_goes_on_and_nothing_is_missing(job: TrainingJob, tmux: Tmux, tmp_path: Path) -> None:
    trace = tmp_path / "live.netprof"
    command = [sys.executable, "-m", "netprof", "attach", str(job.pids[0]), "--out", str(trace), "--no-live"]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not (trace / "marks.arrows").exists():
            time.sleep(0.1)
        tmux.run("live", "live.netprof")
        tmux.until("a step ")
        tmux.press("q")
        assert tmux.exit_code() == 0
        said = tmux.everything()
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
    assert re.search(r"seen +[\d,]+ steps? of 2 ranks on .* so far, ", said)
    assert "the recording goes on" in said
    assert "missing" not in said


def test_no_colour_where_none_is_wanted(job: TrainingJob, tmux: Tmux) -> None:
    tmux.run("attach", str(job.pids[0]), "--out", "live.netprof", environment="NO_COLOR=1")
    tmux.until("a step ")
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m", tmux.screen("-e"))
    tmux.press("q")
    assert tmux.exit_code() == 0


def test_without_a_terminal_there_is_a_line_a_second(job: TrainingJob, tmp_path: Path) -> None:
    done = netprof("attach", str(job.pids[0]), "--out", str(tmp_path / "t.netprof"), "--duration", "4s")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if re.match(r"\d+ s · ", line)]
    assert 2 <= len(lines) <= 5
    assert re.search(r"iterations? [\d to]+: [\d.]+ ms, [\d.]+ % exposed communication", lines[-1])
    assert "\x1b" not in done.stderr
