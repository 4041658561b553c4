"""The least that the shim can take for an arbiter: protocol.h over a socket, control pages in memfds, slots freed by pidfd.

Answers in one thread, so it serialises as the real one does. Knobs are plain attributes; what was asked is in `requests`.
"""

from __future__ import annotations

import array
import mmap
import os
import re
import select
import socket
import struct
import threading
from pathlib import Path

import cffi

INCLUDE = Path(__file__).resolve().parents[3] / "native" / "include" / "vgpu"

ffi = cffi.FFI()
for _header in ("control.h", "protocol.h"):
    _text = re.sub(r"/\*.*?\*/", "", (INCLUDE / _header).read_text(), flags=re.DOTALL)
    ffi.cdef("\n".join(line for line in _text.splitlines() if not line.startswith(("#pragma", "#include"))))
C = ffi.dlopen(None)

OPS = {
    C.VGPU_OP_ATTACH: "attach",
    C.VGPU_OP_ADMIT: "admit",
    C.VGPU_OP_RESERVE: "reserve",
    C.VGPU_OP_COMMIT: "commit",
    C.VGPU_OP_MEASURE: "measure",
}
SIZE = ffi.sizeof("struct vgpu_control")


class Page:
    """A control page as the arbiter sees it."""

    def __init__(self, *, limits, uuids, fd=None):
        self.fd = os.memfd_create("vgpu-test", os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, SIZE)
        self._map = mmap.mmap(self.fd, SIZE)
        self.control = ffi.cast("struct vgpu_control *", ffi.from_buffer(self._map))
        if fd is None:
            c = self.control
            c.magic, c.version, c.size, c.device_count = C.VGPU_CONTROL_MAGIC, C.VGPU_CONTROL_VERSION, SIZE, len(limits)
            for i, (limit, uuid) in enumerate(zip(limits, uuids, strict=True)):
                c.device[i].memory_limit = limit
                c.device[i].uuid = uuid

    def used(self, part=0):
        return sum(self.slot(i, part).used for i in range(self.control.process_high_water) if self.control.process[i].pid)

    def bytes(self, part=0):
        live = (self.slot(i, part) for i in range(self.control.process_high_water) if self.control.process[i].pid)
        return sum(u.granted + u.used + u.residual for u in live)

    def slot(self, index, part=0):
        return self.control.process[index].device[part]


class FakeArbiter:
    def __init__(self, directory: Path, *, limits=(1 << 30,), uuids=None, token="secret"):
        self.path = str(directory / "s")
        self.token = token
        self.page = Page(limits=limits, uuids=uuids or [bytes([i + 1]) * 16 for i in range(len(limits))])
        self.requests: list[tuple] = []
        self.residual = 0  # what MEASURE finds
        self.refuse = None  # status of ATTACH instead of OK
        self.admit = "ok"  # or "deny", or "hold"
        self.reserve = "fits"  # or "always", or "hold"
        self.on_request = None  # called with (op, request) before the answer
        self._lock = threading.Lock()
        self._wake = os.eventfd(0)
        self._thread = None
        self._clients: dict[int, tuple[socket.socket, int]] = {}
        self._pidfds: dict[int, int] = {}
        self.start()

    # -- life

    def start(self):
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        """As an arbiter that dies: sockets close, the page stays with the tenants."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._listener.close()
        os.unlink(self.path)
        for connection, _ in self._clients.values():
            connection.close()
        self._clients.clear()

    def close(self):
        self.stop()
        for fd in self._pidfds:
            os.close(fd)
        os.close(self._wake)
        os.close(self.page.fd)

    def interrupt(self):
        self.page.control.cancel += 1

    def asked(self, op):
        with self._lock:
            return [r for r in self.requests if r[0] == op]

    # -- the loop

    def _run(self):
        while True:
            watched = [self._listener, self._wake, *(c for c, _ in self._clients.values()), *self._pidfds]
            readable, _, _ = select.select(watched, [], [])
            for item in readable:
                if item is self._wake or item == self._wake:
                    os.eventfd_read(self._wake)
                    if self._stopping:
                        return
                elif item is self._listener:
                    connection, _ = self._listener.accept()
                    self._clients[connection.fileno()] = (connection, -1)
                elif isinstance(item, int):
                    self._free(item)
                else:
                    self._read(item)

    def _free(self, pidfd):
        slot = self._pidfds.pop(pidfd)
        os.close(pidfd)
        process = self.page.control.process[slot]
        process.pid = 0
        ffi.memmove(process.device, bytes(ffi.sizeof(process.device)), ffi.sizeof(process.device))

    def _read(self, connection):
        try:
            data, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(16))
        except ConnectionResetError:
            data, ancillary = b"", []  # killed with an answer of ours unread: an end like any other
        key = connection.fileno()
        if not data:
            self._clients.pop(key, None)
            connection.close()
            return
        fds = array.array("i")
        for _, _, payload in ancillary:
            fds.frombytes(payload)
        request = ffi.new("struct vgpu_request *")
        ffi.memmove(request, data, len(data))
        assert len(data) == ffi.sizeof("struct vgpu_request") and request.magic == C.VGPU_PROTOCOL_MAGIC
        op = OPS[request.op]
        with self._lock:
            self.requests.append((op, request.device, request.bytes, request.flags, request.slot, list(fds)))
        if self.on_request:
            self.on_request(op, request)
        if op == "attach":
            self._attach(connection, request, fds)
        else:
            slot = self._clients[key][1]
            if self._peer(connection) == self.page.control.process[slot].pid:  # else the last words of a process that is dead
                getattr(self, f"_{op}")(connection, request, slot)
        for fd in fds:
            os.close(fd)

    def _reply(self, connection, request, status, *, slot=0, reason=b"", fds=()):
        reply = ffi.new("struct vgpu_reply *")
        reply.magic, reply.op, reply.status, reply.id, reply.slot = C.VGPU_PROTOCOL_MAGIC, request.op, status, request.id, slot
        reply.reason = reason
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            connection.sendmsg([bytes(ffi.buffer(reply))], ancillary)
        except OSError:
            pass  # the tenant died in between; its pidfd says so

    def _peer(self, connection):
        return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def _attach(self, connection, request, fds):
        token = ffi.string(ffi.cast("char *", request.token), 64).decode()
        if self.refuse is not None or token != self.token:
            self._reply(connection, request, self.refuse or C.VGPU_STATUS_UNKNOWN_TENANT, reason=b"no such tenant")
            return
        pid = self._peer(connection)
        control = self.page.control
        if request.flags & C.VGPU_ATTACH_AGAIN:
            assert fds and os.fstat(fds[0]).st_ino == os.fstat(self.page.fd).st_ino
            slot = request.slot
            for part in range(control.device_count):
                self.page.slot(slot, part).granted = 0
        else:
            slot = next(i for i in range(C.VGPU_MAX_PROCESSES) if control.process[i].pid == 0)
            control.process[slot].generation += 1
            control.process[slot].pid = pid
            control.process_high_water = max(control.process_high_water, slot + 1)
        if slot not in self._pidfds.values():
            self._pidfds[os.pidfd_open(pid)] = slot
        self._clients[connection.fileno()] = (connection, slot)
        self._reply(connection, request, C.VGPU_STATUS_OK, slot=slot, fds=() if fds else (self.page.fd,))

    def _admit(self, connection, request, slot):
        if self.admit != "hold":
            self._reply(connection, request, C.VGPU_STATUS_OK if self.admit == "ok" else C.VGPU_STATUS_DENIED, reason=b"queue_timeout")

    def _reserve(self, connection, request, slot):
        if self.reserve == "hold":
            return
        limit = self.page.control.device[request.device].memory_limit
        usage = self.page.slot(slot, request.device)
        # Add first and sum afterwards, as processes do: to look and then add would let a process in between.
        usage.granted += min(request.bytes, limit)
        if (request.bytes <= limit and self.page.bytes(request.device) <= limit) or self.reserve == "always":
            usage.granted += request.bytes - min(request.bytes, limit)
            self._reply(connection, request, C.VGPU_STATUS_OK)
        else:
            usage.granted -= min(request.bytes, limit)
            self._reply(connection, request, C.VGPU_STATUS_DENIED, reason=b"over the limit")

    def _commit(self, connection, request, slot):
        self.page.slot(slot, request.device).granted -= request.bytes

    def _measure(self, connection, request, slot):
        self.page.slot(slot, request.device).residual = self.residual
        self._reply(connection, request, C.VGPU_STATUS_OK)
