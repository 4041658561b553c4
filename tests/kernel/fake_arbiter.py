"""An arbiter's HTTP side with one lease, for tests of what runs inside a kernel. Judges requests by a few of the real one's rules."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

GIB = 1024**3
TOKEN = "token-of-this-tenant"
UUID = "GPU-00000000-0000-0000-0000-000000000001"


def new_lease() -> dict:
    part = {"device": UUID, "memory": 16 * GIB, "memory_guarantee": 0, "memory_used": GIB // 2, "compute": 1.0, "compute_cap": None}
    return {
        "id": "lease-1", "kernel_id": None, "name": "a.ipynb", "path": None, "owner": "alice", "uid": 1000, "class": None,
        "priority": "interactive", "state": "active", "parts": [part], "processes": [], "created": 0.0, "idle_since": None,
        "message": None, "queue_position": None,
    }  # fmt: skip


class FakeArbiter(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves on `path` until `shutdown`; `requests` holds (method, path, body) in order."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.lease = new_lease()
        self.requests: list = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: FakeArbiter

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._note(None)
        if not self._authorised():
            return
        if self.path == "/vgpu/api/pool":
            self._answer(200, {"devices": [{"uuid": UUID, "name": "Test GPU"}]})
        else:
            self._answer(200, self.server.lease)

    def do_PATCH(self) -> None:
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._note(change)
        if not self._authorised():
            return
        if change.get("memory") == "999TiB":
            self._refuse(400, "invalid", "memory: '999TiB' is not allowed; allowed: at most 16 GiB")
            return
        part = self.server.lease["parts"][0]
        if "share" in change:
            part["memory"], part["compute"] = int(16 * GIB * change["share"]), change["share"]
        if "memory" in change:
            part["memory"] = int(change["memory"].replace("GiB", "")) * GIB
        if "compute" in change:
            part["compute"] = change["compute"]
        self._answer(200, self.server.lease)

    def _note(self, body: object) -> None:
        self.server.requests.append((self.command, self.path, body))

    def _authorised(self) -> bool:
        if self.headers["Authorization"] == f"Bearer {TOKEN}":
            return True
        self._refuse(403, "forbidden", "the token is nobody's")
        return False

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, {"error": {"code": code, "message": message, "field": None, "value": None, "allowed": None}})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
