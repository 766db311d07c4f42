"""Wrong passwords cost their address time, and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from netprof.metrics import passwords as module
from netprof.metrics.clients import Client
from netprof.metrics.passwords import Passwords, crypt

HASH = crypt("right", "$2b$04$abcdefghijklmnopqrstuu")


class Checks:
    """Passwords whose hashing waits until it is let go, and what was answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passwords = Passwords()
        self.hashed: list[str] = []
        self.answers: dict[str, bool] = {}
        self.answered = threading.Condition()
        self.go = threading.Event()
        self.begun = threading.Event()
        monkeypatch.setattr(module, "crypt", self._crypt)
        monkeypatch.setattr(module, "_WRONG_S", 0.0)

    def _crypt(self, password: str, hashed: str) -> str:
        self.begun.set()
        self.go.wait(20)
        self.hashed.append(password)
        return hashed if password == "right" else "$2b$no"

    def ask(self, client: str, password: str, address: str = "") -> bool:
        def answer(right: bool) -> None:
            with self.answered:
                self.answers[f"{client} {password}"] = right
                self.answered.notify()

        return self.passwords.ask(Client(client, address or client), "prom", password, HASH, answer)

    def wait_for(self, *names: str) -> None:
        with self.answered:
            assert self.answered.wait_for(lambda: all(name in self.answers for name in names), 20)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checks]:
    found = Checks(monkeypatch)
    yield found
    found.go.set()
    found.passwords.close()


def test_clients_take_turns(checks: Checks) -> None:
    threads = threading.active_count()
    assert all(checks.ask("attacker", f"wrong{number}", f"127.0.0.{number}") for number in range(20))
    assert checks.begun.wait(20)
    assert checks.ask("scraper", "right")
    assert threading.active_count() <= threads + 1, "one thread, however many ask"
    checks.go.set()
    checks.wait_for("scraper right")
    assert checks.hashed.index("right") <= 2, "it is next, but for what was under way"
    assert checks.answers["scraper right"]


def test_addresses_of_one_client_take_turns(checks: Checks) -> None:
    for number in range(module._MOST_OF_ADDRESS):
        assert checks.ask("this host", f"wrong{number}", "127.0.0.9")
    assert checks.begun.wait(20)
    assert checks.ask("this host", "right", "127.0.0.1")
    checks.go.set()
    checks.wait_for("this host right")
    assert checks.hashed.index("right") <= 2


def test_what_waits_is_bounded(checks: Checks) -> None:
    for address in range(1000):
        for number in range(20):
            checks.ask("attacker", f"wrong{address}-{number}", f"127.0.{address // 250}.{address % 250}")
    assert len(checks.passwords._waiting) <= module._MOST_OF_CLIENT
    assert checks.ask("attacker", "right", "127.9.9.9"), "the address with most gives way"
    for client in range(1000):
        checks.ask(f"198.51.100.{client}", "wrong")
    assert len(checks.passwords._waiting) <= module._MOST_WAITING
    for number in range(5000):
        module._note(checks.passwords._turns, str(number), 0.0)
    assert len(checks.passwords._turns) <= module._MOST_KNOWN


def test_one_that_was_right_is_not_hashed_again(checks: Checks) -> None:
    checks.go.set()
    assert checks.ask("scraper", "right")
    checks.wait_for("scraper right")
    assert checks.passwords.is_right("prom", "right", HASH)
    assert not checks.passwords.is_right("prom", "right", HASH.replace("$04$", "$05$")), "nor after it was changed"
    assert not checks.passwords.is_right("prom", "wrong", HASH)


def test_a_password_with_a_nul_is_wrong(checks: Checks) -> None:
    assert checks.ask("scraper", "right\0more")
    assert checks.answers == {"scraper right\0more": False}


def test_two_at_once_get_their_own_hashes() -> None:
    wrong: list[str] = []

    def check(password: str) -> None:
        expected = crypt(password, "$2b$04$abcdefghijklmnopqrstuu")
        wrong.extend(password for _ in range(40) if crypt(password, "$2b$04$abcdefghijklmnopqrstuu") != expected)

    threads = [threading.Thread(target=check, args=(f"password {number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert len({crypt(f"password {number}", "$2b$04$abcdefghijklmnopqrstuu") for number in range(4)}) == 4
