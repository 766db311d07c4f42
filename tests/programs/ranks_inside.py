"""Starts the ranks of examples/train.py where it is run, as the first process of a container does, and waits for them.

    ranks_inside.py FOLDER RANKS [OPTION ...]

Prints `training` and each rank's pid, as it is known inside, once all of them train.
"""

import os
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"


def main() -> None:
    folder, ranks, options = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "lo"}
    started = []
    for rank in range(ranks):
        environment = os.environ | place | {"RANK": str(rank), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        command = [sys.executable, str(TRAIN), "--log", str(folder / f"rank{rank}.csv"), *options]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    said = [each.stdout.readline() for each in started if each.stdout is not None]
    trains = all(line.startswith("training") for line in said)
    print("training" if trains else f"failed: {said}", *(each.pid for each in started), flush=True)
    for each in started:
        each.wait()


if __name__ == "__main__":
    main()
