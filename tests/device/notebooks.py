"""A real Jupyter server and what a browser would say to it: start kernels over REST, run cells over their websocket."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

TOKEN = "device-test"


class Server:
    """`jupyter server` on a free port, with its files in `directory`."""

    def __init__(self, directory: Path, environ: dict[str, str]):
        runtime = directory / "jp"
        runtime.mkdir()
        self._log = (directory / "server.log").open("w")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyter_server",
                "--no-browser",
                "--allow-root",
                "--ServerApp.port=0",
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={directory}",
            ],
            env={**environ, "JUPYTER_RUNTIME_DIR": str(runtime)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + 60
        # The file with the url is written before the socket answers.
        while not (found := list(runtime.glob("jpserver-*.json"))) or not self._answers(found[0]):
            assert self._process.poll() is None, (directory / "server.log").read_text()
            assert time.monotonic() < deadline, "the server did not come up in 60 s"
            time.sleep(0.05)

    def _answers(self, file: Path) -> bool:
        try:
            self.url = json.loads(file.read_text())["url"].rstrip("/").replace("localhost", "127.0.0.1")
            self.call("GET", "api/status")
        except (ValueError, KeyError, OSError):
            return False
        return True

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        self._log.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer of one REST call. Raises AssertionError with the server's own words."""
        request = urllib.request.Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text else None

    def start_kernel(self) -> str:
        return self.call("POST", "api/kernels", {"name": "python3"})["id"]

    def lease(self, kernel_id: str) -> dict:
        (lease,) = self.call("GET", f"vgpu/api/leases?kernel_id={kernel_id}")
        return lease

    def execute(self, kernel_id: str, code: str, *, timeout: float = 120) -> str:
        """Runs one cell and returns what it printed; an error in the cell is returned as `ename: evalue`."""
        return asyncio.run(self._execute(kernel_id, code, timeout))

    async def _execute(self, kernel_id: str, code: str, timeout: float) -> str:
        session, message = uuid.uuid4().hex, uuid.uuid4().hex
        url = self.url.replace("http", "ws", 1) + f"/api/kernels/{kernel_id}/channels?session_id={session}&token={TOKEN}"
        # The server answers when the kernel does: tornado's own 20 s are short for a kernel that starts on a busy machine.
        socket = await websocket_connect(HTTPRequest(url, connect_timeout=timeout, request_timeout=timeout))
        header = {"msg_id": message, "session": session, "username": "", "msg_type": "execute_request", "version": "5.3", "date": ""}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        await socket.write_message(
            json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []})
        )
        output = []
        try:
            while True:
                raw = await asyncio.wait_for(socket.read_message(), timeout)
                assert isinstance(raw, str), "the kernel's connection was closed"
                said = json.loads(raw)
                if said["parent_header"].get("msg_id") != message:
                    continue
                kind, content = said["header"]["msg_type"], said["content"]
                if kind == "stream":
                    output.append(content["text"])
                elif kind in ("execute_result", "display_data"):
                    output.append(content["data"].get("text/plain", "") + "\n")
                elif kind == "error":
                    output.append(f"{content['ename']}: {content['evalue']}\n")
                elif kind == "status" and content["execution_state"] == "idle":
                    return "".join(output)
        finally:
            socket.close()
