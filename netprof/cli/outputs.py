"""Where a person wants something written: on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from netprof.errors import NetprofError, UsageError
from netprof.files import OutputPlace
from netprof.redact import without_credentials


def output(*names: str, group: str | None = None, **options: Any) -> Any:
    """Return the option for a file or folder that is written, a Path. It is looked at before anything is done."""
    return typer.Option(*names, parser=place_here, is_eager=True, rich_help_panel=group, **options)


def place_here(text: object) -> Path:
    """Return a place of this machine. Raises UsageError for a URL: a folder called like its scheme would be made."""
    if "://" in str(text):
        url = without_credentials(str(text))
        raise UsageError(f"{url} is a URL: netprof writes to this machine only", "name a place here, and copy it then")
    return Path(str(text))


def output_place(path: Path, *, follow: bool = False) -> OutputPlace:
    """Return where something is written, held from now on: before anything is read. Raises NetprofError."""
    try:
        return OutputPlace(path, follow=follow)
    except OSError as error:
        raise NetprofError(f"cannot write to {path}: {error.strerror}", "choose another place") from error
