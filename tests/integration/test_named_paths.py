"""Whatever a command line names is opened with the rights of who called sudo: not one file that only root may read.

The commands and options are those that the command line describes itself, so that a new one is tried. Each runs beside
a link of the user's to what is root's, once while that is there and once while it is not: nothing of it may be opened,
and nothing said, nor an exit code, may tell which. The process cannot give up root, as where netprof lies in its home.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.by_sudo import USER, Parameter, Run, Watched, parameters, run
from support.synthetic import Job

import netprof
import netprof.session.attach
import netprof.session.run
from netprof.analysis import analyze
from netprof.errors import NetprofError
from netprof.metrics.exporter import Exporter
from netprof.trace import TraceReader

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused"),
    pytest.mark.timeout(1800),
]

ALL = parameters()
WORDS = {
    "attach": ["{pid}"],
    "capture": ["{mine}/capture.pcap"],
    "run": ["true"],
    "save": ["{mine}/ok.netprof", "{mine}/saved.netprof"],
    "timeline": ["{mine}/timeline.json"],
}
"""What commands are given for their arguments; others get traces."""
BESIDE = {
    "on_event": ["--keep", "1m", "--save-when", "stalled"],
    "save_when": ["--keep", "1m"],
    "total": ["--keep", "1m", "--save-when", "stalled"],
    "web_config": ["--metrics", "127.0.0.1:0"],
    "split": ["--paths", "2"],
    "batch_time": ["--bandwidth", "10"],
}
"""What has to stand beside an option for it to be used."""
FORMS = (
    "link",
    "link/meta.json",
    "file://{mine}/link",
    "local://{mine}/link",
    "zip://meta.json::file://{mine}/link",
    "link*",
    "link/*",
    "lin?/meta.json",
    "{mine}/link",
    "../roots/secret",
    "{roots}/*",
    "{roots}/secret/*.json",
    "file://{mine}/link/*",
    "file://{mine}/link/meta.json",
    "simplecache::file://{mine}/link",
    "simplecache://x::file://{mine}/link/meta.json",
    "zip://*::file://{roots}/secret",
    "dir://meta.json::file://{mine}/link",
    "FILE://{mine}/link",
    "file:{mine}/link",
    "a=link",
    "link=1",
)
CORE_FORMS = ("link", "file://{mine}/link", "zip://meta.json::file://{mine}/link")
SECRET = "xyzzy-of-root"


@dataclass
class Place:
    """A folder `mine` of the user's, and one of root's whose `secret`, a folder or a file, a link leads to."""

    top: Path
    template: Path

    @property
    def mine(self) -> Path:
        return self.top / "mine"

    @property
    def roots(self) -> Path:
        return self.top / "roots"

    def lay(self) -> None:
        """Lay all that is the user's, anew."""
        shutil.rmtree(self.mine, ignore_errors=True)
        self.mine.mkdir()
        for name in ("ok.netprof", "other.netprof"):
            shutil.copytree(self.template, self.mine / name)
        (self.mine / "timeline.json").write_text("[]")
        (self.mine / "capture.pcap").write_bytes(b"no capture")
        (self.mine / "link").symlink_to(self.roots / "secret")
        for path in (self.mine, *self.mine.rglob("*")):
            os.lchown(path, USER, USER)

    def words(self, parameter: Parameter, value: str) -> list[str]:
        """Return a command line in which a parameter has a value, and others what they need."""
        place = {"mine": self.mine, "roots": self.roots, "pid": os.getpid()}
        value = value.format(**place)
        arguments = [each for each in ALL if each.command == parameter.command and each.option is None]
        given = WORDS.get(parameter.command, ["{mine}/ok.netprof", "{mine}/other.netprof"])
        own = {each.name: word.format(**place) for each, word in zip(arguments, given, strict=False)}
        if parameter.option is None:
            own[parameter.name] = value
        needed = [name for name in own if any(each.name == name and each.required for each in arguments)]
        wanted = [own[name] for name in own if name in needed or name == parameter.name or parameter.command in WORDS]
        options = [*BESIDE.get(parameter.name, [])]
        if parameter.command == "exporter":
            options += ["--metrics", "127.0.0.1:0"] if "--metrics" not in options else []
            options += ["--keep", "1m"] if parameter.name in ("out", "save_when") and "--keep" not in options else []
            options += ["--out", str(self.mine / "kept")] if "--keep" in options and parameter.name != "out" else []
        options += [parameter.option, value] if parameter.option else []
        for each in ALL:
            if each.command == parameter.command and each.option and each.required and each != parameter:
                options += [each.option, str(self.mine / f"made-{each.name}")]
        if parameter.command in ("attach", "run") and parameter.name != "out":
            options += ["--out", str(self.mine / "recorded.netprof")]
        return (
            [parameter.command, *options, "--", *wanted]
            if parameter.command == "run"
            else [
                parameter.command,
                *wanted,
                *options,
            ]
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="named-paths-") as folder:
        top = Path(folder)
        top.chmod(0o755)
        (top / "roots").mkdir(mode=0o700)
        analyze(TraceReader(job().write(top / "template.netprof"))).document()
        for module in pkgutil.walk_packages(netprof.__path__, "netprof."):  # once, and not in each fork
            if not module.name.endswith(("__main__", ".build")):
                importlib.import_module(module.name)
        gc.collect()
        gc.freeze()  # what a fork collects it copies
        yield Place(top, top / "template.netprof")
        gc.unfreeze()


def job() -> Job:
    made = Job(iterations=2)
    made.changes["command"] = ("train", SECRET)
    return made.fill()


def secrets(place: Place, kind: str) -> list[Path]:
    """Make what only root may read, and return all of it."""
    secret = place.roots / "secret"
    shutil.rmtree(secret, ignore_errors=True)
    secret.unlink(missing_ok=True)
    if kind == "folder":
        shutil.copytree(place.template, secret)
    else:
        secret.write_text(f"{SECRET}\n" * 100)
    for path in (secret, *secret.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return [secret, *secret.rglob("*")]


def nothing_is_recorded() -> None:
    """Have commands that record come to the point where they would, and no further."""

    def refuse(*_: object, **__: object) -> None:
        raise NetprofError("here it would be recorded")

    netprof.session.attach.attach = refuse  # type: ignore[assignment]
    netprof.session.run.run = refuse  # type: ignore[assignment]
    Exporter.run = refuse  # type: ignore[method-assign]


def both(
    place: Place, parameter: Parameter, form: str, kind: str, *, record: bool = False
) -> tuple[Run, Run, set[str]]:
    """Return what comes of a command line while the secret is there, while it is not, and what was opened of it."""
    words, done = place.words(parameter, form), []
    before = (lambda: None) if record else nothing_is_recorded
    paths = secrets(place, kind)
    place.lay()
    with Watched(place.roots, *paths) as watched:
        done.append(run(words, place.mine, before))
        opened = watched.seen()
    place.lay()
    (place.roots / "secret").rename(place.top / "away")
    try:
        with Watched(place.roots) as watched:
            done.append(run(words, place.mine, before))
            opened |= watched.seen()
    finally:
        (place.top / "away").rename(place.roots / "secret")
    return done[0], done[1], opened


def wrong(place: Place, tried: Iterator[tuple[Parameter, str, str]], *, record: bool = False) -> list[str]:
    found = []
    for parameter, form, kind in tried:
        there, absent, opened = both(place, parameter, form, kind, record=record)
        case = f"{parameter} {form} ({kind})"
        if opened:
            found.append(f"{case}: {', '.join(sorted(opened))}")
        if SECRET in there.said and "ok.netprof" not in " ".join(place.words(parameter, form)):
            found.append(f"{case}: prints it")
        if there != absent:
            found.append(f"{case}: {there} where it is there, {absent} where it is not")
        if None in (there.code, absent.code):
            found.append(f"{case}: does not end")
    return found


def test_the_command_line_says_what_it_takes() -> None:
    known = {str(each) for each in ALL if each.is_path}
    assert {"report TRACES", "whatif --add-cost", "attach --web-config", "exporter --out", "digest --out"} <= known
    assert len({each.command for each in ALL}) >= 12
    assert "report --baseline" in map(str, ALL)


@pytest.mark.core
def test_no_path_of_a_command_line_is_opened_as_root(place: Place) -> None:
    tried = (
        (parameter, form, ("folder", "file")[(number + at) % 2])
        for number, parameter in enumerate(each for each in ALL if each.is_path)
        for at, form in enumerate(CORE_FORMS if parameter.option is None else CORE_FORMS[:1])
    )
    assert not (found := wrong(place, tried)), "\n".join(found)


def test_nor_what_else_it_takes(place: Place) -> None:
    found = wrong(place, ((each, "link", "folder") for each in ALL if not each.is_path))
    assert not found, "\n".join(found)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["folder", "file"])
@pytest.mark.parametrize("command", sorted({each.command for each in ALL}))
def test_nor_by_any_scheme_or_pattern(command: str, kind: str, place: Place) -> None:
    found = wrong(
        place, ((each, form, kind) for each in ALL if each.command == command and each.is_path for form in FORMS)
    )
    assert not found, "\n".join(found)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["out", "digest", "json_file", "textfile"])
def test_nor_by_a_recording(name: str, place: Place) -> None:
    tried = (
        (each, form, "folder") for each in ALL if each.command == "run" and each.name == name for form in FORMS[:2]
    )
    assert not (found := wrong(place, tried, record=True)), "\n".join(found)


@pytest.mark.core
@pytest.mark.parametrize("form", ["{mine}/ok.netprof", "file://{mine}/ok.netprof", "{mine}/ok.*", "local://{mine}/ok*"])
def test_what_the_user_may_read_is_read(form: str, place: Place) -> None:
    place.lay()
    done = run(["report", form.format(mine=place.mine)], place.mine)
    assert done.code == 0, done.said


@pytest.mark.core
@pytest.mark.parametrize("words", [["--install-completion"], ["-v", "--install-completion=bash"]])
def test_no_completion_is_installed_by_root_in_a_user_s_home(words: list[str], place: Place) -> None:
    """With HOME kept, typer would write through a link that is ~/.bashrc."""
    place.lay()
    rc, target = place.mine / ".bashrc", place.roots / "file"
    target.write_text("root's")
    rc.symlink_to(target)
    os.lchown(rc, USER, USER)

    def at_home() -> None:
        os.environ.update(HOME=str(place.mine), SHELL="/bin/bash")

    def without_sudo() -> None:
        at_home()
        for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
            del os.environ[name]

    for before in (at_home, without_sudo):
        done = run(words, place.mine, before)
        assert (done.code, "run it without sudo" in done.said) == (2, True)
        assert target.read_text() == "root's"
        assert sorted(each.name for each in place.mine.iterdir() if each.name.startswith(".")) == [".bashrc"]


@pytest.mark.core
def test_a_job_under_sudo_is_the_caller_s(place: Place) -> None:
    """The real recorder, which stays root, records it; as root it is started where that is asked for."""
    place.lay()
    trace = place.mine / "run.netprof"
    script = f"grep -E '^(Uid|CapEff)' /proc/self/status > {place.mine}/about; exit 7"
    done = run(["run", "--out", str(trace), "--", "sh", "-c", script], place.mine)
    assert done.code == 7, done.said
    assert "the command runs as nobody (uid 65534), who called sudo; with --as-root it runs as root" in done.said
    about = (place.mine / "about").read_text().split()
    assert about == ["Uid:", *[str(USER)] * 4, "CapEff:", "0" * 16]
    assert (place.mine / "about").stat().st_uid == trace.stat().st_uid == USER
    done = run(["run", "--as-root", "--out", f"{trace}2", "--", "sh", "-c", "id -u; exit 3"], place.mine)
    assert (done.code, done.said.splitlines()[0]) == (3, "0")
    assert "the command runs as" not in done.said


@pytest.mark.core
def test_python_m_netprof_imports_nothing_from_the_folder_it_is_called_in(tmp_path: Path) -> None:
    for module in ("typer", "pyarrow", "numpy", "signal", "bcc"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('imported from here')")
    command = [sys.executable, "-m", "netprof", "explain", "busbw"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
