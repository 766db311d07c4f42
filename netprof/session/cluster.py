"""Work on many slices of a recording at once, on the processes of a Dask cluster.

`reduce` hands each item to a worker, puts what comes of them together in a tree, and returns only what is concluded
from all: what lies between stays where it was made. Every function here is called with what only this program made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from netprof.errors import NetprofError, NotPermittedError, TraceError, UsageError
from netprof.files import caller
from netprof.version import __version__

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Made = TypeVar("Made")
Conclusion = TypeVar("Conclusion")

_FAN_IN = 16
_PATIENCE_S = 10.0
_LAST_PORT = 65_535


@dataclass(frozen=True)
class Work(Generic[Item, Made, Conclusion]):
    """What is to be done with items. Every process must know the three functions by their names."""

    one: Callable[[Item], Made]
    """What is made of each item."""

    together: Callable[[Sequence[Made]], Made]
    """What several of those make, in their order."""

    last: Callable[[Made], Conclusion]
    """What is concluded from all of them."""


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
def workers(scheduler: str) -> Iterator[Cluster]:
    """Yield the cluster of a Dask scheduler, named by its address.

    Raises UsageError where Dask is not installed or the address is none, NetprofError where nobody answers.
    """
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
            "workers were killed again and again at the same slice", "give them more memory, or fewer threads each"
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
