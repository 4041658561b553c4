"""The shims' door: SOCK_SEQPACKET, one packed struct a packet (protocol.h). All that comes in is untrusted.

Who speaks is known by SO_PEERCRED and a pidfd of the peer; for whom, by the token of its ATTACH.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine
from pathlib import Path

from jupyter_vgpu.arbiter import ledger
from jupyter_vgpu.arbiter.admissions import Admissions
from jupyter_vgpu.arbiter.lifetimes import AttachRefused, Lifetimes
from jupyter_vgpu.arbiter.processes import NoSuchProcess, peer, peer_pidfd
from jupyter_vgpu.arbiter.state import State
from jupyter_vgpu.arbiter.tenants import Process, Tenant
from jupyter_vgpu.native import protocol
from jupyter_vgpu.native.protocol import MalformedPacket, Reply, Request

ATTACH_TIMEOUT = 10.0
"""Seconds that a connection may stay without a tenant."""
ACCEPT_PAUSE = 1.0
"""Seconds without new connections after one could not be accepted."""
_PACKETS_A_TURN = 16
_TASKS_MAXIMUM = 1024
"""Answers that one process may have outstanding: more threads than that do not wait for a device."""
_ONE_DESCRIPTOR = socket.CMSG_SPACE(array.array("i").itemsize)

_log = logging.getLogger(__name__)


class ShimSocket:
    def __init__(self, state: State, *, lifetimes: Lifetimes, admissions: Admissions):
        self.state = state
        self.lifetimes = lifetimes
        self.admissions = admissions
        self._connections: set[Connection] = set()
        self._listener: socket.socket | None = None
        self._resuming: asyncio.TimerHandle | None = None

    def open(self, path: Path, *, mode: int) -> None:
        """Binds; a socket file that an earlier arbiter left is replaced, since we hold the directory's lock."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.setblocking(False)
        listener.bind(str(path))
        os.chmod(path, mode)
        listener.listen(128)
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the peer has gone again
        except OSError as error:
            # Out of descriptors: the peer stays in the backlog, and asking again at once would keep the loop busy with nothing else.
            _log.warning("a shim's connection cannot be accepted: %s; trying again in %g s", error, ACCEPT_PAUSE)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            self._resuming = loop.call_later(ACCEPT_PAUSE, loop.add_reader, self._listener, self._accept)
            return
        connection.setblocking(False)
        try:
            self._connections.add(Connection(self, connection))
        except (OSError, NoSuchProcess):
            connection.close()

    def disconnect(self, tenant: Tenant) -> None:
        """The lease has ended: its shims are let go."""
        for connection in [connection for connection in self._connections if connection.tenant is tenant]:
            connection.close()

    def replace(self, new: Connection) -> None:
        """A process has one connection; the one before was lost without our having seen it."""
        for old in [old for old in self._connections if old is not new and old.tenant is new.tenant and old.process.pid == new.process.pid]:
            old.close()

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def close(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        for connection in list(self._connections):
            connection.close()

    def __len__(self) -> int:
        return len(self._connections)


class Connection:
    """One shim. Closing it ends nothing but the connection."""

    def __init__(self, door: ShimSocket, connection: socket.socket):
        self._door = door
        self._socket = connection
        self._peer = peer(connection)
        self._pidfd = peer_pidfd(connection)
        self._tasks: set[asyncio.Task] = set()
        self.tenant: Tenant | None = None
        self.process: Process | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._readable)
        self._timer = self._loop.call_later(ATTACH_TIMEOUT, self.close)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        os.close(self._pidfd)
        for task in self._tasks:
            task.cancel()
        self._door.forget(self)

    def _readable(self) -> None:
        for _ in range(_PACKETS_A_TURN):
            if self._closed:
                return
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(protocol.REQUEST_SIZE + 1, _ONE_DESCRIPTOR, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            descriptors = _descriptors(ancillary)
            try:
                if not data:
                    self.close()
                    return
                if flags & socket.MSG_CTRUNC or len(descriptors) > 1:
                    raise MalformedPacket("more than one descriptor")
                self._handle(protocol.unpack_request(data), descriptors[0] if descriptors else None)
            except MalformedPacket as error:
                _log.warning("pid %d sent a malformed packet (%s); its connection is closed", self._peer.pid, error)
                self.close()
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _handle(self, request: Request, descriptor: int | None) -> None:
        if request.op == protocol.OP_ATTACH:
            self._attach(request, descriptor)
        elif self._is_stale():
            self._reply(request, protocol.STATUS_UNKNOWN_TENANT, reason="attach first")
        elif request.op not in (protocol.OP_ADMIT, protocol.OP_RESERVE, protocol.OP_COMMIT, protocol.OP_MEASURE):
            self._reply(request, protocol.STATUS_BAD_REQUEST, reason=f"op {request.op}; it is 1 to 5")
        elif request.device >= len(self.tenant.lease.grant.parts):
            devices = len(self.tenant.lease.grant.parts)
            self._reply(request, protocol.STATUS_BAD_REQUEST, reason=f"device {request.device}; the lease has {devices}")
        elif request.op == protocol.OP_COMMIT:
            ledger.commit(self.tenant, self.process, request.device, request.bytes)
        elif len(self._tasks) >= _TASKS_MAXIMUM:
            self._reply(request, protocol.STATUS_FULL, reason=f"{_TASKS_MAXIMUM} requests wait already")
        elif request.op == protocol.OP_ADMIT:
            self._start(self._admit(request))
        elif request.op == protocol.OP_RESERVE:
            self._start(self._reserve(request))
        else:
            self._start(self._measure(request))

    def _is_stale(self) -> bool:
        """Not attached, or attached to what is no more: a lease that ended, a process that execs attached anew on another connection."""
        return self.tenant is None or self.tenant.page is None or self.tenant.processes.get(self._peer.pid) is not self.process

    def _attach(self, request: Request, descriptor: int | None) -> None:
        state = self._door.state
        tenant = state.tenants.by_token(request.token)
        # A token that leaked to another user is of no use to him; root may act for anybody.
        if tenant is None or self._peer.uid not in (tenant.lease.uid, 0):
            self._reply(request, protocol.STATUS_UNKNOWN_TENANT, reason="no lease has this token")
            return
        again = request.slot if request.flags & protocol.ATTACH_AGAIN else None
        try:
            process = self._door.lifetimes.attach(tenant, pid=self._peer.pid, pidfd=self._pidfd, again=again, descriptor=descriptor)
        except AttachRefused as refusal:
            self._reply(request, refusal.status, reason=str(refusal))
            return
        self.tenant, self.process = tenant, process
        self._timer.cancel()
        self._door.replace(self)
        self._reply(request, protocol.STATUS_OK, slot=process.slot, descriptor=tenant.page.descriptor)

    async def _admit(self, request: Request) -> None:
        self._conclude(request, await self._door.admissions.admit(self.tenant))

    async def _reserve(self, request: Request) -> None:
        short = bool(request.flags & protocol.RESERVE_DRIVER_SHORT)
        reason = await self._door.admissions.reserve(self.tenant, self.process, request.device, request.bytes, driver_short=short)
        self._conclude(request, reason)

    async def _measure(self, request: Request) -> None:
        state = self._door.state
        await state.readings.measure(state.inventory.devices, state.tenants)
        if not self._is_stale():
            usage = self.tenant.page.usage(self.process.slot, request.device)
            reading = state.readings.latest.get(self.tenant.lease.grant.parts[request.device].device)
            # The page is the tenant's writing, and this figure is everybody's: no more than the driver says that the process holds.
            measured = min(usage.residual, reading.processes.get(self.process.pid, 0) if reading is not None else 0)
            if measured and not usage.used:
                state.context_memory = min(measured, state.context_memory or measured)
        self._conclude(request, None)

    def _conclude(self, request: Request, reason: str | None) -> None:
        self._reply(request, protocol.STATUS_OK if reason is None else protocol.STATUS_DENIED, reason=reason or "")

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a request of pid %d failed", self._peer.pid, exc_info=task.exception())
            self.close()  # the shim reconnects and asks again, instead of waiting for an answer that does not come

    def _reply(self, request: Request, status: int, *, slot: int = 0, reason: str = "", descriptor: int | None = None) -> None:
        if self._closed:
            return
        packet = protocol.pack_reply(Reply(op=request.op, id=request.id, status=status, slot=slot, reason=reason))
        ancillary = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            self._socket.sendmsg([packet], ancillary)
        except OSError:
            self.close()  # gone, or it does not read its answers


def _descriptors(ancillary: list) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)
