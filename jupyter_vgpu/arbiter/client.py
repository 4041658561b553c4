"""The client to the arbiter: blocking for the CLI, asynchronous for provisioner and server. Same operations, same names.

Both raise `ArbiterUnavailable` where no arbiter answers and `InvalidValue` with the arbiter's own code, field, value and allowed.
A process that runs as a tenant (VGPU_TOKEN) is limited by the arbiter to its own lease, ``self``.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional
from urllib.parse import quote, urlencode

from jupyter_vgpu.arbiter.api import CreatedLeaseView, EventView, LeaseView, PolicyView, PoolView
from jupyter_vgpu.arbiter.runtime import Runtime, answers, find_runtime
from jupyter_vgpu.native.environment import arbiter_environment
from jupyter_vgpu.native.locate import NativeUnavailable
from jupyter_vgpu.pool.model import InvalidValue

BASE = "/vgpu/api"
START_TIMEOUT = 15.0
REQUEST_TIMEOUT = 10.0
_LOG_MAXIMUM = 1 << 20


class ArbiterUnavailable(RuntimeError):
    """No arbiter answers, or it has nothing to give; the message says why, for a person."""


class _Operations:
    """The operations of openapi.yaml, each as (method, path, body); what they return is left to `_call`."""

    def __init__(self, runtime: Runtime, *, token: Optional[str] = None):
        self.runtime = runtime
        self._token = token

    @property
    def socket(self) -> Path:
        """The arbiter's HTTP socket, as `tenant_environment` wants it."""
        return self.runtime.socket

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._token}"} if self._token else {})}

    @staticmethod
    def _lease_path(lease_id: str, rest: str = "") -> str:
        return f"/leases/{quote(lease_id, safe='')}{rest}"


class ArbiterClient(_Operations):
    """Blocking. One connection a request, so an instance may be shared between threads."""

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> ArbiterClient:
        """The client of a running arbiter. Raises `ArbiterUnavailable` if none answers."""
        return cls(_found(environ), token=environ.get("VGPU_TOKEN"))

    @classmethod
    def start(cls, environ: Mapping[str, str], *, arguments: tuple[str, ...] = ()) -> ArbiterClient:
        """As `find`, but starts an arbiter (with these command line `arguments`) if none answers. Safe to call from many at once."""
        starting = _starting(environ, arguments)
        for delay in starting:
            time.sleep(delay)
        return cls(find_runtime(environ), token=environ.get("VGPU_TOKEN"))

    def pool(self) -> PoolView:
        return self._call("GET", "/pool")

    def leases(self, kernel_id: Optional[str] = None) -> list[LeaseView]:
        return self._call("GET", "/leases" + (f"?{urlencode({'kernel_id': kernel_id})}" if kernel_id is not None else ""))

    def create_lease(self, **new: Any) -> CreatedLeaseView:
        """`new` has the fields of NewLease; ``class`` may be written ``lease_class``. This process becomes the lease's holder."""
        return self._call("POST", "/leases", _spell_class(new))

    def lease(self, lease_id: str) -> LeaseView:
        return self._call("GET", self._lease_path(lease_id))

    def patch_lease(self, lease_id: str, **change: Any) -> LeaseView:
        """`change` has the fields of LeaseChange; ``class`` may be written ``lease_class``. All or nothing."""
        return self._call("PATCH", self._lease_path(lease_id), _spell_class(change))

    def release(self, lease_id: str) -> None:
        self._call("DELETE", self._lease_path(lease_id))

    def add_process(self, lease_id: str, pid: int) -> None:
        self._call("POST", self._lease_path(lease_id, "/processes"), {"pid": pid})

    def report_activity(self, lease_id: str, *, open_cells: int) -> None:
        self._call("PUT", self._lease_path(lease_id, "/activity"), {"open_cells": open_cells})

    def interrupt(self, lease_id: str) -> None:
        self._call("POST", self._lease_path(lease_id, "/interrupt"))

    def policy(self) -> PolicyView:
        return self._call("GET", "/policy")

    def events(self, *, subscribed: Callable[[], None] | None = None) -> Iterator[EventView]:
        """Events until the arbiter ends (then `ArbiterUnavailable`). `subscribed` is called once none is missed any more: the moment for a
        snapshot."""
        connection = _UnixConnection(self.runtime.socket, timeout=None)
        try:
            connection.request("GET", f"{BASE}/events", headers=self._headers())
            response = connection.getresponse()
            if response.status != 200:
                _result(response.status, response.read())
            if subscribed is not None:
                subscribed()
            while line := response.readline():
                yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(self.runtime, error) from error
        finally:
            connection.close()
        raise ArbiterUnavailable(f"the arbiter at {self.runtime.socket} has ended")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        connection = _UnixConnection(self.runtime.socket, timeout=REQUEST_TIMEOUT)
        try:
            connection.request(method, BASE + path, body=None if body is None else json.dumps(body), headers=self._headers())
            response = connection.getresponse()
            return _result(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(self.runtime, error) from error
        finally:
            connection.close()


class AsyncArbiterClient(_Operations):
    """For an asyncio loop with tornado. The methods are those of `ArbiterClient`, awaited."""

    def __init__(self, runtime: Runtime, *, token: Optional[str] = None):
        super().__init__(runtime, token=token)
        # Here and not at the top: the CLI and `%vgpu run` should not pay for importing tornado.
        from tornado.netutil import Resolver
        from tornado.simple_httpclient import SimpleAsyncHTTPClient

        class UnixResolver(Resolver):
            async def resolve(self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC) -> list:
                return [(socket.AF_UNIX, str(runtime.socket))]

        # max_clients counts open streams too (events), and a full client queues silently.
        self._http = SimpleAsyncHTTPClient(force_instance=True, resolver=UnixResolver(), max_clients=100)

    @classmethod
    async def find(cls, environ: Mapping[str, str]) -> AsyncArbiterClient:
        return cls(_found(environ), token=environ.get("VGPU_TOKEN"))

    @classmethod
    async def start(cls, environ: Mapping[str, str], *, arguments: tuple[str, ...] = ()) -> AsyncArbiterClient:
        for delay in _starting(environ, arguments):
            await asyncio.sleep(delay)
        return cls(find_runtime(environ), token=environ.get("VGPU_TOKEN"))

    def close(self) -> None:
        self._http.close()

    async def pool(self) -> PoolView:
        return await self._call("GET", "/pool")

    async def leases(self, kernel_id: Optional[str] = None) -> list[LeaseView]:
        return await self._call("GET", "/leases" + (f"?{urlencode({'kernel_id': kernel_id})}" if kernel_id is not None else ""))

    async def create_lease(self, **new: Any) -> CreatedLeaseView:
        return await self._call("POST", "/leases", _spell_class(new))

    async def lease(self, lease_id: str) -> LeaseView:
        return await self._call("GET", self._lease_path(lease_id))

    async def patch_lease(self, lease_id: str, **change: Any) -> LeaseView:
        return await self._call("PATCH", self._lease_path(lease_id), _spell_class(change))

    async def release(self, lease_id: str) -> None:
        await self._call("DELETE", self._lease_path(lease_id))

    async def add_process(self, lease_id: str, pid: int) -> None:
        await self._call("POST", self._lease_path(lease_id, "/processes"), {"pid": pid})

    async def report_activity(self, lease_id: str, *, open_cells: int) -> None:
        await self._call("PUT", self._lease_path(lease_id, "/activity"), {"open_cells": open_cells})

    async def interrupt(self, lease_id: str) -> None:
        await self._call("POST", self._lease_path(lease_id, "/interrupt"))

    async def policy(self) -> PolicyView:
        return await self._call("GET", "/policy")

    async def events(self, *, subscribed: Callable[[], None] | None = None) -> AsyncIterator[EventView]:
        """Events until the arbiter ends (then `ArbiterUnavailable`). `subscribed` is called once none is missed any more: the moment for a
        snapshot. Closing the iterator closes the stream."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.runtime.socket))
        except OSError as error:
            raise _unavailable(self.runtime, error) from error
        try:
            # HTTP/1.0 has no chunks: what follows the headers is the stream itself, and tornado's client cannot be closed half-way.
            headers = "".join(f"{name}: {value}\r\n" for name, value in self._headers().items())
            writer.write(f"GET {BASE}/events HTTP/1.0\r\n{headers}\r\n".encode())
            status = await reader.readline()
            while (await reader.readline()).strip():
                pass
            if status.split()[1:2] != [b"200"]:
                _result(int(status.split()[1]) if len(status.split()) > 1 else 500, await reader.read(1 << 16))
            if subscribed is not None:
                subscribed()
            while line := await reader.readline():
                yield json.loads(line)
        except (OSError, ValueError) as error:
            raise _unavailable(self.runtime, error) from error
        finally:
            writer.close()
        raise ArbiterUnavailable(f"the arbiter at {self.runtime.socket} has ended")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        from tornado.httpclient import HTTPRequest

        request = HTTPRequest(
            f"http://arbiter{BASE}{path}",
            method=method,
            headers=self._headers(),
            body=None if body is None and method not in ("POST", "PUT", "PATCH") else json.dumps(body) if body is not None else "",
            request_timeout=REQUEST_TIMEOUT,
            connect_timeout=REQUEST_TIMEOUT,
        )
        try:
            response = await self._http.fetch(request, raise_error=False)
        except OSError as error:
            raise _unavailable(self.runtime, error) from error
        if response.code == 599:  # tornado: no answer at all
            raise _unavailable(self.runtime, response.error)
        return _result(response.code, response.body)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, *, timeout: Optional[float]):
        super().__init__("arbiter", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _spell_class(fields: dict[str, Any]) -> dict[str, Any]:
    if "lease_class" in fields:
        fields["class"] = fields.pop("lease_class")
    return fields


def _result(status: int, body: bytes) -> Any:
    if status == 204:
        return None
    try:
        value = json.loads(body)
        if 200 <= status < 300:
            return value
        error = value["error"]
        code, message = error["code"], error["message"]
    except (ValueError, KeyError, TypeError) as problem:
        raise ArbiterUnavailable(f"the arbiter answered {status} with something that is not of this API") from problem
    if code == "unavailable":
        raise ArbiterUnavailable(message)
    raise InvalidValue(field=error["field"], value=error["value"], allowed=error["allowed"], message=message, code=code)


def _unavailable(runtime: Runtime, error: Optional[BaseException]) -> ArbiterUnavailable:
    return ArbiterUnavailable(f"no arbiter answers at {runtime.socket} ({error or 'no reason given'})")


def _runtime(environ: Mapping[str, str]) -> Runtime:
    try:
        return find_runtime(environ)
    except OSError as error:
        raise ArbiterUnavailable(str(error)) from error


def _found(environ: Mapping[str, str]) -> Runtime:
    runtime = _runtime(environ)
    if not answers(runtime.socket):
        raise ArbiterUnavailable(f"no arbiter answers at {runtime.socket}; it starts with the first kernel, or by `jupyter vgpu run`")
    return runtime


def _starting(environ: Mapping[str, str], arguments: tuple[str, ...]) -> Iterator[float]:
    """Starts an arbiter if none answers, and yields how long to wait before the next look, in seconds.

    Two that start at once are settled by the arbiters themselves: only one gets the lock, the other ends. An arbiter that is just ending
    still holds the lock, so the one started here may end at once; then another is started.
    """
    runtime = _runtime(environ)
    deadline = time.monotonic() + START_TIMEOUT
    child: Optional[subprocess.Popen] = None
    while not answers(runtime.socket):
        if time.monotonic() > deadline:
            raise ArbiterUnavailable(f"the arbiter did not start within {START_TIMEOUT:g} s; see {runtime.log}")
        if child is None or child.poll() is not None:
            if child is not None and child.returncode not in (0, None):
                raise ArbiterUnavailable(f"the arbiter could not start: {_last_line(runtime.log)} (see {runtime.log})")
            child = _spawn(runtime, environ, arguments)
        yield 0.02
    if child is not None:
        child.wait()  # it detached the arbiter and ends now


def _spawn(runtime: Runtime, environ: Mapping[str, str], arguments: tuple[str, ...]) -> subprocess.Popen:
    try:
        environment = arbiter_environment(environ, directory=runtime.directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(runtime.log, flags, 0o600)
    except (OSError, NativeUnavailable) as error:
        raise ArbiterUnavailable(str(error)) from error
    try:
        if os.fstat(log).st_size > _LOG_MAXIMUM:
            os.ftruncate(log, 0)
        return subprocess.Popen(
            [sys.executable, "-m", "jupyter_vgpu.arbiter", "--socket", str(runtime.socket), "--detach", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",  # it outlives its starter, and must not keep a file system busy
        )
    finally:
        os.close(log)


def _last_line(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
