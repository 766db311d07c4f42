"""What is let go of at the end of a `with` block."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

Closed = TypeVar("Closed", bound="Closing")


class Closing:
    """A context manager that closes itself."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def __enter__(self: Closed) -> Closed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
