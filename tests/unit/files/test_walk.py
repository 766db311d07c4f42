"""What there is of a path that a person named: seen as that person, from whatever process asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.unprivileged import let_through

from netprof.files import User, as_user, is_file, is_folder, is_pattern, kernel, matching, real_path, status_of

USER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder that only root may enter, with a file and a folder in it."""
    secret = tmp_path / "roots"
    (secret / "folder").mkdir(parents=True)
    (secret / "file").write_text("root's")
    secret.chmod(0o700)
    let_through(tmp_path)
    return secret


@pytest.fixture
def by_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(USER))


def test_what_is_there(secret: Path) -> None:
    assert is_file(secret / "file")
    assert not is_folder(secret / "file")
    assert is_folder(secret / "folder")
    assert status_of(secret / "absent") is None
    assert status_of(Path("a\0b")) is None
    assert matching(secret, "f*") == matching(secret / "f*") == [secret / "file", secret / "folder"]
    assert not is_pattern(secret / "file")
    (secret / "a*").touch()
    assert not is_pattern(secret / "a*"), "a name that looks like a pattern"
    assert is_pattern(secret / "b*")
    (secret / "link").symlink_to(secret / "file")
    assert real_path(secret / "link") == secret / "file"


@as_root
@pytest.mark.usefixtures("by_sudo")
def test_who_called_sudo_learns_nothing_of_what_he_may_not_enter(secret: Path) -> None:
    link = secret.parent / "link"
    link.symlink_to(secret)
    os.lchown(link, USER, USER)
    for way in (secret, link):
        assert status_of(way / "file") is status_of(way / "folder") is None
        assert not matching(way, "*")
        assert not matching(way / "*")
        assert real_path(way / "file") == real_path(way / "absent").with_name("file")


@as_root
def test_a_link_of_another_user_leads_nowhere(secret: Path) -> None:
    link = secret / "link"
    link.symlink_to(secret / "folder")
    os.lchown(link, USER, USER)
    assert status_of(link) is None


@as_root
def test_files_are_touched_without_any_capability(secret: Path) -> None:
    """CAP_SYS_PTRACE alone opens what lies below /proc/PID/root and in /proc/PID/maps of processes of root's."""
    before = kernel.capabilities()
    with as_user(User.of(USER)):
        assert kernel.capabilities()[:2] == (0, 0)
        for name in ("maps", "root/etc/passwd"):
            with pytest.raises(PermissionError):
                Path(f"/proc/1/{name}").read_bytes()
        with as_user(User.of(1)), pytest.raises(PermissionError):
            (secret / "file").read_bytes()
        assert kernel.rights() == (USER, USER)
    assert kernel.capabilities() == before
    assert (secret / "file").read_text() == "root's"


@as_root
def test_a_user_within_another_s_block_is_that_user(tmp_path: Path) -> None:
    with as_user(User.of(USER)), as_user(User.of(1)):
        assert kernel.rights() == (1, 1)
