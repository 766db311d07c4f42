"""The one way to files: what is no file, what is put in its place, and what is made and thrown away again."""

from __future__ import annotations

import errno
import gc
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.unprivileged import let_through

from netprof.errors import NetprofError, TraceError, UsageError
from netprof.files import (
    Directory,
    OutputPlace,
    TemporaryFolder,
    User,
    as_user,
    caller,
    directory,
    kernel,
    made_whole,
    make_folder,
    open_file,
    read_all,
    unnamed_file,
)
from netprof.trace.named import traces_named

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def reachable(folder: Path, owner: int) -> Path:
    """Return a new folder of a user's, to which the folders of pytest above it let everybody through."""
    folder.mkdir()
    os.chown(folder, owner, owner)
    let_through(folder)
    return folder


def content(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def test_a_directory_is_held_wherever_it_goes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"mine")
    held = Directory(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"another's")
    assert content(held.open("file")) == b"mine"
    os.close(held.create("new"))
    held.rename("new", "newer")
    assert sorted(held.names()) == ["file", "newer"]
    held.remove("newer")
    held.remove("newer")  # as often as one likes
    assert held.names() == ["file"]
    held.close()
    with pytest.raises(OSError, match="Bad file"):
        held.names()


def test_a_link_to_a_directory_is_one_where_a_person_names_it_and_none_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert "link" in Directory(tmp_path / "link").names()
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        Directory(tmp_path).folder("link")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Directory(tmp_path / "file")


def test_what_is_there_is_not_made_anew(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(FileExistsError):
            Directory(tmp_path).create(name)
    assert not (tmp_path / "elsewhere").exists()


def test_the_umask_says_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        os.close(Directory(tmp_path).create("file"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


@pytest.mark.timeout(20)
def test_everything_that_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    (tmp_path / "folder").mkdir()
    held = Directory(tmp_path)
    for name, what in (("pipe", "a pipe"), ("link", "a symbolic link"), ("socket", "a socket"), ("folder", "a direc")):
        with pytest.raises(TraceError, match=f"{name} is {what}.*, not a file") as caught:
            held.open(name)
        assert "regular files" in caught.value.hint
    with pytest.raises(TraceError, match="is a device, not a file"):
        open_file(Path("/dev/zero"), Path("shown"))


def test_what_a_person_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert content(open_file(tmp_path / "link", tmp_path / "link")) == b"content"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.timeout(20)
def test_what_is_put_there_between_two_looks(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look sees a file, the second one what it was exchanged for; nothing is read, and nothing stays open."""
    (tmp_path / "file").write_bytes(b"")
    held, real = Directory(tmp_path), kernel.open_here
    gc.collect()  # what other tests left open is closed before it is counted
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def exchanged(name: str, flags: int, folder: int) -> int:
        descriptor = real(name, flags, folder)
        if flags & os.O_PATH:
            (tmp_path / "file").unlink()
            if kind == "link":
                (tmp_path / "file").symlink_to("/dev/zero")
            else:
                os.mkfifo(tmp_path / "file")
        return descriptor

    monkeypatch.setattr(directory, "open_here", exchanged)
    with pytest.raises(TraceError, match="a symbolic link" if kind == "link" else "a pipe"):
        held.open("file")
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_is_absent_is_said_as_the_system_says_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Directory(tmp_path).open("absent")


def test_what_is_there_and_cannot_be_opened_is_said_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    held = Directory(tmp_path)

    def fails(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(directory, "open_here", fails)
    with pytest.raises(OSError, match="Too many open files"):
        held.open("file")


@pytest.mark.parametrize("size", [0, 9, 10])
def test_a_file_up_to_its_limit_is_read(size: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    assert read_all(tmp_path / "file", 10, "a log") == bytes(size)


def test_a_larger_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes((3 << 20) + 1))
    with pytest.raises(TraceError, match="file is larger than 3 MiB") as caught:
        read_all(tmp_path / "file", 3 << 20, "a log")
    assert caught.value.hint == "that is not a log"
    with pytest.raises(TraceError, match=r"cannot read .*absent: No such file") as caught:
        read_all(tmp_path / "absent", 10, "a log")
    assert caught.value.hint == "name a log"


def test_a_file_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    held = Directory(tmp_path)
    (tmp_path / "part").write_text("left by somebody who was killed")
    with made_whole(held, "file", "part") as file:
        file.write(b"first")
        assert held.names() == ["part"]
    assert (held.names(), (tmp_path / "file").read_bytes()) == (["file"], b"first")
    with pytest.raises(KeyboardInterrupt):
        half(held)
    assert (held.names(), (tmp_path / "file").read_bytes()) == (["file"], b"first")
    assert file.closed


def half(held: Directory) -> None:
    with made_whole(held, "file", "part") as file:
        file.write(b"half")
        raise KeyboardInterrupt


@needs_root
@pytest.mark.parametrize(
    ("user", "group", "given"),
    [("1234", "5678", True), ("", "5678", False), ("1234", "", False), ("12x", "5678", False), ("1234", "-1", False)],
)
def test_what_is_made_is_made_as_who_called_sudo(
    user: str, group: str, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    monkeypatch.setenv("SUDO_GID", group)
    home = reachable(tmp_path / "home", 1234 if given else 0)
    place = make_folder(home / "a" / "b")
    os.close(place.create("file"))
    for path in (home / "a", home / "a" / "b", home / "a" / "b" / "file"):
        assert (path.stat().st_uid, path.stat().st_gid) == ((1234, 5678) if given else (0, 0))


@needs_root
def test_where_who_called_sudo_may_not_write_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    roots = reachable(tmp_path / "roots", 0)
    (roots / "secret").write_text("root's alone")
    (roots / "secret").chmod(0o600)
    held = make_folder(roots)
    for does in (
        lambda: held.create("file"),
        lambda: held.make("folder"),
        lambda: held.remove("secret"),
        lambda: held.rename("secret", "known"),
        lambda: held.open("secret"),
        lambda: make_folder(roots / "a"),
        lambda: open_file(roots / "secret"),
    ):
        with pytest.raises(PermissionError):
            does()
    assert [each.name for each in roots.iterdir()] == ["secret"]
    assert (roots / "secret").read_text() == "root's alone", "and afterwards all is as it was"


@needs_root
def test_rights_are_one_thread_s_and_groups_go_with_them(tmp_path: Path) -> None:
    def seen() -> list[str]:
        lines = Path("/proc/thread-self/status").read_text().splitlines()
        return [line for line in lines if line.startswith(("Uid:", "Gid:", "Groups:", "CapEff:"))]

    before, other = seen(), []
    with as_user(User(1234, 5678, (5678, 9999))):
        inside = seen()
        thread = threading.Thread(target=lambda: other.append(Path("/proc/self/status").read_text()))
        with as_user(User(1, 1, ())):
            assert seen()[0].split()[4] == "1"
        assert seen() == inside
    thread.start()
    thread.join()
    assert seen() == before
    assert inside[0].split() == ["Uid:", "0", "0", "0", "1234"]
    assert inside[1].split() == ["Gid:", "0", "0", "0", "5678"]
    assert inside[2].split() == ["Groups:", "5678", "9999"]
    assert int(inside[3].split()[1], 16) & 0b11111 == 0, "CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID"


@needs_root
def test_of_another_user_root_reads_what_that_user_may(tmp_path: Path) -> None:
    home = reachable(tmp_path / "home", 1234)
    (home / "own").write_text("mine")
    os.chown(home / "own", 1234, 1234)
    (home / "roots").write_text("root's")
    (home / "roots").chmod(0o600)
    held = Directory(home)
    assert content(held.open("own")) == b"mine"
    with pytest.raises(PermissionError):
        held.open("roots")


def test_folders_are_made_as_far_as_they_are_missing_and_again(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    for _ in range(2):
        make_folder(place)
        assert place.is_dir()
    (tmp_path / "link").symlink_to(place)
    os.close(make_folder(tmp_path / "link").create("file"))  # one's own may be named
    assert (place / "file").exists()


def test_a_place_is_what_it_was_at_the_first_look(tmp_path: Path) -> None:
    """Exchanged for a link while the work is done: what is made lies where the folder went."""
    (tmp_path / "p").mkdir()
    (tmp_path / "victim").mkdir()
    place = OutputPlace(tmp_path / "p" / "a" / "b")
    (tmp_path / "p").rename(tmp_path / "q")
    (tmp_path / "p").symlink_to(tmp_path / "victim")
    place.above().make(place.name)
    assert (tmp_path / "q" / "a" / "b").is_dir()
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_link_that_takes_the_place_of_a_new_folder_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else is quicker than the look at what was made: it is not gone through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(os, "mkdir", lambda name, mode, dir_fd: os.symlink(elsewhere, name, dir_fd=dir_fd))
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        make_folder(tmp_path / "a" / "b")
    assert list(elsewhere.iterdir()) == []


@needs_root
def test_another_mount_that_takes_the_place_of_a_new_folder_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").mkdir()
    real = os.mkdir

    def covered(name: str, mode: int, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        subprocess.run(["mount", "--bind", tmp_path / "victim", tmp_path / name], check=True)

    monkeypatch.setattr(os, "mkdir", covered)
    try:
        with pytest.raises(OSError, match="Invalid cross-device link"):
            make_folder(tmp_path / "a")
    finally:
        subprocess.run(["umount", tmp_path / "a"], check=True)


@needs_root
@pytest.mark.parametrize("use", [make_folder, Directory, OutputPlace, open_file, lambda path: open_file(path, path)])
def test_another_user_s_link_leads_nowhere(use: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(NetprofError, match=f"{tmp_path}/link is a symbolic link of another user"):
        use(tmp_path / "link" / "a")
    assert not (tmp_path / "a").exists()


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        Directory(tmp_path / "one")


def test_what_this_process_has_open_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with open(tmp_path / "file", "rb") as file:
        assert content(open_file(Path(f"/dev/fd/{file.fileno()}"))) == b"content"
        assert content(open_file(Path(f"/proc/{os.getpid()}/fd/{file.fileno()}"))) == b"content"


def test_a_pipe_that_is_exchanged_for_a_file_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "out")
    (tmp_path / "victim").write_bytes(b"as it was")
    place, real = OutputPlace(tmp_path / "out"), os.open

    def exchanged(name: str, flags: int, *rest: int, **where: int) -> int:
        if flags & os.O_WRONLY:
            (tmp_path / "out").unlink()
            os.link(tmp_path / "victim", tmp_path / "out")
        return real(name, flags, *rest, **where)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(OSError, match="it was exchanged"):
        place.folder.open_special("out")
    assert (tmp_path / "victim").read_bytes() == b"as it was"


def make_trace(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "meta.json").touch()
    return path


def test_traces_are_named_one_by_one_by_folder_and_by_pattern(tmp_path: Path) -> None:
    one, two = make_trace(tmp_path / "job" / "b.netprof"), make_trace(tmp_path / "job" / "a.netprof")
    (tmp_path / "job" / "logs").mkdir()
    (tmp_path / "empty").mkdir()
    assert traces_named([one]) == [one]
    assert traces_named([tmp_path / "job"]) == [two, one]
    assert traces_named([tmp_path / "job" / "*.netprof", one]) == [two, one, one]
    assert traces_named([tmp_path / "jo?"]) == [two, one]
    assert traces_named([tmp_path / "empty", tmp_path / "absent"]) == [tmp_path / "empty", tmp_path / "absent"]
    with pytest.raises(UsageError, match=r"no trace fits .*/x\*"):
        traces_named([tmp_path / "x*"])
    starred = make_trace(tmp_path / "c[1].netprof")
    assert traces_named([starred]) == [starred], "a name that looks like a pattern"
    assert traces_named([tmp_path / "job", make_trace(tmp_path / "outer")])[-1] == tmp_path / "outer"


def test_a_trace_that_holds_another_is_one(tmp_path: Path) -> None:
    outer = make_trace(tmp_path / "outer")
    make_trace(outer / "inner")
    assert traces_named([outer]) == [outer]


@needs_root
@pytest.mark.parametrize(
    ("owner", "sudo_uid", "follows"),
    [(65534, "", False), (65534, "65534", True), (65534, "1000", False), (65534, "65534x", False), (0, "1000", True)],
)
def test_whose_links_are_followed(
    owner: int, sudo_uid: str, follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = reachable(tmp_path / "home", 65534)
    (home / "link").symlink_to(home)
    os.lchown(home / "link", owner, owner)
    monkeypatch.setenv("SUDO_UID", sudo_uid)
    monkeypatch.setenv("SUDO_GID", sudo_uid)
    with nullcontext() if follows else pytest.raises(NetprofError, match="link is a symbolic link of another user"):
        OutputPlace(home / "link" / "below" / "it")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused")
def test_temporary_files_of_root_s_are_root_s_and_not_where_who_called_sudo_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with TemporaryFolder() as folder:
        assert folder.path.parent == tmp_path
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    with TemporaryFolder() as folder, unnamed_file() as file:
        assert folder.path.parent == Path("/tmp")
        assert (folder.path.stat().st_uid, folder.path.stat().st_mode & 0o777) == (0, 0o700)
        assert os.fstat(file.fileno()).st_uid == 0
        os.close(folder.directory.create("x"))
        os.close(folder.directory.open("x"))
    assert not folder.path.exists()
    with TemporaryFolder(caller()) as folder:
        assert folder.path.stat().st_uid == 65534
    assert not list(tmp_path.iterdir())
