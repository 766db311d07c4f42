"""The one way to files: what is no file, what is put in its place, and what is made and thrown away again."""

from __future__ import annotations

import errno
import gc
import os
import socket
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from netprof.errors import NetprofError, TraceError, UsageError
from netprof.trace.files import Directory, check_links, give_to_user, made_whole, make_folder, open_regular, read_all
from netprof.trace.named import traces_named


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


def test_a_link_to_a_directory_is_one_only_where_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert "link" in Directory(tmp_path / "link").names()
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        Directory(tmp_path / "link", follow=False)
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
        open_regular(Path("shown"), "/dev/zero")


def test_what_a_person_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert content(open_regular(tmp_path / "link", tmp_path / "link")) == b"content"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.timeout(20)
def test_what_is_put_there_between_two_looks(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look sees a file, the second one what it was exchanged for; nothing is read, and nothing stays open."""
    (tmp_path / "file").write_bytes(b"")
    held, real = Directory(tmp_path), os.stat
    gc.collect()  # what other tests left open is closed before it is counted
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def exchanged(*given: object, **named: object) -> os.stat_result:
        status = real(*given, **named)  # type: ignore[arg-type]
        (tmp_path / "file").unlink()
        if kind == "link":
            (tmp_path / "file").symlink_to("/dev/zero")
        else:
            os.mkfifo(tmp_path / "file")
        return status

    monkeypatch.setattr("os.stat", exchanged)
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

    monkeypatch.setattr(os, "open", fails)
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
    with made_whole(held, "file", "part") as descriptor:
        os.write(descriptor, b"first")
        assert held.names() == ["part"]
    assert (held.names(), (tmp_path / "file").read_bytes()) == (["file"], b"first")
    with pytest.raises(KeyboardInterrupt):
        half(held)
    assert (held.names(), (tmp_path / "file").read_bytes()) == (["file"], b"first")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def half(held: Directory) -> None:
    with made_whole(held, "file", "part") as descriptor:
        os.write(descriptor, b"half")
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("user", "group", "given"),
    [("1234", "5678", True), ("", "5678", False), ("1234", "", False), ("12x", "5678", False), ("1234", "-1", False)],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_are_given_to_who_called_sudo(
    user: str, group: str, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    monkeypatch.setenv("SUDO_GID", group)
    with open(tmp_path / "file", "w") as file:
        give_to_user(file.fileno())
    status = (tmp_path / "file").stat()
    assert (status.st_uid, status.st_gid) == ((1234, 5678) if given else (0, 0))


def test_one_who_is_not_root_gives_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    monkeypatch.setattr("os.geteuid", lambda: 1)
    with open(tmp_path / "file", "w") as file:
        give_to_user(file.fileno())
    assert (tmp_path / "file").stat().st_uid == os.getuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_folders_belong_to_who_called_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    make_folder(tmp_path / "a" / "b")
    assert [(place.stat().st_uid, place.stat().st_gid) for place in (tmp_path / "a", tmp_path / "a" / "b")] == [
        (65534, 65533)
    ] * 2
    assert tmp_path.stat().st_uid != 65534


def test_folders_are_made_as_far_as_they_are_missing_and_again(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    for _ in range(2):
        assert make_folder(place).path == place
    (tmp_path / "link").symlink_to(place)
    assert make_folder(tmp_path / "link").path == place.resolve()  # one's own may be named


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
def test_nothing_is_made_behind_another_user_s_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(NetprofError, match="is a symbolic link of another user"):
        make_folder(tmp_path / "link" / "a")
    assert not (tmp_path / "a").exists()


def test_a_link_that_takes_the_place_of_a_folder_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else is quicker than the look at what was made: it is neither given away nor gone through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(Path, "mkdir", lambda path, **_: path.symlink_to(elsewhere))
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "a" / "b")
    assert list(elsewhere.iterdir()) == []


def test_nor_does_one_that_takes_its_place_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = Path.resolve

    def exchanged(path: Path) -> Path:
        found = real(path)
        found.rmdir()
        found.symlink_to(tmp_path / "elsewhere")
        return found

    monkeypatch.setattr(Path, "resolve", exchanged)
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
def test_nor_does_another_user_s_that_takes_the_place_of_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put there while the folder was made: what is made then lies where the link leads, and is not gone through."""
    (tmp_path / "a").mkdir()
    (tmp_path / "elsewhere").mkdir()
    real = Path.mkdir

    def exchanged(path: Path, **how: bool) -> None:
        (tmp_path / "a").rmdir()
        (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
        os.lchown(tmp_path / "a", 65534, 65534)
        real(path, **how)

    monkeypatch.setattr(Path, "mkdir", exchanged)
    with pytest.raises(NetprofError, match="a is a symbolic link of another user"):
        make_folder(tmp_path / "a" / "b")


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
@pytest.mark.parametrize(
    ("owner", "runs_as", "sudo_uid", "follows"),
    [
        (65534, 0, "", False),
        (65534, 0, "65534", True),  # whoever runs sudo
        (65534, 0, "1000", False),
        (65534, 0, "65534x", False),
        (65534, 1000, "65534", False),  # says so of itself
        (65534, 65534, "", True),
        (0, 1000, "", True),
    ],
)
def test_whose_links_are_followed(
    owner: int, runs_as: int, sudo_uid: str, follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.lchown(tmp_path / "link", owner, owner)
    monkeypatch.setattr(os, "geteuid", lambda: runs_as)
    monkeypatch.setenv("SUDO_UID", sudo_uid)
    with nullcontext() if follows else pytest.raises(NetprofError, match="link is a symbolic link of another user"):
        check_links(tmp_path / "link" / "below" / "it")
