"""As much of a Kubernetes API server as `kubectl debug node/NODE` asks: one node, and the pod that is made on it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

_VERBS = ["create", "get", "list", "watch"]
_RESOURCES = [
    {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": _VERBS},
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": _VERBS},
]
_ANSWERS: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES},
    "/version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
}


class Stub:
    """A server on a port of loopback; `pods` gets what is created, as it was sent."""

    def __init__(self) -> None:
        pods: SimpleQueue[dict[str, Any]] = SimpleQueue()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                node = path.removeprefix("/api/v1/nodes/")
                metadata = {"name": node, "labels": {"kubernetes.io/os": "linux"}}
                self._say(_ANSWERS.get(path, {"kind": "Node", "apiVersion": "v1", "metadata": metadata}))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                pod = json.loads(body) if self.headers["Content-Type"] == "application/json" else {}
                self._say(pod)
                pods.put(pod)

            def _say(self, answer: dict[str, Any]) -> None:
                text = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.pods = pods
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        """What kubectl's --server is given."""
        return f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def stub() -> Iterator[Stub]:
    """Give a server for the block."""
    found = Stub()
    threading.Thread(target=found.server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
