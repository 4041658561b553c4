"""The operations of openapi.yaml: the one layer over the arbiter's state. An adapter (http.py) brings a caller and a body.

Errors are `InvalidValue` with the API's code, and `Unavailable`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_vgpu.arbiter import ledger, requests
from jupyter_vgpu.arbiter.admissions import Admissions
from jupyter_vgpu.arbiter.api import CreatedLeaseView, LeaseView, PolicyView, PoolView
from jupyter_vgpu.arbiter.lifetimes import Lifetimes
from jupyter_vgpu.arbiter.processes import NoSuchProcess, owner_uid
from jupyter_vgpu.arbiter.state import State
from jupyter_vgpu.arbiter.tenants import Tenant
from jupyter_vgpu.pool.admission import change, grant
from jupyter_vgpu.pool.model import InvalidValue


class Unavailable(RuntimeError):
    """There is nothing to give; the message says why, for a person."""


@dataclass(frozen=True)
class Caller:
    """Who asks: the process and user by SO_PEERCRED; `tenant` is the lease of the token that came along, None without one.

    `pidfd` is the process's, valid during the call. An `admin` (root, and the arbiter's own user) may act on all leases.
    """

    pid: int
    uid: int
    pidfd: int
    tenant: Tenant | None
    admin: bool


class Operations:
    def __init__(self, state: State, *, lifetimes: Lifetimes, admissions: Admissions):
        self._state = state
        self._lifetimes = lifetimes
        self._admissions = admissions

    async def get_pool(self) -> PoolView:
        await self._look()
        return self._state.pool_view()

    async def list_leases(self, *, kernel_id: str | None = None) -> list[LeaseView]:
        tenants = [tenant for tenant in self._state.tenants if kernel_id is None or tenant.lease.kernel_id == kernel_id]
        return [self._state.lease_view(tenant) for tenant in tenants]

    async def create_lease(self, caller: Caller, body: object) -> CreatedLeaseView:
        new = requests.parse(requests.NewLease, body)
        if caller.tenant is not None:
            message = f"a tenant cannot create leases: its processes join its own ({caller.tenant.id})"
            raise InvalidValue(field="token", value=caller.tenant.id, allowed="no token", message=message, code="forbidden")
        state = self._state
        if not state.inventory.managed:
            raise Unavailable(state.pool_view()["message"] or "there are no devices")
        request = new.request()
        given = grant(
            request,
            policy=state.policy,
            devices=state.inventory.devices,
            leases=state.tenants.leases(),
            strict=new.strict,
            context_memory=state.context_memory,
        )
        tenant, token = self._lifetimes.create(
            given,
            request=request,
            name=new.name,
            kernel_id=new.kernel_id,
            path=new.path,
            uid=caller.uid,
            holder=caller.pid,
            pidfd=caller.pidfd,
        )
        return {"lease": state.lease_view(tenant), "token": token, "shim_socket": str(state.runtime.shim_socket)}

    async def get_lease(self, caller: Caller, lease_id: str) -> LeaseView:
        return self._state.lease_view(self._find(caller, lease_id))

    async def patch_lease(self, caller: Caller, lease_id: str, body: object) -> LeaseView:
        state = self._state
        tenant = self._own(caller, lease_id)
        request = requests.parse(requests.LeaseChange, body).request()
        given = change(
            tenant.lease,
            request,
            policy=state.policy,
            devices=state.inventory.devices,
            leases=state.tenants.leases(),
            context_memory=state.context_memory,
            used=ledger.used_by_device(tenant),
            # The driver fixes a process's devices at its cuInit, which is when it attaches.
            attached=bool(tenant.attached),
        )
        if given != tenant.lease.grant:
            tenant.lease = replace(tenant.lease, grant=given)
            self._lifetimes.write(tenant)
            self._lifetimes.write_page(tenant)
            self._admissions.changed(tenant)
            state.announce("resized", f"{tenant.lease.name}: lease changed" + (f"; {given.message}" if given.message else ""), tenant)
        return state.lease_view(tenant)

    async def release_lease(self, caller: Caller, lease_id: str) -> None:
        self._lifetimes.release(self._own(caller, lease_id), "by request")

    async def add_process(self, caller: Caller, lease_id: str, body: object) -> None:
        tenant = self._own(caller, lease_id)
        pid = requests.parse(requests.NamedProcess, body).pid
        uid = owner_uid(pid)
        if uid is not None and uid != tenant.lease.uid and caller.uid != 0:
            message = f"pid: process {pid} belongs to another user"
            raise InvalidValue(field="pid", value=pid, allowed=f"a process of uid {tenant.lease.uid}", message=message, code="forbidden")
        try:
            self._lifetimes.add_process(tenant, pid)
        except NoSuchProcess:
            raise InvalidValue(field="pid", value=pid, allowed="the pid of a running process") from None

    async def report_activity(self, caller: Caller, lease_id: str, body: object) -> None:
        tenant = self._own(caller, lease_id)
        tenant.activity.report(requests.parse(requests.ActivityReport, body).open_cells, now=self._state.clock())
        self._lifetimes.write(tenant)
        self.announce_activity(tenant)

    async def interrupt_lease(self, caller: Caller, lease_id: str) -> None:
        tenant = self._own(caller, lease_id)
        if tenant.page is not None:
            tenant.page.cancel_waits()
        self._admissions.cancel(tenant, "interrupted")
        self._admissions.reconsider()

    async def get_policy(self) -> PolicyView:
        return self._state.policy_file.view()

    def announce_activity(self, tenant: Tenant) -> None:
        """Tells the listeners when a tenant turned active or idle. Called after each report and each look at the launch counters."""
        state = self._state.lease_state(tenant)
        if state in ("active", "idle") and state != tenant.announced_state:
            first, tenant.announced_state = tenant.announced_state is None, state
            if not (first and state == "active"):
                self._state.announce(state, f"{tenant.lease.name}: {state}", tenant)

    async def _look(self) -> None:
        """Somebody looks: what is shown must not be older than a period, nor than the end of a process in it."""
        state = self._state
        if state.inventory.devices and state.readings.outdated:
            await state.readings.measure(state.inventory.devices, state.tenants)

    def _find(self, caller: Caller, lease_id: str) -> Tenant:
        if lease_id == "self":
            if caller.tenant is None:
                message = "'self' means the lease of the token in the Authorization header, and there was none"
                raise InvalidValue(field="lease_id", value="self", allowed="a lease's id", message=message, code="not_found")
            return caller.tenant
        tenant = self._state.tenants.get(lease_id)
        if tenant is None:
            raise InvalidValue(field="lease_id", value=lease_id, allowed="the id of a lease in the pool", code="not_found")
        return tenant

    def _own(self, caller: Caller, lease_id: str) -> Tenant:
        """The lease, if the caller may change it: a tenant its own, a user his own, an admin every one."""
        tenant = self._find(caller, lease_id)
        own = caller.tenant is tenant if caller.tenant is not None else caller.admin or caller.uid == tenant.lease.uid
        if not own:
            allowed = f"the caller's own lease ({caller.tenant.id})" if caller.tenant is not None else "a lease of the caller's user"
            message = f"lease {lease_id} belongs to {tenant.lease.owner}'s {tenant.lease.name!r}; allowed: {allowed}"
            raise InvalidValue(field="lease_id", value=lease_id, allowed=allowed, message=message, code="forbidden")
        return tenant
