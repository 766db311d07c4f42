"""Work on many digests at once: on the processes of this machine, or on those of a Dask cluster.

`reduce` hands each item to a worker, puts what comes of them together in a tree, and returns only what is concluded
from all: what lies between stays where it was made. Every function here is called with what only this program made.
Digests that cannot be read are left out, and named.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from netprof.errors import NetprofError, NotPermittedError, TraceError, UsageError
from netprof.files import Directory, TemporaryFolder, caller
from netprof.session.pool import pool
from netprof.version import __version__

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Made = TypeVar("Made")
Conclusion = TypeVar("Conclusion")

_AT_ONCE = 8
"""Items up to which it is not worth starting a process."""
_FAN_IN = 16
_PATIENCE_S = 10.0
_LAST_PORT = 65_535
_PER_WORKER = 4
"""Slices of the items for each process: so that none waits long for the last one."""


@dataclass(frozen=True)
class Work(Generic[Item, Made, Conclusion]):
    """What is to be done with items. Every process must know the three functions by their names."""

    one: Callable[[Item], Made]
    """What is made of each item."""

    together: Callable[[Sequence[Made]], Made]
    """What several of those make, in their order."""

    last: Callable[[Made], Conclusion]
    """What is concluded from all of them."""

    def of(self, items: Sequence[Item]) -> Made:
        """Return what is made of all of some items, one after the other."""
        return self.together([self.one(item) for item in items])


class Workers(Protocol):
    """Who does the work."""

    def reduce(self, items: Sequence[Item], work: Work[Item, Made, Conclusion]) -> Conclusion:
        """Return what is concluded from all items, of which there is at least one."""


class Here:
    """This process alone."""

    def reduce(self, items: Sequence[Item], work: Work[Item, Made, Conclusion]) -> Conclusion:
        """Do it one after the other."""
        return work.last(work.of(items))


class ProcessWorkers:
    """Processes of this machine; what they make goes from one to the other by files that only this user can read."""

    def __init__(self, started: ProcessPoolExecutor, number: int) -> None:
        self._processes, self._number = started, number

    def reduce(self, items: Sequence[Item], work: Work[Item, Made, Conclusion]) -> Conclusion:
        """Give each process slices of the items, and one of them the end."""
        size = -(-len(items) // (self._number * _PER_WORKER))
        slices = [items[first : first + size] for first in range(0, len(items), size)]
        try:
            with TemporaryFolder() as place:
                made = [
                    self._processes.submit(_slice, work, each, place.path / str(number))
                    for number, each in enumerate(slices)
                ]
                files = [each.result() for each in made]
                conclusion: Conclusion = self._processes.submit(_last, work, files).result()
                return conclusion
        except BrokenProcessPool as error:
            raise NetprofError("a process that works on the digests was killed", "is there enough memory?") from error


def _slice(work: Work[Any, Any, Any], items: Sequence[Any], file: Path) -> Path:
    with os.fdopen(Directory(file.parent).create(file.name, 0o600), "wb") as out:
        pickle.dump(work.of(items), out, protocol=5)
    return file


def _last(work: Work[Any, Any, Any], files: Sequence[Path]) -> Any:
    return work.last(work.together([_taken(file) for file in files]))


def _taken(file: Path) -> Any:
    folder = Directory(file.parent)
    with open(folder.open(file.name), "rb") as made:
        parts = pickle.load(made)  # noqa: S301  of a process of ours, in a folder that is ours alone
    folder.remove(file.name)
    return parts


class Cluster:
    """The workers of a Dask cluster. One that is lost loses nothing: what it had made is made again by others."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def reduce(self, items: Sequence[Item], work: Work[Item, Made, Conclusion]) -> Conclusion:
        """Do it in a tree, whose nodes are where their parts are."""
        one = self._client.scatter(work.one, broadcast=True, hash=False)  # it may hold what all hosts know
        level = self._client.map(_made, items, one=one, pure=False)
        while len(level) > 1:
            groups = [level[first : first + _FAN_IN] for first in range(0, len(level), _FAN_IN)]
            level = [self._client.submit(work.together, group, pure=False) for group in groups]
        conclusion: Conclusion = self._client.submit(work.last, level[0], pure=False).result()
        return conclusion


def _made(item: Any, one: Callable[[Any], Any]) -> Any:
    return one(item)


@contextmanager
def processes(number: int | None = None) -> Iterator[ProcessWorkers]:
    """Yield processes of this machine, as many as it has CPUs for us, or `number`."""
    number = number or len(os.sched_getaffinity(0))
    with pool(number) as started:
        yield ProcessWorkers(started, number)


@contextmanager
def workers(scheduler: str | None, items: int) -> Iterator[Workers]:
    """Yield who works on so many items: the cluster of a Dask scheduler, named by its address, or else this machine.

    Raises UsageError where Dask is not installed or the address is none, NetprofError where nobody answers.
    """
    if scheduler is None:
        if items <= _AT_ONCE or caller() is not None:
            yield Here()
        else:
            with processes() as team:
                yield team
        return
    if (person := caller()) is not None:  # what the scheduler answers is unpickled
        raise NotPermittedError(
            f"--scheduler needs to give up root, but {person} may not read this installation of netprof",
            "run without sudo, or install netprof where everybody may read it",
        )
    with _client(scheduler) as client:
        yield Cluster(client)


@contextmanager
def _client(address: str) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError(
            "--scheduler needs Dask, which is not installed", "pip install 'netprof-ebpf[cluster]'"
        ) from error
    _check_address(address)
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what fails is said here, in a line
    try:
        asyncio.run(asyncio.wait_for(_met(address), _PATIENCE_S))
        client = Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except Exception as error:  # each kind of connection fails in its own way
        raise NetprofError(
            f"no Dask scheduler answers at {address}", "start one with dask scheduler, or leave --scheduler away"
        ) from error
    try:
        if not _workers_of(client):
            raise NetprofError(f"the Dask scheduler at {address} has no workers", "start some with dask worker ADDRESS")
        _check_workers(client)
        yield client
    except TraceError as error:
        hint = f"{error.hint}; what is named must lie at the same place for all workers"
        raise TraceError(error.message, hint, detail=error.detail) from error
    except NetprofError:
        raise
    except Exception as error:
        lost = _lost(error, client, address)
        if lost is None:  # a mistake of ours
            raise
        raise lost from error
    finally:
        with suppress(Exception):  # of a scheduler that is gone
            client.close()


def _check_workers(client: Client) -> None:
    """Raise NetprofError unless all workers have this netprof: with one that has not, Dask may wait for ever."""
    for worker, version in client.run(_own_version, on_error="return").items():
        if version != __version__:
            is_known = not isinstance(version, Exception)
            what = f"has netprof {version}" if is_known else f"does not have this netprof ({version})"
            raise NetprofError(f"Dask worker {worker} {what}", f"install netprof {__version__} where the workers run")


def _own_version() -> str:
    return __version__


def _workers_of(client: Client) -> int:
    """Return how many workers a cluster has; none where its scheduler does not answer any more."""
    try:
        return len(client.scheduler_info(n_workers=-1)["workers"])
    except Exception:
        return 0


def _lost(error: Exception, client: Client, address: str) -> NetprofError | None:
    """Return what to say where it is the cluster that failed; None where it is not."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return NetprofError(
            "workers were killed again and again at the same digest", "give them more memory, or fewer threads each"
        )
    is_of_dask = type(error).__module__.partition(".")[0] in ("distributed", "dask")
    is_of_wire = isinstance(error, (OSError, CancelledError)) and getattr(error, "filename", None) is None
    if not (is_of_dask or is_of_wire):
        return None
    if client.status != "running":
        return NetprofError(f"the Dask scheduler at {address} is gone", "start it again, or leave --scheduler away")
    if not _workers_of(client):
        return NetprofError(f"all workers of {address} are gone", "start them again, with more memory perhaps")
    return NetprofError(f"the cluster at {address} failed: {str(error) or type(error).__name__}", "look at its logs")


def _check_address(address: str) -> None:
    """Raise UsageError for what is no address of a scheduler that runs in another process."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    try:
        scheme, place = parse_address(address)
        get_backend(scheme)
        host, port = parse_host_port(place)
        is_one = scheme != "inproc" and bool(host) and 0 < port <= _LAST_PORT
    except ValueError:
        is_one = False
    if not is_one:
        raise UsageError(f"--scheduler '{address}' is no address", "name it as dask scheduler does: tcp://HOST:PORT")


async def _met(address: str) -> None:
    """Return once a scheduler has answered. A client that meets none cannot be closed, and hangs where one is mute."""
    from distributed.core import rpc
    from distributed.security import Security

    async with rpc(address, connection_args=Security().get_connection_args("client")) as there:
        answer = await there.identity()
    if answer.get("type") != "Scheduler":
        raise ValueError(f"a {answer.get('type')} answers")


class LeftOut(NamedTuple):
    """Something that cannot be read, and the words of the TraceError that says why."""

    item: Any
    message: str
    hint: str


@dataclass(frozen=True)
class _Some(Generic[Made]):
    """What was made of the items that can be read, as parts of it or as one."""

    made: Made | None
    left_out: tuple[LeftOut, ...] = ()


def reduce_readable(
    team: Workers, items: Sequence[Item], work: Work[Item, Made, Conclusion]
) -> tuple[Conclusion, tuple[LeftOut, ...]]:
    """Return what the work concludes from the items that can be read, as `Workers.reduce` does, and those that cannot.

    Raises TraceError where none can.
    """
    readable = Work(partial(_one, work.one), partial(_together, work.together), partial(_concluded, work.last))
    result = team.reduce(items, readable)
    if result.made is None:
        raise TraceError(result.left_out[0].message, result.left_out[0].hint)
    return result.made, result.left_out


def _one(one: Callable[[Item], Made], item: Item) -> _Some[Made]:
    try:
        return _Some(one(item))
    except TraceError as error:
        return _Some(None, (LeftOut(item, error.message, error.hint),))


def _together(together: Callable[[Sequence[Made]], Made], parts: Sequence[_Some[Made]]) -> _Some[Made]:
    made = [part.made for part in parts if part.made is not None]
    return _Some(together(made) if made else None, tuple(each for part in parts for each in part.left_out))


def _concluded(last: Callable[[Made], Conclusion], readable: _Some[Made]) -> _Some[Conclusion]:
    return _Some(None if readable.made is None else last(readable.made), readable.left_out)
