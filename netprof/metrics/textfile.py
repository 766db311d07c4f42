"""Metrics as a file for node_exporter's textfile collector: whole at any moment, and gone with what it tells of."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from netprof.errors import NetprofError
from netprof.files import Directory, made_whole
from netprof.metrics.board import Board

_EVERY_S = 5.0
_MODE = 0o644


class Textfile:
    """Writes a board to `netprof-NAME.prom` in a folder every few seconds, until it is closed: then it removes it.

    Raises NetprofError where that cannot be.
    """

    def __init__(self, board: Board, folder: Path, name: str) -> None:
        self._board, self._folder = board, folder
        self._name = f"netprof-{name}.prom"
        self._partial = f".{self._name}.partial"
        try:
            self._directory = Directory(folder)
            self._write()
        except OSError as error:
            raise NetprofError(
                f"cannot write metrics to {folder}: {error.strerror}",
                "name the folder that node_exporter's --collector.textfile.directory names",
            ) from error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netprof-textfile", daemon=True)

    def start(self) -> None:
        """Begin to write it again and again, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and remove the file."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):
            self._directory.remove(self._name)
        self._directory.close()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                self._write()
                self._board.failure = ""
            except OSError as error:  # a full disk: the old file stays, and the recording goes on
                self._board.failure = f"cannot write metrics to {self._folder}: {error.strerror}"

    def _write(self) -> None:
        text, _ = self._board.text("text/plain")
        with made_whole(self._directory, self._name, self._partial, _MODE) as file:
            file.write(text)
