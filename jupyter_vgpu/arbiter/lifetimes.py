"""How a lease begins, which processes it consists of, and when it ends.

It ends when somebody with the right to it says so, or when the process that asked for it and all of its own processes are dead. A lost
connection ends nothing; neither does a kernel's death as long as the holder lives, because a kernel may be restarted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import replace

from jupyter_vgpu.arbiter.activity import Activity
from jupyter_vgpu.arbiter.journal import JournalEntry
from jupyter_vgpu.arbiter.processes import NoSuchProcess, open_pidfd, start_time, user_name
from jupyter_vgpu.arbiter.state import State
from jupyter_vgpu.arbiter.tenants import Process, ProcessRecord, Tenant, find_page, hash_token, new_lease_id, new_token
from jupyter_vgpu.native import protocol
from jupyter_vgpu.native.control import MAX_DEVICES, MAX_PROCESSES, ControlPage, InvalidPage, identity
from jupyter_vgpu.pool.model import Grant, Lease, LeaseRequest

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_log = logging.getLogger(__name__)


class AttachRefused(Exception):
    """The answer to an ATTACH that cannot be granted: a status of the protocol, and the reason for the shim's log."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


class Lifetimes:
    """`ended` is called after a lease has gone, `freed` after a process of a lease has; both before anybody is told."""

    def __init__(self, state: State, *, ended: Callable[[Tenant], None], freed: Callable[[Tenant], None]):
        self._state = state
        self._ended = ended
        self._freed = freed

    def create(
        self, grant: Grant, *, request: LeaseRequest, name: str, kernel_id: str | None, path: str | None, uid: int, holder: int, pidfd: int
    ) -> tuple[Tenant, str]:
        """A new lease and its token. `holder` is the pid of the process that asked for it, `pidfd` its descriptor (the caller's own)."""
        if len(grant.parts) > MAX_DEVICES:
            message = f"a lease has at most {MAX_DEVICES} devices; it got the first {MAX_DEVICES} of {len(grant.parts)}"
            grant = replace(grant, parts=grant.parts[:MAX_DEVICES], message=message)
        now = self._state.clock()
        token = new_token()
        lease = Lease(
            id=new_lease_id(),
            grant=grant,
            name=name,
            uid=uid,
            owner=user_name(uid),
            created=now,
            kernel_id=kernel_id,
            path=path,
            request=request,
        )
        tenant = Tenant(lease=lease, token_hash=hash_token(token), activity=Activity(since=now))
        self._state.tenants.add(tenant)
        started = start_time(holder)
        if started is not None:
            self._hold(tenant, ProcessRecord(pid=holder, started=started), os.dup(pidfd))
        self.write(tenant)
        self._state.announce("created", f"{name}: lease created" + (f"; {grant.message}" if grant.message else ""), tenant)
        return tenant, token

    def restore(self) -> None:
        """Takes back what the journal knows. Called once, before the sockets open."""
        for entry in self._state.journal.entries():
            activity = Activity(since=entry.active, open_cells=entry.open_cells)
            tenant = Tenant(lease=entry.lease, token_hash=entry.token_hash, activity=activity, page_identity=entry.page)
            self._state.tenants.add(tenant)
            self._restore_processes(tenant, entry)
            if tenant.orphaned:
                _log.info("lease %s (%s) is dropped: its holder and its processes have ended", tenant.id, tenant.lease.name)
                self.release(tenant, "its processes ended while no arbiter ran")
                continue
            for process in tenant.attached if entry.page is not None else ():
                descriptor = find_page(entry.page, process.pid)
                if descriptor is not None:
                    self._take_back(tenant, descriptor)
                    break

    def _restore_processes(self, tenant: Tenant, entry: JournalEntry) -> None:
        for record in entry.processes:
            try:
                self._join(tenant, record, open_pidfd(record.pid, started=record.started))
            except NoSuchProcess:
                self._state.journal.remove_process(tenant.id, record.pid)
        if entry.holder is not None:
            try:
                self._hold(tenant, entry.holder, open_pidfd(entry.holder.pid, started=entry.holder.started))
            except NoSuchProcess:
                self.write(tenant)

    def write(self, tenant: Tenant) -> None:
        """Journals the tenant as it is now."""
        self._state.journal.put(tenant)

    def add_process(self, tenant: Tenant, pid: int) -> None:
        """Names a process of the tenant that need never attach: the kernel itself. Raises `NoSuchProcess`."""
        started = start_time(pid)
        if started is None:
            raise NoSuchProcess(f"no process {pid}")
        known = tenant.processes.get(pid)
        if known is not None and known.record.started == started:
            return
        pidfd = open_pidfd(pid, started=started)
        if known is not None:
            self._leave(tenant, known)
        record = ProcessRecord(pid=pid, started=started)
        self._join(tenant, record, pidfd)
        self._state.journal.put_process(tenant.id, record)

    def attach(self, tenant: Tenant, *, pid: int, pidfd: int, again: int | None, descriptor: int | None) -> Process:
        """A shim speaks for the process `pid`; `pidfd` and `descriptor` (the page that it presents) stay the caller's.

        `again` is the slot that a reconnecting shim says it has. Raises `AttachRefused`.
        """
        started = start_time(pid)
        if started is None:
            raise AttachRefused(protocol.STATUS_BAD_REQUEST, f"process {pid} has ended")
        process = tenant.processes.get(pid)
        if process is not None and process.record.started != started:
            self._leave(tenant, process)  # its death has not been dispatched yet, and its pid was handed out again
            process = None
        if again is not None:
            return self._attach_again(tenant, process, again, descriptor)
        self._ensure_page(tenant)
        # A process that attaches anew has a new image (exec) or lost its page: what it held is gone with its context.
        slot = process.slot if process is not None and process.slot is not None else tenant.free_slot()
        if slot is None:
            raise AttachRefused(protocol.STATUS_FULL, f"the lease has {MAX_PROCESSES} processes, which is the most")
        if process is not None:
            self._unwatch(process)
        tenant.page.occupy(slot, pid)
        record = ProcessRecord(pid=pid, started=started, slot=slot)
        self._state.journal.put_process(tenant.id, record)
        process = self._join(tenant, record, os.dup(pidfd))
        self._state.announce("attached", f"{tenant.lease.name}: process {pid} uses the GPU", tenant)
        return process

    def _attach_again(self, tenant: Tenant, process: Process | None, slot: int, descriptor: int | None) -> Process:
        if process is None or process.slot != slot:
            raise AttachRefused(protocol.STATUS_BAD_REQUEST, f"slot {slot} is not this process's")
        if descriptor is not None and identity(descriptor) != tenant.page_identity:
            raise AttachRefused(protocol.STATUS_BAD_REQUEST, "the page is not the one that this tenant was given")
        if tenant.page is None:
            if descriptor is None:
                raise AttachRefused(protocol.STATUS_BAD_REQUEST, "the page is missing; send its descriptor along")
            self._take_back(tenant, os.dup(descriptor))
            if tenant.page is None:
                raise AttachRefused(protocol.STATUS_BAD_REQUEST, "the page is not a sealed control page")
        return process

    def _ensure_page(self, tenant: Tenant) -> None:
        if tenant.page is not None:
            return
        if tenant.page_identity is not None and tenant.attached:
            # A second page would split the tenant's books in two.
            raise AttachRefused(protocol.STATUS_DENIED, "the tenant's page has not come back since the arbiter's restart")
        tenant.page = ControlPage.create(tenant.id)
        tenant.page_identity = tenant.page.identity
        self.write_page(tenant)
        self.write(tenant)

    def _take_back(self, tenant: Tenant, descriptor: int) -> None:
        """Takes the page over (and the descriptor in any case); leaves the tenant without one if it is not acceptable."""
        try:
            page = ControlPage.take_back(descriptor, expected=tenant.page_identity)
        except InvalidPage as error:
            _log.warning("lease %s: the presented page is refused: %s", tenant.id, error)
            os.close(descriptor)
            return
        tenant.page = page
        attached = {process.slot: process for process in tenant.attached}
        for slot in range(MAX_PROCESSES):
            if slot not in attached:
                page.vacate(slot)
        for slot, process in attached.items():
            page.claim(slot, process.pid)
            self._unwatch(process, keep_descriptor=True)
            self._watch(tenant, process)
        self.write_page(tenant)

    def write_page(self, tenant: Tenant) -> None:
        """Brings the lease's limits to the tenant's page, if it has one."""
        if tenant.page is not None:
            parts = tenant.lease.grant.parts
            tenant.page.write_devices([(_uuid_bytes(p.device), p.memory, p.memory_guarantee, p.compute, p.compute_cap) for p in parts])

    def release(self, tenant: Tenant, reason: str) -> None:
        """Ends a lease, whoever still lives: nothing of it stays, in memory, in the journal or as a descriptor."""
        for process in list(tenant.processes.values()):
            self._unwatch(process)
        if tenant.holder is not None:
            self._unwatch(tenant.holder)
        self._state.tenants.remove(tenant)
        self._state.journal.remove(tenant.id)
        self._ended(tenant)
        self._state.announce("released", f"{tenant.lease.name}: lease released ({reason})", tenant)
        tenant.processes.clear()
        tenant.holder = None
        if tenant.page is not None:
            tenant.page.close()
            tenant.page = None

    def close(self) -> None:
        """The arbiter ends: descriptors are closed, the journal keeps the leases for the next one."""
        for tenant in self._state.tenants:
            for process in [*tenant.processes.values(), *([tenant.holder] if tenant.holder else [])]:
                self._unwatch(process)
            if tenant.page is not None:
                tenant.page.close()

    def _hold(self, tenant: Tenant, record: ProcessRecord, pidfd: int) -> None:
        holder = Process(record=record, pidfd=pidfd, watch=0)
        tenant.holder = holder
        holder.watch = self._state.watches.watch(pidfd, lambda: self._holder_died(tenant, holder))

    def _join(self, tenant: Tenant, record: ProcessRecord, pidfd: int) -> Process:
        process = Process(record=record, pidfd=pidfd, watch=0)
        tenant.processes[record.pid] = process
        self._watch(tenant, process)
        return process

    def _watch(self, tenant: Tenant, process: Process) -> None:
        page = tenant.page if process.slot is not None else None
        process.watch = self._state.watches.watch(
            process.pidfd, lambda: self._process_died(tenant, process), page=page, slot=process.slot or 0
        )

    def _unwatch(self, process: Process, *, keep_descriptor: bool = False) -> None:
        self._state.watches.unwatch(process.watch)
        if not keep_descriptor:
            os.close(process.pidfd)

    def _holder_died(self, tenant: Tenant, holder: Process) -> None:
        os.close(holder.pidfd)
        tenant.holder = None
        self.write(tenant)
        self._end_if_orphaned(tenant)

    def _process_died(self, tenant: Tenant, process: Process) -> None:
        os.close(process.pidfd)
        self._forget(tenant, process)
        self._end_if_orphaned(tenant)

    def _leave(self, tenant: Tenant, process: Process) -> None:
        self._unwatch(process)
        self._forget(tenant, process)

    def _forget(self, tenant: Tenant, process: Process) -> None:
        del tenant.processes[process.pid]
        self._state.journal.remove_process(tenant.id, process.pid)
        if tenant.page is not None and process.slot is not None:
            # The native thread has done it already; but this loop may have booked a grant for the dead since.
            tenant.page.vacate(process.slot)
        if not tenant.attached and tenant.lease.admitted:
            # The contexts are gone: the next one queues again.
            tenant.lease = replace(tenant.lease, admitted=False)
            self.write(tenant)
        self._freed(tenant)

    def _end_if_orphaned(self, tenant: Tenant) -> None:
        if tenant.orphaned:
            self.release(tenant, "all its processes have ended")


def _uuid_bytes(device: str) -> bytes:
    """The driver's 16 bytes of ``GPU-<uuid>`` or ``MIG-<uuid>``; older MIG names hold no UUID of their own and get a stable stand-in."""
    found = _UUID.search(device)
    return uuid.UUID(found.group()).bytes if found else hashlib.sha256(device.encode()).digest()[:16]
