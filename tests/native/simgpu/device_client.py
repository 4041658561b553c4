"""Speaks native/simgpu/common/wire.h from Python, so that the device process is tested without the client libraries.

The calls and their structs are read from the header, never repeated here.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_HEADER = (ROOT / "native" / "simgpu" / "common" / "wire.h").read_text()
_TYPES: dict[str, Any] = {
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
}
ENUMS: dict[str, dict[str, int]] = {}

# CUresult
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, ILLEGAL_ADDRESS, MISALIGNED, NOT_SUPPORTED = (
    1, 2, 201, 400, 600, 700, 716, 801
)  # fmt: skip
READ_WRITE = 3  # CUmemAccess_flags


def _constant(name: str) -> int:
    expression = re.search(rf"\b{name} = ([0-9 <]+);", _HEADER)
    assert expression, name
    left, _, right = expression[1].partition("<<")
    return int(left) << int(right or 0)


VERSION, STAGING_SIZE, MAX_DEVICES, GRANULARITY = map(_constant, ("kWireVersion", "kStagingSize", "kMaxDevices", "kGranularity"))


def _read_header() -> None:
    text = re.sub(r"//[^\n]*", "", _HEADER)
    for name, values in re.findall(r"enum class (\w+) : uint32_t \{([\w\s,]+)\}", text):
        ENUMS[name] = {value.strip(): number for number, value in enumerate(values.split(","))}
        _TYPES[name] = ctypes.c_uint32
    for match in re.finditer(r"struct (\w+) \{([^}]*)\};|using (\w+) = (\w+);", text):
        struct, body, alias, target = match.groups()
        if alias:
            _TYPES[alias] = _TYPES[target]
            continue
        fields: list[tuple[str, Any]] = []
        for kind, names in re.findall(r"(\w+) ([^;]+);", body):
            for name in names.split(","):
                bare, size = re.fullmatch(r"\s*(\w+)(?:\[(\w+)\])?\s*", name).groups()
                length = MAX_DEVICES if size == "kMaxDevices" else int(size or 0)
                fields.append((bare, _TYPES[kind] * length if size else _TYPES[kind]))
        # An empty C++ struct takes one byte.
        _TYPES[struct] = type(struct, (ctypes.Structure,), {"_fields_": fields or [("nothing", ctypes.c_uint8)]})


_read_header()
_LIST = _HEADER.split("#define VGPU_SIM_CALLS(X)")[1].split("enum")[0]
_CALLS = {name: number for number, name in enumerate(re.findall(r"\bX\((\w+)\)", _LIST))}
Rows, Access, ProcessState = (_TYPES[name] for name in ("Rows", "Access", "ProcessState"))


class CallFailed(Exception):
    """`status`: the CUresult."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call}: CUDA error {status}")
        self.status = status


class Connection:
    """One connection of this process. `program`: which program this pid runs; another number is as if one had followed another."""

    def __init__(self, path: Path, *, program: int = 1) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self.context = 0
        self.descriptor = -1
        self.payload = b""
        self.hello = self.call("Hello", version=VERSION, program=program)
        self.staging = os.dup(self.descriptor)

    def close(self) -> None:
        self._socket.close()
        os.close(self.staging)
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def call(self, name: str, payload: bytes = b"", descriptor: int = -1, **fields: Any) -> Any:
        """Sends, waits, and returns the reply's struct; its payload and descriptor are in `self`. Raises `CallFailed`."""
        self.send(name, payload, descriptor, **fields)
        return self.receive(name)

    def send(self, name: str, payload: bytes = b"", descriptor: int = -1, **fields: Any) -> None:
        request = _TYPES[f"{name}Request"]()
        for field, value in fields.items():
            target = getattr(request, field)
            if isinstance(target, ctypes.Array):
                target[:] = value
            else:
                setattr(request, field, value)
        header = _TYPES["RequestHeader"](_CALLS[name], len(payload), self.context)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))] if descriptor >= 0 else []
        data = bytes(header) + bytes(request) + payload
        self._socket.sendall(data[self._socket.sendmsg([data], rights) :])

    def receive(self, name: str) -> Any:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        size = ctypes.sizeof(_TYPES["ReplyHeader"])
        data, rights, _, _ = self._socket.recvmsg(size, socket.CMSG_SPACE(4))
        for _, _, received in rights:
            self.descriptor = array.array("i", received)[0]
        header = _TYPES["ReplyHeader"].from_buffer_copy(data + self._read(size - len(data)))
        reply_type = _TYPES[f"{name}Reply"]
        reply = reply_type.from_buffer_copy(self._read(ctypes.sizeof(reply_type)))
        self.payload = self._read(header.payload)
        if header.status:
            raise CallFailed(name, header.status)
        return reply

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError("the device process closed the connection")
            data += part
        return data

    # What most tests begin with.
    def enter(self, device: int = 0) -> int:
        """Retains the device's primary context; the calls that follow are made in it."""
        self.context = self.call("PrimaryRetain", device=device).context
        return self.context

    def allocate(self, size: int) -> int:
        return self.call("Allocate", size=size).address

    def used(self, device: int = 0) -> int:
        return self.call("DeviceState", device=device).used

    def processes(self, device: int = 0) -> dict[int, Any]:
        self.call("Processes", device=device)
        size = ctypes.sizeof(ProcessState)
        states = [ProcessState.from_buffer_copy(self.payload[at : at + size]) for at in range(0, len(self.payload), size)]
        return {state.pid: state for state in states}

    def write(self, address: int, data: bytes, stream: int = 0) -> None:
        self.call("CopyIn", data, to=Rows(address, len(data)), width=len(data), height=1, stream=stream)

    def read(self, address: int, size: int, stream: int = 0) -> bytes:
        self.call("CopyOut", **{"from": Rows(address, size)}, width=size, height=1, stream=stream)
        return self.payload

    def fill_bytes(self, address: int, size: int, value: int) -> None:
        self.call("Fill", to=Rows(address, size), width=size, height=1, value=value, element=1)

    def launch(self, kernel: str, parameters: bytes, *, threads: int = 1, stream: int = 0) -> None:
        grid = (max(1, (threads + 255) // 256), 1, 1)
        number = ENUMS["Kernel"][kernel]
        self.call("Launch", parameters, kernel=number, grid=grid, block=(256, 1, 1), stream=stream)

    def spin(self, microseconds: int, stream: int = 0) -> None:
        self.launch("kSpin", microseconds.to_bytes(4, "little"), stream=stream)

    def synchronize(self, stream: int | None = None) -> None:
        if stream is None:
            self.call("ContextSynchronize")
        else:
            self.call("StreamSynchronize", stream=stream)

    def stream(self, *, blocking: bool = True) -> int:
        return self.call("StreamCreate", flags=0 if blocking else 1).stream

    def event(self, stream: int | None = None) -> int:
        """A new event, recorded in `stream` if one is given."""
        event = self.call("EventCreate").event
        if stream is not None:
            self.call("EventRecord", event=event, stream=stream)
        return event

    def happened(self, event: int) -> bool:
        try:
            self.call("EventQuery", event=event)
        except CallFailed as error:
            if error.status != NOT_READY:
                raise
            return False
        return True

    def map_memory(self, size: int, device: int = 0) -> tuple[int, int]:
        """VMM memory, readable and writable by its device: address and handle."""
        address = self.call("Reserve", size=size).address
        handle = self.call("Create", size=size, device=device, handle_types=1).handle
        self.call("Map", address=address, size=size, handle=handle)
        self.call("SetAccess", bytes(Access(device, READ_WRITE)), address=address, size=size)
        return address, handle

    def export_memory(self, size: int) -> int:
        """A descriptor of new memory; this process keeps the memory, too."""
        handle = self.call("Create", size=size, device=0, handle_types=1).handle
        self.call("Export", handle=handle)
        return os.dup(self.descriptor)

    def import_handle(self, descriptor: int) -> int:
        return self.call("Import", descriptor=descriptor).handle

    def map_imported(self, descriptor: int, size: int) -> int:
        handle = self.import_handle(descriptor)
        os.close(descriptor)
        address = self.call("Reserve", size=size).address
        self.call("Map", address=address, size=size, handle=handle)
        self.call("SetAccess", bytes(Access(0, READ_WRITE)), address=address, size=size)
        return address

    def read_text(self, address: int, size: int) -> str:
        return self.read(address, size).decode()


def floats(*values: float) -> bytes:
    return struct.pack(f"{len(values)}f", *values)


def status_of(call, *arguments, **keywords) -> int:
    """The CUresult with which the call fails; 0 if it does not."""
    try:
        call(*arguments, **keywords)
    except CallFailed as failed:
        return failed.status
    return 0


def saxpy(gpu: Connection, a: float, x: int, y: int, count: int, stream: int = 0) -> None:
    gpu.launch("kSaxpy", struct.pack("<f4xQQI", a, x, y, count), threads=count, stream=stream)


class Child:
    """Another process with a connection of its own, which makes the calls that it is told to."""

    def __init__(self, path: Path, *, descriptors: tuple[int, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
        )
        assert self._line() == "ready"
        self.pid = self.process.pid

    def do(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Calls a method of its `Connection` with numbers and strings. Raises `CallFailed`."""
        self.process.stdin.write(json.dumps([method, arguments, keywords]) + "\n")
        self.process.stdin.flush()
        status, value = json.loads(self._line())
        if status:
            raise CallFailed(method, status)
        return value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def _line(self) -> str:
        return self.process.stdout.readline().strip()


def _child(path: Path) -> None:
    connection = Connection(path)
    print("ready", flush=True)
    for line in sys.stdin:
        method, arguments, keywords = json.loads(line)
        try:
            value = getattr(connection, method)(*arguments, **keywords)
            print(json.dumps([0, value if isinstance(value, (int, str)) else None]), flush=True)
        except CallFailed as error:
            print(json.dumps([error.status, None]), flush=True)


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
