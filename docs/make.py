"""Make the pages and pictures that come from the program: verdicts, definitions, the live view and the report.

python docs/make.py [--check]: with --check nothing is written, and the exit code is 1 where a page is not as made.
"""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "examples")]

from netprof.analysis import analyze  # noqa: E402
from netprof.analysis.definitions import ALL  # noqa: E402
from netprof.analysis.hosts.open_job import open_job  # noqa: E402
from netprof.analysis.verdict_pages import PAGES, VerdictPage  # noqa: E402
from netprof.session.live_follow import FollowedTraceSource  # noqa: E402
from netprof.views.console import render  # noqa: E402
from netprof.views.glossary import sections  # noqa: E402
from netprof.views.live.draw import draw  # noqa: E402
from netprof.views.live.view_state import ViewState  # noqa: E402

EXPECTED = ROOT / "tests" / "golden" / "expected"
RECORDING = ROOT / "tests" / "golden" / "recordings" / "late-rank" / "late-rank.netprof"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every generated page with its text."""
    yield DOCS / "verdicts" / "index.md", _index()
    for page in PAGES:
        yield DOCS / "verdicts" / f"{page.name}.md", _verdict(page)
    terms = "\n".join(f"## {each.term}\n\n{each.text}\n" for each in ALL)
    yield (
        DOCS / "definitions.md",
        f"# Definitions\n\nThe terms of the reports, as `netprof explain` prints them.\n\n{terms}",
    )


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield every picture: a real recording, drawn by the program."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    rows = draw(FollowedTraceSource(RECORDING).look(), ViewState("train.py"), 100, 26)
    yield (
        DOCS / "pictures" / "live.svg",
        _svg("netprof attach train.py", lambda console: console.print(*rows, sep="\n")),
    )
    analysis = analyze(open_job([RECORDING]))
    yield DOCS / "pictures" / "report.svg", _svg("netprof report", lambda console: render(analysis, console))


def _svg(title: str, draw_it: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True, color_system="truecolor")
    draw_it(console)
    return console.export_svg(title=title, unique_id="netprof")


def _index() -> str:
    rows = [f"| [{page.name}]({page.name}.md) | {page.title} | {page.looks.split('`')[1]} |" for page in PAGES]
    head = "# Verdicts\n\nWhat a job is held up by, if anything: one page each.\n\n"
    return head + "| name | verdict | looks like |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _verdict(page: VerdictPage) -> str:
    parts = []
    for name, lines in sections(page):
        text = "\n".join(f"- {line}" for line in lines) if len(lines) > 1 else lines[0]
        parts.append(f"## {name}\n\n{text}\n")
        if name == "How it looks":
            parts.append(f"A recording in this repository:\n\n```\n{_screen(page.case or 'sampled')}\n```\n")
    return f"# {page.title}\n\n" + "\n".join(parts)


def _screen(case: str) -> str:
    """Return the first screen of the report of a golden recording, without colours and without its last line."""
    drawn = (EXPECTED / case / "console.ansi").read_text(encoding="utf-8")
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines()]
    return "\n".join(lines[:-1]).strip()


def main() -> int:
    """Write everything, or compare."""
    check, stale = "--check" in sys.argv, []
    for path, text in pages():
        if check:
            stale += [path] if not path.exists() or path.read_text(encoding="utf-8") != text else []
        else:
            path.write_text(text, encoding="utf-8")
    if not check:
        for path, text in pictures():
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not as made: run python docs/make.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
