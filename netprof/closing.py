"""What is let go of at the end of a `with` block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def all_or_nothing() -> Iterator[ExitStack]:
    """Give a stack for what is opened in the block one after the other: if a step fails, what is open is closed.

    Otherwise it stays open, and belongs to who opened it.
    """
    with ExitStack() as opened:
        yield opened
        opened.pop_all()
