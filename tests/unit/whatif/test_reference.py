"""The paper's simulation, row by row: through the model and through the command line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.inputs import parse_add_table, parse_gradient_log
from netprof.cli.whatif import whatif

DATA = Path(__file__).parents[2] / "data"
BATCH_S = 0.12808580219559176
TOLERANCE = 1e-6
WORKERS, GBPS, RATIOS = (16, 32, 64), (1.0, 10.0, 25.0, 40.0, 100.0), (1.0, 2.0, 5.0, 10.0, 50.0, 100.0)


def reference() -> dict[tuple[int, float, float], tuple[float, float]]:
    with open(DATA / "whatif_resnet50.csv") as file:
        return {
            (int(row["N"]), float(row["gbps"]), float(row["compression"])): (
                float(row["scaling_factor"]),
                float(row["overhead_s"]),
            )
            for row in csv.DictReader(file)
        }


def test_the_model_gives_all_90_rows() -> None:
    schedule = parse_gradient_log((DATA / "resnet50.bk.log").read_text(), "log", BATCH_S)
    add = parse_add_table((DATA / "cuda_vec_add.log").read_text(), "add")
    question = Question(WORKERS, tuple(g * 1e9 for g in GBPS), RATIOS, "paper", "ideal", add=add)
    result = ask(schedule, question).sweep
    expected = reference()
    assert len(expected) == len(result.points) == 90
    keys = zip(result.points.workers, result.points.bandwidth_bps / 1e9, result.points.compression, strict=True)
    wanted = np.array([expected[(int(n), g, c)] for n, g, c in keys])
    assert np.abs(result.scaling_factor - wanted[:, 0]).max() < TOLERANCE
    assert np.abs(result.overhead_s - wanted[:, 1]).max() < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("to_file", [False, True])
def test_the_command_line_gives_all_90_rows(tmp_path: Path, to_file: bool) -> None:
    app = typer.Typer()
    app.command()(whatif)
    target = tmp_path / "out.csv"
    arguments = [
        *(str(DATA / "resnet50.bk.log"), "--batch-time", str(BATCH_S), "--add-cost", str(DATA / "cuda_vec_add.log")),
        *("--fusion", "paper", "--transport", "ideal", "--workers", "16,32,64", "--bandwidth", "1,10,25,40,100"),
        *("--compression", "1,2,5,10,50,100", "--csv", str(target) if to_file else "-"),
    ]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    text = target.read_text() if to_file else done.stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == [
        "workers",
        "bandwidth_gbps",
        "compression",
        "scaling_factor",
        "overhead_s",
        "iteration_s",
    ]
    seen = {}
    for row in rows:
        scaling, overhead, iteration = (float(row[name]) for name in ("scaling_factor", "overhead_s", "iteration_s"))
        assert iteration == BATCH_S + overhead, "full precision"
        assert scaling == BATCH_S / iteration, "full precision"
        seen[(int(row["workers"]), float(row["bandwidth_gbps"]), float(row["compression"]))] = (scaling, overhead)
    expected = reference()
    assert seen.keys() == expected.keys()
    for key, (scaling, overhead) in seen.items():
        assert scaling == pytest.approx(expected[key][0], abs=TOLERANCE, rel=0)
        assert overhead == pytest.approx(expected[key][1], abs=TOLERANCE, rel=0)
