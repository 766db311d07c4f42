"""A recording in a notebook: its tables as pandas DataFrames, and its report."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.result_tables import result_table, result_tables
from netprof.schema import tables
from netprof.trace.named import traces_named

if TYPE_CHECKING:
    import pandas as pd

    from netprof.model import Meta


class Recording:
    """A trace, opened, or those of all hosts of a job, as one.

    Every table is an attribute, made when first asked for and then kept.

    `wire`, `flows`, `marks`, `tcp`, `nic`, `gpu` and so on are what was recorded (`netprof.schema`); `iterations`,
    `buckets`, `collectives`, `links`, `ranks` and so on what was concluded from it (`netprof.analysis.result_tables`).
    Columns are named, with their units, as in the CSV files and in the JSON report. `table_names` lists them.

    Raises TraceError when `path` is no trace, is damaged beyond its end, or comes from a newer netprof.
    """

    def __init__(self, path: str | PathLike[str], *others: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._reader = open_job(traces_named(map(Path, (path, *others))))
        self._frames: dict[str, pd.DataFrame] = {}

    @property
    def meta(self) -> Meta:
        """The recording's description: host, processes, devices, probes, losses, cost."""
        return self._reader.meta

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of all tables: those recorded, then those concluded."""
        return (*tables(), *result_tables())

    @property
    def verdict(self) -> str:
        """The report's one sentence."""
        return self.analysis.of(VERDICT).text

    @cached_property
    def analysis(self) -> Analysis:
        """The conclusions, as the reports draw them."""
        return analyze(self._reader)

    def report(self) -> dict[str, Any]:
        """Return the document of `netprof report --json`; its keys are described in docs/json.md."""
        from netprof.views.json_report import to_json

        return to_json(self.analysis)

    def table(self, name: str) -> pd.DataFrame:
        """Return a table by its name. Raises KeyError for one that there is not."""
        if name not in self._frames:
            import pandas as pd

            if name in tables():
                self._frames[name] = self._reader.table(name).to_pandas()
            else:
                self._frames[name] = pd.DataFrame(dict(result_table(self.analysis, name)))
        return self._frames[name]

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Return a table as an attribute."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.table(name)
        except KeyError:
            known = ", ".join(self.table_names)
            raise AttributeError(f"a recording has no table '{name}', but {known}") from None

    def __dir__(self) -> list[str]:
        """Return the names to complete: the tables too."""
        return [*super().__dir__(), *self.table_names]

    def __repr__(self) -> str:
        """Return the path and the verdict."""
        return f"<recording {self.path}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict and the parts of the report."""
        from netprof.views.notebook import render

        return render(self.analysis)
