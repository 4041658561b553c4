"""The control page (control.h): one sealed memfd per tenant, as the arbiter sees it.

What a process writes into its slot is untrusted: read it through `ControlPage.usage`, and bound it by the lease before it is shown or
believed. Memory in bytes, compute in parts per million.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass

from cffi import FFI

from jupyter_vgpu.native.headers import declarations

ffi = FFI()
ffi.cdef(declarations("control.h"))
_constants = ffi.dlopen(None)

MAGIC: int = _constants.VGPU_CONTROL_MAGIC
VERSION: int = _constants.VGPU_CONTROL_VERSION
MAX_DEVICES: int = _constants.VGPU_MAX_DEVICES
MAX_PROCESSES: int = _constants.VGPU_MAX_PROCESSES
SIZE: int = ffi.sizeof("struct vgpu_control")

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_UINT32 = 0xFFFFFFFF


class InvalidPage(ValueError):
    """A presented descriptor is not the control page that it should be; the message says what is wrong with it."""


@dataclass(frozen=True)
class Identity:
    """Which memfd it is: device and inode number, which nobody can choose."""

    device: int
    inode: int


@dataclass(frozen=True)
class Usage:
    """One process on one device: bytes as written, and work submitted so far."""

    used: int
    granted: int
    residual: int
    launches: int

    @property
    def total(self) -> int:
        return self.used + self.granted + self.residual


class ControlPage:
    """A mapped control page and its descriptor. The descriptor is what tenants get by SCM_RIGHTS."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self._mapping = mmap.mmap(descriptor, SIZE)
        self._buffer = ffi.from_buffer(self._mapping)
        self.pointer = ffi.cast("struct vgpu_control *", self._buffer)

    @classmethod
    def create(cls, name: str) -> ControlPage:
        """A new, empty page in a memfd that nobody can resize. `name` is what /proc shows; it means nothing."""
        descriptor = os.memfd_create(f"vgpu-control-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, SIZE)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            page = cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        page.pointer.version = VERSION
        page.pointer.size = SIZE
        page.pointer.magic = MAGIC
        return page

    @classmethod
    def take_back(cls, descriptor: int, *, expected: Identity) -> ControlPage:
        """The page that a tenant presents after a restart of the arbiter; takes the descriptor over on success.

        `expected` is the journal's word on which memfd this tenant has: its own is the only one that is accepted, so a tenant can neither
        hand us another tenant's page nor a file that shrinks under our feet. Raises `InvalidPage`; the caller then closes the descriptor.
        """
        if identity(descriptor) != expected:
            raise InvalidPage("it is not the control page that this tenant was given")
        if os.fstat(descriptor).st_size != SIZE:
            raise InvalidPage(f"it has {os.fstat(descriptor).st_size} bytes; a control page has {SIZE}")
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError as error:
            raise InvalidPage("it is no memfd") from error
        if seals & _SEALS != _SEALS:
            raise InvalidPage("it is not sealed against resizing")
        try:
            page = cls(descriptor)
        except OSError as error:
            raise InvalidPage(f"it cannot be mapped ({error.strerror})") from error
        if page.pointer.magic != MAGIC or page.pointer.version != VERSION or page.pointer.size != SIZE:
            page.release_mapping()
            raise InvalidPage("it has another magic, version or size than this arbiter's pages")
        return page

    @property
    def identity(self) -> Identity:
        return identity(self.descriptor)

    def write_devices(self, parts: list[tuple[bytes, int, int, float, float | None]]) -> None:
        """The lease's parts in the tenant's order: (uuid's 16 bytes, memory, guarantee, share, cap or None). Raises the revision."""
        for index, (uuid, memory, guarantee, share, cap) in enumerate(parts):
            device = self.pointer.device[index]
            ffi.memmove(device.uuid, uuid, 16)
            device.memory_limit = memory
            device.memory_guarantee = guarantee
            device.compute_share = round(share * 1_000_000)
            device.compute_cap = 0 if cap is None else round(cap * 1_000_000)
        self.pointer.device_count = len(parts)
        self.pointer.revision = (self.pointer.revision + 1) & _UINT32

    def occupy(self, slot: int, pid: int) -> None:
        """Hands a free slot to a process, empty."""
        process = self.pointer.process[slot]
        ffi.memmove(process.device, bytes(ffi.sizeof(process.device)), ffi.sizeof(process.device))
        process.generation = (process.generation + 1) & _UINT32
        self.pointer.process_high_water = max(min(self.pointer.process_high_water, MAX_PROCESSES), slot + 1)
        process.pid = pid

    def claim(self, slot: int, pid: int) -> None:
        """Confirms, on a page that was taken back, that the slot is this process's: what it holds stays, grants in flight do not."""
        process = self.pointer.process[slot]
        for usage in process.device:
            usage.granted = 0
        self.pointer.process_high_water = max(min(self.pointer.process_high_water, MAX_PROCESSES), slot + 1)
        process.pid = pid

    def vacate(self, slot: int) -> None:
        """Frees a slot; the native thread does the same when its process dies."""
        process = self.pointer.process[slot]
        ffi.memmove(process.device, bytes(ffi.sizeof(process.device)), ffi.sizeof(process.device))
        process.pid = 0

    def usage(self, slot: int, device: int) -> Usage:
        usage = self.pointer.process[slot].device[device]
        granted = usage.granted  # before `used`: a grant moves from here to there, and must be seen at least once
        return Usage(used=usage.used, granted=granted, residual=usage.residual, launches=usage.launches)

    def set_granted(self, slot: int, device: int, value: int) -> None:
        self.pointer.process[slot].device[device].granted = value

    def set_residual(self, slot: int, device: int, value: int) -> None:
        self.pointer.process[slot].device[device].residual = value

    def cancel_waits(self) -> None:
        self.pointer.cancel = (self.pointer.cancel + 1) & _UINT32

    def release_mapping(self) -> None:
        """Unmaps. The native thread must watch no slot of this page any more."""
        self.pointer = ffi.NULL
        ffi.release(self._buffer)
        self._mapping.close()

    def close(self) -> None:
        self.release_mapping()
        os.close(self.descriptor)


def identity(descriptor: int) -> Identity:
    status = os.fstat(descriptor)
    return Identity(device=status.st_dev, inode=status.st_ino)
