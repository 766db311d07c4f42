"""`netprof report` in every format: chosen by name or suffix, written whole, nothing overwritten unasked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.synthetic import Job

from netprof.errors import UsageError
from netprof.views.reporters import by_name, by_suffix


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Job().fill().write(tmp_path / "t.netprof")


def report(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "netprof", "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.html", "html"),
        ("A.HTM", "html"),
        ("a.pftrace", "perfetto"),
        ("a.trace.json", "perfetto"),
        ("a.json", "json"),
    ],
)
def test_the_suffix_says_the_format(name: str, format: str) -> None:
    assert by_suffix(Path("/some/where") / name) is by_name(format)


@pytest.mark.parametrize("name", ["a", "a.txt", "a.csv", "html", "json"])
def test_a_name_that_says_no_format_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        by_suffix(Path(name))


@pytest.mark.slow
def test_many_formats_at_once(trace: Path, tmp_path: Path) -> None:
    options = ("--html", tmp_path / "a.html", "--perfetto", tmp_path / "a.pftrace", "--csv", tmp_path / "new" / "csv")
    done = report(trace, *options, "-o", tmp_path / "b.html", "-o", tmp_path / "a.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "a.json").read_text())
    assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()
    assert "traceEvents" in json.loads((tmp_path / "a.pftrace").read_text())
    assert (tmp_path / "new" / "csv" / "iterations.csv").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize(("option", "beginning"), [("--html", b"<!doctype html>"), ("--perfetto", b'{"traceEvents"')])
def test_a_dash_is_standard_output(option: str, beginning: bytes, trace: Path) -> None:
    done = report(trace, option, "-")
    assert done.returncode == 0
    assert done.stdout.startswith(beginning)
    assert done.stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--csv", "-"),
        ("-o", "-"),
        ("--html", "-", "--json"),
        ("--html", "x.html", "-o", "x.html"),
        ("-o", "report.txt"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_usage(options: tuple[str, ...], trace: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netprof", "report", str(trace), *options],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_an_existing_file_is_replaced_only_by_force(trace: Path, tmp_path: Path) -> None:
    target, precious = tmp_path / "a.html", tmp_path / "precious"
    precious.write_text("mine")
    target.symlink_to(precious)
    done = report(trace, "--html", target)
    assert done.returncode == 1
    assert b"exists already" in done.stderr
    assert report(trace, "--html", target, "--force").returncode == 0
    assert precious.read_text() == "mine"
    assert not target.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.slow
def test_a_folder_with_other_things_is_left_alone(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "keep").write_text("me")
    assert report(trace, "--csv", folder).returncode == 1
    assert report(trace, "--csv", folder, "-f").returncode == 0
    assert (folder / "keep").read_text() == "me"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["missing/a.html", "a.html/b.html"])
def test_a_place_that_cannot_be_written_is_one_line(place: str, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("")
    done = report(trace, "--html", tmp_path / place)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"cannot write" in done.stderr
