"""Packing and unpacking of protocol.h's packets. Used by the arbiter's shim socket, and by tests that stand for a shim."""

from __future__ import annotations

from dataclasses import dataclass

from cffi import FFI

from jupyter_vgpu.native.headers import declarations

_ffi = FFI()
_ffi.cdef(declarations("protocol.h"))
_constants = _ffi.dlopen(None)

MAGIC: int = _constants.VGPU_PROTOCOL_MAGIC
TOKEN_LENGTH: int = _constants.VGPU_TOKEN_LENGTH
REASON_LENGTH: int = _constants.VGPU_REASON_LENGTH
OP_ATTACH: int = _constants.VGPU_OP_ATTACH
OP_ADMIT: int = _constants.VGPU_OP_ADMIT
OP_RESERVE: int = _constants.VGPU_OP_RESERVE
OP_COMMIT: int = _constants.VGPU_OP_COMMIT
OP_MEASURE: int = _constants.VGPU_OP_MEASURE
ATTACH_AGAIN: int = _constants.VGPU_ATTACH_AGAIN
RESERVE_DRIVER_SHORT: int = _constants.VGPU_RESERVE_DRIVER_SHORT
STATUS_OK: int = _constants.VGPU_STATUS_OK
STATUS_DENIED: int = _constants.VGPU_STATUS_DENIED
STATUS_UNKNOWN_TENANT: int = _constants.VGPU_STATUS_UNKNOWN_TENANT
STATUS_BAD_REQUEST: int = _constants.VGPU_STATUS_BAD_REQUEST
STATUS_FULL: int = _constants.VGPU_STATUS_FULL
REQUEST_SIZE: int = _ffi.sizeof("struct vgpu_request")
REPLY_SIZE: int = _ffi.sizeof("struct vgpu_reply")


class MalformedPacket(ValueError):
    """Not a packet of this protocol: wrong size or wrong magic."""


@dataclass(frozen=True)
class Request:
    """What a shim asks. `bytes` are bytes; `token` is the tenant's, in ASCII, only with ATTACH."""

    op: int
    id: int
    flags: int = 0
    device: int = 0
    slot: int = 0
    bytes: int = 0
    token: bytes = b""


@dataclass(frozen=True)
class Reply:
    """What the arbiter answers. `reason` is cut to what the packet holds, at a character's boundary."""

    op: int
    id: int
    status: int
    slot: int = 0
    reason: str = ""


def pack_request(request: Request) -> bytes:
    """Raises `OverflowError` for a number that its field cannot hold, `ValueError` for a token that is too long."""
    if len(request.token) > TOKEN_LENGTH:
        raise ValueError(f"token: {len(request.token)} bytes; at most {TOKEN_LENGTH}")
    packet = _ffi.new("struct vgpu_request *")
    packet.magic = MAGIC
    packet.op, packet.flags, packet.id = request.op, request.flags, request.id
    packet.device, packet.slot, packet.bytes = request.device, request.slot, request.bytes
    _ffi.memmove(packet.token, request.token, len(request.token))
    return bytes(_ffi.buffer(packet))


def unpack_request(data: bytes) -> Request:
    """Raises `MalformedPacket`. Whether op, flags, device and slot make sense is for the caller to decide."""
    packet = _view("struct vgpu_request", data, REQUEST_SIZE)
    token = bytes(_ffi.buffer(packet.token)).rstrip(b"\0")
    return Request(packet.op, packet.id, packet.flags, packet.device, packet.slot, packet.bytes, token)


def pack_reply(reply: Reply) -> bytes:
    packet = _ffi.new("struct vgpu_reply *")
    packet.magic = MAGIC
    packet.op, packet.status, packet.id, packet.slot = reply.op, reply.status, reply.id, reply.slot
    reason = reply.reason.encode()[: REASON_LENGTH - 1].decode(errors="ignore").encode()
    _ffi.memmove(packet.reason, reason, len(reason))
    return bytes(_ffi.buffer(packet))


def unpack_reply(data: bytes) -> Reply:
    """Raises `MalformedPacket`."""
    packet = _view("struct vgpu_reply", data, REPLY_SIZE)
    return Reply(packet.op, packet.id, packet.status, packet.slot, _ffi.string(packet.reason, REASON_LENGTH).decode(errors="replace"))


def _view(struct: str, data: bytes, size: int):
    if len(data) != size:
        raise MalformedPacket(f"{len(data)} bytes; a {struct} has {size}")
    packet = _ffi.from_buffer(f"{struct} *", data)
    if packet.magic != MAGIC:
        raise MalformedPacket(f"magic {packet.magic:#x}; it is {MAGIC:#x}")
    return packet
