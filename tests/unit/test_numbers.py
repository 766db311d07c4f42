"""Numbers that nobody means, in every option and argument of every command that takes a text: one clear line each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.synthetic import Job

from netprof.cli.main import app
from netprof.errors import NetprofError
from netprof.metrics.exporter import Exporter
from netprof.session import attach as session_attach
from netprof.session import run as session_run
from netprof.session.options import RecordingOptions

NUMBERS = ("nan", "inf", "-inf", "1e308", "-1", "0", str(10**30), "1e-320")
COMMANDS = {
    "attach": ["4194303"],
    "run": [],
    "exporter": [],
    "save": ["{trace}", "{folder}/saved"],
    "live": ["{trace}"],
    "report": ["{trace}"],
    "whatif": ["{trace}", "--fusion", "horovod"],
    "diff": ["{trace}", "{trace}"],
    "digest": ["{trace}", "-f", "-o", "{folder}/digests"],
    "timeline": ["{folder}/absent.json", "-f"],
    "capture": ["{folder}/absent.pcap", "-f"],
    "doctor": [],
}


class Enough(NetprofError):
    """The options were taken."""


def options() -> Iterator[tuple[str, str]]:
    group: Any = typer.main.get_command(app)  # of click, or of typer's own copy of it
    assert set(group.commands) == set(COMMANDS), "every command has its words here"
    for name, command in group.commands.items():
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag and option.metavar not in ("FILE", "DIR"):
                yield name, option.opts[0]


def texts(option: str, number: str) -> list[str]:
    """Return what an option may be given that a number is in."""
    if option in ("--leg", "--rank"):
        return [f"0={number}", f"{number}=1"]
    if option == "--fail-above":
        return [f"{number}%", f"iteration={number}%"]
    if option == "--compression":
        return [number, f"powersgd:{number}", f"topk:{number}%"]
    return [number, f"{number}ms"] if option in ("--duration", "--bin", "--fusion-cycle", "--batch-time") else [number]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Job().fill().write(tmp_path_factory.mktemp("numbers") / "t.netprof")


@pytest.fixture(autouse=True)
def nothing_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def enough(first: object, chosen: RecordingOptions, *_: object) -> None:
        raise Enough(json.dumps([chosen.given.world_size, chosen.iterations, chosen.duration_ns, chosen.bin_ns]))

    monkeypatch.setattr(session_attach, "attach", enough)
    monkeypatch.setattr(session_run, "run", enough)
    monkeypatch.setattr(Exporter, "run", lambda *_: None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("command", "option"), sorted(options()))
def test_a_number_that_is_none_is_one_clear_line(command: str, option: str, trace: Path, tmp_path: Path) -> None:
    for number in NUMBERS:
        for text in texts(option, number):
            words = [each.format(trace=trace, folder=tmp_path) for each in COMMANDS[command]]
            tail = ["--", "true"] if command == "run" else []
            tail += ["--codec-ns-per-byte", "1"] if option == "--compression" else []  # else each is measured
            said = None
            try:
                app(
                    [command, *words, f"{option}={text}" if option.startswith("--") else option + text, *tail],
                    standalone_mode=False,
                )
            except Enough as error:
                taken = json.loads(error.message)
                assert all(each is None or 0 < each < 2**63 for each in taken), (text, taken)
            except NetprofError as error:
                said = error.message
            except Exception as error:
                if not hasattr(error, "show"):  # of the command line library
                    raise
                said = str(error.format_message())  # type: ignore[attr-defined]
            assert said is None or (said and "\n" not in said), text


@pytest.mark.parametrize("number", NUMBERS)
def test_nor_are_they_processes(number: str) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        app(["attach", "--", number], standalone_mode=False)
    assert isinstance(caught.value, NetprofError) or hasattr(caught.value, "show")
