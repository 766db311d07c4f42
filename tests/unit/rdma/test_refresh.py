"""Lowering for how long the kernel hands out the same counters, and putting it back on every way out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netprof.probes.rdma.refresh import lower, mend, put_back

HOLD = """
import sys
from pathlib import Path
from netprof.probes.rdma.refresh import lower, put_back
notes, to_ms, *files = sys.argv[1:]
problems = lower([Path(file) for file in files], int(to_ms), Path(notes))
print(problems, flush=True)
if sys.stdin.readline():
    put_back(Path(notes))
"""

KILLED_AFTER_WRITING = """
import os, signal, sys
from pathlib import Path
from netprof.probes.rdma import refresh
write = refresh.set_value
def write_and_die(path, text):
    write(path, text)
    os.kill(os.getpid(), signal.SIGKILL)
refresh.set_value = write_and_die
refresh.lower([Path(sys.argv[2])], 1, Path(sys.argv[1]))
"""


@pytest.fixture
def lifespan(tmp_path: Path) -> Path:
    folder = tmp_path / "ports" / "1" / "hw_counters"
    folder.mkdir(parents=True)
    (folder / "lifespan").write_text("10\n")
    return folder / "lifespan"


def hold(notes: Path, to_ms: int, *files: Path) -> subprocess.Popen[str]:
    """Start a recorder that lowers files and keeps them so until it is written to, or killed."""
    command = [sys.executable, "-c", HOLD, str(notes), str(to_ms), *map(str, files)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "[]\n"
    return process


def test_what_was_lowered_is_put_back(tmp_path: Path, lifespan: Path) -> None:
    notes = tmp_path / "run" / "notes.json"
    assert lower([lifespan], 1, notes) == []
    assert int(lifespan.read_text()) == 1
    mend(notes)
    assert int(lifespan.read_text()) == 1
    put_back(notes)
    assert int(lifespan.read_text()) == 10
    assert json.loads(notes.read_text()) == {}


def test_what_is_lower_already_stays(tmp_path: Path, lifespan: Path) -> None:
    lifespan.write_text("2\n")
    notes = tmp_path / "notes.json"
    assert lower([lifespan], 5, notes) == []
    put_back(notes)
    assert int(lifespan.read_text()) == 2


@pytest.mark.slow
def test_the_next_recorder_puts_back_what_a_killed_one_left(tmp_path: Path, lifespan: Path) -> None:
    notes = tmp_path / "notes.json"
    recorder = hold(notes, 1, lifespan)
    recorder.kill()
    recorder.communicate()
    assert int(lifespan.read_text()) == 1
    mend(notes)
    assert int(lifespan.read_text()) == 10


@pytest.mark.slow
def test_the_last_of_two_recorders_puts_it_back(tmp_path: Path, lifespan: Path) -> None:
    notes = tmp_path / "notes.json"
    first, second = hold(notes, 5, lifespan), hold(notes, 1, lifespan)
    first.communicate("done\n")
    assert int(lifespan.read_text()) == 1
    second.communicate("done\n")
    assert int(lifespan.read_text()) == 10


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path, lifespan: Path) -> None:
    missing = lifespan.with_name("nothing")
    (problem,) = lower([missing, lifespan], 1, tmp_path / "notes.json")
    assert str(missing) in problem
    assert int(lifespan.read_text()) == 1
    put_back(tmp_path / "notes.json")


@pytest.mark.parametrize("content", [b"hello\n", b"", b"-1\n", b"\xff\xfe\n", b"1 \x1b[2J\n"])
def test_a_file_that_holds_no_number_is_one_plain_line(tmp_path: Path, lifespan: Path, content: bytes) -> None:
    lifespan.write_bytes(content)
    assert lower([lifespan], 1, tmp_path / "notes.json") == [f"{lifespan} cannot be lowered: it holds no number"]
    assert lifespan.read_bytes() == content


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"VICTIM": {"before": 1, "holders": []}}',
        '{"LIFESPAN": {"before": -1, "holders": []}}',
        '{"LIFESPAN": {"before": 3, "holders": 5}}',
    ],
)
def test_notes_that_no_recorder_wrote_do_nothing(tmp_path: Path, lifespan: Path, text: str) -> None:
    notes, victim = tmp_path / "notes.json", tmp_path / "victim"
    victim.write_text("untouched")
    notes.write_text(text.replace("VICTIM", str(victim)).replace("LIFESPAN", str(lifespan)))
    mend(notes)
    assert int(lifespan.read_text()) == 10
    assert victim.read_text() == "untouched"


@pytest.mark.slow
def test_a_recorder_that_is_killed_while_it_lowers_leaves_a_note(tmp_path: Path, lifespan: Path) -> None:
    notes = tmp_path / "notes.json"
    killed = [sys.executable, "-c", KILLED_AFTER_WRITING, str(notes), str(lifespan)]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    assert int(lifespan.read_text()) == 1
    mend(notes)
    assert int(lifespan.read_text()) == 10


def test_notes_are_not_followed_to_another_file(tmp_path: Path, lifespan: Path) -> None:
    other = tmp_path / "other"
    other.write_text(json.dumps({str(lifespan): {"before": 3, "holders": []}}))
    (tmp_path / "notes.json").symlink_to(other)
    mend(tmp_path / "notes.json")
    assert int(lifespan.read_text()) == 10


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="rights can only be given up by root")
def test_notes_that_may_not_be_read_are_left_to_who_wrote_them(tmp_path: Path, lifespan: Path) -> None:
    notes = tmp_path / "run" / "notes.json"
    with hold(notes, 1, lifespan) as process:
        process.kill()
    before = notes.read_text()
    os.seteuid(65534)
    try:
        mend(notes)
    finally:
        os.seteuid(0)
    assert (notes.read_text(), lifespan.read_text()) == (before, "1\n")
