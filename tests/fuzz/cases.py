"""One case: what is made, what is asked of it, and what may come of that."""

from __future__ import annotations

import io
import random
import signal
import sys
import tarfile
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from fuzz import asks
from fuzz.asks import Ask
from fuzz.captures import make_capture
from fuzz.digests import make_digests
from fuzz.profiles import make_profile_and_trace
from fuzz.texts import make_log, make_timeline
from fuzz.traces import make_capture_and_trace, make_hosts, make_trace
from fuzz.work import MOST_LOOPS, PACE
from netprof.analysis.memory import give_back
from netprof.errors import EXIT_UNUSABLE, EXIT_USAGE, NetprofError

MOST_BYTES = 1 << 30
_LONGEST_MESSAGE = 20_000
_MOST_WAITED_S = 120

Make = Callable[[random.Random, Path], None]

KINDS: dict[str, tuple[Make, tuple[Ask, ...]]] = {
    "trace": (make_trace, asks.OF_RECORDINGS),
    "hosts": (make_hosts, asks.OF_RECORDINGS),
    "capture": (make_capture, (asks.import_capture,)),
    "beside": (make_capture_and_trace, (asks.import_capture_beside,)),
    "profile": (make_profile_and_trace, (asks.report_with_a_profile,)),
    "digests": (make_digests, asks.OF_DIGESTS),
    "timeline": (make_timeline, (asks.import_timeline,)),
    "log": (make_log, (asks.whatif_of_log,)),
}
"""What is made, and what can be asked of it."""

_HOW_OFTEN = {"trace": 10, "hosts": 4, "capture": 2, "beside": 2, "profile": 2, "digests": 2, "timeline": 1, "log": 1}


TALLY = Counter[str]()
"""How many cases were "answered", how many "refused": of a reader that refuses everything nothing else is wrong."""
LEAST_ANSWERED = 0.25
"""Share of fifty cases and more that has to be answered; of the first 600 it is 34 to 54 %."""


class TooLong(BaseException):
    """A case took longer than it may; not an Exception, so that nothing takes it for its own."""


def run_case(number: int, keep: Path | None = None) -> str:
    """Run one case; returns what was wrong, or nothing. The input of one that fails is put into folder `keep`."""
    rng = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="fuzzed-", dir="/dev/shm") as folder:
        kind = _make(rng, Path(folder))
        ask = rng.choice(KINDS[kind][1])
        failure = tried(ask, rng, Path(folder))
    if failure and keep is not None:
        keep_input(number, keep)
    return failure and f"{ask.__name__} of {kind}: {failure}"


def keep_input(number: int, keep: Path) -> None:
    """Put the input of a case into a folder, as one file."""
    with tempfile.TemporaryDirectory(prefix="fuzzed-", dir="/dev/shm") as folder:
        kind = _make(random.Random(number), Path(folder))
        _pack(Path(folder), keep / f"{kind}-{number}.tar.xz")


def _make(rng: random.Random, place: Path) -> str:
    """Make a case's input; returns its kind."""
    (kind,) = rng.choices(list(_HOW_OFTEN), list(_HOW_OFTEN.values()))
    KINDS[kind][0](rng, place)
    return kind


def run_found(archive: Path, seed: int) -> list[str]:
    """Ask all that can be asked of an input that once failed, in one format; returns what was wrong."""
    return _ask_of(archive, dict.fromkeys(_possible(archive)), seed)


def run_found_in_every_format(archive: Path) -> list[str]:
    """Ask for every format that there can be of an input that once failed; returns what was wrong."""
    return _ask_of(archive, asks.IN_EVERY_FORMAT if asks.report_in_a_format in _possible(archive) else (), 0)


def _possible(archive: Path) -> tuple[Ask, ...]:
    return KINDS[archive.name.partition("-")[0]][1]


def _ask_of(archive: Path, asked: Iterable[Ask], seed: int) -> list[str]:
    failures = []
    for ask in asked:
        with tempfile.TemporaryDirectory(prefix="fuzzed-", dir="/dev/shm") as folder:
            with tarfile.open(archive) as tar:
                tar.extractall(folder)  # our own
            failures += [
                f"{ask.__name__}: {failure}" if (failure := tried(ask, random.Random(seed), Path(folder))) else ""
            ]
    return [failure for failure in failures if failure]


def tried(ask: Ask, rng: random.Random, place: Path) -> str:
    """Ask something of what is in a folder; returns what was wrong, or nothing."""
    give_back()  # what earlier ones left
    Path("/proc/self/clear_refs").write_text("5")  # the peak is this one's
    before_bytes = peak_bytes()
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _too_long)
    signal.setitimer(signal.ITIMER_PROF, PACE.most_s())  # of CPU: the machine may have more to do
    signal.alarm(_MOST_WAITED_S)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            ask(rng, place)
    except NetprofError as error:
        TALLY["refused"] += 1
        _note(error)
        return _wrong_refusal(error)
    except (Exception, TooLong) as error:
        return f"{type(error).__name__}: {str(error)[:200]} at {_where(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    TALLY["answered"] += 1
    if peak_bytes() > MOST_BYTES:
        return f"{peak_bytes() >> 20} MiB, after {before_bytes >> 20}"
    return ""


def _note(error: NetprofError) -> None:
    """Show a refusal that may hide a mistake of netprof's: it has the way there as its long form."""
    if error.__cause__ is not None and error.detail:
        print(f"  {error.message}", file=sys.__stderr__)


def peak_bytes() -> int:
    """Return the most memory that this process has held since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def _wrong_refusal(error: NetprofError) -> str:
    """Say what is wrong with a refusal: it is one line, and says that the input is of no use, or the question."""
    one_line = "\n" not in error.message and "\n" not in error.hint and len(error.message) < _LONGEST_MESSAGE
    if one_line and error.exit_code in (EXIT_UNUSABLE, EXIT_USAGE):
        return ""
    return f"a refusal that is not one line, or exits {error.exit_code}: {error.message[:200]!r}"


def _where(error: BaseException) -> str:
    every = traceback.extract_tb(error.__traceback__)
    ours = [each for each in every if "netprof" in each.filename or "analysis" in each.filename] or every
    return f"{ours[-1].filename}:{ours[-1].lineno}"


def _pack(folder: Path, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as tar:
        for each in sorted(folder.iterdir()):
            tar.add(each, each.name)
    print(f"kept {archive}", file=sys.stderr)


def _too_long(number: int, frame: object) -> None:
    raise TooLong(f"more CPU than {MOST_LOOPS} loops of {PACE.loop_s():.3f} s take")
