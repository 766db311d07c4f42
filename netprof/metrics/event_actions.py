"""What follows when a rule holds: a line, a metric, the ring saved with its report, and a command that is told."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from netprof.errors import UsageError
from netprof.files import User, as_user, caller
from netprof.metrics.accountant import Now
from netprof.metrics.board import Board
from netprof.metrics.families import label_value
from netprof.metrics.rules import Event, Rule
from netprof.model import Meta
from netprof.session.save import Saver
from netprof.units import size

_HOUR_S = 3600.0
_COMMAND_S = 60.0


class SaveLimits:
    """How often events save a ring, and how many bytes what they saved may take, of all jobs that are recorded.

    What was saved `before` counts as long as it is there.
    """

    def __init__(self, per_hour: int, total_bytes: int, before: Iterable[Path] = ()) -> None:
        self._per_hour, self._total_bytes = per_hour, total_bytes
        self._saved_at: deque[float] = deque()
        self._saved = list(before)

    def why_not(self) -> str:
        """Return why nothing more may be saved now; "" where it may."""
        while self._saved_at and self._saved_at[0] < time.monotonic() - _HOUR_S:
            self._saved_at.popleft()
        if len(self._saved_at) >= self._per_hour:
            return f"{self._per_hour} were saved within an hour"
        amount = sum(map(_bytes_of, self._saved))
        return f"{size(amount)} are saved already" if amount >= self._total_bytes else ""

    def begun(self) -> None:
        """Count a save that begins."""
        self._saved_at.append(time.monotonic())

    def saved(self, place: Path) -> int:
        """Count what was saved, and return its bytes."""
        self._saved.append(place)
        return _bytes_of(place)


def _bytes_of(place: Path) -> int:
    with as_user(caller()), suppress(OSError):  # somebody moves it away
        return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    return 0


class EventCommand:
    """A command that gets events: one JSON document on its stdin. It runs without a shell, as a `user`.

    Raises UsageError for a command that is none.
    """

    def __init__(self, text: str, user: User | None = None) -> None:
        self._user = user
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--on-event {text!r} is no command: {error}", "quote it as for a shell") from error
        if not self._words or not _is_program(self._words[0], user):
            raise UsageError(f"--on-event: there is no program {text!r}", "name a program on PATH, or its path")
        self._threads: list[threading.Thread] = []

    def tell(self, document: dict[str, Any], say: Callable[[str], None]) -> None:
        """Run it in a thread; say why where it fails."""
        thread = threading.Thread(target=self._run, args=(document, say), name="netprof-event", daemon=True)
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()

    def close(self) -> None:
        """Wait for those that run; none takes longer than a minute."""
        for thread in self._threads:
            thread.join()

    def _run(self, document: dict[str, Any], say: Callable[[str], None]) -> None:
        try:
            done = subprocess.run(
                self._words,
                input=json.dumps(document, allow_nan=False).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_COMMAND_S,
                check=False,
                **_as_user(self._user),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            say(f"--on-event failed: {error}")
            return
        if done.returncode:
            say(f"--on-event: {self._words[0]} exited with {done.returncode}")


def _as_user(user: User | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": user.groups, "env": user.environment()}


def _is_program(name: str, user: User | None) -> bool:
    folders = [""] if "/" in name else os.get_exec_path()
    places = [os.path.join(folder, name) for folder in folders]  # noqa: PTH118 - "" stays ""
    with as_user(user):
        return any(os.path.isfile(place) and os.access(place, os.X_OK, effective_ids=True) for place in places)  # noqa: PTH113


class EventActions:
    """Holds rules against a job; to be called after every look (`Accountant`)."""

    def __init__(
        self,
        rules: Sequence[Rule],
        say: Callable[[str], None],
        limits: SaveLimits,
        *,
        board: Board | None = None,
        saver: Saver | None = None,
        command: EventCommand | None = None,
    ) -> None:
        self._rules, self._say, self._limits = rules, say, limits
        self._board, self._saver, self._command = board, saver, command
        if board is not None:
            for rule in rules:  # from 0 on: to Prometheus, what appears with 1 has not grown
                board.count("netprof_events", (("rule", label_value(rule.text)),), 0)

    def __call__(self, now: Now) -> None:
        """Act on the rules that come to hold."""
        for rule in self._rules:
            if (event := rule.look(now)) is not None:
                self._act(event, now.meta)

    def _act(self, event: Event, meta: Meta) -> None:
        if self._board is not None:
            self._board.count("netprof_events", (("rule", label_value(event.rule)),), 1)
        document = {
            "event": event.rule,
            "sentence": event.sentence,
            "value": event.value,
            "host": meta.host,
            "time": time.time(),
            "pids": [target.pid for target in meta.targets if target.frameworks],
            "trace": None,
            "report": None,
        }
        if self._saver is None or (why := self._limits.why_not()):
            note = "" if self._saver is None else f"; nothing is saved: {why}"
            self._say(f"{event.rule}: {event.sentence}{note}")
            self._tell(document)
            return
        self._limits.begun()
        out = self._saver.ask(lambda place, code: self._saved(place, code, document))
        self._say(f"{event.rule}: {event.sentence}; saving {out}")

    def _saved(self, place: Path, code: int, document: dict[str, Any]) -> None:
        if code != 0:
            self._say(f"{place} could not be saved: netprof save ended with {code}")
            self._tell(document)
            return
        amount = self._limits.saved(place)
        if self._board is not None:
            self._board.count("netprof_saved_bytes", (), amount)
        self._tell(document | {"trace": str(place), "report": str(place.with_suffix(".md"))})

    def _tell(self, document: dict[str, Any]) -> None:
        if self._command is not None:
            self._command.tell(document, self._say)
