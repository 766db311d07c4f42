"""The bytes of a capture file, plain or compressed by gzip, piece by piece and as far as they can be read."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from netprof.closing import Closing
from netprof.errors import NetprofError
from netprof.files import open_file

_GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 1 << 20


class FileBytes(Closing):
    """Reads a file from its beginning to its end. `done_bytes` of `total_bytes` of the file were read (0: unknown).

    `damage` says why nothing more can be read although the file goes on or should. Raises NetprofError where the file
    cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(open_file(path), "rb", buffering=0)  # noqa: SIM115 (closed by close)
            about = os.fstat(self._file.fileno())
        except OSError as error:
            raise NetprofError(f"cannot read the capture {path}: {error.strerror}") from error
        if stat.S_ISDIR(about.st_mode):
            self._file.close()
            raise NetprofError(f"{path} is a directory, not a capture", "name the file that tcpdump -w wrote")
        self.total_bytes = about.st_size if stat.S_ISREG(about.st_mode) else 0
        self.done_bytes = 0
        self.damage = ""
        self._raw = b""
        self._raw = self._more()
        self._inflate = zlib.decompressobj(wbits=31) if self._raw.startswith(_GZIP_MAGIC) else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end, or where the file is damaged."""
        parts, left = [], size
        while left > 0 and (part := self._plain(left) if self._inflate is None else self._inflated(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _plain(self, size: int) -> bytes:
        data = self._raw or self._more()
        self._raw = data[size:]
        return data[:size]

    def _inflated(self, size: int) -> bytes:
        """Return some bytes, b"" at the end; members of gzip that follow one another are one file."""
        while not self.damage and self._inflate is not None:
            if self._inflate.eof:
                self._raw = (self._inflate.unused_data or self._more()).lstrip(b"\0")  # padding of tapes
                if not self._raw:
                    return b""
                self._inflate = zlib.decompressobj(wbits=31)
            else:
                self._raw = self._raw or self._more()
            if not self._raw:
                self.damage = "the compressed data ends too early"
                return b""
            try:
                part = self._inflate.decompress(self._raw, size)
            except zlib.error:
                self.damage = "the compressed data is damaged"
                return b""
            self._raw = self._inflate.unconsumed_tail
            if part:
                return part
        return b""

    def _more(self) -> bytes:
        try:
            data = self._file.read(_READ_BYTES) or b""
        except OSError as error:
            self.damage = f"it cannot be read further: {error.strerror}"
            return b""
        self.done_bytes += len(data)
        return data
