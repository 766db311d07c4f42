"""Validate examples/deploy/daemonset.yaml, and the pod that the docs' `kubectl debug` line makes, for Kubernetes' API.

    pip install kubernetes-validate pyyaml && PYTHONPATH=tests python -m manifests [RELEASE...]

The schemas are those of the releases named (default: 1.30 and the newest), strict: a field that is unknown is an error.
kubectl, where it is there, runs the line as docs/all-day.md has it, against a stub of the API server. From 1.32 on it
sends Protocol Buffers, which nothing here reads: name an older one, KUBECTL=kubectl.1.31.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from manifests.stub import stub

ROOT = Path(__file__).parents[2]
KUBECTL = os.environ.get("KUBECTL", "kubectl")
PATIENCE_S = 60.0


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is applied or made, with where it is from."""
    for each in yaml.safe_load_all((ROOT / "examples" / "deploy" / "daemonset.yaml").read_text()):
        yield "daemonset.yaml", each
    line = re.search(r"`(kubectl debug [^`]*)`", (ROOT / "docs" / "all-day.md").read_text())
    assert line is not None, "the page has the line"
    if shutil.which(KUBECTL):
        yield "kubectl debug", debug_pod(shlex.split(line[1]))
    else:
        print(f"{KUBECTL} is missing: the line of kubectl debug is not tried")


def debug_pod(words: list[str]) -> dict[str, Any]:
    """Return the pod that a line of `kubectl debug` makes."""
    with stub() as server:
        command = [KUBECTL, "--server", server.address, "--kubeconfig", "/dev/null", *words[1:]]
        asked = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            pod = server.pods.get(timeout=PATIENCE_S)
        finally:
            asked.kill()
            asked.wait()
    if not pod:
        raise SystemExit(f"{KUBECTL} does not send JSON: name one before 1.32, KUBECTL=kubectl.1.31")
    return pod


def main(releases: list[str]) -> None:
    """Validate everything for every release; raises where one does not fit."""
    for where, document in documents():
        for release in releases or ["1.30", kubernetes_validate.latest_version()]:
            kubernetes_validate.validate(document, release, strict=True)
            print(f"{where}: {document['kind']} {document['metadata'].get('name', '')} fits Kubernetes {release}")
        if where == "kubectl debug":
            spec, container = document["spec"], document["spec"]["containers"][0]
            assert spec["hostPID"], spec
            assert spec["hostNetwork"], spec
            assert container["securityContext"]["privileged"], container
            print(f"  it runs {shlex.join(container.get('command', []) + container.get('args', []))}, privileged")


if __name__ == "__main__":
    main(sys.argv[1:])
