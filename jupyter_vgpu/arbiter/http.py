"""HTTP and JSON over the arbiter's Unix socket: a thin adapter to `operations`. The caller is who SO_PEERCRED says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import json
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_unix_socket
from tornado.web import Application, HTTPError, RequestHandler

from jupyter_vgpu.arbiter.operations import Caller, Operations, Unavailable
from jupyter_vgpu.arbiter.processes import NoSuchProcess, peer, peer_pidfd
from jupyter_vgpu.arbiter.state import State
from jupyter_vgpu.pool.model import InvalidValue

BASE = "/vgpu/api"
BODY_MAXIMUM = 64 * 1024
_BODY_READ = 1 << 20
"""Bytes: what is larger is not even read, and the connection closed."""
_DEPTH_MAXIMUM = 8
_STATUS = {"invalid": 400, "forbidden": 403, "not_found": 404, "conflict": 409, "unavailable": 503}
_CODES = {status: code for code, status in _STATUS.items()}

_log = logging.getLogger(__name__)


def _nested_deeper(value: object, *, than: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (than == 0 or any(_nested_deeper(item, than=than - 1) for item in inner))


def _operation(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    """Runs a handler's method with the caller, writes what it returns as JSON (None: 204) and every error as the API's Error."""

    @functools.wraps(method)
    async def wrapper(self: _Handler, *path: str) -> None:
        try:
            with self.caller() as caller:
                result = await method(self, caller, *path)
        except InvalidValue as error:
            self.write_failure(error.code, str(error), field=error.field, value=error.value, allowed=error.allowed)
        except Unavailable as error:
            self.write_failure("unavailable", str(error))
        else:
            if result is None:
                self.set_status(204)
            else:
                self.finish(json.dumps(result))

    return wrapper


class _Handler(RequestHandler):
    def initialize(self, *, operations: Operations, state: State, touch: Callable[[], None]) -> None:
        self.operations = operations
        self.state = state
        touch()

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "application/json")

    @contextlib.contextmanager
    def caller(self):
        """Who asks. Raises `InvalidValue` (forbidden) for another user in the user's own scope, and for a token of no lease."""
        connection: socket.socket = self.request.connection.stream.socket
        who = peer(connection)
        admin = who.uid in (0, os.getuid())
        if self.state.scope == "user" and not admin:
            message = f"this arbiter serves uid {os.getuid()}; you are {who.uid}"
            raise InvalidValue(field="uid", value=who.uid, allowed=str(os.getuid()), message=message, code="forbidden")
        try:
            pidfd = peer_pidfd(connection)
        except NoSuchProcess:
            raise InvalidValue(field="pid", value=who.pid, allowed="a process that is alive", code="forbidden") from None
        try:
            yield Caller(pid=who.pid, uid=who.uid, pidfd=pidfd, tenant=self._token_tenant(who.uid), admin=admin)
        finally:
            os.close(pidfd)

    def _token_tenant(self, uid: int):
        header = self.request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, token = header.partition(" ")
        tenant = self.state.tenants.by_token(token.strip()) if hmac.compare_digest(scheme.lower().encode(), b"bearer") else None
        if tenant is None or uid not in (tenant.lease.uid, 0):
            # The value is not repeated: it may be a real token that was sent to the wrong arbiter.
            message = "Authorization: no lease has this token (its lease may have ended)"
            allowed = "Bearer and the token of a lease"
            raise InvalidValue(field="Authorization", value=None, allowed=allowed, message=message, code="forbidden")
        return tenant

    def json_body(self) -> object:
        body = self.request.body
        start = body[:200].decode(errors="replace")
        if len(body) > BODY_MAXIMUM:
            allowed = f"at most {BODY_MAXIMUM} bytes"
            raise InvalidValue(field=None, value=start, allowed=allowed, message=f"the body has {len(body)} bytes; allowed: {allowed}")
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise InvalidValue(field=None, value=start, allowed="a JSON object", message="the body is not JSON") from None
        if _nested_deeper(value, than=_DEPTH_MAXIMUM):
            allowed = f"values nested at most {_DEPTH_MAXIMUM} deep"
            raise InvalidValue(field=None, value=start, allowed=allowed, message=f"the body is nested too deep; allowed: {allowed}")
        return value

    def write_failure(self, code: str, message: str, *, field: str | None = None, value: Any = None, allowed: str | None = None) -> None:
        self.set_status(_STATUS[code])
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)  # Python reads NaN where JSON has none
        error = {"code": code, "message": message, "field": field, "value": value, "allowed": allowed}
        self.finish(json.dumps({"error": error}, default=repr))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """tornado's own errors (unknown path, wrong method, our bugs) in the API's form."""
        code = _CODES.get(status_code, "unavailable" if status_code >= 500 else "invalid")
        error = {"code": code, "message": f"{self.request.method} {self.request.path}: {self._reason}", "field": None, "value": None}
        self.finish(json.dumps({"error": {**error, "allowed": None}}))

    def log_exception(self, *details: Any) -> None:
        if isinstance(details[1], HTTPError):  # the caller's mistake, and the answer says so
            return
        _log.error("%s %s failed", self.request.method, self.request.path, exc_info=details)


class PoolHandler(_Handler):
    @_operation
    async def get(self, caller: Caller):
        return await self.operations.get_pool()


class LeasesHandler(_Handler):
    @_operation
    async def get(self, caller: Caller):
        return await self.operations.list_leases(kernel_id=self.get_query_argument("kernel_id", None))

    @_operation
    async def post(self, caller: Caller):
        created = await self.operations.create_lease(caller, self.json_body())
        self.set_status(201)
        return created


class LeaseHandler(_Handler):
    @_operation
    async def get(self, caller: Caller, lease_id: str):
        return await self.operations.get_lease(caller, lease_id)

    @_operation
    async def patch(self, caller: Caller, lease_id: str):
        return await self.operations.patch_lease(caller, lease_id, self.json_body())

    @_operation
    async def delete(self, caller: Caller, lease_id: str):
        await self.operations.release_lease(caller, lease_id)


class ProcessesHandler(_Handler):
    @_operation
    async def post(self, caller: Caller, lease_id: str):
        await self.operations.add_process(caller, lease_id, self.json_body())


class ActivityHandler(_Handler):
    @_operation
    async def put(self, caller: Caller, lease_id: str):
        await self.operations.report_activity(caller, lease_id, self.json_body())


class InterruptHandler(_Handler):
    @_operation
    async def post(self, caller: Caller, lease_id: str):
        await self.operations.interrupt_lease(caller, lease_id)


class PolicyHandler(_Handler):
    @_operation
    async def get(self, caller: Caller):
        return await self.operations.get_policy()


class EventsHandler(_Handler):
    _waiting: asyncio.Future | None = None

    async def get(self) -> None:
        try:
            with self.caller():
                pass
        except InvalidValue as error:
            self.write_failure(error.code, str(error), field=error.field, value=error.value, allowed=error.allowed)
            return
        self.set_header("Content-Type", "application/x-ndjson")
        subscriber = self.state.events.subscribe()
        try:
            await self.flush()  # the headers: from here on the client misses nothing
            while not self.request.connection.stream.closed():
                self._waiting = asyncio.ensure_future(subscriber.next())
                event = await self._waiting
                if event is None:
                    return
                self.write(json.dumps(event) + "\n")
                await self.flush()
        except (StreamClosedError, asyncio.CancelledError):
            pass
        finally:
            self.state.events.unsubscribe(subscriber)

    def on_connection_close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()


class UnknownHandler(_Handler):
    def prepare(self) -> None:
        allowed = f"the paths of openapi.yaml below {BASE}"
        self.write_failure("not_found", f"no such path: {self.request.path}", field="path", value=self.request.path, allowed=allowed)


def serve(state: State, operations: Operations, *, path: Path, mode: int, touch: Callable[[], None]) -> HTTPServer:
    """Opens the socket. `touch` is called at each request: the arbiter is in use."""
    lease = rf"{BASE}/leases/([^/]+)"
    routes = [
        (rf"{BASE}/pool", PoolHandler),
        (rf"{BASE}/leases", LeasesHandler),
        (lease, LeaseHandler),
        (rf"{lease}/processes", ProcessesHandler),
        (rf"{lease}/activity", ActivityHandler),
        (rf"{lease}/interrupt", InterruptHandler),
        (rf"{BASE}/policy", PolicyHandler),
        (rf"{BASE}/events", EventsHandler),
        (r".*", UnknownHandler),
    ]
    shared = {"operations": operations, "state": state, "touch": touch}
    application = Application([(route, handler, shared) for route, handler in routes], log_function=lambda handler: None)
    server = HTTPServer(application, max_body_size=_BODY_READ, max_header_size=BODY_MAXIMUM)
    server.add_socket(bind_unix_socket(str(path), mode=mode))
    return server
