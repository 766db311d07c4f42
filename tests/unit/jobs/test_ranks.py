"""What the environment of a process says of its rank and its job."""

from __future__ import annotations

import pytest

from netprof.probes.job.ranks import RankPlace, job_of, place_of


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, RankPlace(3, 8)),
        ({"RANK": "3"}, RankPlace(3)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, RankPlace(2, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, RankPlace(0, 2)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}, RankPlace(1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, RankPlace(5, 6, inherited=True)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "RANK": "40", "WORLD_SIZE": "48"}, RankPlace(40, 48)),
        ({"RANK": "-1"}, RankPlace()),
        ({"RANK": "٣"}, RankPlace()),
        ({"RANK": "9" * 40, "WORLD_SIZE": "x"}, RankPlace()),
        ({}, RankPlace()),
    ],
)
def test_places_by_launcher(environment: dict[str, str], place: RankPlace) -> None:
    assert place_of(environment) == place


def test_jobs_are_told_apart_by_their_rendezvous() -> None:
    torch = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    assert job_of(torch, 1) == job_of(torch, 2) != job_of({**torch, "MASTER_PORT": "29501"}, 1)
    local = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    assert job_of(local, 1) != job_of(local, 2)
    assert job_of({"MASTER_ADDR": "node0"}, 1) is None
