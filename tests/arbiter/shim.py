"""A shim in Python: the protocol's other end, and what a tenant sees of its control page."""

from __future__ import annotations

import array
import itertools
import os
import socket

from jupyter_vgpu.native import protocol
from jupyter_vgpu.native.control import SIZE, ffi
from jupyter_vgpu.native.protocol import Reply, Request

TIMEOUT = 10.0


class Shim:
    """Blocking; speaks for the process it runs in."""

    def __init__(self, path: str, token: str):
        self.path, self.token = str(path), token
        self._ids = itertools.count(1)
        self.slot = None
        self.page_descriptor = None
        self._mapping = None
        self.connect()

    def connect(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(self.path)

    def send(self, op: int, **fields) -> int:
        number = next(self._ids)
        self.socket.send(protocol.pack_request(Request(op=op, id=number, **fields)))
        return number

    def receive(self) -> Reply:
        reply, descriptors = self.receive_with_descriptors()
        for descriptor in descriptors:
            os.close(descriptor)
        return reply

    def receive_with_descriptors(self) -> tuple[Reply, list[int]]:
        data, ancillary, _, _ = self.socket.recvmsg(protocol.REPLY_SIZE + 1, socket.CMSG_SPACE(16))
        if not data:
            raise EOFError("the arbiter closed the connection")
        descriptors = array.array("i")
        for _, _, content in ancillary:
            descriptors.frombytes(content)
        return protocol.unpack_reply(data), list(descriptors)

    def ask(self, op: int, **fields) -> Reply:
        number = self.send(op, **fields)
        reply = self.receive()
        assert (reply.op, reply.id) == (op, number)
        return reply

    def attach(self) -> Reply:
        number = self.send(protocol.OP_ATTACH, token=self.token.encode())
        reply, descriptors = self.receive_with_descriptors()
        assert reply.id == number
        if reply.status == protocol.STATUS_OK:
            assert len(descriptors) == 1
            self.slot = reply.slot
            self._map(descriptors[0])
        return reply

    def attach_again(self, *, slot: int | None = None, descriptor: int | None = None) -> Reply:
        """As a shim does after an EOF: token, slot and the page's descriptor."""
        packet = protocol.pack_request(
            Request(
                op=protocol.OP_ATTACH,
                id=next(self._ids),
                flags=protocol.ATTACH_AGAIN,
                slot=self.slot if slot is None else slot,
                token=self.token.encode(),
            )
        )
        page = self.page_descriptor if descriptor is None else descriptor
        self.socket.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [page]))])
        return self.receive()

    def _map(self, descriptor: int) -> None:
        import mmap

        self.close_page()
        self.page_descriptor = descriptor
        self._mapping = mmap.mmap(descriptor, SIZE)
        self._buffer = ffi.from_buffer(self._mapping)
        self.page = ffi.cast("struct vgpu_control *", self._buffer)

    def usage(self, device: int = 0):
        return self.page.process[self.slot].device[device]

    def reserve(self, amount: int, *, device: int = 0, flags: int = 0) -> Reply:
        return self.ask(protocol.OP_RESERVE, bytes=amount, device=device, flags=flags)

    def allocate(self, amount: int, *, device: int = 0) -> Reply:
        """Reserve at the arbiter, add to the own slot, commit."""
        reply = self.reserve(amount, device=device)
        if reply.status == protocol.STATUS_OK:
            self.usage(device).used += amount
            self.send(protocol.OP_COMMIT, bytes=amount, device=device)
        return reply

    def close_page(self) -> None:
        if self._mapping is not None:
            self.page = None
            ffi.release(self._buffer)
            self._mapping.close()
            os.close(self.page_descriptor)
            self._mapping = None

    def close(self) -> None:
        self.socket.close()
        self.close_page()
