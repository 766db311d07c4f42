"""Passwords of those who scrape, looked at one after the other: each costs as much as its bcrypt hash is meant to."""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from netprof.errors import NetprofError
from netprof.metrics.clients import Client

_SHARE = 0.1
"""Of a core, for hashing passwords."""
_WRONG_S = 0.5
"""For so long after a wrong password no other one from the same address is looked at."""
_MOST_OF_ADDRESS, _MOST_OF_CLIENT, _MOST_WAITING = 8, 32, 128
_MOST_KNOWN = 1024  # clients and addresses that are remembered
_crypt_lock = threading.Lock()


def crypt(password: str, hashed: str) -> str:
    """Return what the C library's crypt(3) makes of a password; "" where it cannot. One at a time: it has one result.

    Raises NetprofError where there is no such library.
    """
    for name in ("libcrypt.so.2", "libcrypt.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        with _crypt_lock:
            library.crypt.restype = ctypes.c_char_p
            hashed_again = library.crypt(password.encode(), hashed.encode())
        return hashed_again.decode() if hashed_again and hashed_again.startswith(b"$2") else ""
    raise NetprofError("passwords cannot be checked: no libcrypt", "apt install libcrypt1, or dnf install libxcrypt")


@dataclass(eq=False)
class _Asked:
    """A password that waits to be looked at, and what is called with the answer."""

    client: Client
    user: str
    password: str
    hashed: str
    answer: Callable[[bool], None]
    at_s: float = field(default_factory=time.monotonic)


class Passwords:
    """Checks passwords in a thread of its own, clients and their addresses in turn.

    One that was right is not hashed again: a scraper is answered at once, whatever others try.
    """

    def __init__(self) -> None:
        self._right: dict[str, bytes] = {}  # by user
        self._waiting: list[_Asked] = []
        self._turns: OrderedDict[str, float] = OrderedDict()  # when a client, or an address, was looked at last
        self._not_before_s: OrderedDict[str, float] = OrderedDict()  # by address
        self._changed = threading.Condition()  # guards what is above
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="netprof-passwords", daemon=True)

    def is_right(self, user: str, password: str, hashed: str) -> bool:
        """Tell whether it was found to be right before."""
        return hmac.compare_digest(self._right.get(user, b""), _digest(user, password, hashed))

    def ask(self, client: Client, user: str, password: str, hashed: str, answer: Callable[[bool], None]) -> bool:
        """Have a password looked at, and `answer` called with the result in another thread; False: too many wait.

        Where a client has too many, the newest of the address that has most of them is answered instead: no.
        """
        if "\0" in password:  # of which crypt(3) reads what is before
            answer(False)
            return True
        with self._changed:
            of_client = [each for each in self._waiting if each.client.name == client.name]
            of_address = [each for each in of_client if each.client.address == client.address]
            if len(of_address) >= _MOST_OF_ADDRESS or len(self._waiting) >= _MOST_WAITING:
                return False
            dropped = _of_most(of_client) if len(of_client) >= _MOST_OF_CLIENT else None
            if dropped is not None:
                self._waiting.remove(dropped)
            self._waiting.append(_Asked(client, user, password, hashed, answer))
            self._changed.notify()
        if dropped is not None:
            dropped.answer(False)
        if self._thread.ident is None:
            self._thread.start()
        return True

    def close(self) -> None:
        """Look at no more."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            began_s = time.thread_time()
            again = crypt(asked.password, asked.hashed)
            right = bool(again) and hmac.compare_digest(again, asked.hashed)
            with self._changed:
                if right:
                    self._right[asked.user] = _digest(asked.user, asked.password, asked.hashed)
                else:
                    _note(self._not_before_s, asked.client.address, time.monotonic() + _WRONG_S)
            asked.answer(right)
            time.sleep((time.thread_time() - began_s) * (1 / _SHARE - 1))

    def _next(self) -> _Asked | None:
        """Wait for a password whose turn it is; None at the end."""
        with self._changed:
            while not self._stopped:
                now_s = time.monotonic()
                ready = [each for each in self._waiting if self._not_before_s.get(each.client.address, 0.0) <= now_s]
                if ready:
                    asked = min(ready, key=self._place)
                    self._waiting.remove(asked)
                    _note(self._turns, asked.client.name, now_s)
                    _note(self._turns, f"{asked.client.name} {asked.client.address}", now_s)
                    return asked
                self._changed.wait(_WRONG_S / 10 if self._waiting else None)
            return None

    def _place(self, asked: _Asked) -> tuple[float, float, float]:
        client = asked.client
        turns = (self._turns.get(name, 0.0) for name in (client.name, f"{client.name} {client.address}"))
        return (*turns, asked.at_s)  # type: ignore[return-value]


def _of_most(waiting: list[_Asked]) -> _Asked:
    """Return the newest one of the address that has most."""
    addresses = [each.client.address for each in waiting]
    most = max(addresses, key=addresses.count)
    return next(each for each in reversed(waiting) if each.client.address == most)


def _note(times: OrderedDict[str, float], name: str, at_s: float) -> None:
    """Keep a time, and forget those that were set longest ago."""
    times[name] = at_s
    times.move_to_end(name)
    while len(times) > _MOST_KNOWN:
        times.popitem(last=False)


def _digest(user: str, password: str, hashed: str) -> bytes:
    return hashlib.sha256(f"{user}\0{password}\0{hashed}".encode()).digest()
