"""openapi.yaml as a judge: whether an answer of an adapter is one that the file declares."""

from __future__ import annotations

import http.client
import json
import re
import socket
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator


@cache
def document() -> dict[str, Any]:
    return yaml.safe_load((files("jupyter_vgpu") / "openapi.yaml").read_text(encoding="utf-8"))


def _declared(method: str, path: str) -> dict[str, Any]:
    for template, item in document()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path.partition("?")[0]):
            return item[method.lower()]
    raise AssertionError(f"{path} is not in openapi.yaml")


def check(method: str, path: str, status: int, body: bytes) -> Any:
    """Asserts that the file declares this status for the operation and that the body fits its schema. Returns the body's value."""
    responses = _declared(method, path)["responses"]
    assert str(status) in responses, f"{method} {path} answered {status}; declared: {sorted(responses)}; body: {body[:300]!r}"
    response = responses[str(status)]
    if "$ref" in response:
        response = document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    content = response.get("content", {}).get("application/json")
    if content is None:
        assert body == b""
        return None
    value = json.loads(body)
    schema = {**content["schema"], "components": document()["components"]}
    Draft202012Validator(schema).validate(value)
    return value


def check_event(event: dict[str, Any]) -> None:
    Draft202012Validator({"$ref": "#/components/schemas/Event", "components": document()["components"]}).validate(event)


def ask(
    path_of_socket: Path, method: str, path: str, body: Any = None, *, token: str | None = None, raw: bytes | None = None
) -> tuple[int, Any]:
    """One request, its answer checked against the contract: (status, value)."""
    connection = http.client.HTTPConnection("arbiter", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(10)
    connection.sock.connect(str(path_of_socket))
    try:
        content = raw if raw is not None else None if body is None else json.dumps(body)
        connection.request(method, f"/vgpu/api{path}", body=content, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, check(method, path, response.status, response.read())
    finally:
        connection.close()
