"""The address that is scraped: who may, what is answered, and what a scraper can do wrong."""

from __future__ import annotations

import base64
import http.client
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.unprivileged import let_through

from netprof.errors import NetprofError, UsageError
from netprof.files import Directory
from netprof.metrics import connections as connections_module
from netprof.metrics.board import Board
from netprof.metrics.passwords import crypt
from netprof.metrics.server import MetricsServer, parse_address
from netprof.metrics.textfile import Textfile
from netprof.metrics.web_config import WebConfig

EXPIRED = """-----BEGIN CERTIFICATE-----
MIIBDzCBtgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwHhcN
MjAwMTAxMDAwMDAwWhcNMjAwMjAxMDAwMDAwWjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASGvPx1+Wli72mLIrCssk+kW8KU
dovmTfP4UqfWO+hOFxyLXhi2RSCBHlRIkCe6abSSswiyeCCde4V70Rz4QfuAMAoG
CCqGSM49BAMCA0gAMEUCICUVzUhIjKxemryPV5s8cvgtSpr/LQHjmvJr2y0qVGjC
AiEA2twEuloNmnlJ2bNqc8VIhNyLBeksiK7SJPy5a+wiBW8=
-----END CERTIFICATE-----
"""  # for January 2020
ITS_KEY = """-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIA8BfkK615vcyn4tpd4MGK725BcgNk6NSJCcHJKbT39ioAoGCCqGSM49
AwEHoUQDQgAEhrz8dflpYu9piyKwrLJPpFvClHaL5k3z+FKn1jvoThcci14YtkUg
gR5USJAnumm0krMIsnggnXuFe9Ec+EH7gA==
-----END EC PRIVATE KEY-----
"""


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    found = MetricsServer(Board(), "127.0.0.1:0")
    found.start()
    yield found
    found.close()


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize(
    ("text", "place"),
    [("9963", ("127.0.0.1", 9963)), (":1", ("127.0.0.1", 1)), ("0.0.0.0:5", ("0.0.0.0", 5)), ("[::1]:9", ("::1", 9))],
)
def test_addresses(text: str, place: tuple[str, int]) -> None:
    assert parse_address(text) == place


@pytest.mark.parametrize("text", ["", "host", "1.2.3.4:99999", "a b:1", "http://x:1", "::1:9"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_it_answers(served: MetricsServer) -> None:
    status, body = get(served.port)
    assert status == 200
    assert b"netprof_build_info" in body
    assert get(served.port, "/healthz") == (200, b"ok\n")
    assert get(served.port, "/nothing")[0] == 404
    assert get(served.port, Accept="application/openmetrics-text")[1].endswith(b"# EOF\n")


def test_health_tells_what_fails(served: MetricsServer, monkeypatch) -> None:
    monkeypatch.setattr(Board, "problem", property(lambda self: "the account failed"))
    assert get(served.port, "/healthz") == (503, b"the account failed\n")


def test_a_port_that_is_taken_and_one_that_is_not_permitted(served: MetricsServer) -> None:
    with pytest.raises(NetprofError, match="Address already in use"):
        MetricsServer(Board(), f"127.0.0.1:{served.port}")
    with pytest.raises(NetprofError, match="cannot serve metrics at"):
        MetricsServer(Board(), "192.0.2.1:9963")


def test_garbage_and_silence_harm_nobody(served: MetricsServer, monkeypatch) -> None:
    monkeypatch.setattr(connections_module, "PATIENCE_S", 1.0)
    mute = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(20)]
    for number, each in enumerate(mute[:10]):
        each.sendall(os.urandom(100 * (number + 1)) if number % 2 else b"GET /metrics HT")
    assert get(served.port)[0] == 200
    deadline = time.monotonic() + 8
    for each in mute:
        each.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            while each.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert time.monotonic() < deadline, "who hangs is cut off"


def test_fifty_scrapers_at_once(served: MetricsServer) -> None:
    took: list[float] = []

    def scrape() -> None:
        for _ in range(4):
            begin = time.monotonic()
            assert get(served.port)[0] == 200
            took.append(time.monotonic() - begin)

    threads = [threading.Thread(target=scrape) for _ in range(50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(took) == 200
    assert statistics.median(took) < 2


def made(folder: Path, *options: str) -> tuple[Path, Path]:
    """A certificate and its key."""
    key, certificate = folder / "k.pem", folder / "c.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([*command, "-subj", "/CN=localhost", *options], check=True, capture_output=True)
    return certificate, key


def written(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


TLS = "tls_server_config:\n  cert_file: c.pem\n  key_file: k.pem\n"


def test_tls_and_passwords(tmp_path: Path) -> None:
    certificate, _ = made(tmp_path, "-days", "2")
    hashed = hash_of("secret")
    path = written(tmp_path, f"# a comment\n{TLS}basic_auth_users:\n  prom: {hashed}  # as htpasswd made it\n")
    served = MetricsServer(Board(), "127.0.0.1:0", WebConfig.read(path))
    served.start()
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        status = []
        for user, password in (("prom", "secret"), ("prom", "secret"), ("nobody", "secret"), ("prom", "wrong")):
            connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=context, timeout=5)
            given = base64.b64encode(f"{user}:{password}".encode()).decode()
            connection.request("GET", "/metrics", headers={"Authorization": f"Basic {given}"})
            status.append(connection.getresponse().status)
        assert status[:3] == [200, 200, 401]
        assert status[3] in (401, 429)
        assert served.url.startswith("https://")
        with socket.create_connection(("127.0.0.1", served.port)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")
    finally:
        served.close()


def test_a_certificate_that_is_renewed_is_served(tmp_path: Path) -> None:
    certificate, _ = made(tmp_path, "-days", "2")
    path = written(tmp_path, TLS)
    served = MetricsServer(Board(), "127.0.0.1:0", WebConfig.read(path))
    served.start()
    try:
        first = ssl.get_server_certificate(("127.0.0.1", served.port), timeout=5)
        assert first.strip() == certificate.read_text().strip()
        certificate.write_text("just being written")
        assert ssl.get_server_certificate(("127.0.0.1", served.port), timeout=5) == first
        made(tmp_path, "-days", "3")
        found = ssl.get_server_certificate(("127.0.0.1", served.port), timeout=5)
        assert found.strip() == certificate.read_text().strip()
        assert found != first
    finally:
        served.close()


def test_what_protects_stays_while_the_file_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, f"basic_auth_users:\n  prom: {hash_of('secret')}\n")
    config = WebConfig.read(path)
    assert config.renewed() is config
    path.write_text("")
    os.utime(path, (1, 1))
    assert config.renewed() is config
    path.write_text(f"basic_auth_users:\n  other: {hash_of('secret')}\n")
    os.utime(path, (2, 2))
    assert list(config.renewed().users) == ["other"]


def hash_of(password: str) -> str:
    return crypt(password, "$2b$04$abcdefghijklmnopqrstuu")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TLS, "cannot read .*c.pem: No such file"),
        ("tls_server_config:\n  cert_file: c.pem\n", "key_file is missing"),
        ("tls_server_config: {cert_file: c.pem}\n", "line 1: not understood"),
        ("  cert_file: c.pem\n", "line 1: not understood"),
        ("rubbish\n", "line 1: not understood"),
        ("http_server_config:\n  http2: true\n", "http_server_config is not supported"),
        (TLS + "  curve_preferences: x\n", "curve_preferences is not supported"),
        ("basic_auth_users:\n  a: plain\n", "no bcrypt hash"),
    ],
)
def test_a_configuration_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NetprofError, match=said):
        WebConfig.read(written(tmp_path, text))


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NetprofError, match="cannot read"):
        WebConfig.read(tmp_path / "no.yml")


def test_an_expired_certificate(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text(EXPIRED)
    (tmp_path / "k.pem").write_text(ITS_KEY)
    with pytest.raises(NetprofError, match="expired"):
        WebConfig.read(written(tmp_path, TLS))


def test_the_textfile_is_whole_and_goes(tmp_path: Path) -> None:
    found = Textfile(Board(), tmp_path, "7")
    found.start()
    assert [each.name for each in tmp_path.iterdir()] == ["netprof-7.prom"]
    assert "netprof_build_info" in (tmp_path / "netprof-7.prom").read_text()
    found.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(NetprofError, match="cannot write metrics"):
        Textfile(Board(), tmp_path / "none", "7")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    found = Textfile(Board(), tmp_path, "7")
    before = (tmp_path / "netprof-7.prom").read_text()
    monkeypatch.setattr(Directory, "create", lambda *_: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match="No space"):
        found._write()
    monkeypatch.undo()
    assert (tmp_path / "netprof-7.prom").read_text() == before
    assert len(list(tmp_path.iterdir())) == 1
    found.close()


def test_a_file_that_cannot_be_written_is_told_by_the_health_check(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("netprof.metrics.textfile._EVERY_S", 0.01)
    board = Board()
    found = Textfile(board, tmp_path, "7")

    def full(directory: Directory, name: str, mode: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Directory, "create", full)
    found.start()
    wait_until(lambda: "No space left" in board.problem)
    monkeypatch.undo()
    wait_until(lambda: board.problem == "")
    found.close()


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.01)
    assert holds()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused")
@pytest.mark.parametrize("name", ["cert_file", "key_file", "client_ca_file"])
def test_files_that_a_configuration_names_are_opened_as_who_called_sudo(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is root's is not used, and whether it is there is not told."""
    mine, roots = tmp_path / "mine", tmp_path / "roots"
    mine.mkdir()
    roots.mkdir(mode=0o700)
    shutil.copytree(made(roots, "-days", "2")[0].parent, mine, dirs_exist_ok=True)
    shutil.copy(mine / "c.pem", mine / "ca.pem")
    shutil.copy(roots / "c.pem", roots / "ca.pem")
    files = {"cert_file": "c.pem", "key_file": "k.pem", "client_ca_file": "ca.pem"}
    named = {**files, name: f"link/{files[name]}"}
    (mine / "link").symlink_to(roots)
    text = "".join(f"  {each}: {file}\n" for each, file in named.items())
    path = written(mine, f"tls_server_config:\n{text}  client_auth_type: RequireAndVerifyClientCert\n")
    for each in (mine, *mine.iterdir()):
        os.lchown(each, 65534, 65534)
    let_through(tmp_path)
    roots.chmod(0o700)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    said = []
    for _ in range(2):
        with pytest.raises(NetprofError) as caught:
            WebConfig.read(path)
        said.append((caught.value.message, caught.value.hint, caught.value.exit_code))
        shutil.rmtree(roots)
        roots.mkdir(mode=0o700)
    message = f"cannot read {mine}/link/{files[name]}: Permission denied"
    assert said[0] == said[1] == (message, f"check {name} in {path}", 1)
    path.write_text(path.read_text().replace("link/", ""))
    assert WebConfig.read(path).tls_context is not None, "what is the user's is used"
