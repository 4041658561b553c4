"""The Jupyter adapter of openapi.yaml: the operations that it marks `jupyter`, behind Jupyter's authentication and authorizer."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Optional

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.pool.model import InvalidValue
from jupyter_vgpu.server.monitor import PoolMonitor

BASE = r"/vgpu/api"
STATUS = {"invalid": 400, "forbidden": 403, "not_found": 404, "conflict": 409, "unavailable": 503}
CODES = {status: code for code, status in STATUS.items()}
CHANGEABLE = ("class", "memory", "compute", "compute_cap", "share", "priority", "device")


def operation(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    """An operation: authenticated, authorized for the resource `vgpu`, its value written as JSON, its errors as the API's `Error`."""

    @web.authenticated
    @authorized
    @functools.wraps(method)
    async def handle(self: PoolHandler, *args: str) -> None:
        try:
            value = await method(self, *args)
        except InvalidValue as error:
            self.finish_error(code=error.code, message=str(error), field=error.field, value=error.value, allowed=error.allowed)
        except ArbiterUnavailable as error:
            self.finish_error(code="unavailable", message=str(error))
        else:
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps(value))

    return handle


class PoolHandler(APIHandler):
    auth_resource = "vgpu"
    # A panel that looks keeps no server alive that is to end when nobody uses it.
    _track_activity = False

    def initialize(self, monitor: PoolMonitor) -> None:
        self.monitor = monitor

    def finish_error(
        self, *, code: str, message: str, field: Optional[str] = None, value: Any = None, allowed: Optional[str] = None
    ) -> None:
        self.set_status(STATUS[code])
        self.set_header("Content-Type", "application/json")
        error = {"code": code, "message": message, "field": field, "value": value, "allowed": allowed}
        self.finish(json.dumps({"error": error}))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """What tornado and Jupyter refuse (authorization, unknown methods) in the API's shape too. Called by tornado."""
        error = kwargs.get("exc_info", (None, None))[1]
        message = (isinstance(error, web.HTTPError) and error.log_message) or self._reason
        self.set_header("Content-Type", "application/json")
        code = CODES.get(status_code, "unavailable" if status_code >= 500 else "invalid")
        body = {"code": code, "message": message, "field": None, "value": None, "allowed": None}
        self.finish(json.dumps({"error": body}))

    def json_object(self) -> dict[str, Any]:
        """The request's body. Raises `InvalidValue` for anything but a JSON object."""
        try:
            body = json.loads(self.request.body)
        except ValueError as error:
            message = f"the body is not JSON: {error}"
            raise InvalidValue(field=None, value=None, allowed="a JSON object", message=message) from error
        if not isinstance(body, dict):
            raise InvalidValue(field=None, value=body, allowed="a JSON object", message="the body is not a JSON object")
        return body


class PoolRoot(PoolHandler):
    @operation
    async def get(self) -> Any:
        return await self.monitor.pool()


class Leases(PoolHandler):
    @operation
    async def get(self) -> Any:
        return await self.monitor.leases(self.get_query_argument("kernel_id", None))


class Lease(PoolHandler):
    @operation
    async def get(self, lease_id: str) -> Any:
        return await self.monitor.client.lease(lease_id)

    @operation
    async def patch(self, lease_id: str) -> Any:
        change = self.json_object()
        for name, value in change.items():
            if name not in CHANGEABLE:
                allowed = "one of " + ", ".join(sorted(CHANGEABLE))
                raise InvalidValue(field=name, value=value, allowed=allowed, message=f"{name}: unknown field; allowed: {allowed}")
        lease = await self.monitor.client.lease(lease_id)
        # Behind this adapter everybody is the server's own user to the arbiter, which would allow all of that user's leases.
        if lease["kernel_id"] is None or lease["kernel_id"] not in self.kernel_manager:
            allowed = "a lease of a kernel of this Jupyter server"
            message = f"lease {lease_id} ({lease['name']}) belongs to no kernel of this Jupyter server; allowed: {allowed}"
            raise InvalidValue(field="lease_id", value=lease_id, allowed=allowed, message=message, code="forbidden")
        return await self.monitor.client.patch_lease(lease_id, **change)


class PolicyInForce(PoolHandler):
    @operation
    async def get(self) -> Any:
        return await self.monitor.policy()


def handlers(monitor: PoolMonitor) -> list[tuple[str, type, dict[str, Any]]]:
    """The routes below the server's base_url, as `ExtensionApp.handlers` takes them."""
    arguments = {"monitor": monitor}
    return [
        (rf"{BASE}/pool", PoolRoot, arguments),
        (rf"{BASE}/leases", Leases, arguments),
        (rf"{BASE}/leases/([^/]+)", Lease, arguments),
        (rf"{BASE}/policy", PolicyInForce, arguments),
    ]
